"""The battery's child process: loads one defense, feeds its hooks, writes what they did, one JSON object a line.

Results go to a file of their own, so nothing that the defense prints can get between them; what it forks writes
nothing. Connections are refused in Python's ``socket`` module. **This is no sandbox**: the code under test runs with
the caller's rights, and one that means harm can reach the network and the disk all the same.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import pickle
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from ragtrace.errors import UsageError
from ragtrace.inventory.battery_compare import digest, kinds, look, removed, text
from ragtrace.inventory.battery_inputs import FAMILIES, TEXTS, Specimen
from ragtrace.inventory.battery_parts import DOCUMENTS, Feed, Part, is_defense, part_of
from ragtrace.record import pictures

_SLOW = 0.1  # seconds: what takes longer to construct is constructed once for all families
_REFUSALS = 3  # a hook that asked for the network so often needs it
attempts: list[str] = []
"""Connections that were refused."""


class NoNetworkError(ConnectionError):
    """The battery has no network."""


def main(job_file: str, result_file: str) -> None:
    """Does the job, as far as the defense allows."""
    job = json.loads(Path(job_file).read_text("utf-8"))
    with suppress(ImportError):  # Windows
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with Path(result_file).open("a", encoding="utf-8") as out:
        report = Report(out)
        refuse_connections(report)
        try:
            if job["list"]:
                module = _module(job)
                own = [n for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__]
                report(defenses=[n for n in own if is_defense(vars(module)[n], job["names"])])
            else:
                _feed_all(job, report)
                report(end=True)
        except BaseException as error:
            report(failed=_said(error))
    os._exit(0)  # threads that the defense left must not keep the process


class Report:
    """Writes lines, from this process alone."""

    def __init__(self, out: TextIO) -> None:
        self.out = out

    def __call__(self, **values: Any) -> None:
        _leave_if_copy()
        self.out.write(json.dumps(values) + "\n")
        self.out.flush()


_PID = os.getpid()


def _leave_if_copy() -> None:
    """A copy of this process that the defense made by forking must not go on with the battery."""
    if os.getpid() != _PID:
        os._exit(0)


def refuse_connections(report: Report) -> None:
    """Makes connections fail at once, and notes who was asked for. Sockets of this machine's files stay."""

    def refused(target: Any) -> None:
        attempts.append(_storable(target))
        if len(attempts) < 20:
            report(asked=attempts[-1])
        raise NoNetworkError(f"the battery has no network (asked for {target})")

    def method(name: str) -> Callable[..., Any]:
        original = getattr(socket.socket, name)

        def guarded(self: socket.socket, *args: Any) -> Any:
            if self.family in (socket.AF_INET, socket.AF_INET6):
                refused(args[-1])
            return original(self, *args)

        return guarded

    for name in ("connect", "connect_ex", "sendto"):
        setattr(socket.socket, name, method(name))
    for name in ("create_connection", "getaddrinfo", "gethostbyname"):
        setattr(socket, name, lambda address, *_, **__: refused(address))


def _feed_all(job: dict[str, Any], report: Report) -> None:
    fresh = _factory(job)
    started = time.perf_counter()
    part = part_of(fresh(), job["names"])
    share = time.perf_counter() - started > _SLOW
    hooks = [h for h in part.feeds if h not in job["skip"]]
    report(name=_storable(part.name), kind=part.kind, hooks=list(part.feeds))
    shared = part if share else None
    for hook in hooks:
        report(start=hook)
        _feed_hook(hook, shared, lambda: part_of(fresh(), job["names"]), report)


def _feed_hook(hook: str, shared: Part | None, fresh: Callable[[], Part], report: Report) -> None:
    form = _settled(fresh().feeds[hook] if shared is None else shared.feeds[hook])
    refusals, said = 0, None
    for family, specimens in FAMILIES.items():
        if family not in TEXTS and hook not in ("retrieval", "content", DOCUMENTS):
            continue
        if refusals >= _REFUSALS:
            report(hook=hook, family=family, n=0, error=said)
            continue
        feed = (shared or fresh()).feeds[hook]
        if form:
            feed.choose(form)
        row = _feed_family(feed, hook, family, specimens)
        refusals, said = refusals + row.pop("refusals"), row["error"] or said
        report(hook=hook, family=family, **row)


def _settled(feed: Feed) -> str:
    """The first form of documents that the hook takes without an error."""
    plain = FAMILIES["plain"][0]
    before = len(attempts)
    for form in feed.forms:
        if len(attempts) > before:
            break  # it does not fail for the form's sake
        feed.choose(form)
        with suppress(Exception):
            given = feed.make(plain)
            if look("content", feed.read(_done(feed.call(given, plain)), given)) is not None:
                return form
    return feed.forms[0] if feed.forms else ""


