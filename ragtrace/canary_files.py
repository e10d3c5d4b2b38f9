"""Canaries in files: planted in the documents of a JSONL file, remembered in another, and looked for anywhere."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ragtrace.canaries import plant, scan
from ragtrace.corpora._files import json_lines
from ragtrace.errors import InputError
from ragtrace.report.reporting import write
from ragtrace.types import Canary, Document

if TYPE_CHECKING:
    import duckdb

TEXTS = ("content", "text", "page_content")
"""Keys under which a row's text is looked for."""


class Hit(NamedTuple):
    """A canary that was found, and where."""

    canary: str
    family: str
    where: str


def plant_file(source: Path, out: Path, kept: Path, families: Sequence[str], seed: int) -> int:
    """Plants canaries in every row of ``source``; writes the rows to ``out`` and the canaries to ``kept`` (both 0600).

    :return: how many were planted.
    :raises InputError: rows without a text, or files that are there already: canaries are never written over.
    """
    for file in (out, kept):
        if file.exists():
            raise InputError(f"{file} is there already; expected a new file: canaries in use must not be lost")
    rows = [row for _, row in json_lines(source)]
    keys = [_key(row, source, at) for at, row in enumerate(rows, 1)]
    documents = [
        Document(str(row[key]), str(row.get("id", at))) for at, (row, key) in enumerate(zip(rows, keys, strict=True), 1)
    ]
    planted, canaries = plant(documents, families, seed)
    write(kept, _lines(asdict(canary) for canary in canaries))
    write(out, _lines(row | {key: d.content} for row, key, d in zip(rows, keys, planted, strict=True)))
    return len(canaries)


def _key(row: dict[str, Any], source: Path, at: int) -> str:
    for key in TEXTS:
        if isinstance(row.get(key), str):
            return key
    raise InputError(
        f"{source} row {at} has no text (it has {', '.join(row) or 'nothing'}); expected one of {', '.join(TEXTS)}"
    )


def read_canaries(file: Path) -> list[Canary]:
    """The canaries that :func:`plant_file` wrote.

    :raises InputError: the file holds something else.
    """
    found = []
    for at, row in json_lines(file):
        try:
            found.append(Canary(str(row["text"]), str(row["family"]), str(row["document_id"])))
        except KeyError as error:
            raise InputError(f"{file} line {at} has no {error}; expected text, family and document_id") from error
    return found


def scan_texts(paths: Iterable[Path], canaries: Sequence[Canary]) -> Iterator[Hit]:
    """Canaries in files, by exact match, line by line."""
    for path in paths:
        try:
            with path.open(encoding="utf-8", errors="replace") as lines:
                for at, line in enumerate(lines, 1):
                    for canary in scan(line, canaries):
                        yield Hit(canary.text, canary.family, f"{path}:{at}")
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error


def scan_store(db: duckdb.DuckDBPyConnection, canaries: Sequence[Canary]) -> list[Hit]:
    """Canaries in stored traces: those the audits planted, and those given, in prompts, answers and documents."""
    rows = db.execute(
        "SELECT DISTINCT canary, family, channel || ' of trace ' || trace_id FROM canary_hits ORDER BY ALL"
    )
    hits = {Hit(*row) for row in rows.fetchall()}
    if canaries:
        found = db.execute(
            """
            WITH texts AS (
                SELECT trace_id, unnest(['prompt', 'response']) AS channel, unnest([prompt, response]) AS text
                FROM generations
                UNION ALL SELECT trace_id, 'documents', content FROM documents
            ), looked AS (SELECT unnest($texts::VARCHAR[]) AS canary, unnest($families::VARCHAR[]) AS family)
            SELECT DISTINCT canary, family, channel || ' of trace ' || trace_id
            FROM texts JOIN looked ON contains(texts.text, canary)
            """,
            {"texts": [c.text for c in canaries], "families": [c.family for c in canaries]},
        ).fetchall()
        hits.update(Hit(*row) for row in found)
    return sorted(hits)


def _lines(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
