"""Questions that mean harm, the bytes that a question may not touch, and what the source may not contain."""

from __future__ import annotations

import ast
import io
import os
import pty
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from store_fixtures import Bench

import ragtrace
from ragtrace.errors import StoreError, UsageError
from ragtrace.query import ask
from ragtrace.store import open_readonly
from ragtrace.store.limits import time_limit

ROOT = Path(__file__).resolve().parent.parent
ESCAPE = "\x1b]0;owned\x07\x1b[31m\u202e"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    bench = Bench(tmp_path / "t.duckdb")
    with bench.span(f"name{ESCAPE}", {"n": 1}, scope="app"):
        pass
    bench.open().close()
    (tmp_path / "secret.csv").write_text("planted\n1\n")
    return bench.database


def _ask(database: Path, query: str, timeout: float = 30.0) -> str:
    console = Console(file=io.StringIO(), width=10_000)
    ask(database, query, "table", None, console, timeout)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


HOSTILE = {
    "copy out": "COPY span_data TO 'out.csv'",
    "copy query": "COPY (SELECT 1) TO 'out.parquet' (FORMAT parquet)",
    "copy in": "COPY span_data FROM 'secret.csv'",
    "export": "EXPORT DATABASE 'out'",
    "attach": "ATTACH 'out.duckdb' AS other",
    "detach": "DETACH t",
    "use": "USE memory",
    "read_csv": "SELECT * FROM read_csv('secret.csv')",
    "read_text": "SELECT * FROM read_text('secret.csv')",
    "read_blob": "SELECT * FROM read_blob('/etc/passwd')",
    "read_json": "SELECT * FROM read_json('secret.csv')",
    "read_parquet": "SELECT * FROM parquet_metadata('t.duckdb.spool/x.parquet')",
    "sniff": "SELECT * FROM sniff_csv('secret.csv')",
    "glob": "SELECT * FROM glob('*')",
    "file as table": "FROM 'secret.csv'",
    "url as table": "FROM 'https://example.org/x.parquet'",
    "query of text": "FROM query('FROM read_text(''secret.csv'')')",
    "install": "INSTALL httpfs",
    "load": "LOAD httpfs",
    "secrets": "FROM duckdb_secrets()",
    "create secret": "CREATE SECRET s (TYPE http)",
    "pragma": "PRAGMA database_list",
    "pragma setting": "PRAGMA memory_limit='1TB'",
    "set": "SET enable_external_access = true",
    "set memory": "SET memory_limit = '1TB'",
    "reset": "RESET memory_limit",
    "create": "CREATE TABLE mine AS SELECT 1",
    "create temp": "CREATE TEMP TABLE mine AS SELECT 1",
    "insert": "INSERT INTO score_data DEFAULT VALUES",
    "update": "UPDATE span_data SET name = ''",
    "delete": "DELETE FROM span_data",
    "delete in a question": "WITH gone AS (DELETE FROM span_data RETURNING *) SELECT * FROM gone",
    "delete explained": "EXPLAIN ANALYZE DELETE FROM span_data",
    "copy explained": "EXPLAIN ANALYZE COPY span_data TO 'out.csv'",
    "drop": "DROP VIEW spans",
    "checkpoint": "FORCE CHECKPOINT",
    "call": "CALL pragma_version()",
    "two": "SELECT 1; DELETE FROM span_data",
    "prepare": "PREPARE p AS SELECT 1",
    "variable of ours": "FROM statements",
    "another variable": "SELECT * FROM batches",
    "deep": "SELECT " + "(" * 20_000 + "1" + ")" * 20_000,
    "broken": "SELECT '" + ESCAPE,
    "empty": "",
}