def _feed_family(feed: Feed, hook: str, family: str, specimens: tuple[Specimen, ...]) -> dict[str, Any]:
    started, before = time.perf_counter(), len(attempts)
    trials: list[dict[str, Any]] = []
    again: list[dict[str, Any]] = []
    for turn in (trials, again):
        for specimen in specimens:
            if len(attempts) - before < _REFUSALS:  # a client tries again and again, and waits in between
                turn.append(_try(feed, hook, specimen))
    failed = [t["error"] for t in trials if t["error"]]
    return {
        "n": len(trials),
        "changed": sum(bool(t["kinds"]) for t in trials),
        "removed": sum(t["removed"] for t in trials) if any(s.secrets for s in specimens) else None,
        "kinds": sorted({k for t in trials for k in t["kinds"]}),
        "mutates": any(t["mutated"] for t in trials),
        "errors": len(failed),
        "error": failed[0] if failed else None,
        "digests": ["".join(t["digest"] for t in turn) for turn in (trials, again)],
        "seconds": (time.perf_counter() - started) / (len(trials) + len(again)),
        "refusals": len(attempts) - before,
    }


def _try(feed: Feed, hook: str, specimen: Specimen) -> dict[str, Any]:
    """One call. What was given is made twice: a defense that edits its input cannot edit what it is compared with."""
    trial: dict[str, Any] = {"kinds": [], "removed": False, "mutated": False, "error": None, "digest": "-"}
    asked = len(attempts)
    try:
        given, untouched = feed.make(specimen), feed.make(specimen)
        before = look(hook, feed.read(untouched, untouched))
        try:
            result = feed.read(_done(feed.call(given, specimen)), untouched)
        finally:
            _leave_if_copy()
        after = look(hook, result, before)
        if after is None:
            form = "documents" if isinstance(before, pictures.Documents) else "a text or messages"
            raise UsageError(f"the hook returned {type(result).__name__}, expected {form}")
        if not isinstance(given, str):
            trial["mutated"] = bool(kinds(before, look(hook, feed.read(given, given), before)))
        trial["kinds"] = kinds(before, after)
        trial["digest"] = digest(after)
        trial["removed"] = bool(specimen.secrets) and removed(specimen.secrets, text(before), text(after))
    except (Exception, SystemExit) as error:
        trial["error"] = _said(error)
    if len(attempts) > asked and not trial["kinds"] and not trial["error"]:
        trial["error"] = f"asked for {attempts[-1]} and went on without it; the battery has no network"
    return trial


_loop: list[asyncio.AbstractEventLoop] = []


def _done(value: Any) -> Any:
    """What came out, awaited if need be, always in the same loop: a defense may keep locks that belong to it."""
    if not inspect.isawaitable(value):
        return value
    if not _loop:
        _loop.append(asyncio.new_event_loop())

    async def waited() -> Any:
        return await value

    return _loop[0].run_until_complete(waited())


def _factory(job: dict[str, Any]) -> Callable[[], Any]:
    """What gives a fresh defense each time, as far as the target allows."""
    if job["main"]:
        _module(job)
    if (pickled := job["pickle"]) is not None:
        raw = bytes.fromhex(pickled)
        return lambda: pickle.loads(raw)  # noqa: S301 (made by the caller, of the caller's own object, for this run)
    value: Any = _module(job)
    for name in job["attribute"].split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            raise UsageError(f"{job['module'] or job['file']} has no {job['attribute']!r}") from None
    if inspect.isclass(value) or (inspect.isfunction(value) and not is_defense(value, {}) and not _needs(value)):
        if missing := _needs(value):
            raise UsageError(
                f"{job['attribute']} cannot be constructed without arguments ({', '.join(missing)}); give an instance, "
                "or module:function of a function without arguments that makes one"
            )
        return lambda: _done(value())
    return lambda: value


def _needs(function: Any) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def _module(job: dict[str, Any]) -> Any:
    """The module of the target: by name, or by file. The caller's main script is loaded under another name."""
    if job["file"] is None:
        return importlib.import_module(job["module"])
    path = Path(job["file"])
    name = "__mp_main__" if job["main"] else path.stem
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    if job["main"]:
        sys.modules["__main__"] = module  # where its pickles look
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    return module


def _said(error: BaseException) -> str:
    said = _storable(next((line for line in str(error).splitlines() if line.strip()), "")[:300])
    return said if isinstance(error, UsageError) else f"{type(error).__name__}: {said}".rstrip(": ")


def _storable(value: Any) -> str:
    """As text without lone surrogates, which no database takes."""
    return str(value).encode("utf-8", "replace").decode()


if __name__ == "__main__":
    main(*sys.argv[1:])
