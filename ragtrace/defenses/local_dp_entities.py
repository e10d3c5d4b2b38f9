"""Perturbs recognised entities under local differential privacy."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from random import Random
from secrets import randbits

from ragtrace.defense import Defense
from ragtrace.defenses._chance import check_seed, positive, source
from ragtrace.defenses._mechanisms import piecewise, randomised_response
from ragtrace.errors import UsageError
from ragtrace.types import HOOKS, Document, Entity, Hook, OnError

_FIRST = "Anna Carlos Daniela Erik Fatima Grace Hugo Ines Jonas Kamala Lars Mei Nadia Oscar Priya Tomas".split()
_LAST = (
    "Almeida Bauer Castillo Dubois Eriksen Fischer Garcia Haddad Ivanov Jensen Kim Larsen Moreau Novak Okafor Patel"
).split()
LEXICONS: Mapping[str, tuple[str, ...]] = {
    "PERSON_NAME": tuple(f"{first} {last}" for first in _FIRST for last in _LAST),
    "EMAIL_REAL": tuple(f"{first}.{last}@example.org".lower() for first in _FIRST for last in _LAST),
    "PHONE": tuple(f"(202) 555-01{n:02}" for n in range(100)),  # kept for fiction
    "IDENTIFIER": tuple(f"REF-{n:06}" for n in range(100_003, 1_000_003, 9_000)),
}
"""Entity type of ``ragtrace.ner`` → every value that may stand for one."""
_FIGURES = re.compile(r"\d[\d,]*(?:\.\d+)?")


class LocalDPEntities(Defense):
    """Writes for each recognised entity one of a stated lexicon, the true one's place in it being likelier.

    A value is first brought into its type's lexicon: itself if it is there, else the entry that a digest says.
    Generalised randomised response then keeps that entry with probability e^ε₁ ÷ (e^ε₁ + d - 1), d the lexicon's size,
    or takes another. A number is clipped to ``numbers`` and goes through the piecewise mechanism. ε is split alike over
    the n distinct entities of a text: ε₁ = ε ÷ n. An entity that comes twice in a text is written alike.

    *Guaranteed*: for two texts that differ in nothing but the values of their recognised entities (of the types chosen,
    n alike, equal ones at the same places), any output is at most e^ε times as likely for one as for the other. A text
    is always perturbed in the same way (its noise is a keyed digest of it, with a key that never leaves), so seeing it
    again tells nothing more, as far as SHA-512 is a good source of chance.

    *Not guaranteed*: entities that ``ragtrace.ner`` does not recognise, types not chosen, how many there are and where,
    how a number is written (decimals, currency), anything else in the text, and one person's values over several
    documents: those are several texts, each at its own ε. Small lexicons make the output realistic, not true; with
    the defaults and ε₁ = 1 the true entry stays in 1 case of 95. A person's name that is drawn by chance is one that a
    scorer counts as a name: compare it with the documents, or use canaries.

    Source: LPRAG, He et al., Information Processing & Management 62(4), 2025; randomised response, Kairouz, Bonawitz &
    Ramage (arXiv 1602.07387); piecewise mechanism, Wang et al. (arXiv 1907.00782), algorithm 2. Mind the Hook (arXiv
    2608.09001) audits a simplification without local DP: :class:`~ragtrace.defenses.EntitySubstitution`.

    A failing hook withholds its text (``on_error = "block"``).

    :param epsilon: of one text, > 0.
    :param hooks: ``"content"`` (default), ``"response"``, or both. The response to perturbed content holds perturbed
        values already; perturbing it again breaks the link between documents and answer.
    :param lexicons: type → values, at least two of each, in place of :data:`LEXICONS`; other types are left alone.
    :param numbers: (low, high) of the numbers to perturb, with low < high; ``None`` (default): numbers are left alone.
    :param seed: makes the noise a function of (seed, text), for audits; whoever knows it can undo the noise.
    :raises UsageError: for a value outside these ranges.
    """

    name = "local_dp_entities"
    on_error: OnError = "block"

    def __init__(
        self,
        epsilon: float = 4.0,
        hooks: Collection[str] = ("content",),
        lexicons: Mapping[str, Sequence[str]] | None = None,
        numbers: tuple[float, float] | None = None,
        seed: int | None = None,
    ) -> None:
        self.epsilon = positive("epsilon", epsilon)
        wanted = (hooks,) if isinstance(hooks, str) else tuple(hooks)
        if not wanted or not set(wanted) <= {"content", "response"}:
            raise UsageError(f"LocalDPEntities(hooks={hooks!r}); expected 'content', 'response', or both")
        self._hooks: tuple[Hook, ...] = tuple(h for h in HOOKS if h in wanted)
        self._lexicons = {kind: _lexicon(kind, of) for kind, of in (LEXICONS if lexicons is None else lexicons).items()}
        self._numbers = None if numbers is None else _range(numbers)
        if not self._lexicons and self._numbers is None:
            raise UsageError("LocalDPEntities(lexicons={}) perturbs nothing; expected at least one type, or numbers")
        self.seed = check_seed(seed)
        self._key = randbits(128) if seed is None else seed

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """The hooks chosen at construction."""
        return self._hooks

    def on_content(self, query: str, documents: list[Document]) -> list[Document]:
        """Perturbs the text of each document; metadata is left alone."""
        return [replace(d, content=self._perturbed(d.content)) for d in documents]

    def on_response(self, query: str, documents: list[Document], response: str) -> str:
        """Perturbs the generated text."""
        return self._perturbed(response)

    def constants(self) -> frozenset[str]:
        """All values of the lexicons."""
        return frozenset(value for lexicon in self._lexicons.values() for value in lexicon)

    def _perturbed(self, text: str) -> str:
        from ragtrace.ner import entities  # its lexicons are read when the first text comes

        found = [(e, key) for e in entities(text) if (key := self._key_of(e)) is not None]
        if not found:
            return text
        chance, epsilon = source(self._key, text), self.epsilon / len({key for _, key in found})
        written: dict[tuple[str, str], str] = {}
        parts: list[str] = []
        end = 0
        for entity, key in found:
            if key not in written:
                written[key] = self._drawn(entity, key[1], epsilon, chance)
            parts += text[end : entity.start], written[key]
            end = entity.end
        return "".join([*parts, text[end:]])

    def _key_of(self, entity: Entity) -> tuple[str, str] | None:
        """What makes two entities one; ``None`` for one that is left alone."""
        if entity.type in self._lexicons:
            return entity.type, " ".join(entity.text.casefold().split())
        if entity.type == "NUMBER" and self._numbers is not None and _FIGURES.search(entity.text):
            return entity.type, entity.text
        return None

    def _drawn(self, entity: Entity, value: str, epsilon: float, chance: Random) -> str:
        if entity.type not in self._lexicons:
            return self._number(entity.text, epsilon, chance)
        lexicon = self._lexicons[entity.type]
        place = lexicon.get(value, -1) if (exact := lexicon.get(entity.text)) is None else exact
        if place < 0:
            place = int.from_bytes(sha256(value.encode("utf-8", "surrogatepass")).digest()[:8], "big") % len(lexicon)
        return tuple(lexicon)[randomised_response(place, len(lexicon), epsilon, chance)]

    def _number(self, text: str, epsilon: float, chance: Random) -> str:
        low, high = self._numbers or (0.0, 1.0)
        hit = _FIGURES.search(text)
        figures = hit[0] if hit else "0"
        value = min(max(float(figures.replace(",", "")), low), high)
        noisy = piecewise(2 * (value - low) / (high - low) - 1, epsilon, chance)
        decimals = len(figures.partition(".")[2])
        said = f"{low + (noisy + 1) / 2 * (high - low):{',' if ',' in figures else ''}.{decimals}f}"
        return text.replace(figures, said, 1)


def _lexicon(kind: str, values: Sequence[str]) -> dict[str, int]:
    from ragtrace.ner import TYPES

    if kind not in TYPES:
        raise UsageError(f"lexicons has the type {kind!r}; expected some of {', '.join(TYPES)}")
    lexicon = dict.fromkeys(() if isinstance(values, str) else values)
    if len(lexicon) < 2 or not all(isinstance(v, str) and v for v in lexicon):
        raise UsageError(f"lexicons[{kind!r}] has {len(lexicon)} values; expected at least two different texts")
    return {value: place for place, value in enumerate(lexicon)}


def _range(numbers: tuple[float, float]) -> tuple[float, float]:
    try:
        low, high = (float(n) for n in numbers)
    except (TypeError, ValueError) as error:
        raise UsageError(f"numbers={numbers!r}; expected (low, high)") from error
    if not -1e300 < low < high < 1e300:
        raise UsageError(f"numbers={numbers!r}; expected finite numbers, low < high")
    return low, high


DEFENSE = LocalDPEntities
