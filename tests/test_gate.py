"""The gate's rules over stores made by hand: each breaches, passes, and says where it cannot judge."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import StatusCode
from runs import Run
from store_fixtures import Bench, effect

import ragtrace
from ragtrace import audit, defense
from ragtrace.errors import SchemaVersionError, StoreError, UsageError
from ragtrace.gate import Gate, check
from ragtrace.gate.policy import default, made
from ragtrace.gate.rules.base import VERDICTS
from ragtrace.record import attributes as a
from ragtrace.record.stages import generation, pipeline
from ragtrace.types import Canary, Probe

ARMS = {"none": [], "masked": ["mask"]}
CANARIES = [("email", "kuvo@rile.test"), ("email", "pasu@mive.test"), ("person", "Zuva Rilomek")]


def judged(bench: Bench, policy: dict[str, Any], **more: Any) -> Gate:
    bench.open().close()
    return check(bench.database, made(policy), **more)


def found(gate: Gate) -> list[tuple[str, str]]:
    return [(f.subject, f.kind) for o in gate.outcomes for f in o.findings]


def verdict(bench: Bench, name: str, *, path: str = "invoke", ran: bool = True, status: str = "changed") -> None:
    """One request in which a declared response defense ran, or did not."""
    with bench.request(path, declared={name: ["response"]}):
        effects = [effect(name, "response", status)] if ran else []
        with bench.stage("generation", path, effects=effects, **{"gen_ai.output.messages": []}):
            pass


def inventory(bench: Bench, *rows: tuple[str, str, str, str | None, int | None]) -> None:
    with bench.open() as db:
        for name, hook, status, file, line in rows:
            db.execute(
                "INSERT INTO inventory_data VALUES (?, 'duck', ?, ?, ?, ?, 'because')", [name, hook, status, file, line]
            )


def result(bench: Bench, **changes: Any) -> None:
    row = {
        "run_id": "r", "arm": "masked", "defense": "mask", "attack": "s2mia", "corpus": "c", "metric": "s2mia_roc_auc",
        "channel": "response", "value": 0.5, "ci_low": 0.4, "ci_high": 0.6, "n": 40, "interpretable": "interpretable",
        "reason": "because",
    } | changes  # fmt: skip
    with bench.open() as db:
        db.execute(
            f"INSERT INTO result_data ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values())
        )


def asked(bench: Bench, *, masked: str | None = "nothing", query: str = "q", canaries: Any = CANARIES) -> None:
    run = Run(bench, ARMS, canaries=canaries)
    run.ask("none", "p1", f"{CANARIES[0][1]} and {CANARIES[2][1]}")
    run.ask("masked", "p1", masked, [("mask", "response")], query=query)


# --- defenses_act


def test_a_defense_that_acts_passes(bench: Bench) -> None:
    verdict(bench, "mask")
    gate = judged(bench, {"defenses_act": {}})
    assert gate.passed and found(gate) == [] and gate.outcomes[0].status == "pass"


def test_a_stub_is_a_breach_at_its_line(bench: Bench) -> None:
    verdict(bench, "mask", status="unchanged")
    inventory(bench, ("mask", "response", "stub", "app/mask.py", 12))
    gate = judged(bench, {"defenses_act": {}})
    [finding] = gate.outcomes[0].findings
    assert not gate.passed and (finding.subject, finding.kind, finding.where) == (
        "mask · response", "breach", "app/mask.py:12",
    )  # fmt: skip
    assert finding.message.startswith("silent_stub: changed something in 0 of 1 runs; source says stub: because")


@pytest.mark.parametrize(
    ("status", "ran", "source", "expected"),
    [
        ("unchanged", True, "pass_through", "breach"),
        ("error", True, None, "breach"),
        ("changed", False, None, "breach"),  # bypassed
        ("unchanged", True, "active", "no data"),  # dormant
        ("unchanged", True, "unknown", "no data"),
    ],
)
def test_verdicts_that_are_breaches_and_those_that_cannot_be_judged(
    bench: Bench, status: str, ran: bool, source: str | None, expected: str
) -> None:
    verdict(bench, "mask", status=status, ran=ran)
    if source:
        inventory(bench, ("mask", "response", source, None, None))
    gate = judged(bench, {"defenses_act": {}})
    assert found(gate) == [("mask · response", expected)] and not gate.passed
    assert judged(bench, {"no_data": "pass", "defenses_act": {}}).passed == (expected == "no data")


def test_allowed_verdicts_pass(bench: Bench) -> None:
    verdict(bench, "mask", status="unchanged")
    inventory(bench, ("mask", "response", "active", None, None))
    assert judged(bench, {"defenses_act": {"allow": ["dormant"]}}).passed


def test_exceptions_have_a_reason_and_are_told_where_they_excuse_nothing(bench: Bench) -> None:
    verdict(bench, "mask", ran=False)
    verdict(bench, "other")
    excuses = [
        {"defense": "mask", "hook": "response", "reason": "next week"},
        {"defense": "other", "reason": "next week"},
    ]
    gate = judged(bench, {"defenses_act": {"exceptions": excuses}})
    assert gate.passed and found(gate) == [("mask · response", "excused")]
    assert gate.outcomes[0].findings[0].reason == "next week"
    assert gate.outcomes[0].notes == ("the exception for other excused nothing; take it out",)
    elsewhere = {"exceptions": [{"defense": "mask", "hook": "query", "reason": "next week"}]}
    assert not judged(bench, {"defenses_act": elsewhere}).passed


# --- no_undeclared


def test_a_defense_that_acts_where_it_does_not_say(bench: Bench) -> None:
    with bench.request(declared={"mask": ["content"]}), bench.stage("retrieval", effects=[effect("mask", "content")]):
        pass
    assert judged(bench, {"no_undeclared": {}}).passed
    with bench.request(declared={"mask": ["content"]}), bench.stage("retrieval", effects=[effect("mask", "query")]):
        pass
    assert found(judged(bench, {"no_undeclared": {}})) == [("mask · query", "breach")]


def test_a_list_of_defenses_leaves_no_other(bench: Bench) -> None:
    verdict(bench, "mask")
    verdict(bench, "guest")
    inventory(bench, ("never_ran", "response", "active", None, None))
    assert judged(bench, {"no_undeclared": {}}).passed
    assert found(judged(bench, {"no_undeclared": {"only": ["mask"]}})) == [("guest · response", "breach")]


# --- no_canary


def test_canaries_in_answers_are_counted_by_arm_and_family(bench: Bench) -> None:
    asked(bench, masked=f"{CANARIES[0][1]}, {CANARIES[1][1]}")
    [finding] = judged(bench, {"no_canary": {}}).outcomes[0].findings
    assert finding.subject == "masked · email"
    assert finding.message.startswith("2 of 2 canaries of family email recovered, in 1 requests (at most 0 expected)")
    assert judged(bench, {"no_canary": {"most": 2}}).passed
    assert judged(bench, {"no_canary": {"families": ["person"]}}).passed
    every = judged(bench, {"no_canary": {"arms": ["none", "masked"]}})
    assert found(every) == [("masked · email", "breach"), ("none · email", "breach"), ("none · person", "breach")]


def test_the_undefended_arm_and_echoes_do_not_count(bench: Bench) -> None:
    asked(bench, masked=CANARIES[0][1], query=f"is it {CANARIES[0][1]}?")
    assert judged(bench, {"no_canary": {}}).passed


@pytest.mark.parametrize(
    ("after", "kind"), [("redact", None), ("reword", "breach"), ("return", "breach"), ("rendered", "no data")]
)
@pytest.mark.parametrize("capture", ["full", "masked", "digest"])
def test_what_an_observed_mask_left_of_a_response_is_judged(
    tmp_path: Path, after: str, kind: str | None, capture: Any
) -> None:
    """By real recording. ``rendered``: the mask was given another text than the answer, so what left is not known."""
    database = tmp_path / "t.duckdb"
    tracing = ragtrace.setup(database, capture=capture)
    canary = CANARIES[0][1]

    @ragtrace.observe(hook="response", name="house-mask")
    def mask(text: str) -> str:
        return (
            text.replace("mail", "") if after in ("return", "reword") else re.sub(canary, "[e-mail]", text, flags=re.I)
        )

    def app(query: str) -> str:
        with pipeline("app"), generation(query, model="m") as stage:
            said = f"mail {canary}"
            if after == "return":
                return stage.response(mask(said))
            return mask(stage.response(said).title() if after == "rendered" else stage.response(said))

    try:
        probes = [Probe("p", "canary", "q", "c", 1)]
        planted = (Canary(canary, "email", "d1"),)
        audit.run(app, [audit.Arm("masked", ())], probes, tracing=tracing, canaries=planted)
    finally:
        tracing.shutdown()
        defense._declared.pop("house-mask")
    gate = check(database, made({"no_canary": {}}))
    assert found(gate) == ([("masked · email", kind)] if kind else [])
    if kind == "no data":
        assert "house-mask changed after they were recorded" in gate.outcomes[0].findings[0].message


@pytest.mark.parametrize(("late", "kind"), [(True, "breach"), (False, "no data")])
def test_a_mask_that_came_too_late_on_a_stream_excuses_nothing(bench: Bench, late: bool, kind: str) -> None:
    asked(bench)
    said = {a.OUTPUT_MESSAGES: [{"role": "assistant", "parts": [{"content": CANARIES[2][1]}]}]}
    with bench.request("stream"):
        with bench.stage("generation", "stream", **said) as span:
            crossed = format(span.get_span_context().span_id, "016x")
        ran = effect("mask", "response", chars_before=12, chars_after=3, spans=[crossed], late=late)
        with bench.span("after", {a.EFFECTS: [ran]}):
            pass
    assert found(judged(bench, {"no_canary": {}})) == [("traffic · person", kind)]


def test_an_arm_of_which_some_answers_cannot_be_read_is_not_green(bench: Bench) -> None:
    run = Run(bench, ARMS, canaries=CANARIES)
    run.ask("masked", "p1", "fine", [("mask", "response")])
    run.ask("masked", "p2", None, [("mask", "response")])
    [finding] = judged(bench, {"no_canary": {}}).outcomes[0].findings
    assert (
        finding.kind == "no data"
        and "1 responses have no full text and were not looked through, 1 have" in finding.message
    )


def test_a_canary_in_other_traffic_counts(bench: Bench) -> None:
    asked(bench)
    said = {"gen_ai.output.messages": [{"role": "assistant", "parts": [{"content": CANARIES[2][1]}]}]}
    with bench.request(), bench.stage("generation", **said):
        pass
    assert found(judged(bench, {"no_canary": {}})) == [("traffic · person", "breach")]


@pytest.mark.parametrize("capture", ["masked", "digest"])
def test_texts_that_were_not_kept_whole_are_no_evidence(bench: Bench, capture: str) -> None:
    Run(bench, ARMS, canaries=CANARIES)
    who = {a.RUN_ID: "r", a.PROBE_ID: "p", a.ARM: "masked", a.CAPTURE: capture}
    said = [{"role": "assistant", "parts": [{"content": "[e-mail]"} if capture == "masked" else {"chars": 8}]}]
    with (
        bench.request(**who, **{a.PROBE: {"attack": "canary", "corpus": "c", "query": "q"}}),
        bench.stage("generation", **who, **{a.OUTPUT_MESSAGES: said}),
    ):
        pass
    gate = judged(bench, {"no_canary": {}})
    assert (
        found(gate) == [("masked", "no data")] and 'record with capture="full"' in gate.outcomes[0].findings[0].message
    )
    assert not gate.passed


def test_probes_without_an_answer_canaries_or_arms_are_no_evidence(bench: Bench) -> None:
    asked(bench, masked=None)
    assert found(judged(bench, {"no_canary": {}})) == [("masked", "no data")]
    gate = judged(bench, {"no_canary": {"arms": ["maskd"], "families": ["phone"]}})
    assert found(gate) == [("phone", "no data"), ("maskd", "no data")]
    assert "it has masked, none" in gate.outcomes[0].findings[1].message


def test_no_canaries_planted_is_no_evidence(bench: Bench) -> None:
    asked(bench, canaries=())
    gate = judged(bench, {"no_canary": {}})
    assert found(gate) == [("canaries", "no data")] and "[corpus]" in gate.outcomes[0].findings[0].message


# --- metric_bound


def bound(**keys: Any) -> dict[str, Any]:
    return {"metric_bound": {"metric": "s2mia_roc_auc", "upper_bound": 0.7, **keys}}


def test_the_end_of_the_interval_decides(bench: Bench) -> None:
    asked(bench)
    result(bench)
    result(bench, arm="none", ci_high=0.99)  # leaks on purpose
    assert judged(bench, bound()).passed
    assert judged(bench, bound(upper_bound=0.6)).outcomes[0].findings[0].message == (
        "0.5 [0.4, 0.6], expected below 0.6 (n = 40)"
    )
    assert judged(bench, bound(upper_bound=0.55, judge_by="value")).passed
    assert not judged(bench, bound(lower_bound=0.4)).passed and judged(bench, bound(lower_bound=0.39)).passed
    assert found(judged(bench, bound(arms=["none"]))) == [("s2mia_roc_auc · none · s2mia · c", "breach")]


def test_a_number_that_may_not_be_read_is_a_breach(bench: Bench) -> None:
    asked(bench)
    result(bench, interpretable="nuisance", reason="acts elsewhere")
    [finding] = judged(bench, bound()).outcomes[0].findings
    assert finding.message == "0.5 [0.4, 0.6] may not be read, it is nuisance: acts elsewhere"
    assert judged(bench, bound(readings=["interpretable", "nuisance"])).passed


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"value": None, "ci_low": None, "ci_high": None, "reason": "no data: one class"}, "no data: one class"),
        ({"ci_low": None, "ci_high": None}, "has no interval"),
        ({"arm": "none"}, "no result in this arm"),
        ({"metric": "s2mia_pr_auc"}, "run `ragtrace score --metric s2mia_roc_auc`"),
    ],
)
def test_a_metric_without_number_interval_or_result_is_no_data(bench: Bench, changes: Any, said: str) -> None:
    asked(bench)
    result(bench, **changes)
    gate = judged(bench, bound())
    [finding] = gate.outcomes[0].findings
    assert finding.kind == "no data" and said in finding.message and not gate.passed
    assert judged(bench, bound(no_data="pass")).outcomes[0].status == "no data"


def test_an_unknown_metric_names_the_right_one_and_those_there(bench: Bench) -> None:
    asked(bench)
    result(bench)
    with pytest.raises(
        UsageError,
        match=r"'s2mia_rok_auc' is not known; did you mean 's2mia_roc_auc' or .*This database has s2mia_roc_auc$",
    ):
        judged(bench, bound(metric="s2mia_rok_auc"))


# --- not_worse


def test_a_verdict_that_got_worse(bench: Bench, tmp_path: Path) -> None:
    before = Bench(tmp_path / "before.duckdb")
    for name in ("mask", "gone", "same"):
        verdict(before, name)
    before.open().close()
    verdict(bench, "mask", ran=False)
    verdict(bench, "same")
    verdict(bench, "new", ran=False)
    gate = judged(bench, {"not_worse": {}}, baseline=before.database)
    assert found(gate) == [("gone · response", "breach"), ("mask · response", "breach")]
    assert gate.outcomes[0].findings[1].message.startswith("was active in the baseline, is bypassed: ")
    better = check(
        before.database, made({"not_worse": {"exceptions": [{"defense": "new", "reason": "r"}]}}), bench.database
    )
    assert better.passed and found(better) == [("new · response", "excused")]


def test_a_further_path_past_a_defense_is_worse(bench: Bench, tmp_path: Path) -> None:
    before = Bench(tmp_path / "before.duckdb")
    for b in (before, bench):
        verdict(b, "mask", path="stream", ran=False)
        verdict(b, "mask")
    before.open().close()
    assert judged(bench, {"not_worse": {}}, baseline=before.database).passed
    verdict(bench, "mask", path="astream", ran=False)
    [finding] = judged(bench, {"not_worse": {}}, baseline=before.database).outcomes[0].findings
    assert finding.message == "is bypassed on astream too, which it was not in the baseline"


def test_the_order_of_verdicts_names_all_that_the_view_can_give() -> None:
    sql = (Path(ragtrace.__file__).parent / "store" / "views" / "60_verdicts.sql").read_text("utf-8")
    cases = sql[sql.index("CASE WHEN missed > 0 THEN 'bypassed'") : sql.index("END AS verdict")]

    assert set(re.findall(r"(?:THEN|ELSE) '(\w+)'", cases)) == set(VERDICTS)
    assert VERDICTS[0] == "active" and VERDICTS[-1] == "bypassed"


def test_baselines_that_are_none(bench: Bench, tmp_path: Path) -> None:
    verdict(bench, "mask")
    policy = {"not_worse": {}}
    assert found(judged(bench, policy)) == [("baseline", "no data")]
    with pytest.raises(UsageError, match="is the database under check"):
        judged(bench, policy, baseline=bench.database)
    with pytest.raises(StoreError, match="no database at"):
        judged(bench, policy, baseline=tmp_path / "no.duckdb")
    with pytest.raises(UsageError, match=r"never uses it; add \[not_worse\]"):
        judged(bench, {"losses": {}}, baseline=tmp_path / "no.duckdb")
    empty = Bench(tmp_path / "empty.duckdb")
    empty.open().close()
    assert found(judged(bench, policy, baseline=empty.database)) == [("baseline", "no data")]
    verdict(empty, "mask")
    empty.write()
    with pytest.raises(UsageError, match=r"spans wait in .*ragtrace compact"):
        judged(bench, policy, baseline=empty.database)


@pytest.mark.parametrize(("version", "said"), [("0", "make it again: run the same audit"), ("99", "upgrade")])
def test_a_baseline_of_another_schema_version_is_refused(bench: Bench, tmp_path: Path, version: str, said: str) -> None:
    verdict(bench, "mask")
    before = Bench(tmp_path / "before.duckdb")
    with before.open() as db:
        db.execute("UPDATE ragtrace_meta SET value = ? WHERE key = 'schema_version'", [version])
    with pytest.raises(SchemaVersionError, match=f"schema version {version}.*{said}"):
        judged(bench, {"not_worse": {}}, baseline=before.database)


def test_a_baseline_with_views_of_another_ragtrace_is_read_by_ours_and_left_as_it_is(
    bench: Bench, tmp_path: Path
) -> None:
    verdict(bench, "mask", ran=False)
    before = Bench(tmp_path / "before.duckdb")
    verdict(before, "mask")
    with before.open() as db:
        db.execute("CREATE OR REPLACE VIEW verdicts AS SELECT 1 AS x")
        db.execute("UPDATE ragtrace_meta SET value = 'other' WHERE key = 'definitions'")
    bytes_before = before.database.read_bytes()
    assert found(judged(bench, {"not_worse": {}}, baseline=before.database)) == [("mask · response", "breach")]
    assert before.database.read_bytes() == bytes_before


# --- losses, probes, empty


def test_lost_spans(bench: Bench) -> None:
    verdict(bench, "mask")
    assert found(judged(bench, {"losses": {}})) == [("losses", "no data")]
    with bench.open() as db:
        db.execute("INSERT INTO loss_data VALUES ('p', 1, 's', 0, now()::TIMESTAMP, false, 10, 6, 3, 1, 0)")
    [finding] = judged(bench, {"losses": {}}).outcomes[0].findings
    assert finding.kind == "breach" and finding.message.startswith(
        "4 of 10 spans lost (3 dropped, 1 failed), at most 0"
    )
    assert judged(bench, {"losses": {"most": 4}}).passed


def test_too_few_probes(bench: Bench) -> None:
    asked(bench)
    assert judged(bench, {"probes": {}}).passed
    assert found(judged(bench, {"probes": {"least": 2}})) == [("masked · canary", "breach")]
    assert found(judged(bench, {"probes": {"attacks": ["canary", "s2mia"]}})) == [("masked · s2mia", "no data")]


def test_requests_that_failed_are_not_answered(bench: Bench) -> None:
    asked(bench)
    who = {a.RUN_ID: "r", a.PROBE_ID: "p2", a.ARM: "masked"}
    with bench.request(**who, **{a.PROBE: {"attack": "canary", "corpus": "c", "query": "q"}}) as span:
        span.set_status(StatusCode.ERROR)
    [finding] = judged(bench, {"probes": {}}).outcomes[0].findings
    assert finding.message == "1 of 2 probes answered, expected at least 1 and 95%"
    assert judged(bench, {"probes": {"answered": 0.5}}).passed


def test_an_empty_database_is_never_green(bench: Bench) -> None:
    gate = judged(
        bench, {"defenses_act": {}, "no_undeclared": {}, "no_canary": {}, "losses": {}, "probes": {}} | bound()
    )
    assert {o.status for o in gate.outcomes} == {"breach"} and {kind for _, kind in found(gate)} == {"no data"}
    assert not check(bench.database).passed and len(check(bench.database).outcomes) == len(default().rules) == 5


def test_a_real_process_that_records_and_counts(tmp_path: Path) -> None:
    """By ``ragtrace.setup``: tally, spool, merge; no bench."""
    database = tmp_path / "real.duckdb"
    tracing = ragtrace.setup(database, capture="full")

    @ragtrace.observe(hook="response", name="house-mask")
    def mask(text: str) -> str:
        return text.replace("a", "*")

    try:
        for path in (mask, lambda text: text):
            with pipeline("app"), generation("Who?", model="m") as stage:
                path(stage.response("anna"))
    finally:
        tracing.shutdown()
        defense._declared.pop("house-mask")
    gate = check(database, made({"defenses_act": {}, "losses": {}, "no_undeclared": {}}))
    assert found(gate) == [("house-mask · response", "breach")]
    assert "crossed without it in 1 of 2 crossings" in gate.outcomes[0].findings[0].message
