"""Tables for notebooks: three ways out, a text and an HTML that show what is foreign and never interpret it."""

from __future__ import annotations

import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import duckdb
import nbclient
import nbformat
import pyarrow as pa
import pytest
from report_store import HOSTILE, hostile, small

import ragtrace
from ragtrace.errors import StoreError, UsageError
from ragtrace.inventory import inventory

TAGS = {
    "div", "table", "caption", "thead", "tbody", "tr", "th", "td", "bdi", "br", "small", "span", "details", "summary",
    "ul", "li", "b", "p",
}  # fmt: skip
STUB = """
import ragtrace
class Mask(ragtrace.Defense):
    def on_response(self, query, documents, response):
        return response
"""


class Seen(HTMLParser):
    """What a page is made of."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag == "td":
            self.cells.append("")
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if "td" in self.open:
            self.cells[-1] += data


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small(tmp_path_factory.mktemp("small"))


@pytest.fixture
def db(store: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with ragtrace.open(store) as connection:
        yield connection


def test_verdicts_are_the_rows_of_the_view_three_ways(db: duckdb.DuckDBPyConnection) -> None:
    found = ragtrace.verdicts(db)
    expected = db.execute(
        "FROM verdicts ORDER BY defense, list_position(['query', 'retrieval', 'content', 'prompt', 'response'], hook)"
    ).fetchall()
    names = [column[0] for column in db.description or ()]
    assert len(found) == len(expected) > 1 and found.columns == names
    assert [tuple(row.values()) for row in found] == expected
    assert found.to_arrow().to_pylist() == list(found)
    pandas, polars = found.to_pandas(), found.to_polars()
    assert list(pandas["verdict"]) == polars["verdict"].to_list() == [row["verdict"] for row in found]
    assert pandas.shape == polars.shape == (len(expected), len(names))


def test_results_of_one_run_and_of_all(db: duckdb.DuckDBPyConnection) -> None:
    runs = [r for (r,) in db.execute("SELECT DISTINCT run_id FROM results").fetchall()]
    everything = ragtrace.results(db)
    assert len(everything) == db.execute("SELECT count(*) FROM results").fetchone()[0] > 0  # type: ignore[index]
    assert {row["run_id"] for row in ragtrace.results(db, runs[0])} == {runs[0]}
    with pytest.raises(UsageError, match=r"no results of a run 'x�\[31m' in this database; it has: r"):
        ragtrace.results(db, "x\x1b[31m")


def test_a_path_does_as_well_and_one_without_a_database_says_so(store: Path, tmp_path: Path) -> None:
    assert len(ragtrace.verdicts(str(store))) == len(ragtrace.verdicts(store)) > 1
    with pytest.raises(StoreError, match="no database at"):
        ragtrace.verdicts(tmp_path / "none.duckdb")
    assert list(tmp_path.iterdir()) == []


def test_any_answer_and_an_inventory_are_tables_too(db: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    answer = ragtrace.table(db.sql("SELECT attributes, 1 AS a, 2 AS a FROM spans LIMIT 3"))
    assert answer.to_polars().shape == answer.to_pandas().shape == (3, len(answer.columns))
    assert len(set(answer.columns)) == 3
    twice = ragtrace.table(pa.table([[1], [2]], names=["a", "a"]))
    assert list(twice) == [{"a": 1, "a_1": 2}]
    (tmp_path / "mask.py").write_text(STUB)
    found = ragtrace.table(inventory(tmp_path / "mask.py"))
    assert [(r["hook"], r["status"]) for r in found] == [("response", "pass_through")]
    assert "pass_through" in Seen(found._repr_html_()).text
    with pytest.raises(UsageError, match="got a str; expected an answer of DuckDB"):
        ragtrace.table("FROM spans")  # type: ignore[arg-type]


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_missing_package_is_named_with_the_fix(
    package: str, db: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=f"needs the package '{package}'.*pip install {package}"):
        getattr(ragtrace.verdicts(db), f"to_{package}")()


def test_the_matrix_says_where_each_defense_acts(db: duckdb.DuckDBPyConnection) -> None:
    page = Seen(ragtrace.verdicts(db)._repr_html_())
    rows = [page.cells[i : i + 6] for i in range(0, len(page.cells), 6)]
    house = next(row for row in rows if row[0] == "house-mask")
    assert house[1:5] == ["–"] * 4 and house[5].startswith("● bypassed") and "changed 1 of 2 runs" in house[5]
    assert "its hook was crossed without it in" in page.text
    assert "no defense" not in page.text.lower()


def test_numbers_come_with_interval_reading_and_reason(db: duckdb.DuckDBPyConnection) -> None:
    page = Seen(ragtrace.results(db)._repr_html_())
    row = next(r for r in ragtrace.results(db) if r["ci_low"] is not None)
    shown = f"{row['value']:.3g} [{row['ci_low']:.3g}, {row['ci_high']:.3g}]"
    assert any(cell.startswith(shown) and row["interpretable"] in cell for cell in page.cells)
    for row in ragtrace.results(db):
        if row["interpretable"] != "interpretable":
            assert f"{row['metric']} · {row['arm']} · {row['interpretable']}: " in page.text


def test_empty_ones_say_what_is_not_there(tmp_path: Path) -> None:
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        assert "No defense is declared" in ragtrace.verdicts(db)._repr_html_()
        assert "nothing was scored" in ragtrace.results(db)._repr_html_()
        assert "defense" in repr(ragtrace.verdicts(db)).splitlines()[1]
        assert Seen(ragtrace.table(db.sql("FROM spans"))._repr_html_()).cells == []


def test_long_tables_are_cut_and_say_so() -> None:
    made = ragtrace.table(pa.table({f"c{i}": list(range(500)) for i in range(30)}))
    page = Seen(made._repr_html_())
    assert len(page.cells) == 100 * 24
    assert "… and 400 more rows" in page.text and "… and 6 more columns" in page.text
    said = repr(made)
    assert "… and 460 more rows" in said and "22 more columns" in said and len(said.splitlines()) < 50


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile(tmp_path_factory.mktemp("hostile"))


@pytest.mark.parametrize("what", ["verdicts", "results", "documents", "probes"])
def test_hostile_content_is_only_shown(bad: Path, what: str) -> None:
    with ragtrace.open(bad) as db:
        made = (
            ragtrace.table(db.sql(f"FROM {what}")) if what in ("documents", "probes") else getattr(ragtrace, what)(db)
        )
        html, said = made._repr_html_(), repr(made)
    page = Seen(html)
    assert page.open == [] and page.tags <= TAGS and page.attributes <= {"style", "scope", "aria-hidden"}
    assert len(html) < 3_000_000 and max(map(len, page.cells)) < 1_000
    for text in (page.text, said):
        assert {c for c in text if unicodedata.category(c)[0] == "C"} <= {"\n"}
    if what == "verdicts":
        assert all(s[:150] in page.text for s in HOSTILE if s.isascii() and s.isprintable())


def test_html_takes_its_colours_from_the_notebook(db: duckdb.DuckDBPyConnection) -> None:
    """Text and ground are inherited; the dots are seen on both: 3:1 is what WCAG asks of what is not text."""
    html = ragtrace.verdicts(db)._repr_html_() + ragtrace.results(db)._repr_html_()
    assert "http" not in html and "<style" not in html and "background:transparent" in html
    dots = set(re.findall(r"color:(#\w{6})", html))
    assert dots

    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    for dot in dots:
        assert 1.05 / (light(dot) + 0.05) >= 3 and (light(dot) + 0.05) / (light("#111111") + 0.05) >= 3


NOTEBOOK = (
    """
