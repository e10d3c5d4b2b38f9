"""Masks what regular expressions recognise."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from ragtrace.defense import Defense
from ragtrace.errors import UsageError
from ragtrace.types import HOOKS, Document, Hook

# a match begins where no character of its own class stands before it, so that long runs are read once
_EMAIL = r"(?<![\w.+%-])[\w.+%-]+@(?:[\w-]+\.)+[\w-]{2,}"
_PHONE = (
    r"(?<![\w+-])(?:"
    r"\+\d{1,3}(?:[ ./-]?\(?\d{1,5}\)?){2,6}"  # international
    r"|(?:1[ .-])?\(?\d{3}\)?[ .-]{0,2}\d{3}[ .-]\d{4}"  # North America
    r"|(?=\(?0(?:[ ()/-]{0,2}\d){8})\(?0\d{1,4}\)?(?:[ /-]{1,2}\d{2,8}){1,4}"  # with a trunk 0, nine digits up
    r"|\d{3}-\d{4}"  # local
    r")(?!\w)"
)
_ID = (
    r"(?<!\w)(?:"
    r"\d{3}-\d{2}-\d{4}|\d{4}(?:[ -]\d{4}){3}|\d{7,}+"  # social security, card, plain number
    r"|[A-Z]{2,12}[A-Z_#/-]{0,3}\d{3}[A-Z0-9]*+(?:-[A-Z0-9]++){0,4}"  # EMP-10293, ABC-00012345
    r")(?!\w)"
)
PATTERNS: Mapping[str, str] = {"EMAIL": _EMAIL, "PHONE": _PHONE, "ID": _ID}
"""Label → pattern, applied in this order."""


class RegexMask(Defense):
    """Replaces e-mail addresses, telephone numbers and identifiers by ``[EMAIL]``, ``[PHONE]`` and ``[ID]``.

    *Guaranteed*: what the patterns match in a text is replaced, one pattern after the other. *Not guaranteed*: anything
    they do not describe, above all names of persons, and an address written otherwise ("jo at mail dot com",
    or a letter a line). Acting on the response alone, it leaves prompt and model logs as they were.

    It is the regex masker called **PAD** in Mind the Hook (arXiv 2608.09001, Table I: generation hook, on a match
    only), not the Privacy-Aware Decoding of arXiv 2508.03098 with the same acronym, which adds noise to logits.

    :param hooks: where it acts: ``"response"`` (default), ``"content"``, or both.
    :param patterns: label → regular expression, in place of :data:`PATTERNS`; the label in brackets is the mask.
    :raises UsageError: for another hook, no hook, or a pattern that is invalid or matches the empty text.
    """

    name = "regex_mask"

    def __init__(self, hooks: Collection[str] = ("response",), patterns: Mapping[str, str] | None = None) -> None:
        wanted = (hooks,) if isinstance(hooks, str) else tuple(hooks)
        if not wanted or not set(wanted) <= {"content", "response"}:
            raise UsageError(f"RegexMask(hooks={hooks!r}); expected 'content', 'response', or both")
        self._hooks: tuple[Hook, ...] = tuple(h for h in HOOKS if h in wanted)
        self._patterns = {
            f"[{label}]": _compiled(label, p) for label, p in (PATTERNS if patterns is None else patterns).items()
        }
        if not self._patterns:
            raise UsageError("RegexMask(patterns={}) masks nothing; expected at least one label and pattern")

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """The hooks chosen at construction."""
        return self._hooks

    def on_content(self, query: str, documents: list[Document]) -> list[Document]:
        """Masks the text of each document; metadata is left alone."""
        return [replace(d, content=self._mask(d.content)) for d in documents]

    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        """Masks the generated text."""
        return self._mask(response)

    def constants(self) -> frozenset[str]:
        """The masks."""
        return frozenset(self._patterns)

    def _mask(self, text: str) -> str:
        for mask, pattern in self._patterns.items():
            text = pattern.sub(mask.replace("\\", r"\\"), text)
        return text


def _compiled(label: str, pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except (re.error, TypeError) as error:
        raise UsageError(
            f"RegexMask pattern {label!r} is {pattern!r}: {error}; expected a regular expression of Python's re"
        ) from error
    if compiled.match("") is not None:
        raise UsageError(
            f"RegexMask pattern {label!r} ({pattern!r}) matches the empty text, which would put a mask between any "
            "two letters; make it match at least one character"
        )
    return compiled


DEFENSE = RegexMask
