"""The pytest plugin: tests of an app that say where its defenses act.

A marked test is traced, and fails where what it did breaches a policy::

    @pytest.mark.ragtrace                              # every defense acts, at every hook, on every path
    def test_the_mask_holds():
        chain.invoke("Who signs?")

    @pytest.mark.ragtrace(policy="policy.toml")        # a file (below pytest's rootdir) or a mapping
    def test_the_release(): ...

    def test_by_hand(ragtrace_db):                     # traced, and asked
        chain.invoke("Who signs?")
        assert ragtrace_db.verdicts()["house-mask", "response"] == "active"

    def test_an_audit(ragtrace_audit):
        assert ragtrace_audit("AUDIT.toml").check("policy.toml").passed

Nothing of ragtrace but this file is imported in a run without such tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import duckdb

    from ragtrace.gate import Gate
    from ragtrace.record.setup import Tracing

_MARK = "ragtrace"
_POLICY: dict[str, Any] = {"defenses_act": {}, "no_undeclared": {}, "losses": {}}
_TRACED = pytest.StashKey["Traced"]()


class Traced:
    """What a test did, in a database of its own."""

    def __init__(self, database: Path, rootpath: Path, tracing: Tracing | None = None) -> None:
        self.database = database
        self._rootpath = rootpath
        self._tracing = tracing

    def open(self) -> duckdb.DuckDBPyConnection:
        """The database, with everything that has ended until now."""
        from ragtrace.store import open as open_store

        if self._tracing is not None:
            self._tracing.flush()
        return open_store(self.database)

    def verdicts(self) -> dict[tuple[str, str | None], str]:
        """The verdict of each defense at each hook."""
        with self.open() as db:
            rows = db.execute("SELECT defense, hook, verdict FROM verdicts").fetchall()
        return {(defense, hook): verdict for defense, hook, verdict in rows}

    def check(self, policy: str | Path | Mapping[str, Any] | None = None, baseline: str | Path | None = None) -> Gate:
        """The outcomes of a policy: a TOML file (relative to pytest's rootdir), a mapping, or the marker's default."""
        from ragtrace.gate import check
        from ragtrace.gate.policy import made, read

        chosen = _POLICY if policy is None else policy
        rules = made(chosen) if isinstance(chosen, Mapping) else read(self._rootpath / chosen)
        self.open().close()
        return check(self.database, rules, None if baseline is None else self._rootpath / baseline)


@pytest.fixture
def ragtrace_db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Traced]:
    """Traces the test into ``traces.duckdb`` of its ``tmp_path``, with all texts unless the marker says ``capture``."""
    import ragtrace

    marker = request.node.get_closest_marker(_MARK)
    capture: Any = marker.kwargs.get("capture", "full") if marker else "full"
    tracing = ragtrace.setup(tmp_path / "traces.duckdb", capture=capture)
    traced = request.node.stash[_TRACED] = Traced(tracing.database, request.config.rootpath, tracing)
    yield traced
    tracing.shutdown()


@pytest.fixture
def ragtrace_audit(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Traced]:
    """Runs audits, each into a database of its own below ``tmp_path``.

    Called with an AUDIT.toml (relative to pytest's rootdir), or with its keys: ``app`` may be a factory at the top of
    a module, ``attacks={"canary": {"count": 5}}``, ``arms={"masked": ["regex_mask"]}``, …
    """
    audits: list[Path] = []

    def conduct(file: str | Path | None = None, **told: Any) -> Traced:
        import io
        from dataclasses import replace

        from rich.console import Console

        from ragtrace import audit_file, auditing

        if callable(app := told.get("app")):
            told["app"] = f"{app.__module__}:{app.__qualname__}"
        audits.append(tmp_path / f"audit-{len(audits)}.duckdb")
        root = request.config.rootpath
        read = audit_file.read(root / file) if file is not None else audit_file.made(told, "ragtrace_audit(…)")
        auditing.conduct(replace(read, db=audits[-1]), Console(file=io.StringIO()))
        return Traced(audits[-1], root)

    return conduct


def pytest_configure(config: pytest.Config) -> None:
    """The marker is known under ``--strict-markers``."""
    config.addinivalue_line(
        "markers", "ragtrace(policy=None, baseline=None, capture='full'): trace the test, and hold it to a policy"
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    """A marked test gets the fixture; with the first one comes the hook that judges."""
    if item.get_closest_marker(_MARK) is None or not hasattr(item, "fixturenames"):
        return
    if "ragtrace_db" not in item.fixturenames:
        item.fixturenames.insert(0, "ragtrace_db")
    if not item.config.pluginmanager.has_plugin("ragtrace-gate"):
        item.config.pluginmanager.register(_gatekeeper(), "ragtrace-gate")


def _gatekeeper() -> object:
    class Gatekeeper:
        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_call(self, item: pytest.Item) -> Any:
            answer = yield
            marker = item.get_closest_marker(_MARK)
            if marker is not None and _TRACED in item.stash:
                _judge(item.stash[_TRACED], marker)
            return answer

    return Gatekeeper()


def _judge(traced: Traced, marker: pytest.Mark) -> None:
    from ragtrace.report.terminal import harmless

    if unknown := set(marker.kwargs) - {"policy", "baseline", "capture"} or marker.args:
        pytest.fail(f"the marker ragtrace got {unknown!r}; expected policy=, baseline= or capture=", pytrace=False)
    gate = traced.check(marker.kwargs.get("policy"), marker.kwargs.get("baseline"))
    if not gate.passed:
        lines = [f"ragtrace: {gate.summary}"]
        for outcome in gate.breached:
            lines += [
                harmless(f"{outcome.rule}: {f.subject}: {f.message}{f' ({f.where})' if f.where else ''}", 2_000)
                for f in outcome.findings
                if outcome.stops(f)
            ]
        pytest.fail("\n".join(lines), pytrace=False)