import ragtrace
tracing = ragtrace.setup("traces.duckdb", capture="full")

@ragtrace.observe(hook="response", name="house-mask")
def mask(text: str) -> str:
    return text.replace("ann@corp.com", "[e-mail]")

with ragtrace.pipeline("my-rag"):
    with ragtrace.retrieval("Who?") as stage:
        stage.documents(["Ann (ann@corp.com) signs."])
    with ragtrace.generation("Who?", model="m") as stage:
        stage.response(mask("ann@corp.com <script>alert(1)</script>"))
tracing.flush()
db = ragtrace.open("traces.duckdb")
""",
    "ragtrace.verdicts(db)",
    'ragtrace.table(db.sql("SELECT response FROM generations"))',
    "ragtrace.verdicts(db).to_pandas()",
)


@pytest.mark.filterwarnings("ignore")  # jupyter's own, of this process: the kernel is another
def test_a_notebook_shows_them(tmp_path: Path) -> None:
    book: Any = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in NOTEBOOK])
    environment = {
        "JUPYTER_RUNTIME_DIR": str(tmp_path),
        "IPYTHONDIR": str(tmp_path),
        "JUPYTER_CONFIG_DIR": str(tmp_path),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        nbclient.NotebookClient(book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [[o for o in cell.outputs if o.output_type == "execute_result"] for cell in book.cells]
    (verdicts,), (answer,), (frame,) = shown[1:]
    assert "● active" in Seen(verdicts.data["text/html"]).text
    assert re.search("house-mask.*response.*active", verdicts.data["text/plain"])
    page = Seen(answer.data["text/html"])
    assert page.cells == ["[e-mail] <script>alert(1)</script>"] and "script" not in page.tags
    assert "house-mask" in frame.data["text/html"]


def test_import_ragtrace_stays_light() -> None:
    code = "import sys, ragtrace; print([m for m in ('ragtrace.tables', 'duckdb', 'pandas') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
