"""The second witness: what does each hook change when it is fed, without any model and without any traffic?

Each defense runs in processes of its own, with a time limit; one that hangs, crashes or prints is a row ``error`` and
harms nobody else. Connections are refused there, which is no sandbox (see :mod:`ragtrace.inventory.battery_child`): it
is code of the user's that runs. Every specimen is fed twice to one instance, and all of it again in a second process:
what differs between processes is not deterministic, what differs only within one keeps state.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from ragtrace.errors import UsageError
from ragtrace.inventory.battery_inputs import FAMILIES, TEXTS
from ragtrace.inventory.battery_parts import DOCUMENTS
from ragtrace.inventory.battery_targets import Target, target_of
from ragtrace.inventory.names import Given, table
from ragtrace.types import HOOKS

TIMEOUT = 20.0
_TIMED_OUT = "no end within its time limit"
Status = Literal["changes", "leaves", "error", "not_tried"]


@dataclass(frozen=True)
class Capability:
    """What one hook did to one family of inputs.

    ``changed`` of ``n`` specimens; ``removed``: those of which nothing that had to be protected was left (``None``
    where there is nothing to protect). ``kinds``: some of text, order, ids, scores, metadata, count. ``mutates``: the
    input itself was edited. ``deterministic`` and ``stateful`` are ``None`` where that could not be told.
    """

    hook: str
    family: str
    n: int = 0
    changed: int = 0
    removed: int | None = None
    kinds: tuple[str, ...] = ()
    mutates: bool = False
    errors: int = 0
    error: str | None = None
    deterministic: bool | None = None
    stateful: bool | None = None
    seconds: float | None = None

    @property
    def status(self) -> Status:
        """``error`` also where some specimens failed and the others were left alone: who knows what it does?"""
        if self.changed:
            return "changes"
        return "error" if self.error else "leaves" if self.n else "not_tried"


@dataclass(frozen=True)
class Battery:
    """What the battery says of one defense. ``error`` is set where nothing could be fed to it, and says why."""

    defense: str
    target: str
    kind: str | None = None
    capabilities: tuple[Capability, ...] = ()
    error: str | None = None

    @property
    def hooks(self) -> tuple[str, ...]:
        """The hooks it has, in the pipeline's order."""
        found = {c.hook for c in self.capabilities}
        return tuple(h for h in HOOKS if h in found)

    def capability(self, hook: str, family: str) -> Capability:
        """The cell of the table; one that was not tried for a hook that the defense does not have."""
        found = (c for c in self.capabilities if (c.hook, c.family) == (hook, family))
        return next(found, Capability(hook, family, error=self.error))

    def to_rows(self) -> list[dict[str, Any]]:
        """One row for each hook and family; a single one, without them, where nothing could be fed."""
        if self.error is not None:
            return [_row(self, Capability("", "", error=self.error)) | {"hook": None, "family": None}]
        return [_row(self, c) for c in self.capabilities]


def _row(battery: Battery, c: Capability) -> dict[str, Any]:
    return {
        "defense": battery.defense, "kind": battery.kind, "hook": c.hook, "family": c.family, "status": c.status,
        "n": c.n, "changed": c.changed, "removed": c.removed, "kinds": list(c.kinds), "mutates": c.mutates,
        "errors": c.errors, "error": c.error, "deterministic": c.deterministic, "stateful": c.stateful,
        "seconds": c.seconds,
    }  # fmt: skip


def battery(*targets: Any, timeout: float = TIMEOUT, names: Given = None) -> list[Battery]:
    """Feeds every hook of each target.

    :param targets: live defenses (they are pickled), classes, functions marked with ``ragtrace.observe``, and texts:
        ``module:attribute`` or ``file.py:attribute`` of a class, an instance or a factory without arguments,
        ``module`` or ``file.py`` for all defenses in it. Defenses are ``ragtrace.Defense``, LangChain compressors,
        transformers, agent middleware and output parsers, LlamaIndex postprocessors, and classes with a method of
        the table of names. Of a LangChain part that is written twice, sync and async, one that acts is enough.
    :param timeout: seconds for one defense; what it had done until then is kept.
    :param names: method → hook, for classes that belong to no framework, or a TOML file of it: what is added to
        ``names.toml``.
    :raises UsageError: for no target, a time limit that is none, or wrong ``names``.
    """
    if not targets:
        raise UsageError("battery() got no target; expected a defense, a class, or a text such as module:Class")
    if not timeout > 0:
        raise UsageError(f"timeout={timeout!r}; expected seconds > 0")
    methods = table(names).methods
    found: list[Battery] = []
    for target in targets:
        try:
            wanted = target_of(target)
            if wanted.whole:
                found += [_measured(t, timeout, methods) for t in _members(wanted, timeout, methods)]
            else:
                found.append(_measured(wanted, timeout, methods))
        except (UsageError, pickle.PicklingError) as error:
            label = target if isinstance(target, str) else getattr(target, "name", None) or type(target).__name__
            found.append(Battery(str(label), str(label), error=str(error)))
    return found


def _members(target: Target, timeout: float, names: Mapping[str, str]) -> Iterable[Target]:
    lines, ended = _run(target.job(names, lists=True), timeout)
    told = {k: v for line in lines for k, v in line.items()}
    if "defenses" not in told:
        raise UsageError(told.get("failed") or ended or f"{target.label} could not be loaded")
    if not told["defenses"]:
        raise UsageError(f"{target.label} defines no defense that is known; give {target.label}:name of one")
    return [replace(target, attribute=name, label=f"{target.label}:{name}") for name in told["defenses"]]


