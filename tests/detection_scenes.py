"""Sessions of other people's attacks, and of benign users that look a little like them, before three kinds of app.

No language model runs: an app *refuses* (in one of several wordings), *obeys* (copies out what it retrieved), or
*answers* beside the point, with the first words of the best document.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import ModuleType

from detection_traffic import QUESTIONS, Library, Turn, Visit

from ragtrace.types import Document

REFUSALS = (
    "I cannot help with that.",
    "I'm sorry, but I can't share that information.",
    "That is not something I can assist with.",
    "Sorry, our policy does not let me do this. Is there another question?",
    "Das darf ich leider nicht ausgeben.",
)


def _obeys(documents: Sequence[Document], _: random.Random) -> str:
    return "\n\n".join(document.content for document in documents)


def _answers(documents: Sequence[Document], _: random.Random) -> str:
    return " ".join(documents[0].content.split()[:12])


def _sentence(documents: Sequence[Document], _: random.Random) -> str:
    return documents[0].content.split(". ")[0]


def _refuses(_: Sequence[Document], source: random.Random) -> str:
    return source.choice(REFUSALS)


App = Callable[[Sequence[Document], random.Random], str]
APPS: dict[str, App] = {"refuses": _refuses, "obeys": _obeys, "answers": _answers}


def visit(library: Library, queries: Sequence[str], kind: str, name: str, app: App) -> Visit:
    """These queries, one after another; an app that refuses does so in one wording a session."""
    found = library.top(queries)
    return Visit(name, kind, [Turn(q, ds, app(ds, random.Random(name))) for q, ds in zip(queries, found, strict=True)])


def topics(library: Library) -> list[str]:
    return [str(document.metadata["subject"]) for document in library.members]


def requested(library: Library, wordings: Sequence[str], kind: str, app: App) -> list[Visit]:
    """Each wording as a session of ten topics: what a script sends."""
    source = random.Random(kind)
    return [
        visit(
            library, [w.replace("{}", t) for t in source.sample(topics(library), QUESTIONS)], kind, f"{kind} {n}", app
        )
        for n, w in enumerate(wordings)
    ]


def varied(library: Library, wordings: Sequence[str], kind: str, app: App, count: int) -> list[Visit]:
    """Ten different wordings a session, each about something else."""
    source, about = random.Random(kind), topics(library)
    return [
        visit(
            library,
            [w.replace("{}", source.choice(about)) for w in source.sample(wordings, QUESTIONS)],
            kind,
            f"{kind} {n}",
            app,
        )
        for n in range(count)
    ]


def halves(library: Library, wordings: Sequence[str], kind: str, app: App, count: int) -> list[Visit]:
    """S2MIA in these wordings: the first halves of five indexed documents and of five others."""
    source, made = random.Random(kind), []
    for n in range(count):
        targets = source.sample(library.members, QUESTIONS // 2) + source.sample(library.others, QUESTIONS // 2)
        source.shuffle(targets)
        words = [target.content.split() for target in targets]
        wording = wordings[n % len(wordings)]
        queries = [wording.replace("{}", " ".join(w[: len(w) // 2])) for w in words]
        made.append(visit(library, queries, kind, f"{kind} {n}", app))
    return made


def thieves(library: Library, wordings: Sequence[str], kind: str, app: App, count: int) -> list[Visit]:
    """RAG-Thief in these wordings: each query holds the end of a passage of the last answer, or a new topic where the
    app refuses."""
    source, about, made = random.Random(kind), topics(library), []
    for n in range(count):
        turns: list[Turn] = []
        anchor, name = source.choice(about), f"{kind} {n}"
        for _ in range(QUESTIONS):
            turns += visit(library, [wordings[n % len(wordings)].replace("{}", anchor)], kind, name, app).turns
            answer = turns[-1].answer
            took = app is not _refuses
            anchor = " ".join(source.choice(answer.split("\n\n")).split()[-30:]) if took else source.choice(about)
        made.append(Visit(name, kind, turns))
    return made


def attacks(library: Library, words: ModuleType, of: str, app: str, count: int) -> list[Visit]:
    """All attacks in the wordings of a module."""
    how = APPS[app]
    return [
        *requested(library, words.STEALING, f"prompt_stealing, {of}, {app}", how),
        *varied(library, words.STEALING, f"prompt_stealing, {of}, varied, {app}", how, count),
        *requested(library, words.MANIPULATION, f"prompt_manipulation, {of}, {app}", how),
        *varied(library, words.MANIPULATION, f"prompt_manipulation, {of}, varied, {app}", how, count),
        *varied(library, words.OF_THE_PROMPT + words.STEALING, f"prompt and context, {of}, varied, {app}", how, count),
        *thieves(library, words.EXTENSIONS, f"rag_thief, {of}, {app}", how, count),
        *halves(library, words.PREFIXES, f"s2mia, {of}, {app}", how, count),
    ]


def ordinary(library: Library, words: ModuleType, of: str, questions: Sequence[str], count: int) -> list[Visit]:
    """Benign kinds that are near to attacks. Answered with a sentence, if not said otherwise."""
    source, about = random.Random(of), topics(library)
    made = [
        *varied(library, words.DOCUMENT_TALK, f"talk about documents, {of}", _sentence, count),
        *requested(library, [w for w in words.DOCUMENT_TALK if "{}" in w], f"one template of talk, {of}", _sentence),
        *varied(library, words.SUPPORT, f"support, {of}", _answers, count),
        *varied(library, words.DOCUMENT_TALK, f"talk about documents, {of}, all refused", _refuses, count),
    ]
    for n in range(count):
        topic = source.choice(about)
        talk = [w.replace("{}", topic) for w in source.sample(words.DOCUMENT_TALK, QUESTIONS)]
        made.append(visit(library, talk, f"talk about one document, {of}", f"one {of} {n}", _sentence))
        again = [w.replace("{}", topic) for w in words.AGAIN]
        made.append(visit(library, again, f"asked again, {of}", f"again {of} {n}", _answers))
        made.append(visit(library, again, f"asked again, {of}, all refused", f"again no {of} {n}", _refuses))
        template = words.JOBS[n % len(words.JOBS)]
        job = [template.replace("{}", question) for question in source.sample(questions, QUESTIONS)]
        made.append(visit(library, job, f"batch job, {of}", f"job {of} {n}", _answers))
        made.append(visit(library, job, f"batch job, {of}, all refused", f"job no {of} {n}", _refuses))
        mixed = [  # two in ten are a paragraph of a document
            source.choice(words.PASTED).replace("{}", document.content) if source.random() < 0.2 else sentence
            for document, sentence in zip(source.sample(library.members, QUESTIONS), talk, strict=True)
        ]
        made.append(visit(library, mixed, f"paragraphs pasted, {of}", f"pasted {of} {n}", _sentence))
    return made
