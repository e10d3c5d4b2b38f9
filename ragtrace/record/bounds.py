"""What the environment forbids to record: other instrumentations' variables, honoured as upper bounds.

``OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT`` where it says that no content goes into spans, and the
``OPENINFERENCE_HIDE_…`` for what each hides there. They take away, and never add.
"""

from __future__ import annotations

import os
from typing import Final, Literal

Side = Literal["inputs", "outputs", "documents"]
"""Texts that can be hidden by themselves: questions and prompts, answers, retrieved documents."""

CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_INTO_SPANS = ("true", "1", "span_only", "span_and_event")
_HIDE = "OPENINFERENCE_HIDE_"
_SIDES: dict[str, tuple[Side, ...]] = {
    "INPUTS": ("inputs",),
    "INPUT_MESSAGES": ("inputs",),
    "INPUT_TEXT": ("inputs",),
    "PROMPTS": ("inputs",),
    "OUTPUTS": ("outputs", "documents"),
    "OUTPUT_MESSAGES": ("outputs",),
    "OUTPUT_TEXT": ("outputs",),
    "CHOICES": ("outputs",),
    "RETRIEVAL_DOCUMENTS": ("documents",),
}


def no_content() -> bool:
    """Whether no message content may be in spans. Not set is no answer; what is none of its values means no."""
    said = os.environ.get(CONTENT, "").strip().lower()
    return bool(said) and said not in _INTO_SPANS


def hidden() -> dict[Side, str]:
    """The sides whose texts OpenInference's variables hide, each with the variable that does."""
    found: dict[Side, str] = {}
    for name, sides in _SIDES.items():
        if os.environ.get(_HIDE + name, "").strip().lower() in ("true", "1", "yes", "on"):
            found |= dict.fromkeys(sides, _HIDE + name)
    return found
