"""Files that are whole or absent."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from ragtrace.errors import UsageError


def write_whole(path: Path, text: str) -> None:
    """Writes ``text`` in place of what was there, all of it or nothing; readable as other new files are.

    :raises UsageError: it cannot be written.
    """
    target = path.expanduser()
    if target.is_dir():
        raise UsageError(f"cannot write {path}: it is a folder; give a file, for example {path / 'ragtrace.out'}")
    try:
        descriptor, made = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:50]}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            Path(made).chmod(0o666 & ~_umask())
            os.replace(made, target)  # noqa: PTH105 - all of it or none
        except BaseException:
            with suppress(OSError):
                Path(made).unlink()
            raise
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}; choose a file in a folder you may write to"
        ) from error


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
