"""One file a corpus: each exposes ``CORPUS``; third parties use the entry point group ``ragtrace.corpora``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragtrace.plugins import scan

if TYPE_CHECKING:
    from ragtrace.corpora.base import CorpusSource


def load() -> dict[str, CorpusSource]:
    """Everything found, by name."""
    return scan(__name__, "CORPUS", "ragtrace.corpora")
