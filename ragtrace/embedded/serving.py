"""An OpenAI-compatible server for the embedded model, in a child process on a free loopback port.

Why a child process, although llama.cpp's server can run in a thread of ours: stopping it while a Python client of the
same process had a request open hung (31 s and more, measured; its destructor seems to join threads holding the GIL); an
assertion in native code would take the user's process along; a child gives its memory back; and how OpenMP's threads
wait can be set for it alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from threading import Timer
from typing import IO

from ragtrace.embedded.smollm2 import MODEL, weights
from ragtrace.errors import ModelError, UsageError

_CHILD = Path(__file__).with_name("child.py")
# OpenMP's threads spin at each barrier by default, for milliseconds; where other processes want the same cores, the
# model then makes 2 tokens/s instead of 60 (measured: two cores, load 4 to 7). A short spin keeps what there is to gain
# on an idle machine: 2.3 s a prompt (800 tokens in, 64 out) instead of 3.1. The user's own setting comes first.
_SPIN = "300"
_START_TIMEOUT = 120.0
_STOP_TIMEOUT = 5.0


@contextmanager
def serve(model: Path | None = None, *, context: int = 4096, threads: int = 2) -> Iterator[str]:
    """Serves a GGUF model (the embedded one by default) and yields its base URL, ``http://127.0.0.1:<port>/v1``.

    Greedy unless a request asks for a temperature. Requests may come concurrently and are worked off one after the
    other, each from an empty state: only so does a prompt's answer not depend on what ran before or beside it
    (llama.cpp's parallel slots and its prompt cache gave other texts from run to run, and were no faster).

    :param context: tokens of prompt and answer together, at least 256; a longer prompt gets HTTP 400.
    :param threads: compute threads, at least 1. Log-probabilities differ in the last digits between thread counts.
    :raises ModelError: the weights cannot be had, or the server does not start with them.
    :raises UsageError: an argument out of range, or the extra ``demo`` is not installed.
    """
    if context < 256 or threads < 1:
        raise UsageError(f"got context={context}, threads={threads}; expected context >= 256 and threads >= 1")
    if find_spec("xllamacpp") is None:
        raise UsageError(
            "the embedded model needs the package 'xllamacpp', which is not installed; "
            'install it with: pip install "ragtrace-audit[demo]"'
        )
    path = weights() if model is None else model
    name = MODEL if model is None else path.stem
    options = {"path": str(path), "alias": name, "context": context, "threads": threads}
    with TemporaryFile() as log, _start(options, log.fileno()) as child:
        try:
            yield _address(child, path, log) + "/v1"
        finally:
            _stop(child)


def _start(options: dict[str, object], log: int) -> subprocess.Popen[str]:
    # -P keeps this folder off the child's path; a session of its own keeps Ctrl-C from it, so that the parent stops it.
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-P", str(_CHILD), json.dumps(options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        start_new_session=True,
        env={"GOMP_SPINCOUNT": _SPIN} | os.environ,
    )


def _address(child: subprocess.Popen[str], path: Path, log: IO[bytes]) -> str:
    """Waits for the line by which the child says where it listens."""
    assert child.stdout is not None
    watchdog = Timer(_START_TIMEOUT, child.kill)
    watchdog.start()
    try:
        for line in child.stdout:
            if line.startswith("http://"):
                return line.strip()
    finally:
        watchdog.cancel()
        watchdog.join()
    log.seek(0)
    said = log.read().decode(errors="replace").strip().splitlines()
    raise ModelError(
        f"the model server did not start with {path}: {said[-1] if said else f'exit code {child.wait()}'}; "
        "expected a GGUF model that the installed xllamacpp can load; check the file, or upgrade xllamacpp"
    )


def _stop(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.close()  # the child ends at the end of its input, so it also ends when this process is killed
    try:
        child.wait(_STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        child.kill()
