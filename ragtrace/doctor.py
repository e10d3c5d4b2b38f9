"""Is everything in place? What is installed, instrumented, writable and declared, and does anything arrive?

Each line of the answer is one check; what is wrong comes with its fix.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, entry_points, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from packaging.requirements import Requirement

from ragtrace.errors import RagtraceError

if TYPE_CHECKING:
    import duckdb
    from rich.console import Console

DISTRIBUTION = "ragtrace-audit"
_ADAPTERS = {"ragtrace_langchain": "langchain-core", "ragtrace_llama_index": "llama-index-core"}
_LEAST_FREE = 100 * 2**20


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. ``problem`` fails the check; ``note`` is worth knowing; ``fix`` says what to do."""

    area: str
    status: Literal["ok", "note", "problem"]
    found: str
    fix: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The object that ``ragtrace doctor --json`` prints for it."""
        return asdict(self)


def examine(database: Path | None = None) -> list[Check]:
    """Everything that can be told; with a database, also what it holds. Never raises for what is only broken."""
    checks = [*_installed(), *_instrumented(), *_switched_off()]
    if database is not None:
        checks += [*_writable(database), *_stored(database)]
    return checks


def show(checks: Iterable[Check], console: Console) -> None:
    """Prints one row for each check."""
    from ragtrace.report.terminal import table

    console.print(table(("area", "is", "found", "fix"), [(c.area, c.status, c.found, c.fix or "") for c in checks]))


def _installed() -> Iterator[Check]:
    yield Check("python", "ok", f"Python {platform.python_version()}, {DISTRIBUTION} {_version(DISTRIBUTION) or '?'}")
    try:
        wanted = [Requirement(text) for text in requires(DISTRIBUTION) or ()]
    except PackageNotFoundError:
        yield Check("installed", "problem", f"{DISTRIBUTION} has no metadata here", f"pip install {DISTRIBUTION}")
        return
    extras: dict[str, list[Requirement]] = {}
    for requirement in wanted:
        for extra in _extras(requirement):
            extras.setdefault(extra, []).append(requirement)
    for extra, parts in extras.items():
        if extra == "test":
            continue
        wrong = [said for part in parts if (said := _lacking(part))]
        if not wrong:
            yield Check("installed", "ok", f"extra {extra}")
        else:
            yield Check(
                "installed", "note", f"extra {extra} is not complete: {', '.join(wrong)}",
                f'if you need it: pip install "{DISTRIBUTION}[{extra}]"',
            )  # fmt: skip
    for requirement in wanted:
        if requirement.marker is None and (said := _lacking(requirement)):
            yield Check("installed", "problem", said, f"pip install --upgrade {DISTRIBUTION}")


def _extras(requirement: Requirement) -> list[str]:
    """The extra that asks for it, out of a marker like ``extra == "demo"``."""
    marker = str(requirement.marker or "")
    return [part.split('"')[1] for part in marker.split(" and ") if part.strip().startswith("extra ==")]


def _lacking(requirement: Requirement) -> str | None:
    """What is wrong with an installed package, if it is wrong."""
    if requirement.name == DISTRIBUTION:
        return None  # an extra of ours that is made of others: those are looked at themselves
    found = _version(requirement.name)
    if found is None:
        return f"{requirement.name} is not installed"
    if not requirement.specifier.contains(found, prereleases=True):
        return f"{requirement.name} {found} is installed, {requirement.specifier} expected"
    return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _instrumented() -> Iterator[Check]:
    there = {point.name: point for point in entry_points(group="opentelemetry_instrumentor")}
    frameworks = 0
    for name, package in _ADAPTERS.items():
        found = _version(package)
        if found is None:
            continue
        frameworks += 1
        if (point := there.get(name)) is None:
            yield Check(
                "instrumented", "problem", f"{package} {found} is installed, the entry point {name} is not registered",
                f"pip install --force-reinstall --no-deps {DISTRIBUTION}",
            )  # fmt: skip
            continue
        try:
            supported = [Requirement(text) for text in point.load()().instrumentation_dependencies()]
        except Exception as error:  # whatever an adapter's import may raise, the rest is still worth telling
            yield Check(
                "instrumented", "problem", f"{name} cannot be loaded: {type(error).__name__}: {error}",
                f"pip install --upgrade {DISTRIBUTION} {package}",
            )  # fmt: skip
            continue
        wrong = [said for part in supported if (said := _lacking(part))]
        if wrong:
            yield Check("instrumented", "problem", "; ".join(wrong), f'pip install "{supported[0]}"')
        else:
            yield Check("instrumented", "ok", f"{package} {found}, by {name} ({', '.join(map(str, supported))})")
    if not frameworks:
        yield Check(
            "instrumented", "note", f"none of {', '.join(_ADAPTERS.values())} is installed",
            "a pipeline without a framework names its stages itself: ragtrace.pipeline, retrieval, generation",
        )  # fmt: skip


def _switched_off() -> Iterator[Check]:
    for variable, wrong, effect in (
        ("OTEL_SDK_DISABLED", ("true",), "no span is recorded"),
        ("OTEL_TRACES_SAMPLER", ("always_off", "parentbased_always_off"), "every span is sampled away"),
    ):
        if os.environ.get(variable, "").strip().lower() in wrong:
            yield Check("environment", "problem", f"{variable}={os.environ[variable]}: {effect}", f"unset {variable}")


def _writable(database: Path) -> Iterator[Check]:
    from ragtrace.record.spool import spool_of

    path = database.expanduser().absolute()
    for what, folder in (("folder of the database", path.parent), ("spool", spool_of(path))):
        if what == "spool" and not folder.exists():
            continue  # made by the first process that records
        try:
            with tempfile.NamedTemporaryFile(dir=folder):
                pass
            yield Check("writable", "ok", f"{what}: {folder}")
        except OSError as error:
            fix = "mkdir -p it, or give another --db" if not folder.exists() else "chown or chmod it for the app's user"
            yield Check("writable", "problem", f"{what} {folder}: {error.strerror}", fix)
    yield from _key(path)
    with suppress(OSError):
        if (free := shutil.disk_usage(path.parent).free) < _LEAST_FREE:
            yield Check(
                "writable", "problem", f"{free / 1e6:.0f} MB are free in {path.parent}", "free some; spans are dropped"
            )


def _key(path: Path) -> Iterator[Check]:
    """The key of digests: other digests of the same text in every process where it cannot be kept."""
    key = path.with_name(path.name + ".key")
    if os.environ.get("RAGTRACE_DIGEST_KEY"):
        yield Check("writable", "ok", "digest key: from RAGTRACE_DIGEST_KEY")
    elif key.exists():
        try:
            mode = key.stat().st_mode & 0o777
            size = len(key.read_bytes())
        except OSError as error:
            yield Check(
                "writable", "problem", f"digest key {key}: {error.strerror}", "chmod 600 it, for the app's user"
            )
            return
        if mode & 0o077:
            yield Check("writable", "problem", f"digest key {key}: others may read it ({mode:o})", f"chmod 600 {key}")
        elif not size:
            yield Check("writable", "problem", f"digest key {key}: is empty", "remove it; a new one is made")
        else:
            yield Check("writable", "ok", f"digest key: {key}")


def _stored(database: Path) -> Iterator[Check]:
    from ragtrace.store import existing
    from ragtrace.store import open as open_store

    try:
        path = existing(database)
        connection = open_store(path)
    except RagtraceError as error:
        said, _, fix = str(error).partition("; ")
        yield Check("database", "problem", said, fix or None)
        return
    with connection as db:
        yield from _arriving(db, path)
        yield from _lost(db)
        yield from _defenses(db)


def _arriving(db: duckdb.DuckDBPyConnection, path: Path) -> Iterator[Check]:
    row = db.execute("SELECT count(*), max(end_time) FROM spans").fetchone()
    spans, last = row or (0, None)
    stages = db.execute("SELECT stage, count(*) FROM stages GROUP BY stage ORDER BY stage").fetchall()
    if not spans:
        yield Check(
            "arriving", "problem", f"no span has come into {path}",
            f'ragtrace.setup("{path}") must run in the app before its first request, and a request must be made',
        )  # fmt: skip
        return
    age = datetime.now(UTC).replace(tzinfo=None) - last
    yield Check("arriving", "ok", f"{spans} spans, the last ended {_ago(age.total_seconds())} ago")
    if not stages:
        yield Check(
            "arriving", "problem", "spans arrive, but no retrieval or generation among them",
            "call ragtrace.setup() before the app builds its chains; or name the stages: ragtrace.retrieval(…)",
        )  # fmt: skip
    else:
        yield Check("arriving", "ok", ", ".join(f"{n} of stage {stage}" for stage, n in stages))


def _lost(db: duckdb.DuckDBPyConnection) -> Iterator[Check]:
    for pid, service, alive, ended, dropped, failed, rotated, killed in db.execute(
        "SELECT pid, service, alive, ended, dropped, failed, rotated, killed FROM losses "
        "WHERE lost > 0 ORDER BY started_at DESC LIMIT 20"
    ).fetchall():
        who = f"process {pid} ({service or 'no service.name'}, {'running' if alive else 'ended'}): {ended} spans"
        causes = {
            "dropped by a full queue": (dropped, "the app makes spans faster than the disk takes them: sample them"),
            "refused by the disk": (failed, "see `writable` above, and the app's log"),
            "removed to keep the spool's limit": (rotated, "merge more often, or setup(spool_limit=…)"),
            "gone with a killed process": (killed, "end it with SIGTERM, or flush() before"),
        }
        said = ", ".join(f"{n} {cause}" for cause, (n, _) in causes.items() if n)
        yield Check("processes", "problem", f"{who}, {said}", "; ".join(fix for n, fix in causes.values() if n))
    counted, running, lost = db.execute(
        "SELECT count(*), count(*) FILTER (alive), coalesce(sum(lost), 0) FROM losses"
    ).fetchone() or (0, 0, 0)
    if not counted:
        yield Check("processes", "note", "no process has counted its spans here (imported traces, or none yet)")
    elif not lost:
        yield Check("processes", "ok", f"{counted} have recorded here, {running} of them running; no span was lost")


def _defenses(db: duckdb.DuckDBPyConnection) -> Iterator[Check]:
    rows = db.execute(
        "SELECT defense, hook, verdict, runs, bypassed_paths, file, line FROM verdicts ORDER BY ALL"
    ).fetchall()
    if not rows:
        yield Check(
            "defenses", "note", "no defense is declared or seen",
            "ragtrace.observe() on the app's own, ragtrace.declare() for others; a framework's parts are seen anyway",
        )  # fmt: skip
    for defense, hook, verdict, runs, paths, file, line in rows:
        said = f"{defense} at {hook or 'a hook not known'}: {verdict}, {runs or 0} runs"
        if verdict in _NOTES:
            yield Check("defenses", "ok" if verdict == "active" else "note", said, _NOTES[verdict])
            continue
        fix = _FIXES.get(verdict, "SELECT evidence FROM verdicts").format(paths=paths, hook=hook)
        yield Check("defenses", "problem", said, f"{fix} ({file}:{line})" if file else fix)


_NOTES = {
    "active": None,
    "dormant": "it met nothing to change in this traffic; `ragtrace audit` or `battery` give it something",
    "not_run": "its hook was not crossed, or it stands in no pipeline that ran",
    "unknown": "`ragtrace inventory` or `battery` with --db tell more",
}
_FIXES = {
    "bypassed": "put it on the path {paths} too",
    "silent_stub": "write what it should do at {hook}, or do not declare that hook",
    "pass_through": "write what it should do at {hook}, or do not declare that hook",
    "undeclared": "declare the hook {hook}",
    "error": "see the errors: SELECT error FROM effects",
}


def _ago(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} seconds"
