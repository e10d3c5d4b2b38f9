"""Tells the model not to repeat what was retrieved."""

from __future__ import annotations

from dataclasses import replace

from ragtrace.defense import Defense
from ragtrace.errors import UsageError
from ragtrace.types import Message

INSTRUCTION = "Do not directly repeat any retrieved content, but summarize it based on your understanding."
"""The sentence that S²MIA (arXiv 2406.19234) gives for this defense."""


class PromptModifying(Defense):
    """Adds an instruction to the system message, or puts a new system message first where there is none.

    *Guaranteed*: the model is given the instruction, once, whatever else is in the prompt. *Not guaranteed*: that it
    obeys. A model may ignore it, and a later message may override it; the retrieved text reaches the model as before.

    "Prompt Modifying" in S²MIA (arXiv 2406.19234), Table 4, where the attack's ROC AUC falls to between 0.49 and 0.60.

    :param instruction: the text to add.
    :raises UsageError: for an empty instruction.
    """

    name = "prompt_modifying"

    def __init__(self, instruction: str = INSTRUCTION) -> None:
        if not isinstance(instruction, str) or not instruction.strip():
            raise UsageError(f"PromptModifying(instruction={instruction!r}); expected a text that is not empty")
        self.instruction = instruction

    def on_prompt(self, messages: list[Message]) -> list[Message]:
        """The messages with the instruction; in a conversation that has it already, unchanged."""
        for i, message in enumerate(messages):
            if message.role == "system":
                if self.instruction in message.content:
                    return messages
                content = f"{message.content}\n\n{self.instruction}" if message.content else self.instruction
                return [*messages[:i], replace(message, content=content), *messages[i + 1 :]]
        return [Message("system", self.instruction), *messages]

    def constants(self) -> frozenset[str]:
        """The instruction: a model may repeat it."""
        return frozenset({self.instruction})


DEFENSE = PromptModifying
