"""Rows that come sorted by a key, handed on some ten thousand at a time, all of a key together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from ragtrace.engine import Work

_ROWS = 50_000
_BYTES = 100_000_000  # bounds the memory where texts are long


def worked(batches: Iterable[pa.RecordBatch], key: str, work: Work, schema: pa.Schema) -> Iterator[pa.Table]:
    """What ``work`` makes of each portion; memory holds one of them, or the rows of one key if these are more."""
    for portion in _portions(batches, key):
        yield work(portion.drop_columns([key])).cast(schema)


def _portions(batches: Iterable[pa.RecordBatch], key: str) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    rows = size = 0
    most = (_ROWS, _BYTES)
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows < most[0] and size < most[1]:
            continue
        table = pa.Table.from_batches(held)
        if cut := _last_key(table[key]):
            yield table.slice(0, cut)
            held = table.slice(cut).combine_chunks().to_batches()  # a copy: nothing of the others is held
            rows, size = table.num_rows - cut, sum(b.nbytes for b in held)
            most = (_ROWS, _BYTES)
        else:  # all of one key: looked at again when there is twice as much
            most = (2 * rows, 2 * size)
    if rows:
        yield pa.Table.from_batches(held)


def _last_key(keys: pa.ChunkedArray) -> int:
    """Where the rows of the last key begin; those without one are together as well."""
    last = keys[-1]
    return len(keys) - keys.null_count if not last.is_valid else int(pc.index(keys, last).as_py())
