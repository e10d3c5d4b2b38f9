"""Where the spans of a lake lie, and in which columns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from ragtrace.errors import InputError, UsageError
from ragtrace.ingest.translate import SAID
from ragtrace.record.spool import segment_schema

VERSION_KEY, VERSION = b"ragtrace.lake", b"1"
LIFTED = ("path", "run_id", "probe_id", "arm")  # out of the attributes, so that no engine parses texts to choose spans
_DATE = re.compile(r"date=(\d{4}-\d{2}-\d{2})")


def schema() -> pa.Schema:
    """A span's columns: those of a segment, what its dialect says of it, and :data:`LIFTED`."""
    fields = [*segment_schema(), *(pa.field(name, pa.string()) for name in (*SAID, *LIFTED))]
    return pa.schema(fields, metadata={VERSION_KEY: VERSION})


@dataclass(frozen=True)
class Lake:
    """The lake at ``url``: a local path, or what pyarrow's file systems know, such as ``s3://bucket/folder``.

    An S3-compatible server is named as AWS' own tools do: ``AWS_ENDPOINT_URL``, ``AWS_ACCESS_KEY_ID`` and so on, or in
    the URL (``s3://bucket/folder?endpoint_override=…&scheme=http``). Can be pickled, so that every worker opens it.
    """

    url: str

    def opened(self) -> tuple[pafs.FileSystem, str]:
        """The file system and the path in it.

        :raises UsageError: nobody knows such a URL.
        """
        try:
            if "://" not in self.url:
                return pafs.LocalFileSystem(), str(_absolute(self.url))
            system, path = pafs.FileSystem.from_uri(self.url)
        except (pa.ArrowException, ValueError, OSError) as error:
            raise UsageError(
                f"no lake can be at {self.url!r} ({_first(error)}); expected a path or an s3:// URL"
            ) from error
        return system, path

    def files(self, since: date | None = None, until: date | None = None) -> list[str]:
        """The paths of its files, in order, from the first day to the last (inclusive).

        :raises InputError: there is no lake, or a file in it has another version.
        """
        system, root = self.opened()
        try:
            found = system.get_file_info(pafs.FileSelector(root, recursive=True, allow_not_found=False))
        except (FileNotFoundError, NotADirectoryError) as error:
            raise InputError(f"no lake at {self.url}; `ragtrace lake add` makes one") from error
        except OSError as error:
            raise InputError(f"the lake at {self.url} cannot be read ({_first(error)})") from error
        paths = []
        for entry in sorted(found, key=lambda entry: entry.path):
            day = _DATE.search(entry.path.removeprefix(root))
            if entry.type is pafs.FileType.File and day and entry.path.endswith(".parquet"):
                of = date.fromisoformat(day[1])
                if (since is None or of >= since) and (until is None or of <= until):
                    paths.append(entry.path)
        return paths

    def read(self, path: str, columns: list[str] | None = None) -> pa.Table:
        """The spans of one file.

        :raises InputError: it is no file of a lake, or one of another version.
        """
        system, _ = self.opened()
        try:
            with system.open_input_file(path) as source, pq.ParquetFile(source) as file:
                found = (file.schema_arrow.metadata or {}).get(VERSION_KEY)
                if found != VERSION:
                    raise InputError(
                        f"{path} in the lake has layout version {_shown(found)}, expected {VERSION.decode()}; "
                        "write it anew with `ragtrace lake add` of the same version, or move it away"
                    )
                return file.read(columns=columns)
        except (OSError, pa.ArrowException) as error:
            raise InputError(
                f"{path} in the lake cannot be read ({_first(error)}); move it away or write it anew"
            ) from error


def _absolute(path: str) -> Any:
    from pathlib import Path

    return Path(path).expanduser().absolute()


def _shown(version: bytes | None) -> str:
    return "none" if version is None else version.decode("utf-8", "replace")[:20]


def _first(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
