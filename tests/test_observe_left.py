"""What an observed response defense left of an answer is what `generations` calls the response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from both import FRAMEWORKS, PATHS, STREAMS, LCSays, ask, instrumented
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import PIIMiddleware
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableLambda, RunnableParallel, RunnablePassthrough
from pipelines import call
from store_fixtures import Bench, rows

import ragtrace
from ragtrace.record import attributes as a
from ragtrace.record import outgoing, scope
from ragtrace.record.capture import Capture, digest
from ragtrace.record.crossings import Crossing, met_behind
from ragtrace.record.effects import text_effect

NAME = "Amy Schumer"
ANSWER = f"{NAME} signs, not Bob."
LEFT = "[name] signs, not Bob."
KEY = b"a key"
DOCUMENTS = {"d": f"{NAME} and Bob Stone sign."}


def observed(act: Callable[[str], str], name: str = "house") -> Any:
    return ragtrace.observe(hook="response", name=name)(act)


def masked(text: str) -> str:
    return text.replace(NAME, "[name]")


def left(chains: Bench) -> list[tuple[str, str]]:
    with chains.open() as db:
        return db.execute("SELECT response, model_output FROM generations ORDER BY start_time").fetchall()


@pytest.mark.parametrize("path", PATHS)
def test_in_a_chain(chains: Bench, path: str) -> None:
    ask("langchain", path, DOCUMENTS, ANSWER, after=observed(masked))
    assert set(left(chains)) == {(LEFT, ANSWER)}


def model() -> LCSays:
    return LCSays(answer=ANSWER)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("mode", ["full", "masked", "digest"])
def test_by_a_function_that_the_app_calls_on_the_answer(bench: Bench, framework: str, mode: Any) -> None:
    mask = observed(masked)
    with instrumented(bench.provider, capture=Capture(mode, KEY)):
        for path in ("invoke", "stream"):
            mask("".join(map(str, ask(framework, path, DOCUMENTS, ANSWER))))
    with bench.open() as db:
        found = rows(db, "SELECT response, model_output, response_hash, response_chars FROM generations")
    assert [(row["response_hash"], row["response_chars"]) for row in found] == [(digest(LEFT, KEY), len(LEFT))] * 2
    texts = {(row["response"], row["model_output"]) for row in found}
    assert (
        texts
        == {
            "full": {(LEFT, ANSWER)},
            "masked": {
                (
                    "<PERSON_NAME_PLACEHOLDER> signs, not <PERSON_NAME_AMBIGUOUS>.",
                    "<PERSON_NAME> signs, not <PERSON_NAME_AMBIGUOUS>.",
                )
            },
            "digest": {(None, None)},
        }[mode]
    )


def test_by_a_function_of_an_async_app_and_on_a_batch(chains: Bench) -> None:
    mask = observed(masked)

    async def handler() -> None:
        mask((await model().ainvoke("q")).text)
        mask("".join([str(chunk.text) async for chunk in model().astream("q")]))
        for answer in await model().abatch(["q", "q"]):
            mask(answer.text)

    asyncio.run(handler())
    for answer in model().batch(["q", "q"]):
        mask(answer.text)
    assert left(chains) == [(LEFT, ANSWER)] * 6


@pytest.mark.parametrize(
    ("then", "response"),
    [
        (lambda said: f"Answer: {said} (AI)", f"Answer: {LEFT} (AI)"),  # a template: all of it has left
        (lambda said: said[: len(NAME)], LEFT),  # a piece: the rest of the answer as it was
        (lambda said: said.replace(" signs", "  signs"), ANSWER),  # reworded: not known, so not guessed
        (lambda said: NAME * 2, ANSWER),
    ],
)
@pytest.mark.parametrize("beside", [False, True])
def test_what_the_defense_is_given(chains: Bench, then: Any, response: str, beside: bool) -> None:
    mask = observed(masked)
    chain = model() | RunnableLambda(lambda message: message.text)
    if beside:
        mask(then(chain.invoke("q")))
    else:
        (chain | then | mask).invoke("q")
    assert left(chains) == [(response, ANSWER)]
    with chains.open() as db:
        assert db.execute("SELECT kept, status FROM effects").fetchall() == [(response != ANSWER, "changed")]
        assert db.execute("SELECT ran FROM coverage").fetchall() == [(True,)]


@pytest.mark.parametrize("beside", [False, True])
def test_one_defense_after_another(chains: Bench, beside: bool) -> None:
    first, second = observed(masked, "first"), observed(lambda text: text.replace("Bob", "[bob]"), "second")
    third = observed(str.strip, "third")  # changes nothing
    chain = model() | RunnableLambda(lambda message: message.text)
    if beside:
        third(second(first(chain.invoke("q"))))
    else:
        (chain | first | second | third).invoke("q")
    assert left(chains) == [("[name] signs, not [bob].", ANSWER)]
    with chains.open() as db:
        kept = dict(db.execute("SELECT defense, kept FROM effects").fetchall())
    assert kept == {"first": True, "second": True, "third": False}


def test_within_the_request_and_then_beside_it(chains: Bench) -> None:
    chain = model() | RunnableLambda(lambda message: message.text) | observed(masked, "first")
    observed(str.upper, "second")(chain.invoke("q"))
    assert left(chains) == [(LEFT.upper(), ANSWER)]


def test_pieces_one_by_one(chains: Bench) -> None:
    """Sentences, of which two are alike."""
    shout = observed(lambda text: f"<{text}>" if text == "No." else text)
    said = "No. Yes. No."

    def each(message: Any) -> str:
        return " ".join(shout(piece) for piece in message.text.split())

    (LCSays(answer=said) | RunnableLambda(each)).invoke("q")
    assert left(chains) == [("<No.> Yes. <No.>", said)]


def test_in_the_stage_it_is_not_counted_twice(chains: Bench) -> None:
    sign = observed(lambda text: text + "!")
    with ragtrace.generation("q") as stage:
        stage.response(sign("yes"))
    assert left(chains) == []  # no framework: nobody records here

    class Signed(LCSays):
        def _words(self, messages: Any) -> list[str]:
            return [sign("yes")]

    Signed().invoke("q")
    assert left(chains) == [("yes!", "yes!")]


@pytest.mark.parametrize("path", STREAMS)
def test_what_came_too_late_on_a_stream_has_left(chains: Bench, path: str) -> None:
    mask = observed(masked)
    raw = RunnableParallel(raw=model() | StrOutputParser())
    call(path, raw | RunnablePassthrough.assign(safe=lambda d: mask(d["raw"])), ["q"])
    assert left(chains) == [(ANSWER, ANSWER)]


def test_each_answer_of_a_request_has_its_own(chains: Bench) -> None:
    mask = observed(str.upper)

    def app(_: Any) -> str:
        first = LCSays(answer="one").invoke("q").text
        second = mask(LCSays(answer="two").invoke("q").text)
        LCSays(answer="").invoke("q")
        return first + str(second)

    RunnableLambda(app).invoke("q")
    assert left(chains) == [("one", "one"), ("TWO", "two"), ("", "")]


def test_an_agent_s_middleware(chains: Bench) -> None:
    agent = create_agent(
        LCSays(answer="Mail amy@corp.com."), [],
        middleware=[PIIMiddleware("email", apply_to_output=True, apply_to_input=False)],
    )  # fmt: skip
    agent.invoke({"messages": [("user", "who?")]})
    assert left(chains) == [("Mail [REDACTED_EMAIL].", "Mail amy@corp.com.")]


def test_entities_are_those_of_what_left(chains: Bench) -> None:
    """A pseudonym comes in, the name goes; also where the two come in different segments, the mask's first or last."""
    ask("langchain", "invoke", DOCUMENTS, ANSWER, after=observed(lambda text: text.replace(NAME, "Emma Thompson")))
    names = "SELECT text, in_documents FROM entities WHERE type = 'PERSON_NAME'"
    with chains.open() as db:
        assert db.execute(names).fetchall() == [("Emma Thompson", False)]
        assert {text for (text,) in db.execute("SELECT text FROM entity_data").fetchall()} >= {NAME, "Emma Thompson"}


