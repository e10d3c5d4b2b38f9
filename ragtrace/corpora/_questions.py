"""What the question-answering corpora share: entries of a file become documents, and documents a corpus."""

from __future__ import annotations

import random
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from ragtrace.corpora.base import SplitCorpus, members_of, split, split_labelled, split_share
from ragtrace.errors import InputError, UsageError
from ragtrace.types import Document

Content = Literal["question_answer", "passage", "answer"]
"""What is indexed: the question and its answer on two lines, the passage that holds the answer, or the answer."""


class Entry(NamedTuple):
    """A question with its answer; ``answers`` are all that count as right, ``is_member`` is given with the data."""

    id: str
    question: str
    answer: str
    answers: tuple[str, ...] = ()
    passage: str | None = None
    is_member: bool | None = None


class QuestionCorpus(ABC):
    """Subclass it with :meth:`entries`.

    Documents have ``metadata["question"]`` and ``["answer"]``, and ``["answers"]`` where the source has several that
    count as right. The name says which content it is, unless that is the default.

    :param content: what is indexed, see :data:`Content`.
    """

    name: str
    contents: ClassVar[tuple[str, ...]] = get_args(Content)
    """The contents that the source can give."""

    def __init__(self, name: str, content: Content = "question_answer") -> None:
        if content not in self.contents:
            raise UsageError(f"{name} has no content {content!r}; expected one of {', '.join(self.contents)}")
        self.content = content
        self.name = name if content == "question_answer" else f"{name}_{content}"

    @abstractmethod
    def entries(self) -> Iterable[Entry]:
        """Everything that the source has, in its order.

        :raises InputError: for a source that cannot be read.
        """

    def build(self, n: int, seed: int, non_members: int = 0) -> SplitCorpus:
        """``n`` members and ``non_members`` others, drawn from the whole source at random.

        :raises InputError: for a source that cannot be read or is too small, or counts out of range.
        """
        pool = self._pool(seed)
        if any(is_member is not None for _, is_member in pool):
            given = [(document, bool(is_member)) for document, is_member in pool]
            return split_labelled(self.name, seed, given, n, non_members)
        return split(self.name, seed, _dealer([document for document, _ in pool]), n, non_members)

    def build_share(self, seed: int, share: float = 0.8, size: int | None = None) -> SplitCorpus:
        """``share`` of the documents are members and the rest are not, as in S²MIA's 80/20 split.

        Attacks draw their targets from the two sides.

        :param size: how many documents to draw; ``None`` takes all.
        :raises InputError: as :meth:`build`.
        :raises UsageError: where the source says itself who is a member.
        """
        if size is not None:
            n = members_of(self.name, size, share)
            return self.build(n, seed, size - n)
        pool = self._pool(seed)
        if any(is_member is not None for _, is_member in pool):
            raise UsageError(f"{self.name} says itself who is a member; use build(n, seed, non_members)")
        return split_share(self.name, seed, [document for document, _ in pool], share)

    def _pool(self, seed: int) -> list[tuple[Document, bool | None]]:
        """All documents in the seed's order, each with its given membership."""
        found: dict[str, tuple[Document, bool | None]] = {}
        empty = 0
        for entry in self.entries():
            text = self._text(entry)
            if text is None:
                empty += 1
            elif entry.id in found:
                raise InputError(f"{self.name} has the id {entry.id!r} twice; expected an id for each document")
            else:
                found[entry.id] = (Document(text, entry.id, metadata=_metadata(entry)), entry.is_member)
        if empty:
            warnings.warn(f"{self.name}: {empty} entries without text were left out", stacklevel=3)
        pool = list(found.values())
        random.Random(f"{self.name} pool {seed}").shuffle(pool)  # noqa: S311 (seeded on purpose)
        return pool

    def _text(self, entry: Entry) -> str | None:
        question, answer, passage = (part.strip() for part in (entry.question, entry.answer, entry.passage or ""))
        if not question or not answer:
            return None
        if self.content == "question_answer":
            return f"{question}\n{answer}"
        return (passage if self.content == "passage" else answer) or None


def _metadata(entry: Entry) -> dict[str, Any]:
    said: dict[str, Any] = {"question": entry.question.strip(), "answer": entry.answer.strip()}
    return said | {"answers": list(entry.answers)} if entry.answers else said


def _dealer(documents: Sequence[Document]) -> Callable[[int], list[Document]]:
    rest = iter(documents)
    return lambda count: list(islice(rest, count))
