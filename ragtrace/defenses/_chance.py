"""Where the defenses' randomness comes from, and the numbers that govern it."""

from __future__ import annotations

import math
import random

from ragtrace.errors import UsageError


def check_seed(seed: int | None) -> int | None:
    """``seed``, if it is one.

    :raises UsageError: for anything but an int or ``None``.
    """
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise UsageError(f"seed={seed!r}; expected an int for a reproducible audit, or None for fresh randomness")
    return seed


def positive(name: str, value: float) -> float:
    """``value`` as a float, if it is a finite number above 0.

    :raises UsageError: for anything else.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise UsageError(f"{name}={value!r}; expected a finite number > 0")
    return float(value)


def source(seed: int | None, query: str) -> random.Random:
    """A generator of its own for one call, so that threads share no state.

    Without a seed it draws from the operating system; with one it depends on (seed, query) alone, so that a
    repeated audit sees the same, in whatever order its queries run.
    """
    if seed is None:
        return random.SystemRandom()
    # bytes, as a str seed with a lone surrogate would raise; Random hashes them with SHA-512
    return random.Random(f"{seed}\0{query}".encode("utf-8", "surrogatepass"))  # noqa: S311 (seeded on purpose)
