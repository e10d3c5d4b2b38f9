"""The battery: what it says of a defense is what the defense does, whatever else the defense does."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import battery_defenses as d
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain.agents.middleware import PIIMiddleware
from llama_index.core.postprocessor import KeywordNodePostprocessor, SimilarityPostprocessor
from typer.testing import CliRunner

import ragtrace
from ragtrace import canaries, defense, ner
from ragtrace.audit import store_battery
from ragtrace.capabilities import CHANNEL_HOOKS, mitigates, recommend
from ragtrace.cli import app
from ragtrace.defenses import DPRetrieval, EntitySubstitution, RegexMask
from ragtrace.errors import UsageError
from ragtrace.inventory.battery import Battery, Capability, battery
from ragtrace.inventory.battery_inputs import DOCUMENTS, FAMILIES, GROUPS, TEXTS
from ragtrace.lexicons import words
from ragtrace.metrics import load as metrics
from ragtrace.papers.dp_r import DPStub

WITH_AT = {"email", "canary_email"}


def one(target: Any, **options: Any) -> Battery:
    (found,) = battery(target, **options)
    return found


def changing(found: Battery, hook: str) -> set[str]:
    return {c.family for c in found.capabilities if c.hook == hook and c.status == "changes"}


def kinds(found: Battery, hook: str) -> set[str]:
    return {k for c in found.capabilities if c.hook == hook for k in c.kinds}


def statuses(found: Battery, hook: str) -> set[str]:
    return {c.status for c in found.capabilities if c.hook == hook}


# --- the specimens ----------------------------------------------------------------------------------------------------


def test_the_specimens_are_what_they_claim() -> None:
    w = words()
    for specimen in TEXTS["person_common"]:
        first, last = specimen.secrets[0].lower().split()
        assert first in w.first and last in w.surname
    for specimen in TEXTS["person_rare"]:
        assert not set(specimen.secrets[0].lower().split()) & ner.vocabulary()
    assert len(TEXTS["long"][0].text.split()) == 10_000
    assert all(s in specimen.text for f in TEXTS for specimen in TEXTS[f] for s in specimen.secrets)
    assert not TEXTS.keys() & DOCUMENTS.keys()
    for family, (_, sentence) in canaries.FAMILIES.items():
        for specimen in TEXTS[f"canary_{family}"]:
            assert specimen.text == sentence.format(specimen.secrets[0])
            assert not set(specimen.secrets[0].lower().replace("@", " ").split()) & ner.vocabulary()


@pytest.mark.parametrize("text", ["GB82 WEST 1234 5698 7654 32", "4111 1111 1111 1111"])
def test_check_digits_are_right(text: str) -> None:
    assert any(text in s.secrets for s in TEXTS["id"])
    plain = text.replace(" ", "")
    if plain[0].isalpha():
        assert int("".join(str(int(c, 36)) for c in plain[4:] + plain[:4])) % 97 == 1
    else:
        doubled = [int(c) * (2 - i % 2) for i, c in enumerate(plain)]
        assert sum(n - 9 if n > 9 else n for n in doubled) % 10 == 0


# --- real defenses ----------------------------------------------------------------------------------------------------


def test_the_regex_mask_knows_addresses_and_numbers_and_no_names() -> None:
    found = one(RegexMask(hooks=("content", "response")))
    assert (found.defense, found.kind, found.hooks) == ("regex_mask", "ragtrace", ("content", "response"))
    for hook in found.hooks:
        assert changing(found, hook) == {"email", "phone", "id", "canary_email", "canary_phone", "canary_id"}
        assert kinds(found, hook) == {"text"}
        assert statuses(found, hook) == {"changes", "leaves"}
    email, ids = found.capability("response", "email"), found.capability("response", "id")
    assert (email.changed, email.removed, email.n) == (4, 4, 4)
    assert (ids.removed, ids.n) == (5, 6)  # the IBAN stays
    assert all(c.deterministic and c.stateful is False and not c.mutates for c in found.capabilities)
    assert found.capability("query", "email").status == "not_tried"


def test_entity_substitution_knows_the_names_of_its_lexicon() -> None:
    found = one(EntitySubstitution)
    assert changing(found, "response") == {"email", "person_common", "unicode", "canary_email"}
    assert found.capability("content", "person_common").removed == 4
    assert found.capability("content", "person_rare").status == "leaves"


def test_noise_on_scores_changes_scores_and_order_and_no_text() -> None:
    found = one(DPRetrieval(epsilon=0.1))
    assert found.hooks == ("retrieval",)
    assert kinds(found, "retrieval") == {"scores", "order"}
    scored, unscored = (found.capability("retrieval", f) for f in ("scored", "unscored"))
    assert (scored.status, scored.deterministic, scored.stateful) == ("changes", False, None)
    assert (unscored.status, unscored.deterministic) == ("leaves", True)
    assert found.capability("retrieval", "email").removed == 0
    seeded = one(DPRetrieval(seed=3)).capability("retrieval", "scored")
    assert (seeded.deterministic, seeded.stateful) == (True, False)


def test_the_stub_leaves_everything() -> None:
    found = one(DPStub(seed=1))
    assert found.hooks == ("retrieval", "response")
    assert statuses(found, "response") == {"leaves"}
    assert found.capability("retrieval", "scored").status == "changes"


def test_parts_of_langchain() -> None:
    found = one(PIIMiddleware("email", apply_to_output=True))
    assert (found.defense, found.kind, found.hooks) == ("PIIMiddleware", "langchain", ("prompt", "response"))
    assert changing(found, "prompt") == changing(found, "response") == WITH_AT
    assert found.capability("response", "email").removed == 4
    input_only = one(PIIMiddleware("email"))
    assert (changing(input_only, "prompt"), statuses(input_only, "response")) == (WITH_AT, {"leaves"})
    parser = one("langchain_core.output_parsers:CommaSeparatedListOutputParser")
    assert statuses(parser, "response") == {"error"}  # a list of texts is no text
    assert statuses(one("langchain_core.output_parsers:StrOutputParser"), "response") == {"leaves"}
    reordered = one("langchain_community.document_transformers:LongContextReorder")
    assert (reordered.hooks, kinds(reordered, "retrieval")) == (("retrieval",), {"order"})


def test_middleware_round_the_model(tmp_path: Path) -> None:
    file = tmp_path / "round_model.py"
    file.write_text(
        textwrap.dedent("""
        from langchain.agents.middleware import AgentMiddleware
        from langchain_core.documents import BaseDocumentCompressor, Document
        from langchain_core.messages import AIMessage

        class Round(AgentMiddleware):
            def wrap_model_call(self, request, handler):
                messages = [m.model_copy(update={"content": m.text.replace("@", "*")}) for m in request.messages]
                answer = handler(request.override(messages=messages)).result[0]
                return AIMessage(answer.text.replace("Mary", "M."))

        class ARound(AgentMiddleware):
            async def awrap_model_call(self, request, handler):
                response = await handler(request)
                response.result = [AIMessage("nothing")]
                return response

        class Idle(BaseDocumentCompressor):
            def compress_documents(self, documents, query, callbacks=None):
                return [Document(page_content=d.page_content, metadata=d.metadata) for d in documents]

        class Unique(BaseDocumentCompressor):
            def compress_documents(self, documents, query, callbacks=None):
                last = {d.page_content: d for d in documents}
                return [Document(page_content=d.page_content, metadata=d.metadata) for d in last.values()]

        class Two(BaseDocumentCompressor):
            def compress_documents(self, documents, query, callbacks=None):
                return documents

            async def acompress_documents(self, documents, query, callbacks=None):
                return documents[:2]

        class Tool(AgentMiddleware):
            def wrap_tool_call(self, request, handler):
                result = handler(request)
                return result.model_copy(update={"content": result.content.replace("Mary", "M.")})
        """)
    )
    sync, asynchronous, idle, unique, two, tool = battery(str(file))
    assert (changing(unique, "retrieval"), kinds(unique, "retrieval")) == ({"duplicates"}, {"count", "ids"})
    assert (two.hooks, kinds(two, "retrieval")) == (("retrieval",), {"count", "ids"})
    assert (idle.hooks, statuses(idle, "content")) == (("content",), {"leaves"})
    assert (tool.hooks, changing(tool, "prompt")) == (("prompt",), {"person_common"})
    assert (sync.defense, changing(sync, "prompt"), changing(sync, "response")) == (
        "Round", WITH_AT, {"person_common"},
    )  # fmt: skip
    assert statuses(asynchronous, "prompt") == {"leaves"}
    assert statuses(asynchronous, "response") == {"changes"}


def test_parts_of_llama_index() -> None:
    found = one(SimilarityPostprocessor(similarity_cutoff=0.3))
    assert (found.defense, found.kind, found.hooks) == ("SimilarityPostprocessor", "llama_index", ("retrieval",))
    scored = found.capability("retrieval", "scored")
    assert (scored.changed, scored.n, set(scored.kinds)) == (2, 2, {"count", "ids"})
    assert found.capability("retrieval", "duplicates").status == "leaves"
    assert changing(one(SimilarityPostprocessor(similarity_cutoff=0.0)), "retrieval") == {"unscored"}
    drops = one(KeywordNodePostprocessor)  # needs a package that may be absent: never "does nothing" then
    assert drops.error is not None or drops.hooks


# --- defenses of nobody's kind ----------------------------------------------------------------------------------------


def test_observed_functions_by_their_own_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(defense, "_declared", {})  # other tests count who is declared
    import battery_observed

    mask, pages = battery(battery_observed.house_mask, "battery_observed:pages")
    assert (mask.defense, mask.hooks, changing(mask, "response")) == ("house-mask", ("response",), WITH_AT)
    assert (pages.defense, pages.hooks, changing(pages, "content")) == ("pages", ("content",), WITH_AT)


def test_duck_types_by_the_names_of_methods_and_parameters() -> None:
    duck, scores, texts, dicts, puzzling, edits = battery(
        d.Duck, d.Scores(), d.Texts, d.Dicts, d.Puzzling, d.EditsItsInput
    )
    assert {c.family for c in edits.capabilities if c.mutates} == changing(edits, "content") == WITH_AT
    assert (duck.kind, duck.hooks, kinds(duck, "retrieval")) == ("duck", ("retrieval", "response"), {"scores"})
    assert statuses(duck, "response") == {"leaves"}
    assert duck.capability("retrieval", "unscored").status == "leaves"
    assert kinds(scores, "retrieval") == {"scores"}
    assert scores.capability("retrieval", "email").removed == 0  # it never saw any
    assert scores.capability("retrieval", "tied").changed == 0  # they have one digit already
    assert changing(texts, "content") == changing(texts, "response") == WITH_AT
    assert {"order", "count"} <= kinds(dicts, "retrieval")
    assert dicts.capability("retrieval", "single").status == "leaves"
    assert statuses(puzzling, "response") == {"error"}
    assert "policy" in (puzzling.capabilities[0].error or "")


def test_names_of_methods_can_be_added() -> None:
    found = one("battery_defenses:plain", names={"plain": "response"})
    assert (found.hooks, statuses(found, "response")) == (("response",), {"leaves"})
    assert "observe" in (one("battery_defenses:plain").error or "")


# --- those that misbehave ---------------------------------------------------------------------------------------------


def test_one_that_hangs_costs_its_time_and_nothing_else() -> None:
    started = time.monotonic()
    hangs, never_made, sound = battery(d.Hangs, d.HangsWhenMade, d.made, timeout=4)
    assert time.monotonic() - started < 20
    assert statuses(hangs, "response") == {"error"}
    assert "time limit" in (hangs.capability("response", "email").error or "")
    assert "time limit" in (never_made.error or "")
    assert [r["status"] for r in never_made.to_rows()] == ["error"]
    assert sound.capability("response", "email").status == "changes"


def test_one_that_kills_its_process_keeps_what_it_had_done() -> None:
    found, gone, quiet = battery(d.Exits, d.Segfaults, d.LeavesQuietly)
    assert statuses(found, "query") == {"changes", "leaves"} and statuses(found, "prompt") == {"changes"}
    assert (found.capability("response", "email").status, found.capability("response", "plain").status) == (
        "leaves", "error",
    )  # fmt: skip
    assert "code 7" in (found.capability("response", "plain").error or "")
    assert "SIGSEGV" in (gone.capability("response", "email").error or "")
    assert statuses(gone, "response") == statuses(quiet, "response") == {"error"}


def test_one_that_is_slow_to_make_is_made_once() -> None:
    assert statuses(one(d.SlowToMake, timeout=12), "response") == {"leaves"}  # once a family would take 17 s


def test_what_it_leaves_behind_is_ended(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    assert statuses(one(d.LeavesAProcess(str(note))), "response") == {"leaves"}
    stat = Path("/proc", note.read_text(), "stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX"


def test_what_it_prints_forks_or_makes_huge_changes_no_answer() -> None:
    prints, forks, huge, leaves = battery(d.Prints, d.Forks, d.Huge, d.RaisesSystemExit)
    assert prints.capability("response", "email").n == 4
    assert [len([c for c in b.capabilities if c.family == "email"]) for b in (prints, forks)] == [1, 1]
    assert changing(forks, "response") == WITH_AT
    assert statuses(huge, "response") == {"changes"}
    assert "SystemExit" in (leaves.capability("response", "email").error or "")


def test_state_chance_and_edits_in_place_are_told_apart() -> None:
    counts, rolls, hashes, edits, waits = battery(d.Counts, d.Rolls, d.Hashes, d.EditsInPlace, d.Waits)
    cell = counts.capability("response", "email")
    assert (cell.changed, cell.n, cell.deterministic, cell.stateful) == (2, 4, True, True)
    assert counts.capability("response", "long").stateful is False  # its two calls are below the limit
    assert {c.deterministic for c in rolls.capabilities} == {c.deterministic for c in hashes.capabilities} == {False}
    assert {c.stateful for c in rolls.capabilities} == {None}
    assert {c.family for c in edits.capabilities if c.mutates} == changing(edits, "content") == WITH_AT
    assert changing(waits, "response") == WITH_AT
    assert {c.deterministic for c in waits.capabilities} == {True}


def test_one_that_needs_the_network_never_does_nothing() -> None:
    asks, goes_on, once = battery(d.AsksAround, d.AsksAroundAndGoesOn, d.AsksOnlyOnce)
    assert statuses(asks, "response") == statuses(goes_on, "response") == {"error"}
    assert "model.invalid" in (asks.capabilities[0].error or "")
    assert "127.0.0.1" in (goes_on.capabilities[0].error or "")
    waits = one(d.AsksUntilItGetsThere, timeout=3)
    assert "time limit; it had asked for ('model.invalid', 443)" in (waits.capabilities[0].error or "")
    told = {c.family: c.status for c in once.capabilities}
    assert (told["person_common"], told["email"], told["plain"]) == ("error", "leaves", "leaves")


def test_a_hook_that_returns_something_else_is_an_error() -> None:
    found = one(d.ReturnsNothing)
    assert statuses(found, "response") == {"error"}
    assert "NoneType" in (found.capabilities[0].error or "")


# --- how a defense gets there -----------------------------------------------------------------------------------------


def test_what_cannot_get_there_is_unknown_and_says_why() -> None:
    class Local(ragtrace.Defense):
        pass

    held, local, needs, missing, module, odd, instance_of_local = battery(
        d.HoldsClient(), Local, d.NeedsArguments, "battery_defenses:Nobody", "no_such_module", "what is this", Local()
    )
    for found, said in (
        (held, "pickled"), (local, "top level"), (needs, "strength, model"), (missing, "Nobody"),
        (module, "no_such_module"), (odd, "no target"), (instance_of_local, "pickled"),
    ):  # fmt: skip
        assert said in (found.error or ""), found
        assert found.capability("response", "email").status == "error"
        (row,) = found.to_rows()
        assert (row["hook"], row["family"], row["status"]) == (None, None, "error")


def test_a_file_a_module_and_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "shop" / "privacy"
    package.mkdir(parents=True)
    (tmp_path / "shop" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "words.py").write_text("BAD = '@'\n")
    (package / "masks.py").write_text(
        "import ragtrace\nfrom .words import BAD\n\n\nclass One(ragtrace.Defense):\n"
        "    def on_query(self, query):\n        return query.replace(BAD, '')\n\n\n"
        "class Two:\n    def filter_output(self, text):\n        return text\n\n\nclass Other:\n    pass\n"
    )
    by_file = battery(str(package / "masks.py"))
    monkeypatch.chdir(tmp_path)
    by_module = battery("shop.privacy.masks")
    for first, second in (by_file, by_module):
        assert (changing(first, "query"), statuses(second, "response")) == (WITH_AT, {"leaves"})
    assert changing(one("shop/privacy/masks.py:One"), "query") == WITH_AT
    assert "no defense" in (one("shop.privacy.words").error or "")


def test_classes_of_the_main_script(tmp_path: Path) -> None:
    script = tmp_path / "app.py"
    script.write_text(
        textwrap.dedent("""
        import ragtrace
        from ragtrace.inventory.battery import battery

        class Own(ragtrace.Defense):
            def on_query(self, query):
                return query.replace("@", "")

        if __name__ == "__main__":
            for found in battery(Own, Own()):
                print(found.error, sorted(c.family for c in found.capabilities if c.changed))
        """)
    )
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert run.stdout.splitlines() == ["None ['canary_email', 'email']"] * 2, run.stderr


@pytest.mark.parametrize("options", [{"timeout": 0}, {"timeout": float("nan")}, {"names": {"f": "answer"}}])
def test_wrong_use_is_told(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        battery(RegexMask, **options)
    with pytest.raises(UsageError):
        battery()


# --- a generated defense ----------------------------------------------------------------------------------------------

SECRETS = {f: sorted({s for specimen in FAMILIES[f] for s in specimen.secrets}) for f in TEXTS}
TABLES = st.dictionaries(
    st.sampled_from(["query", "retrieval", "content", "prompt", "response"]),
    st.sets(st.sampled_from(sorted(f for f in TEXTS if SECRETS[f]))),
    min_size=1,
)


@given(table=TABLES)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_it_says_of_a_generated_defense_is_what_that_was_made_to_do(table: dict[str, set[str]]) -> None:
    found = one(d.Mask({hook: [s for f in sorted(families) for s in SECRETS[f]] for hook, families in table.items()}))
    assert set(found.hooks) == set(table)
    for hook, families in table.items():
        assert changing(found, hook) == families
        for family in families:
            cell = found.capability(hook, family)
            assert cell.changed == cell.removed == cell.n == len(FAMILIES[family])
        assert kinds(found, hook) <= ({"ids", "count"} if hook == "retrieval" else {"text"})
        assert statuses(found, hook) <= {"changes", "leaves"}


# --- what follows from it ---------------------------------------------------------------------------------------------


def made_up(name: str, hook: str, **removed: int) -> Battery:
    cells = (Capability(hook, f, n=4, changed=n, removed=n, kinds=("text",) if n else ()) for f, n in removed.items())
    return Battery(name, name, "ragtrace", tuple(cells))


def test_what_a_defense_may_move() -> None:
    mask, noise, broken = battery(RegexMask, DPStub(seed=1), d.AsksAround)
    moved = {m.metric: m for m in mitigates(mask)}
    assert (moved["nel_email"].status, moved["nel_email"].hooks) == ("moves", ("response",))
    assert (moved["nel_person"].status, moved["canary_recovery_person"].status) == ("cannot", "cannot")
    assert moved["canary_recovery_email"].attack == "canary"
    assert moved["s2mia_roc_auc"].status == "cannot" and "no hook that may move it" in moved["s2mia_roc_auc"].reason
    noised = {m.metric: m for m in mitigates(noise)}
    assert (noised["s2mia_roc_auc"].status, noised["s2mia_roc_auc"].hooks) == ("moves", ("retrieval",))
    assert noised["nel_strict"].status == "cannot"
    assert {m.status for m in mitigates(broken) if "response" in metrics()[m.metric].moved_by} == {"unknown"}
    assert all(m.channel == metrics()[m.metric].channel for m in mitigates(mask))


def test_a_change_that_leaves_the_string_moves_no_count_of_it() -> None:
    shouts = Battery(
        "s", "s", "ragtrace", (Capability("response", "email", n=4, changed=4, removed=0, kinds=("text",)),)
    )
    told = {m.metric: m.status for m in mitigates(shouts)}
    assert (told["nel_email"], told["utility_bleu_to_undefended"]) == ("cannot", "moves")


def test_channels_agree_with_the_metrics() -> None:
    for metric in metrics().values():
        if hasattr(metric, "family") or hasattr(metric, "types"):
            assert CHANNEL_HOOKS[metric.channel] == metric.moved_by


def test_the_smallest_combination_that_covers() -> None:
    a = made_up("a", "response", email=4, phone=0)
    b = made_up("b", "content", phone=4, plain=4)
    c = made_up("c", "content", phone=4)
    both = made_up("both", "prompt", email=4, phone=4)
    advice = recommend([a, b, c, both], ["email", "phone"])
    assert advice.exact
    assert [[x.defense for x in combination] for combination in advice.combinations] == [["a", "c"], ["a", "b"]]
    assert advice.uncovered == ()
    assert [[x.defense for x in k] for k in recommend([a, both], ["email"], ["prompt"]).combinations] == [["both"]]


def test_what_stays_uncovered_is_said_with_the_nearest() -> None:
    a = made_up("a", "response", email=4, person_common=3, person_rare=0)
    failing = Battery("f", "f", "ragtrace", (Capability("response", "url", n=2, errors=2, error="no model"),))
    advice = recommend([a, failing], ["email", "person", "url"])
    assert [(f, c) for f, c in advice.covered] == [("email", "response")]
    assert {g.family: g.reason for g in advice.uncovered} == {
        "person_common": "a takes out 3 of 4 at response",
        "person_rare": "none of these takes out any of it",
        "url": "not known: f at response: no model",
    }
    assert recommend([], ["email"]).combinations == ()
    for protect, channels in ((["plain"], ["response"]), ([], ["response"]), (["email"], ["answer"]), (["email"], [])):
        with pytest.raises(UsageError):
            recommend([a], protect, channels)


def test_many_defenses_are_combined_step_by_step() -> None:
    families = [f for f in TEXTS if SECRETS[f]][:13]
    singles = [made_up(f, "response", **{f: 4}) for f in families]
    advice = recommend(singles, families)
    assert not advice.exact
    assert {b.defense for b in advice.combinations[0]} == set(families)
    assert set(GROUPS["person"]) <= set(TEXTS)


def test_it_is_stored_in_place_of_what_was_there(tmp_path: Path) -> None:
    found = [one(RegexMask), one("no_such_module")]
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        for _ in range(2):
            store_battery(db, found)
        rows = db.execute(
            "SELECT defense, hook, family, changed, n, kinds, deterministic, mutates, error IS NULL FROM capabilities "
            "WHERE family IN ('email', 'plain') OR hook IS NULL ORDER BY ALL"
        ).fetchall()
        assert rows == [
            ("no_such_module", None, None, 0, 0, [], None, False, False),
            ("regex_mask", "response", "email", 4, 4, ["text"], True, False, True),
            ("regex_mask", "response", "plain", 0, 5, [], True, False, True),
        ]


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_prints_stores_and_recommends(tmp_path: Path) -> None:
    database = tmp_path / "t.duckdb"
    targets = ["ragtrace.defenses:RegexMask", "battery_defenses:RaisesAnEscape"]
    run = CliRunner().invoke(app, ["battery", *targets, "--db", str(database), "--protect", "email,person"])
    assert run.exit_code == 0, run.output
    assert "regex_mask" in run.stdout and "Uncovered: person_rare" in run.stdout
    assert "\x1b" not in run.output and "\x07" not in run.output and "red" in run.stdout
    with ragtrace.open(database) as db:
        assert db.execute("SELECT count(DISTINCT defense) FROM capabilities").fetchone() == (2,)


def test_the_command_takes_a_table_of_names(tmp_path: Path) -> None:
    table = tmp_path / "names.toml"
    table.write_text('[methods]\nplain = "query"\n')
    run = CliRunner().invoke(app, ["battery", "battery_defenses:plain", "--names", str(table), "--json"])
    assert {r["hook"] for r in json.loads(run.stdout)["batteries"][0]["rows"]} == {"query"}


def test_the_command_as_json_and_its_exit_codes() -> None:
    run = CliRunner().invoke(app, ["battery", "ragtrace.defenses:RegexMask", "--json", "--protect", "email"])
    told = json.loads(run.stdout)
    assert (run.exit_code, told["recommendation"]["combinations"]) == (0, [["ragtrace.defenses:RegexMask"]])
    cells = {(r["hook"], r["family"]): r for r in told["batteries"][0]["rows"]}
    assert cells["response", "email"] == {
        "defense": "regex_mask",
        "kind": "ragtrace",
        "hook": "response",
        "family": "email",
        "status": "changes",
        "n": 4,
        "changed": 4,
        "removed": 4,
        "kinds": ["text"],
        "mutates": False,
        "errors": 0,
        "error": None,
        "deterministic": True,
        "stateful": False,
        "seconds": cells["response", "email"]["seconds"],
    }
    for args in (["no_such_module:X"], ["ragtrace.defenses:RegexMask", "--protect", "plain"]):
        code = f"import sys; sys.argv = ['ragtrace', 'battery', *{args!r}]; from ragtrace.cli import main; main()"
        failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        assert (failed.returncode, "Traceback" in failed.stderr) == (2, False), failed.stderr
