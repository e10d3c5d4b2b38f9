"""What is said when the packages of the ``demo`` extra are not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ragtrace.errors import UsageError


@contextmanager
def demo_extra() -> Iterator[None]:
    """Turns a missing package into a :class:`UsageError` that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the embedded stack needs the package {error.name!r}, which is not installed; "
            'install it with: pip install "ragtrace-audit[demo]"'
        ) from error
