"""Replaces recognised e-mail addresses and names of persons by fixed substitutes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from hashlib import sha256

from ragtrace.defense import Defense
from ragtrace.errors import UsageError
from ragtrace.types import Document

NAMES = (
    "John Doe", "Jane Doe", "Richard Roe", "Jane Roe", "Joe Bloggs", "Fred Bloggs", "Max Mustermann",
    "Erika Mustermann", "Juan Nadie", "Tommy Atkins", "Mary Doe", "Joe Sixpack",
)  # fmt: skip
MAILS = tuple(f"contact{n:02}@example.com" for n in range(32))
SUBSTITUTES = {"EMAIL_REAL": MAILS, "PERSON_NAME": NAMES, "PERSON_NAME_AMBIGUOUS": NAMES}
"""Entity type of ``ragtrace.ner`` → what may stand for it."""


class EntitySubstitution(Defense):
    """Writes a conventional name or a reserved address in place of each recognised name or e-mail address.

    It acts on the retrieved content, before the model sees it, and again on the response. An entity has the same
    substitute everywhere (chosen by a digest of its text, in lower case and with single spaces), so that a reader can
    still follow who does what; two entities may share one, so the substitution cannot be inverted.

    *Guaranteed*: every entity that ``ragtrace.ner.entities`` recognises in a text, and whose type is in ``types``, is
    replaced in it. *Not guaranteed*: names outside the recogniser's lexicons (it finds them after a known first name
    or a title only), telephone numbers, identifiers, or any differential privacy.

    It is the simplification that Mind the Hook (arXiv 2608.09001, Table I: content and generation) audits as **LPRAG**.
    LPRAG itself (He et al., IPM 62(4) 2025) perturbs entities under local differential privacy; this does not.
    NEL strict leaves conventional names out, so its person count under this defense falls by definition: only a
    canary can say whether names are protected (ibid., §VI).

    :param types: the entity types to replace, some of :data:`SUBSTITUTES`.
    :raises UsageError: for another type, or none.
    """

    name = "entity_substitution"

    def __init__(self, types: Collection[str] = ("EMAIL_REAL", "PERSON_NAME")) -> None:
        wanted = {types} if isinstance(types, str) else set(types)
        if not wanted or not wanted <= SUBSTITUTES.keys():
            raise UsageError(f"EntitySubstitution(types={types!r}); expected some of {', '.join(SUBSTITUTES)}")
        self._types = frozenset(wanted)

    def on_content(self, query: str, documents: list[Document]) -> list[Document]:
        """Substitutes in the text of each document; metadata is left alone."""
        return [replace(d, content=self._substitute(d.content)) for d in documents]

    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        """Substitutes in the generated text."""
        return self._substitute(response)

    def constants(self) -> frozenset[str]:
        """All substitutes of the chosen types."""
        return frozenset(s for kind in self._types for s in SUBSTITUTES[kind])

    def _substitute(self, text: str) -> str:
        from ragtrace.ner import entities  # its lexicons are read when the first text comes

        parts: list[str] = []
        end = 0
        for entity in entities(text):
            if entity.type in self._types and entity.text not in NAMES:
                parts += text[end : entity.start], _substitute(entity.type, entity.text)
                end = entity.end
        return "".join([*parts, text[end:]])


def _substitute(kind: str, text: str) -> str:
    key = " ".join(text.casefold().split()).encode("utf-8", "surrogatepass")
    choices = SUBSTITUTES[kind]
    return choices[int.from_bytes(sha256(key).digest()[:8]) % len(choices)]


DEFENSE = EntitySubstitution