@pytest.mark.parametrize("query", HOSTILE.values(), ids=HOSTILE)
def test_hostile_sql_is_refused_and_touches_nothing(
    database: Path, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(database.parent)
    before = {file: file.read_bytes() for file in database.parent.rglob("*") if file.is_file()}
    with pytest.raises(UsageError) as refused:
        _ask(database, query)
    assert "planted" not in str(refused.value)
    assert {file: file.read_bytes() for file in database.parent.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE hash(a.range + b.range) = 1",
        "SELECT a.range FROM range(100000000) a, range(100000000) b WHERE hash(a.range + b.range) % 100000000 = 1",
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t",
    ],
)
def test_an_endless_question_is_stopped(database: Path, query: str) -> None:
    start = time.monotonic()
    with pytest.raises(UsageError, match=r"took longer than 0\.5 s.*--timeout"):
        _ask(database, query, 0.5)
    assert time.monotonic() - start < 20
    assert "name" in _ask(database, "SELECT name FROM spans"), "and the next one is answered"


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not limit a process's memory")
@pytest.mark.parametrize(
    "query",
    [
        "SELECT length(repeat('x', 4000000000))",
        "SELECT range(1000000000)",
        "SELECT list(repeat('x', 1000) || range) FROM range(100000000)",
        "SELECT repeat('x', 1000000) FROM range(1000000)",
    ],
)
def test_a_memory_bomb_is_refused(database: Path, query: str) -> None:
    code = (
        "import re, sys; from pathlib import Path; from rich.console import Console\n"
        "from ragtrace.errors import UsageError; from ragtrace.query import ask\n"
        "try: ask(Path(sys.argv[1]), sys.argv[2], 'csv', Path(sys.argv[1] + '.csv'), Console(), 300)\n"
        "except UsageError as error: print(error)\n"
        # not ru_maxrss: that begins with what the process that started this one has had
        "print(int(re.search(r'VmHWM:\\s+(\\d+) kB', Path('/proc/self/status').read_text())[1]) // 1024)"
    )
    run = subprocess.run([sys.executable, "-c", code, database, query], capture_output=True, text=True, check=True)
    *said, megabytes = run.stdout.splitlines()
    assert any("more memory than a question may take" in s or "the answer is larger than" in s for s in said), said
    assert int(megabytes) < 7_000  # 13 GB, and then killed, without a limit


