"""Answers beside the documents that they could have read: what :mod:`ragtrace.store.exposure` stores of each pair.

Spans come in, rows of ``exposure_data`` go out, some thousands at a time: here, or in processes that are as many as the
processors. Each holds the views over nothing but those spans, so that what a document is has one definition.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from itertools import groupby
from operator import itemgetter
from threading import Lock
from typing import Any, BinaryIO

import duckdb
import pyarrow as pa

from ragtrace.ner import entities
from ragtrace.overlap import LIMIT, Answer, words

_DEFINITIONS = ("schema.sql", *(
    f"views/{name}.sql" for name in ("10_spans", "20_documents", "30_generations", "85_sessions", "90_exposure")
))  # fmt: skip
_PAIRS = "FROM exposure_pairs ORDER BY trace_id, span_id, rank, document_id"
_TEXTS = ("query", "response", "content", "told")
_MEASURED = ("longest_run", "containment", "entities_leaked", "answer_words")
_TYPES = (pa.int64(), pa.float64(), pa.int64(), pa.int64())
_SIZE = 8  # bytes that say how long a message between processes is


@cache
def here() -> Comparer:
    """The one of this process: to make one takes longer than to compare some hundreds of answers."""
    return Comparer()


class Comparer:
    """Compares in this process."""

    def __init__(self) -> None:
        folder = files("ragtrace.store")
        # in no temporary file: the store may be encrypted
        self._own = duckdb.connect(":memory:", config={"temp_directory": "", "threads": 1})
        self._own.execute("\n".join(folder.joinpath(name).read_text("utf-8") for name in _DEFINITIONS))
        self._lock = Lock()

    def rows(self, spans: pa.Table) -> pa.Table:
        """What to store of these spans (rows of ``span_data``, all of each trace that has any)."""
        with self._lock:
            self._own.register("incoming", spans)
            try:
                self._own.execute("INSERT INTO span_data BY NAME FROM incoming")
                pairs = self._own.sql(_PAIRS).to_arrow_table()
            finally:
                self._own.unregister("incoming")
                self._own.execute("TRUNCATE span_data")
        texts = zip(*(pairs[name].to_pylist() for name in ("trace_id", "span_id", *_TEXTS)), strict=True)
        measured = [one for _, group in groupby(texts, itemgetter(0, 1)) for one in _compared(list(group))]
        columns = zip(*measured, strict=True) if measured else [()] * len(_MEASURED)
        table = pairs.drop_columns(list(_TEXTS))
        for name, kind, values in zip(_MEASURED, _TYPES, columns, strict=True):
            table = table.append_column(name, pa.array(values, kind))
        return table


def _compared(group: list[tuple[Any, ...]]) -> Iterator[tuple[int | None, float | None, int | None, int | None]]:
    """One answer with each of its documents: what was computed where texts were not kept, else what they say."""
    _, _, query, response, *_ = group[0]
    if response is None:
        for *_, told in group:
            yield (told["longest_run"], told["containment"], told["entities"], None) if told else (None,) * 4
        return
    index, length = Answer(response), len(words(response))
    asked = (query or "")[:LIMIT].lower()
    names = {entity.text.lower() for entity in entities(response[:LIMIT])}
    new = [name for name in names if name not in asked]
    for *_, content, told in group:
        if told:  # of the texts as they were: those kept may be masked
            yield told["longest_run"], told["containment"], told["entities"], length
        elif content is None:
            yield None, None, None, length
        else:
            read = content[:LIMIT].lower()
            yield *index.against(content), sum(name in read for name in new), length


class Elsewhere:
    """Compares in a process of its own; not one of ``multiprocessing``, which runs the app's main module once more.

    What a process that has ended does not answer is compared here.
    """

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-c", "from ragtrace.store.comparing import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us: we end it
            env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        )
        self._alive, self._closed = True, False

    def rows(self, spans: pa.Table) -> pa.Table:
        """The same as :meth:`Comparer.rows`."""
        assert self._child.stdin and self._child.stdout
        if self._alive:
            try:
                _send(self._child.stdin, spans)
                if (answer := _receive(self._child.stdout)) is not None:
                    return answer
            except (OSError, ValueError, MemoryError, pa.ArrowException):
                pass
            self._alive = False
            self._child.kill()  # it may wait for somebody to read what it has to say
        if self._closed:
            raise ValueError("closed")
        return here().rows(spans)

    def close(self) -> None:
        """Ends the process, and fails what waits for it."""
        self._closed = True
        self._child.kill()
        self._child.communicate()


def serve() -> None:
    """What such a process does, until nobody asks any more. Whatever is printed meanwhile is no answer."""
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        while (spans := _receive(sys.stdin.buffer)) is not None:
            _send(answers, here().rows(spans))


def _send(pipe: BinaryIO | Any, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    message = sink.getvalue()
    pipe.write(message.size.to_bytes(_SIZE, "big"))
    pipe.write(message)
    pipe.flush()


def _receive(pipe: BinaryIO | Any) -> pa.Table | None:
    size = int.from_bytes(pipe.read(_SIZE), "big")
    message = pipe.read(size)
    if not size or len(message) < size:
        return None
    with pa.ipc.open_stream(message) as stream:
        return stream.read_all()
