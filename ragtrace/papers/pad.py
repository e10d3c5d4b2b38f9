"""PAD as Mind the Hook describes it: an artefact under audit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ragtrace.defense import Defense
from ragtrace.defenses.regex_mask import PATTERNS

if TYPE_CHECKING:
    from ragtrace.types import Document

_MASKED = {label: re.compile(PATTERNS[label]) for label in ("EMAIL", "ID")}


class PAD(Defense):
    """PAD of Mind the Hook (arXiv 2608.09001, Table I): e-mail addresses and identifiers masked in the response.

    It acts on a match only, and on nothing else: neither on what was retrieved nor on names or telephone numbers. It is
    no Privacy-Aware Decoding (arXiv 2508.03098). In an app use :class:`~ragtrace.defenses.RegexMask`, which knows more.
    """

    name = "pad"

    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        """Masks what the patterns match."""
        for label, pattern in _MASKED.items():
            response = pattern.sub(f"[{label}]", response)
        return response

    def constants(self) -> frozenset[str]:
        """The masks."""
        return frozenset(f"[{label}]" for label in _MASKED)
