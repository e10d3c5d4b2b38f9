"""``ragtrace report``: reads the store, renders in one format, writes whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import duckdb

from ragtrace.errors import StoreError, UsageError
from ragtrace.record.spool import SUFFIX, spool_of
from ragtrace.report.html.data import Report, read
from ragtrace.store import existing, open_readonly
from ragtrace.store import open as open_store

Format = Literal["html", "md", "json"]


def report(database: Path, format: Format, run: str | None = None, show_content: bool = False) -> str:
    """The report as text. The spool is merged first; then the database is only read.

    :raises UsageError: no such run, or an extra that ``format`` needs is not installed.
    :raises StoreError: no database, or none that can be read.
    """
    return render(load(existing(database), run, show_content), format)


def load(path: Path, run: str | None, show_content: bool) -> Report:
    """What the report shows; a database with an older version's views gets those of this one."""
    if not path.exists() or any(spool_of(path).glob(f"*{SUFFIX}")):
        open_store(path).close()
    try:
        return _read(path, run, show_content)
    except (duckdb.CatalogException, duckdb.BinderException):
        open_store(path).close()
    try:
        return _read(path, run, show_content)
    except duckdb.Error as error:
        raise StoreError(
            f"{path} lacks what a report reads ({str(error).splitlines()[0]}); expected a database of this ragtrace: "
            "open it with the version that made it, or import its spans into a new one (`ragtrace import`)"
        ) from error


def _read(path: Path, run: str | None, show_content: bool) -> Report:
    with open_readonly(path) as connection:
        return read(connection, path.name, run, show_content)


def render(found: Report, format: Format) -> str:
    """The same in the format asked for."""
    if format == "json":
        return json.dumps(asdict(found), default=str, indent=1) + "\n"
    if format == "md":
        from ragtrace.report import markdown

        return markdown.render(found)
    try:
        from ragtrace.report.html import page

        return page.render(found)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the HTML report needs {error.name}, which is not installed; install it with: "
            'pip install "ragtrace-audit[report]", or take --format md or json'
        ) from error


def write(file: Path, text: str) -> None:
    """Whole or not at all, for its owner alone.

    :raises UsageError: the folder is missing or may not be written to.
    """
    target = file.expanduser()
    try:
        if target.is_dir():
            raise UsageError(f"{file} is a folder, expected a file; give for example {file / 'report.html'}")
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=target.parent, delete=False) as made:
            try:
                made.write(text)
                made.flush()
                os.fsync(made.fileno())
                os.replace(made.name, target)  # noqa: PTH105 - mkstemp made it 0600
            except BaseException:
                Path(made.name).unlink()
                raise
    except OSError as error:
        raise UsageError(
            f"cannot write {file}: {error.strerror}; choose a file in a folder you may write to"
        ) from error
