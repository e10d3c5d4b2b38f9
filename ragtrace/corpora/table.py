"""Any file with two text columns: JSONL, CSV or Parquet. It needs a path, so ``load()`` has none ready."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ragtrace.corpora._files import json_lines, not_utf8, require
from ragtrace.corpora._questions import Content, Entry, QuestionCorpus
from ragtrace.errors import InputError, UsageError

FORMATS = (".jsonl", ".ndjson", ".csv", ".parquet")
_MEMBER = {"true": True, "false": False, "1": True, "0": False}


class Table(QuestionCorpus):
    """A corpus of the user's own.

    :param path: a file whose name ends in one of :data:`FORMATS`, UTF-8.
    :param question: column with the part that an attacker knows, as text.
    :param answer: column with the rest; text, or a list of texts that all count as right, the first of which is the
        document's.
    :param passage: column with the text to index, for ``content="passage"``.
    :param id: column with the documents' ids; ``None`` numbers the rows from 1 on.
    :param member: column that says who is a member (true, false, 1 or 0), in place of the coin flip.
    :param name: ``None`` takes it from the file's.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        question: str = "question",
        answer: str = "answer",
        *,
        passage: str | None = None,
        id: str | None = None,
        member: str | None = None,
        name: str | None = None,
        content: Content = "question_answer",
    ) -> None:
        self.path = Path(path)
        if self.path.suffix.lower() not in FORMATS:
            raise UsageError(f"{str(path)!r} ends in {self.path.suffix!r}; expected one of {', '.join(FORMATS)}")
        if content == "passage" and passage is None:
            raise UsageError("content='passage' needs the column that holds it: passage='…'")
        self._stem = name or re.sub(r"[^\w.-]+", "_", self.path.stem)
        super().__init__(self._stem, content)
        self.question, self.answer, self.passage, self.id, self.member = question, answer, passage, id, member

    def entries(self) -> Iterator[Entry]:
        """All rows."""
        columns = [c for c in (self.question, self.answer, self.passage, self.id, self.member) if c is not None]
        for at, row in self._rows(columns):
            answers = row[self.answer]
            several = isinstance(answers, list | tuple)
            texts = [self._text_of(a, self.answer, at) for a in (answers if several else [answers])]
            key = f"{self._stem}-{at:06d}" if self.id is None else self._text_of(row[self.id], self.id, at)
            if not key:
                raise InputError(
                    f"{str(self.path)!r} row {at} has no id in column {self.id!r}; expected one in each row"
                )
            yield Entry(
                id=key,
                question=self._text_of(row[self.question], self.question, at),
                answer=texts[0] if texts else "",
                answers=tuple(texts) if several else (),
                passage=None if self.passage is None else self._text_of(row[self.passage], self.passage, at),
                is_member=None if self.member is None else self._label(row[self.member], at),
            )

    def _rows(self, columns: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        """(row from 1 on, its values in the columns); JSONL counts lines."""
        if self.path.suffix.lower() in (".jsonl", ".ndjson"):
            for at, row in json_lines(self.path):
                require(self.path, columns, list(row), f" line {at}")
                yield at, row
            return
        try:
            batches = self._csv(columns) if self.path.suffix.lower() == ".csv" else self._parquet(columns)
            yield from enumerate((row for batch in batches for row in batch.to_pylist()), 1)
        except OSError as error:  # pyarrow's message of a missing file has the path in it, in another form
            raise InputError(
                f"cannot read {str(self.path)!r}: {error.strerror or 'no such file, or damaged'}"
            ) from error
        except ValueError as error:  # pyarrow.ArrowInvalid is one
            if isinstance(error, InputError):
                raise
            if isinstance(error, UnicodeDecodeError) or "utf8" in str(error).lower():
                raise not_utf8(self.path, "invalid bytes") from error
            raise InputError(f"cannot read {str(self.path)!r}: {str(error)!r:.300}") from error

    def _csv(self, columns: list[str]) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow import csv

        parse = csv.ParseOptions(newlines_in_values=True)
        with csv.open_csv(self.path, parse_options=parse) as head:
            require(self.path, columns, head.schema.names)
        # as text: an id of 007 is not 7, and a label is read by our rule
        convert = csv.ConvertOptions(include_columns=columns, column_types=dict.fromkeys(columns, pa.string()))
        with csv.open_csv(self.path, parse_options=parse, convert_options=convert) as reader:
            yield from reader

    def _parquet(self, columns: list[str]) -> Iterator[Any]:
        from pyarrow import parquet

        with parquet.ParquetFile(self.path) as file:
            require(self.path, columns, file.schema_arrow.names)
            yield from file.iter_batches(columns=columns)

    def _text_of(self, value: Any, column: str, at: int) -> str:
        if value is None:
            return ""
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return str(value)
        raise InputError(
            f"{str(self.path)!r} row {at} has a {type(value).__name__} in column {column!r}; expected text"
        )

    def _label(self, value: Any, at: int) -> bool:
        label = _MEMBER.get(str(value).strip().lower()) if isinstance(value, bool | int | str) else None
        if label is None:
            raise InputError(
                f"{str(self.path)!r} row {at} has {value!r:.60} in column {self.member!r}; expected true, false, 1 or 0"
            )
        return label


CORPUS = ()
