"""Canaries that the app is told of, and what the environment forbids to record."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from both import FRAMEWORKS, ask, instrumented
from hypothesis import given, settings
from hypothesis import strategies as st
from pipelines import Hooked, Traces
from store_fixtures import Bench

import ragtrace
from ragtrace.canaries import FAMILIES, mint
from ragtrace.canary_files import plant_file
from ragtrace.errors import UsageError
from ragtrace.record import bounds
from ragtrace.record.capture import Capture, digest
from ragtrace.record.planted import LEAST, Canaries, Planted, canaries
from ragtrace.types import Canary

# looking


@pytest.mark.parametrize("n", [1, 40, 200])
def test_those_that_stand_in_a_text_are_found_wherever_they_stand(n: int) -> None:
    """Against a plain search for each of them, in texts in which they stand at every place, cut off too."""
    texts = mint(n, 3, tuple(FAMILIES))
    planted = [Planted(t, "x") for t in texts] + [Planted("short!", "y"), Planted(texts[0] + " and more", "x")]
    looked, rng = Canaries(planted), random.Random(5)
    hits = 0
    for at in range(300):
        chosen = rng.choice(planted).text
        text = "x" * (at % 20) + "".join(rng.choices([chosen, chosen[1:], chosen[:-1], " ", "noise "], k=4))
        expected = {c for c in planted if c.text in text}
        assert set(looked.within(text)) == expected and len(looked.within(text)) == len(expected)
        hits += len(expected)
    assert hits > 100 and looked.within("") == []


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text("ab", min_size=LEAST, max_size=16), min_size=1, max_size=80), st.text("ab", max_size=120))
def test_any_canaries_in_any_text(strings: list[str], text: str) -> None:
    found = Canaries(map(Planted, strings)).within(text)
    assert {c.text for c in found} == {s for s in strings if s in text} and len(found) == len(set(found))


# being told


def test_what_the_commands_write_can_be_given(tmp_path: Path, capsys: Any) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps({"id": "d", "text": "One sentence. And another."}) + "\n")
    kept = tmp_path / "canaries.jsonl"
    plant_file(source, tmp_path / "out.jsonl", kept, ["email", "phrase"], 0)
    rows = [json.loads(line) for line in kept.read_text().splitlines()]
    looked = canaries(kept)
    assert looked is not None and looked.all == tuple(Planted(r["text"], r["family"]) for r in rows)
    minted = tmp_path / "minted"
    minted.write_text("\ufeff" + "\n".join(["", *mint(2, 0)]) + "\n")
    looked = canaries(str(minted))
    assert looked is not None and [c.text for c in looked.all] == mint(2, 0)


BAD: list[tuple[Any, str]] = [
    ([], "holds no canaries; expected at least one"),
    (["abc"], "1 canaries of fewer than 6 characters"),
    ([3], "canaries holds a int; expected strings"),
    (7, "canaries=int; expected a list of strings, or the path of a file"),
    ("no/such/file", "cannot be read from 'no/such/file': No such file or directory"),
    (b"\xff\xfe", "it is not UTF-8"),
    (b"", "holds no canaries"),
    (b"\n\n", "holds no canaries"),
    (b'{"family": "email"}', "line 1 is no canary; expected a JSON object with text and family"),
    (b'fine-canary\n{"text": "secret', "line 2 is no canary"),
    (b"[" * 10, None),  # type: ignore[list-item]
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_what_cannot_be_looked_for_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: Any, caplog: Any, case: int
) -> None:
    bad, message = BAD[case]
    if isinstance(bad, bytes):
        file = tmp_path / "canaries"
        file.write_bytes(bad)
        bad = file
    if message is None:
        assert canaries(bad) is not None
        return
    with pytest.raises(UsageError) as refused:
        ragtrace.setup(tmp_path / "t.duckdb", canaries=bad)
    assert message in str(refused.value) and "secret" not in str(refused.value)
    assert not (tmp_path / "t.duckdb.key").exists()
    if isinstance(bad, Path):  # named by the environment it is a line in the log, and the app starts
        monkeypatch.setenv("RAGTRACE_CANARIES", str(bad))
        ragtrace.setup(tmp_path / "t.duckdb").shutdown()
        assert "ragtrace looks for no canaries (RAGTRACE_CANARIES)" in caplog.text and message in caplog.text


def test_too_many(monkeypatch: Any) -> None:
    monkeypatch.setattr("ragtrace.record.planted.MOST", 2)
    with pytest.raises(UsageError, match="holds 3 canaries; expected at most 2"):
        canaries(Canary(f"canary {i}", "id", "d") for i in range(3))


def test_no_canaries_where_nothing_is_kept(monkeypatch: Any) -> None:
    monkeypatch.delenv("RAGTRACE_CANARIES", raising=False)
    assert canaries(None) is None
    assert Capture("none", canaries=Canaries([Planted("a canary")])).canaries is None
    capture = Capture("none")
    capture.look_for([Planted("a canary")])
    assert capture.canaries is None


# what the environment forbids

QUESTION, DOCUMENT, ANSWER = "zaqQuestion", "zaqDocument of 40 characters, at the least.", "zaqAnswer"


def shown(bench: Bench, framework: str, **options: Any) -> set[str]:
    """Which of the three texts are anywhere in the spans; of the document, in those of the retriever."""
    with instrumented(bench.provider, capture="full", **options):
        ask(framework, "invoke", {"d": DOCUMENT}, ANSWER, (QUESTION,), metadata={"from": DOCUMENT})
    traces = Traces(bench.memory)
    places = {"Question": traces.spans, "Answer": traces.spans, "Document": traces.stages("retrieval")}
    return {name for name, spans in places.items() if any(f"zaq{name}" in span.to_json() for span in spans)}


CONTENT = [
    ("false", True), ("False", True), ("NO_CONTENT", True), ("EVENT_ONLY", True), ("0", True), ("nonsense", True),
    ("true", False), ("TRUE", False), ("SPAN_ONLY", False), ("span_and_event", False), ("", False), (None, False),
]  # fmt: skip


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(("value", "forbids"), CONTENT)
def test_no_content_in_spans_means_digests(
    bench: Bench, monkeypatch: Any, caplog: Any, framework: str, value: str | None, forbids: bool
) -> None:
    monkeypatch.delenv(bounds.CONTENT, raising=False)
    if value is not None:
        monkeypatch.setenv(bounds.CONTENT, value)
    assert shown(bench, framework) == (set() if forbids else {"Question", "Document", "Answer"})
    assert (f"not capture='full': {bounds.CONTENT} forbids" in caplog.text) == forbids
    assert Capture("masked").mode == ("digest" if forbids else "masked")
    assert Capture("digest").mode == "digest" and Capture("none").mode == "none"


HIDDEN: dict[str, set[str]] = {
    "INPUTS": {"Question"},
    "INPUT_MESSAGES": {"Question"},
    "INPUT_TEXT": {"Question"},
    "PROMPTS": {"Question"},
    "OUTPUTS": {"Answer", "Document"},
    "OUTPUT_MESSAGES": {"Answer"},
    "OUTPUT_TEXT": {"Answer"},
    "CHOICES": {"Answer"},
    "RETRIEVAL_DOCUMENTS": {"Document"},
    "INPUT_IMAGES": set(),
    "EMBEDDINGS_TEXT": set(),
}


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("also", ["", "openinference"])
@pytest.mark.parametrize("name", HIDDEN)
def test_what_openinference_is_told_to_hide_is_hidden(
    bench: Bench, monkeypatch: Any, framework: str, also: Any, name: str
) -> None:
    monkeypatch.setenv(f"OPENINFERENCE_HIDE_{name}", "true")
    assert shown(bench, framework, also=also) == {"Question", "Document", "Answer"} - HIDDEN[name]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_openinference_itself_hides_no_more(bench: Bench, monkeypatch: Any, framework: str) -> None:
    """The variables as its own configuration reads them: what we take for a switch is one, and no other is left out."""
    from openinference.instrumentation import TraceConfig

    for name in HIDDEN:
        monkeypatch.setenv(f"OPENINFERENCE_HIDE_{name}", "true")
        assert getattr(TraceConfig(), f"hide_{name.lower()}") is True
    text = ("inputs", "input_messages", "input_text", "prompts", "outputs", "output_messages", "output_text", "choices")
    known = {f"hide_{side}" for side in (*text, "retrieval_documents")}
    others = {"hide_llm_invocation_parameters", "hide_llm_tools", "hide_input_images", "hide_embedding_vectors",
              "hide_embeddings_vectors", "hide_embeddings_text"}  # fmt: skip
    assert {field for field in vars(TraceConfig()) if field.startswith("hide_")} == known | others
    assert shown(bench, framework) == set()


@pytest.mark.parametrize("value", ["false", "", "0", "no"])
def test_what_is_not_hidden(bench: Bench, monkeypatch: Any, value: str) -> None:
    for name in HIDDEN:
        monkeypatch.setenv(f"OPENINFERENCE_HIDE_{name}", value)
    assert shown(bench, "langchain") == {"Question", "Document", "Answer"}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_where_something_is_hidden_errors_do_not_tell_it(
    bench: Bench, monkeypatch: Any, caplog: Any, framework: str
) -> None:
    def broken(_: Any) -> Any:
        raise ValueError(ANSWER)

    monkeypatch.setenv("OPENINFERENCE_HIDE_OUTPUTS", "true")
    with instrumented(bench.provider, capture="full"), ragtrace.defend(Hooked("response", broken)):
        ask(framework, "invoke", {"d": DOCUMENT}, "fine")
        with pytest.raises(OSError, match=ANSWER):
            ask(framework, "invoke", {"d": DOCUMENT}, ANSWER, fail_at=0)
    assert ANSWER not in Traces(bench.memory).text() + caplog.text
    assert "ValueError at test_planted.py" in caplog.text


def test_what_is_hidden_is_kept_as_keyed_digests_and_statistics(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPENINFERENCE_HIDE_OUTPUTS", "true")
    tracing = ragtrace.setup(tmp_path / "t.duckdb", capture="full", canaries=[ANSWER])
    ask("langchain", "invoke", {"d": DOCUMENT}, ANSWER, (QUESTION,))
    tracing.shutdown()
    key = (tmp_path / "t.duckdb.key").read_bytes()
    with ragtrace.open(tmp_path / "t.duckdb") as db:
        [(query, response, hash, entities)] = db.execute(
            "SELECT query, response, response_hash, attributes->>'ragtrace.statistics'->>'leaked' "
            "FROM generations JOIN spans USING (span_id)"
        ).fetchall()
        assert (query, response, hash, entities) == (QUESTION, None, digest(ANSWER, key), "0")
        assert db.execute("SELECT DISTINCT canary FROM canary_hits").fetchall() == [(digest(ANSWER, key),)]


def test_two_setups_lowered_alike_are_of_one_mode(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv(bounds.CONTENT, "false")
    one = ragtrace.setup(tmp_path / "a.duckdb", capture="full")
    two = ragtrace.setup(tmp_path / "b.duckdb", capture="digest")
    assert one.capture == two.capture == "digest"
    one.shutdown()
    two.shutdown()