def test_an_answer_has_a_limit(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragtrace.query._LARGEST", 1_000_000)
    with pytest.raises(UsageError, match="the answer is larger than 1000000 bytes; ask for less"):
        _ask(database, "SELECT range FROM range(1000000)")
    assert "125000" in _ask(database, "SELECT count(*) FROM (SELECT range FROM range(125000))")


def test_what_cannot_be_interrupted_is_handed_over(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragtrace.store.limits._GRACE", 0.0)
    monkeypatch.setattr("ragtrace.store.limits._AGAIN", 0.01)
    called = threading.Event()
    with open_readonly(database) as connection, time_limit(connection, 0.01, called.set) as clock:
        assert called.wait(30)
        assert clock.over


def test_no_limit_stays_behind(database: Path) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    _ask(database, "SELECT 1")
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_escapes_reach_no_terminal(database: Path) -> None:
    for format in ("table", "csv", "json"):
        shown = _in_a_terminal(database, "SELECT name, 1 AS n FROM spans", format)
        assert b"name" in shown
        for part in ("\x1b]0", "\x07", "\x1b[31m", "\u202e"):
            assert part.encode() not in shown, format


def _in_a_terminal(database: Path, query: str, format: str) -> bytes:
    ours, theirs = pty.openpty()
    code = "from ragtrace.cli import main; main()"
    command = [sys.executable, "-c", code, "sql", "--db", str(database), query, "--format", format]
    with subprocess.Popen(command, stdout=theirs, stderr=theirs, env={**os.environ, "NO_COLOR": "1", "TERM": "dumb"}):
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 65_536):
                shown += piece
        except OSError:  # the other end is closed
            pass
    os.close(ours)
    return shown


def test_every_reader_is_locked(database: Path) -> None:
    with open_readonly(database) as connection:
        settings = dict(
            connection.execute(
                "SELECT name, value FROM duckdb_settings() WHERE name IN ('enable_external_access', "
                "'lock_configuration', 'python_enable_replacements', 'access_mode', 'autoload_known_extensions', "
                "'memory_limit', 'max_temp_directory_size')"
            ).fetchall()
        )
    assert settings == {
        "enable_external_access": "false",
        "lock_configuration": "true",
        "python_enable_replacements": "false",
        "access_mode": "read_only",
        "autoload_known_extensions": "false",
        "memory_limit": "1.8 GiB",
        "max_temp_directory_size": "3.7 GiB",
    }


@pytest.mark.parametrize(
    "content", [b"not a database", b"", b"PK\x03\x04" + bytes(4096), bytes(8) + b"DUCK" + bytes(99)]
)
def test_foreign_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.duckdb"
    path.write_bytes(content)
    for opened in (open_readonly, ragtrace.open) if content else (open_readonly,):
        with pytest.raises(StoreError):
            opened(path)
    assert path.read_bytes() == content


def _sources() -> Iterator[tuple[str, ast.Module]]:
    for folder in ("ragtrace", "adapters"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            yield str(file.relative_to(ROOT)), ast.parse(file.read_text("utf-8"))


# The battery hands the caller's own live object to a child of its own; nothing that was stored is ever read so.
PICKLES = {
    "ragtrace/inventory/battery.py",
    "ragtrace/inventory/battery_child.py",
    "ragtrace/inventory/battery_targets.py",
}
UNSAFE = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib", "jsonpickle", "yaml"}


def test_pickle_nowhere() -> None:
    found = set()
    for name, tree in _sources():
        for node in ast.walk(tree):
            modules: list[str] = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            if any(module.partition(".")[0] in UNSAFE for module in modules):
                found.add(name)
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                found.add(name)
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("torch.load", "np.load", "numpy.load"):
                found.add(name)
    assert found == PICKLES


# Every place where SQL is more than a constant, and what goes into it. Read the call before adding to this list: what
# comes from a trace, a file or a caller is a parameter, always.
REVIEWED = {
    "ragtrace/attacks/_likelihood.py": {"columns"},  # one of two constants
    "ragtrace/cli_exposure.py": {"name", "questions"},  # the package's own questions
    "ragtrace/engine/asking.py": {"columns", "name", "view"},  # names of views that are offered
    "ragtrace/engine/counting.py": {"_BASE", "_repeated", "name", "power", "rows", "table"},  # constants
    "ragtrace/engine/local.py": {"key", "name", "query"},  # constants of scaled.py and of relations.py
    "ragtrace/engine/relations.py": {"name"},  # of a view of the package
    "ragtrace/engine/small.py": {"_KNOWN", "columns", "held", "self", "table", "view"},  # of the package
    "ragtrace/engine/spark.py": {"query", "translated"},  # one SELECT, where files cannot be read
    "ragtrace/detection/__init__.py": {"_PAGE", "_PLACED", "chosen", "table"},  # constants
    "ragtrace/detection/reading.py": {"folder", "view"},  # the package's own .sql
    "ragtrace/likelihood/filling.py": {"ANSWERS"},
    "ragtrace/metrics/_read.py": {"ANSWERS", "attack"},  # whether there is one: it is a parameter
    "ragtrace/metrics/canary.py": {"ANSWERS", "HITS"},
    "ragtrace/metrics/canary_decoded.py": {"ANSWERS"},
    "ragtrace/metrics/coverage.py": {"ANSWERS"},
    "ragtrace/metrics/nel.py": {"ANSWERS", "LEAKED"},
    "ragtrace/metrics/utility.py": {"ANSWERS"},
    "ragtrace/query.py": {"statements", "view"},  # a message, two names; the question itself runs read-only
    "ragtrace/reading/lexicon.py": {"_ACTS", "_ANSWERED", "_REWRITTEN"},
    "ragtrace/reading/replication.py": {"_SEEDS", "table"},  # constants
    "ragtrace/report/html/data.py": {"_MINE"},  # a condition with a parameter
    "ragtrace/score.py": {"table", "view", "which"},  # score_data, result_data and the like; probes, entities
    "ragtrace/store/canary_search.py": {"_quoted", "digest", "found", "stored"},  # canaries, their patterns: quoted
    "ragtrace/store/compacting.py": {"_FRESH", "quoted"},  # names of tables and of the file, quoted
    "ragtrace/store/comparing.py": {"_DEFINITIONS", "folder", "name"},  # the package's own .sql
    "ragtrace/store/database.py": {
        "chr", "definitions", "str", "targets", "text", "what",  # the package's own .sql and .toml
    },
    "ragtrace/store/encryption.py": {"NAME", "name", "options"},  # constants
    "ragtrace/store/exposure.py": {"found", "moved"},  # a constant with a parameter; COMMIT or ROLLBACK
    "ragtrace/store/lifting.py": {"column"},  # columns of COLUMNS
    "ragtrace/store/merge.py": {"name", "names"},  # settings of DuckDB
    "ragtrace/store/outgoing.py": {"a"},  # an attribute's name
    "ragtrace/store/retention.py": {"_PROBES", "derived", "query"},  # constants of the module
    "ragtrace/store/windows.py": {"_of", "columns", "high", "low"},  # constants
    "ragtrace/ui/index.py": {"column", "table"},  # acts.defense, facts.value
    "ragtrace/ui/learning.py": {"table"},  # inventory_data, battery_data
    "ragtrace/ui/scratch.py": {"file", "folder", "table", "view", "views"},  # the package's own .sql
    "ragtrace/ui/searching.py": {"_where", "given"},  # conditions that are constants, chosen by name
    "ragtrace/watching/__init__.py": {"_NEW", "kind"},  # the package's own .sql
}  # fmt: skip


def _variables(query: ast.expr, around: ast.AST) -> set[str]:
    """What a query is made from; nothing for constants, also those of the function ``around`` it."""
    if isinstance(query, ast.Name):
        given = [
            n.value for n in ast.walk(around) if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == query.id
        ]
        if query.id.isupper() or (given and all(isinstance(value, ast.Constant) for value in given)):
            return set()
        if not given and query.id in _parameters(around):  # whoever calls this has made it, and is looked at below
            return set()
    return {node.id for node in ast.walk(query) if isinstance(node, ast.Name)}


def _parameters(around: ast.AST) -> set[str]:
    if not isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
        return set()
    return {arg.arg for arg in (*around.args.posonlyargs, *around.args.args, *around.args.kwonlyargs)}


_SQL = re.compile(
    r"\b(SELECT\b.*\bFROM|INSERT INTO|DELETE FROM|UPDATE \w+ SET|CREATE (TABLE|VIEW)|COPY|ATTACH)\b", re.DOTALL
)


def _interpolated(text: ast.JoinedStr) -> set[str]:
    """What is put into a text that looks like SQL, constants apart; wherever that text is made."""
    if not _SQL.search("".join(str(part.value) for part in text.values if isinstance(part, ast.Constant))):
        return set()
    return {
        node.id
        for part in text.values
        if isinstance(part, ast.FormattedValue)
        for node in ast.walk(part)
        if isinstance(node, ast.Name) and not node.id.isupper()
    }


def _calls(tree: ast.AST, around: ast.AST) -> Iterator[tuple[ast.Call, ast.AST]]:
    for node in ast.iter_child_nodes(tree):
        inside = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else around
        if isinstance(node, ast.Call):
            yield node, inside
        yield from _calls(node, inside)


def test_sql_is_made_from_constants() -> None:
    found: dict[str, set[str]] = {}
    for name, tree in _sources():
        for text in ast.walk(tree):
            if isinstance(text, ast.JoinedStr) and (names := _interpolated(text)):
                found.setdefault(name, set()).update(names)
        for call, around in _calls(tree, tree):
            if not (isinstance(call.func, ast.Attribute) and call.args):
                continue
            if call.func.attr in ("execute", "executemany", "sql", "extract_statements") and (
                names := _variables(call.args[0], around)
            ):
                found.setdefault(name, set()).update(names)
    assert found == REVIEWED