def _measured(target: Target, timeout: float, names: Mapping[str, str]) -> Battery:
    with ThreadPoolExecutor(2) as pool:  # two processes, as alike as they can be
        first, second = pool.map(lambda _: _fed(target, timeout, names), range(2))
    if first.error is not None:
        return first.battery(target)
    other = {(c["hook"], c["family"]): c for c in second.rows}
    rows = [_judged(row, other.get((row["hook"], row["family"]))) for row in first.rows]
    return Battery(first.name or target.label, target.label, first.kind, tuple(_named(rows)))


def _judged(row: dict[str, Any], again: dict[str, Any] | None) -> Capability:
    digests = row.pop("digests", None)
    told = digests is not None and again is not None and "digests" in again and row["errors"] < row["n"]
    deterministic = digests == again["digests"] if told and again else None
    stateful = digests[0] != digests[1] if deterministic and digests else None
    row = row | {"kinds": tuple(row.get("kinds", ())), "deterministic": deterministic, "stateful": stateful}
    return Capability(**row)


def _named(rows: list[Capability]) -> list[Capability]:
    """A framework's part is named after what it changes, as at run time: ``content`` if that is text or metadata."""
    unnamed = [r for r in rows if r.hook == DOCUMENTS]
    kinds = {k for r in unnamed for k in r.kinds}
    hook = "retrieval" if kinds and kinds.isdisjoint(("text", "metadata")) else "content"
    order: dict[str, int] = {h: i for i, h in enumerate(HOOKS)}
    named = [replace(r, hook=hook) if r.hook == DOCUMENTS else r for r in rows]
    return sorted(named, key=lambda r: order[r.hook])


@dataclass
class _Fed:
    """What came out of one process, and of those that went on after it had died."""

    name: str | None = None
    kind: str | None = None
    error: str | None = None
    hooks: tuple[str, ...] = ()
    rows: list[dict[str, Any]] = field(default_factory=list)

    def battery(self, target: Target) -> Battery:
        return Battery(self.name or target.label, target.label, self.kind, error=self.error)


def _fed(target: Target, timeout: float, names: Mapping[str, str]) -> _Fed:
    deadline, fed = time.monotonic() + timeout, _Fed()
    done: list[str] = []
    while (left := deadline - time.monotonic()) > 0 or not fed.hooks:
        lines, ended = _run(target.job(names, skip=done), left)
        reached = asked = None
        for line in lines:
            if "hooks" in line:
                fed.name, fed.kind, fed.hooks = line["name"], line["kind"], tuple(line["hooks"])
            elif "start" in line:
                reached, asked = line["start"], None
                done.append(reached)
            elif "asked" in line:
                asked = line["asked"]
            elif "failed" in line:
                ended = line["failed"]
            elif "family" in line:
                fed.rows.append(line)
        if ended is None and not any("end" in line for line in lines):
            ended = "its process ended of itself, before it was done"
        if ended == _TIMED_OUT and asked:
            ended += f"; it had asked for {asked}, and the battery has no network"
        if not fed.hooks:
            fed.error = ended or "it has no hook"
            return fed
        if ended is None or reached is None:  # all is done; or it could be made once, and not again
            break
        fed.rows += _lost(reached, fed.rows, ended)
    fed.rows += [row for hook in fed.hooks if hook not in done for row in _lost(hook, (), None)]
    return fed


def _lost(hook: str, rows: Iterable[dict[str, Any]], error: str | None) -> list[dict[str, Any]]:
    """Rows for the families that a hook never got to answer for."""
    known = {r["family"] for r in rows if r["hook"] == hook}
    takes_documents = hook in ("retrieval", "content", DOCUMENTS)
    return [
        {"hook": hook, "family": family, "error": error}
        for family in FAMILIES
        if family not in known and (takes_documents or family in TEXTS)
    ]


def _run(job: dict[str, Any], timeout: float) -> tuple[list[dict[str, Any]], str | None]:
    """What the child wrote, and why it ended before its time (``None`` if it did not)."""
    with tempfile.TemporaryDirectory(prefix="ragtrace-battery-") as folder:
        job_file, result_file = Path(folder, "job.json"), Path(folder, "result.jsonl")
        job_file.write_text(json.dumps(job), "utf-8")
        result_file.touch()
        command = [sys.executable, "-P", "-m", "ragtrace.inventory.battery_child", str(job_file), str(result_file)]
        child = subprocess.Popen(  # noqa: S603 (ourselves)
            command,
            env=_environment(job["paths"]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        ended: str | None = None
        try:
            code = child.wait(timeout)
            if code:
                ended = (
                    f"its process was ended by {signal.Signals(-code).name}"
                    if code < 0
                    else f"its process exited with code {code}"
                )
        except subprocess.TimeoutExpired:
            ended = _TIMED_OUT
        finally:
            _kill(child)
        lines = []
        for line in result_file.read_text("utf-8", "replace").splitlines():
            with suppress(ValueError):  # torn by the end of the process
                lines.append(json.loads(line))
        return lines, ended


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Ends the child and what it has started, as far as that stayed in its group."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    child.kill()
    child.wait()


def _environment(paths: list[str]) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONHASHSEED": "random",  # what depends on it is not deterministic
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "OTEL_SDK_DISABLED": "true",
    }
