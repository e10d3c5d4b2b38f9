"""The report: what it says of a store made by hand, what it hides, and what it does with little or odd data."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from report_store import ask, manifest, result, scores, small
from store_fixtures import Bench, effect
from typer.testing import CliRunner

from ragtrace import cli
from ragtrace.errors import SchemaVersionError, StoreError, UsageError
from ragtrace.report import reporting
from ragtrace.report.html import arranged, page, words
from ragtrace.report.html.data import Report, read
from ragtrace.store import open_readonly


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def found(database: Path) -> Report:
    return reporting.load(database, None, False)


@pytest.fixture(scope="module")
def html(found: Report) -> str:
    return reporting.render(found, "html")


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "t.duckdb")


def text(html: str) -> str:
    """What a reader sees: without tags, in one line."""
    return " ".join(re.sub(r"<(style|script)>.*?</\1>|<[^>]+>", " ", html, flags=re.DOTALL).split())


def section(html: str, id: str) -> str:
    match = re.search(rf'<section id="{id}".*?</section>', html, re.DOTALL)
    assert match, id
    return text(match[0])


# what it says


def test_a_bypass_is_told_first_in_words_with_its_path(html: str) -> None:
    said = section(html, "verdicts")
    assert (
        "1 verdict needs attention bypassed house-mask at response: its hook was crossed without it in 1 of 3" in said
    )
    assert "path stream" in said
    assert said.index("house-mask") < said.index("rewriter"), "what needs attention comes first"
    assert "stream: 0 changed in 0 runs, bypassed in 1 of 1" in said


def test_the_evidence_names_a_trace_where_it_was_bypassed(database: Path, html: str) -> None:
    with open_readonly(database) as db:
        [(trace,)] = db.execute("SELECT trace_id FROM coverage WHERE NOT ran").fetchall()
    assert f"a trace where it was bypassed: {trace}" in section(html, "verdicts")


def test_every_number_comes_with_interval_reading_reason_and_signature(html: str) -> None:
    said = section(html, "results")
    assert "0.50 0.25 to 0.75 interpretable" in said
    assert "0.00 no interval interpretable" in said
    assert "7.00 no interval nuisance" in said
    assert "nuisance mask (n=5): acts elsewhere" in said
    assert "ragtrace:0|metric:canary_recovery_person|n:5" in said


def test_a_large_report_tells_each_reason_once_a_run(found: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arranged, "_MANY", 1)
    said = section(page.render(found), "results")
    assert "interpretable none (n=5), mask (n=5): reason 1 below" in said
    assert "nuisance mask (n=5): reason 2 below" in said
    assert "Reasons acts at response acts elsewhere" in said


def test_a_metric_without_numbers_says_why_and_is_no_zero(html: str) -> None:
    assert "1 metric without any number canary_recovery_id (canary probes): no data: none planted" in section(
        html, "results"
    )


def test_a_metric_that_nobody_here_knows_is_shown_as_stored(html: str) -> None:
    assert "house_metric canary probes: why This installation does not know this metric" in section(html, "results")


def test_a_single_end_of_an_interval_is_no_interval_with_two() -> None:
    assert arranged.interval({"ci_low": 0.5, "ci_high": None}) == "≥ 0.50"
    assert arranged.interval({"ci_low": None, "ci_high": 0.5}) == "≤ 0.50"


def test_the_picture_shows_each_defense_where_it_was_met(found: Report) -> None:
    met = {hook: [row["defense"] for row in rows] for hook, rows in arranged.flow(found.sections["verdicts"]).items()}
    assert met == {"query": [], "retrieval": [], "content": ["rewriter"], "prompt": [], "response": ["house-mask"]}


def test_canaries_are_counted_by_seed_family_and_arm(found: Report) -> None:
    counts = {(r["arm"], r["family"], r["seed"]): (r["recovered"], r["planted"]) for r in found.sections["canaries"]}
    assert counts == {
        ("none", "person", 1): (1, 1),
        ("mask", "person", 1): (1, 1),
        ("none", "email", 1): (0, 1),
        ("mask", "email", 1): (0, 1),
    }


def test_a_canary_that_the_query_held_is_an_echo(bench: Bench) -> None:
    manifest(bench, "r", [{"text": "qzx@b.org", "family": "email", "document_id": "d1"}], seed=1)
    ask(bench, "r", "none", "p", "You said qzx@b.org", query="Is it qzx@b.org?")
    with bench.open() as db:
        [row] = read(db, "t").sections["canaries"]
    assert (row["recovered"], row["planted"]) == (0, 1)


def test_the_most_exposed_document_is_the_one_whose_canary_came_out(found: Report) -> None:
    [row] = found.sections["exposed"]
    assert (row["document_id"], row["canaries"], row["answers"], row["arms"]) == ("d1", 1, 2, "mask, none")


def test_a_roc_curve_is_that_of_the_scores(found: Report) -> None:
    from matplotlib.figure import Figure

    from ragtrace.report.html import plots

    axes = Figure().subplots()
    plots.roc(axes, found.sections["memberships"])
    # members 3, 2, 0.5 and others 2.5, 1, 0: going down, member, other, member, other, member, other
    steps = [(0, 0), (0, 1 / 3), (1 / 3, 1 / 3), (1 / 3, 2 / 3), (2 / 3, 2 / 3), (2 / 3, 1), (1, 1)]
    assert [tuple(p) for p in axes.lines[0].get_xydata()] == [pytest.approx(p) for p in steps]


def test_scores_that_are_low_for_members_are_turned(bench: Bench) -> None:
    with bench.open() as db:
        assert read(db, "t").sections["memberships"] == []
    ask(bench, "r", "none", "a", "x", attack="s2mia", target="d1", member=True)
    ask(bench, "r", "none", "b", "x", attack="s2mia", target="d2", member=False)
    with bench.open() as db:
        scores(db, [("r", p, "none", "s2mia", "perplexity", v) for p, v in (("a", 1.0), ("b", 5.0))])
        scores(db, [("r", "a", "none", "s2mia", "unheard_of", 1.0)])
        [row] = read(db, "t").sections["memberships"]
    assert (row["metric"], row["sign"], row["members"], row["others"]) == ("perplexity", -1, [1.0], [5.0])


def test_coverage_curves_are_in_the_order_of_the_probes(found: Report) -> None:
    [row] = found.sections["curves"]
    assert (row["arm"], row["shares"]) == ("none", [0.25, 0.5])


def test_utility_stands_beside_each_leak(found: Report) -> None:
    numbers = [r for r in found.sections["results"] if r["value"] is not None]
    pairs = {r["arm"]: (r["leakage_metric"], r["leakage"], r["utility"]) for r in arranged.trades(numbers)}
    assert pairs == {
        "none": ("canary_recovery_person", (0.5, 0.25, 0.75), (0.0, 0.0, 0.3)),
        "mask": ("canary_recovery_person", (0.0, None, None), (0.0, 0.0, 0.3)),
    }


def test_lost_spans_are_told(bench: Bench) -> None:
    ask(bench, "r", "none", "p", "x")
    with bench.open() as db:
        db.execute("INSERT INTO loss_data VALUES ('abc', 7, 'shop', 0, '2026-01-01', false, 10, 8, 2, 0, 0)")
    said = section(reporting.report(bench.database, "html"), "losses")
    assert "2 spans are lost" in said
    assert "abc (7) shop 10 8 2 0 0 0 0" in said


def test_the_embedded_model_is_named_as_weak(bench: Bench, html: str) -> None:
    weak = "these numbers are instrument checks, not findings about any model"
    assert weak not in html
    with bench.open() as db:
        result(db, "r", "none", "nel_strict", 1.0, signature="metric:nel_strict|model:SmolLM2-135M-Instruct")
        made = read(db, "t")
    assert weak in page.render(made)
    assert "instrument checks" in reporting.render(made, "md")


# before and after


def test_texts_are_masked_unless_asked_for(database: Path) -> None:
    for kind in ("html", "md", "json"):
        hidden = reporting.report(database, kind)  # type: ignore[arg-type]
        for word in ("Zebulon", "Quill", "NAME", "PERSON", "Signed"):
            assert word not in hidden, (kind, word)
    shown = reporting.report(database, "html", show_content=True)
    assert "By <del>Zebulon Quill</del><ins>[NAME]</ins>." in shown
    assert "texts are shown: this file is as sensitive as the traces" in text(shown)


def test_masking_keeps_lengths_spaces_and_punctuation() -> None:
    assert words.mask("Ann-Lee <ann@b.co>, 7ü!") == "•••-••• <•••@•.••>, ••!"


def test_texts_are_compared_word_by_word() -> None:
    assert words.compare("call 555 now", "call [PHONE] now", True) == [
        ("same", "call "), ("gone", "555"), ("new", "[PHONE]"), ("same", " now"),
    ]  # fmt: skip


def test_a_change_far_down_a_long_text_is_found_and_the_rest_cut() -> None:
    before = "a b " * 50_000
    pieces = words.compare(before + "x", before + "y", True)
    assert ("gone", "x") in pieces
    assert ("new", "y") in pieces
    assert sum(len(t) for _, t in pieces) < 500


def test_what_came_out_of_a_response_is_set_beside_the_undefended_twin(database: Path, found: Report) -> None:
    with open_readonly(database) as db:
        [(twin,)] = db.execute("SELECT trace_id FROM probes WHERE arm = 'none' AND probe_id = 'canary-1'").fetchall()
    [row] = [r for r in found.sections["changes"] if r["defense"] == "house-mask"]
    assert (row["against"], row["chars_before"], row["chars_after"]) == (twin, 23, 19)
    kinds = [kind for kind, _ in row["texts"]]
    assert "gone" in kinds
    assert "new" in kinds


def test_a_query_is_compared_with_what_was_sent(bench: Bench) -> None:
    ask(bench, "r", "m", "p", "x", [effect("rewrite", "query", text_changed=True)], query="who is Bob", sent="who is X")
    with bench.open() as db:
        [row] = read(db, "t", show_content=True).sections["changes"]
    assert row["texts"] == [("same", "who is "), ("gone", "Bob"), ("new", "X")]


def test_documents_that_were_reordered_and_left_out_say_so(bench: Bench) -> None:
    texts = (("a", "one"), ("b", "two"), ("c", "three"))
    ask(bench, "r", "m", "p", "x", [effect("dp", "retrieval", order_changed=True, ids_changed=True)],
        found=texts, kept=(texts[2], texts[0]))  # fmt: skip
    with bench.open() as db:
        [row] = read(db, "t").sections["changes"]
    assert [(d["document_id"], d["rank"]) for d in row["documents"]] == [
        ("c", (3, 1)), ("a", (1, 2)), ("b", (2, None)),
    ]  # fmt: skip
    assert "b rank 2 → left out" in section(reporting.report(bench.database, "html"), "changes")


def test_a_change_that_nobody_got_is_no_example(bench: Bench) -> None:
    ask(bench, "r", "m", "p", "x", [effect("mask", "response", text_changed=True, late=True)], path="stream")
    with bench.open() as db:
        assert read(db, "t").sections["changes"] == []


def test_traces_without_texts_show_lengths(bench: Bench) -> None:
    with bench.request(), bench.stage("generation", effects=[effect("m", "response", chars_before=9, chars_after=4)]):
        pass
    bench.open().close()
    said = section(reporting.report(bench.database, "html"), "changes")
    assert "9 → 4 characters" in said
    assert "No text to compare" in said


# the file


def test_nothing_in_the_page_is_loaded_or_run_but_what_its_policy_names(html: str) -> None:
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)
    policy = policy.replace("&#39;", "'")
    assert policy.startswith("default-src 'none'")
    for tag in ("style", "script"):
        [body] = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
        assert f"'sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}'" in policy
    assert not re.search(r"\s(style|on\w+|src|srcset|action|formaction)=|@import|url\((?!#)|https?://", html)
    assert set(re.findall(r'href="([^"]?)', html)) == {"#"}


def test_ids_in_the_page_are_unique_and_every_link_has_its_target(html: str) -> None:
    ids = re.findall(r'\sid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', html)) <= set(ids)
    assert set(re.findall(r"url\(#([^)]+)\)", html)) <= set(ids)


def test_the_file_is_for_its_owner_alone_and_whole_or_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "r.html"
    reporting.write(file, "old")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(UnicodeEncodeError):
        reporting.write(file, "new \ud800")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]
    with pytest.raises(UsageError, match="choose a file in a folder"):
        reporting.write(tmp_path / "no" / "r.html", "x")
    with pytest.raises(UsageError, match=r"is a folder, expected a file; give for example .*report\.html"):
        reporting.write(tmp_path, "x")


def test_the_same_store_gives_the_same_page(database: Path, html: str) -> None:
    assert reporting.report(database, "html") == html


def test_without_its_extra_the_command_says_what_to_install(database: Path) -> None:
    script = (
        "import sys; sys.modules |= dict.fromkeys(('jinja2', 'markupsafe', 'matplotlib', 'sklearn'))\n"
        "from ragtrace.cli import main\n"
        "main()"
    )
    command = [sys.executable, "-c", script, "report", "--db", str(database)]
    plain = subprocess.run([*command, "--format", "md"], capture_output=True, text=True)
    assert "| house\\-mask |" in plain.stdout, plain.stderr
    done = subprocess.run(command, capture_output=True, text=True, cwd=database.parent)
    assert done.returncode == 2
    assert "which is not installed" in done.stderr
    assert 'pip install "ragtrace-audit[report]", or take --format md or json' in done.stderr


# little, odd and wrong data


def test_an_empty_database_is_a_page_that_says_what_would_fill_it(bench: Bench) -> None:
    bench.open().close()
    made = reporting.report(bench.database, "html")
    said = text(made)
    for id in ("verdicts", "results", "changes", "channels", "capabilities", "membership", "canaries", "coverage",
               "forest", "trade", "exposed", "pipeline"):  # fmt: skip
        assert "left out: " in section(made, id), id
    assert "this database holds no probes; `ragtrace audit` sends some" in said
    assert "`ragtrace inventory TARGET --db DB`" in said
    assert "nothing is known to be lost" in said
    assert "holds no probes" in reporting.report(bench.database, "md")


def test_probes_without_scores_say_what_scores_them(bench: Bench) -> None:
    ask(bench, "r", "none", "p", "x")
    bench.open().close()
    assert "its probes are not scored yet; run `ragtrace score`" in section(
        reporting.report(bench.database, "html"), "results"
    )


@pytest.mark.parametrize(("arm", "said"), [("none", "has the undefended arm only"), ("mask", "has one arm only")])
def test_one_arm_says_that_nothing_is_compared(bench: Bench, arm: str, said: str) -> None:
    with bench.open() as db:
        result(db, "r", arm, "nel_strict", 1.0)
    assert said in section(reporting.report(bench.database, "html"), "results")


def test_nulls_and_numbers_that_are_none_are_no_data(bench: Bench) -> None:
    with bench.open() as db:
        result(db, "r", "none", "a", 1.0, ci_low=float("nan"), ci_high=float("inf"), reason=None, signature=None,
               attack=None, corpus=None, interpretable=None, n=None)  # fmt: skip
        result(db, "r", "mask", "a", float("nan"), attack=None, corpus=None)
    said = section(reporting.report(bench.database, "html"), "results")
    assert "1.00 no interval unknown" in said
    assert "no reason stored" in said
    assert "nan" not in said.lower()
    loaded = json.loads(reporting.report(bench.database, "json"), parse_constant=pytest.fail)
    assert [r["value"] for r in loaded["sections"]["results"]] == [1.0, None]


def test_one_run_of_several(bench: Bench) -> None:
    with bench.open() as db:
        for run in ("r1", "r2"):
            result(db, run, "none", f"of_{run}", 1.0)
    made = reporting.report(bench.database, "html", run="r2")
    assert "of_r2" in made
    assert "of_r1" not in made
    with pytest.raises(UsageError, match=r"no run 'r3' in this database; it has: r1, r2"):
        reporting.report(bench.database, "html", run="r3")


def test_a_database_of_a_newer_schema_is_refused_with_the_fix(bench: Bench) -> None:
    bench.open().close()
    with duckdb.connect(str(bench.database)) as db:
        db.execute("UPDATE ragtrace_meta SET value = '99' WHERE key = 'schema_version'")
    with pytest.raises(SchemaVersionError, match=r"schema version 99, this ragtrace knows up to 1; upgrade"):
        reporting.report(bench.database, "html")


def test_views_of_an_older_ragtrace_are_renewed(bench: Bench) -> None:
    bench.open().close()
    with duckdb.connect(str(bench.database)) as db:
        db.execute("CREATE OR REPLACE VIEW verdicts AS SELECT 1 AS defense")
        db.execute("UPDATE ragtrace_meta SET value = 'old' WHERE key = 'definitions'")
    assert "nothing is known of any defense" in text(reporting.report(bench.database, "html"))


def test_what_waits_in_the_spool_is_reported(bench: Bench) -> None:
    bench.open().close()
    with bench.request(declared={"mask": ["content"]}), bench.stage("retrieval", effects=[effect("mask", "content")]):
        pass
    bench.write()
    assert "mask active" in section(reporting.report(bench.database, "html"), "verdicts")


def test_a_defense_whose_hook_nobody_knows_has_a_column_of_its_own(found: Report) -> None:
    row = dict.fromkeys(found.sections["verdicts"][0]) | {
        "defense": "seen", "hook": None, "verdict": "unknown", "evidence": "seen at work", "runs": 1,
    }  # fmt: skip
    sections = {**found.sections, "verdicts": [row]}
    made = Report(**{**vars(found), "sections": sections})
    assert "hook not known seen unknown seen at work" in section(page.render(made), "verdicts")
    assert "| seen |  |  |  |  |  | unknown |" in reporting.render(made, "md")


# Markdown, JSON and the command


def test_markdown_holds_verdicts_and_numbers(found: Report) -> None:
    made = reporting.render(found, "md")
    assert "- **bypassed**: house\\-mask at response: changed something in 1 of 2 runs" in made
    assert "| house\\-mask |  |  |  |  | bypassed |" in made
    assert "| canary\\_recovery\\_person (canary) | 0.50 (0.25 to 0.75) interpretable | 0.00 (no interval) " in made


def test_markdown_takes_foreign_text_for_text(bench: Bench) -> None:
    with bench.open() as db:
        result(db, "r", "a|b\n# x <script>", "[m](http://x)", 1.0)
    made = reporting.report(bench.database, "md")
    assert "a\\|b \\# x &lt;script\\>" in made
    assert "\\[m\\]\\(http://x\\)" in made


def test_json_is_complete(found: Report) -> None:
    loaded = json.loads(reporting.render(found, "json"))
    assert loaded["sections"]["results"] == found.sections["results"]
    assert [v["verdict"] for v in loaded["sections"]["verdicts"]] == ["bypassed", "active"]


def _run(*arguments: Any) -> Any:
    return CliRunner().invoke(cli.app, ["report", *map(str, arguments)])


def test_the_command_writes_what_the_ending_says(database: Path, tmp_path: Path, html: str) -> None:
    for name, start in (("r.html", "<!DOCTYPE html>"), ("r.md", "# Privacy"), ("r.json", "{")):
        done = _run("--db", database, "-o", tmp_path / name)
        assert done.exit_code == 0, done.output
        assert (tmp_path / name).read_text("utf-8").startswith(start)
        assert str(tmp_path / name) in done.output.replace("\n", "")
    assert (tmp_path / "r.html").read_text("utf-8") == html
    assert json.loads(_run("--db", database, "--format", "json").output)["runs"] == ["r"]


def test_the_command_needs_a_database(tmp_path: Path) -> None:
    done = _run("--db", tmp_path / "no.duckdb")
    assert isinstance(done.exception, StoreError)
    assert "no database at" in str(done.exception)


def test_what_is_traded_and_what_would_come_out_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "t.duckdb")
    ask(bench, "r", "none", "p1", "Yes.")
    with bench.open() as db:
        db.execute(
            "INSERT INTO tradeoff_data BY NAME SELECT 'r' AS run_id, 'mask' AS arm, 'canary' AS attack, 'c' AS corpus, "
            "'response' AS channel, 'entity' AS kind, t.type, 2.0 AS before, t.after, t.after - 2.0 AS difference, "
            "t.after - 2.5 AS ci_low, t.after - 1.5 AS ci_high, 9 AS n, 9 AS differing, t.direction "
            "FROM (VALUES ('EMAIL_REAL', 0.0, 'lowers'), ('<b>PERSON', 4.0, 'raises')) t(type, after, direction)"
        )
        db.execute(
            "INSERT INTO result_data BY NAME SELECT 'r' AS run_id, 'mask' AS arm, 'canary' AS attack, 'c' AS corpus, "
            "'m' AS metric, 0.5 AS value, 9 AS n, 'interpretable' AS interpretable, "
            "'response' AS channel"
        )
        db.execute(
            "INSERT INTO replication_data BY NAME SELECT 'r' AS run_id, 'mask' AS arm, 'canary' AS attack, "
            "'c' AS corpus, 'm' AS metric, [1, 2] AS seeds, [0.4, 0.6] AS seed_values, 2 AS replicates, "
            "0.3 AS between_low, 0.7 AS between_high"
        )
    page = reporting.report(bench.database, "html")
    trades = page.split('<section id="tradeoffs">')[1].split("</section>")[0]
    assert "-2.00" in trades and "2.00" in trades
    assert trades.count("<b>trade-off</b>") == 2
    assert "&lt;b&gt;PERSON" in trades
    again = page.split('<section id="replications">')[1].split("</section>")[0]
    assert "0.30 to 0.70" in again
    assert "2 of 2" in again
    assert again.count("no interval") == 2