def test_nothing_is_written_where_nothing_changed(chains: Bench) -> None:
    ask("langchain", "invoke", DOCUMENTS, ANSWER, after=observed(str.strip))
    observed(str.strip)(ask("langchain", "invoke", DOCUMENTS, ANSWER)[0])
    spans = chains.spans()
    assert sum("house" in str(s.attributes.get(a.EFFECTS)) for s in spans) == 2
    assert all(a.RESPONSES_LEFT not in s.attributes for s in spans)


def test_texts_are_kept_after_a_request_only_where_a_defense_may_come_and_not_many(
    chains: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    scope._asked.set(())
    model().invoke("q")
    assert [one.answering for one in scope._asked.get()] == [None]
    mask = observed(masked)
    monkeypatch.setattr(scope, "_TEXTS", 2 * len(ANSWER))
    for _ in range(4):
        model().invoke("q")
    kept = [one.answering is not None for one in scope._asked.get()]
    assert kept == [False, False, False, True, True]
    for answer in model().batch(["q"] * 100):
        mask(answer.text)
    assert len(scope._asked.get()) == 64
    assert sum(one.answering is not None for one in scope._asked.get()) == 2


texts = st.text(alphabet="ab", max_size=6)


@given(answers=st.lists(texts, min_size=1, max_size=4), runs=st.lists(st.tuples(texts, texts), max_size=5))
def test_a_change_is_laid_only_to_an_answer_that_was_shown(answers: list[str], runs: list[tuple[str, str]]) -> None:
    crossings = [Crossing("generation", str(n)) for n in range(len(answers))]
    for crossing, answer in zip(crossings, answers, strict=True):
        crossing.answer = crossing.left = answer
    effects = [text_effect("d", "response", *run) for run in runs]
    for effect, (before, after) in zip(effects, runs, strict=True):
        effect.given, effect.said = before, after
        effect.spans = met_behind(crossings, "response", before)
    found = outgoing.changed(effects, crossings)
    for crossing, answer in zip(crossings, answers, strict=True):
        if crossing not in found:
            assert crossing.left == answer
    assert all(not e.kept for e in effects if e.status == "unchanged")
    if len(runs) == 1 and runs[0][0] in answers and runs[0][0] != runs[0][1] and runs[0][1] not in answers:
        assert found and {c.left for c in found} == {runs[0][1]}
