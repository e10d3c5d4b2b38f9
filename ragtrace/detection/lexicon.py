"""The words of ``lexicon.toml``, looked for in a query. What a word list cannot tell is said in ``signals/``."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from functools import cache
from importlib.resources import files
from typing import NamedTuple

LIMIT = 20_000
"""Characters that are read of a query, from its start."""
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")  # scripts whose words have no blank beside them
_SENTENCE = re.compile(r"[.!?;\n\u3002\uff01\uff1f\uff1b]+")


class Rule(NamedTuple):
    """Holds where a sentence has words of all these classes and none of the others, and the query words of those of
    ``anywhere``."""

    of: str
    all: tuple[str, ...]
    unless: tuple[str, ...]
    anywhere: tuple[str, ...]
    whole_query: bool
    strength: float
    says: str


class Lexicon(NamedTuple):
    """Classes of words, and what it means when they meet."""

    classes: dict[str, re.Pattern[str]]
    rules: tuple[Rule, ...]

    def strongest(self, query: str, of: str) -> tuple[float, str]:
        """The strength of the strongest rule that holds, in [0, 1], and what it says; 0 and nothing where none does."""
        text = folded(query)
        pieces = [self._classes(piece) for piece in _SENTENCE.split(text)]
        together = set().union(*pieces)
        best = 0.0, ""
        for rule in self.rules:
            if rule.of != of or rule.strength <= best[0] or not together.issuperset(rule.all + rule.anywhere):
                continue
            met = [together] if rule.whole_query else pieces
            if any(found.issuperset(rule.all) and found.isdisjoint(rule.unless) for found in met):
                best = rule.strength, rule.says
        return best

    def has(self, name: str, text: str) -> bool:
        """Whether a text has words of a class."""
        return bool(self.classes[name].search(folded(text)))

    def _classes(self, text: str) -> set[str]:
        return {name for name, pattern in self.classes.items() if pattern.search(text)}


def folded(text: str) -> str:
    """Lower case, compatible characters made one (full width, ligatures), invisible ones left out."""
    text = unicodedata.normalize("NFKC", text[:LIMIT])
    if not text.isascii():
        text = "".join(c for c in text if unicodedata.category(c) != "Cf")
    return text.lower()


@cache
def load() -> Lexicon:
    """The lexicon that is shipped."""
    told = tomllib.loads((files(__package__) / "lexicon.toml").read_text("utf-8"))
    rules = tuple(
        Rule(
            rule.get("of", "instructions"), tuple(rule["all"]), tuple(rule.get("unless", ())),
            tuple(rule.get("anywhere", ())), rule.get("within") == "query", float(rule["strength"]), rule["says"],
        )
        for rule in told["rules"]
    )  # fmt: skip
    return Lexicon({name: pattern(entries) for name, entries in told["classes"].items()}, rules)


def pattern(entries: list[str]) -> re.Pattern[str]:
    """What finds any of the entries in a folded text."""
    apart, inside = [], []
    for entry in dict.fromkeys(folded(entry) for entry in entries):
        if _UNSPACED.search(entry):
            inside.append(re.escape(entry).replace(r"\ ", r"\s*"))
        else:
            apart.append(re.escape(entry).replace(r"\*", r"\w*").replace(r"\ ", r"[\W_]+"))
    made = [rf"(?<!\w)(?:{'|'.join(apart)})(?!\w)"] if apart else []
    return re.compile("|".join(made + inside))
