"""What questions cost on large stores: each view's typical one, at 0.1, 1 and 10 million spans.

    python tests/benchmarks/scale.py [--spans 100000 1000000] [--days 10] [--only WORD] [--keep FOLDER] [--plans]

A few hundred requests of a LangChain app are recorded by the SDK (an app's span with a route, a pipeline, retrieval with
five documents, context, generation; three defenses, one that streams go round; failures, two canaries). DuckDB copies
them, with other ids, question and time, until the store is full: in the order of their time, over ten days, each text
twice in a row, so that the file stays below 6 GB at 10 million spans: 1.5 KB a span. Beside them: an audit of two arms.

Each size is asked in a process of its own, through the connection that `ragtrace sql` opens (2 GB), once to warm up and
once for the clock. Printed are the seconds on the clock and of the processor, the target, the most memory held, and the
growth from size to size. Asked are: of each view one trace, or all of it where it has no traces; of each view that is
there as `…_between`, one day; and what else people ask. Exits with 1 where a question takes more than 2 s of the clock
at the largest size (the library's questions, a day by a condition on a view's start_time, and three views read the
whole store: `…_between` is their form for a day), or grows faster than the store. The clock counts what others do on
the machine: the load is printed.
"""

# ruff: noqa: E501 (SQL)
from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb

import ragtrace
from ragtrace import questions
from ragtrace.store import open_readonly
from ragtrace.store.canary_search import search_for_planted
from ragtrace.store.limits import time_limit
from ragtrace.store.windows import WINDOWED

LIMIT = 2.0
SLACK = 1.5  # times the growth of the store: what the clock of a shared machine is not trusted with
WHOLE = re.compile(
    r"ask |(verdicts|verdict_paths|sessions): all|(stages|generations): \w+ of a day"
)  # read everything: only their growth is judged
GIVEN_UP = 10.0  # seconds; what is stopped then has grown more than is printed
LEAST = 0.1  # seconds: below, growth says nothing
REQUESTS = 300  # recorded ones
BATCH = 50_000  # requests copied at once
START = 1_790_000_000_000_000_000
MARK, TALK = "qqqqqqqqqqqqqqqq", "cccccccccccccccc"  # for the question's own words, and the conversation
CANARIES = ["zephyr-kestrel-40917", "quinoa-lattice-77120"]
WORDS = "the patient record shows that a visit was made for pain in the left knee and the dose was changed to".split()


def record(folder: Path) -> None:
    """The requests that are copied, through the real SDK; in a process of its own."""
    from langchain_core.documents import Document
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage, AIMessageChunk
    from langchain_core.output_parsers import StrOutputParser
    from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.runnables import RunnableLambda, RunnablePassthrough
    from opentelemetry import trace

    from ragtrace.defenses import RegexMask, SimilarityThreshold
    from ragtrace.record.scope import probing
    from ragtrace.types import Probe

    source = random.Random(1)

    def text(words: int) -> str:
        return " ".join(source.choices(WORDS, k=words))

    def contact(number: int) -> str:
        return f" ann.lee{number % 90}@corp{number % 7}.com "

    class Shelf(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
            if "overdue" in query:
                raise TimeoutError("no answer from the index")
            places = source.sample(range(500), 5)
            return [
                Document(
                    page_content=text(40) + (contact(place) if place % 3 == 0 else " ") + text(20),
                    id=f"doc-{place:04d}",
                    metadata={"score": source.uniform(0.2, 0.9), "source": f"files/{place}.md"},
                )
                for place in places
            ]

    class Model(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "bench"

        def _answer(self, messages: Any) -> str:
            given = messages[-1].text.split(" ")
            start = source.randrange(max(1, len(given) - 30))
            said = text(30) + " " + " ".join(given[start : start + 25])
            return said + (contact(source.randrange(90)) if source.random() < 0.2 else "")

        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
            return ChatResult(generations=[ChatGeneration(message=AIMessage(content=self._answer(messages)))])

        def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
            for word in self._answer(messages).split(" "):
                yield ChatGenerationChunk(message=AIMessageChunk(content=word + " "))

    ragtrace.setup(folder / "recorded.duckdb", capture="full", canaries=CANARIES)
    join = RunnableLambda(lambda documents: "\n\n".join(d.page_content for d in documents))
    prompt = ChatPromptTemplate.from_template("Use the context.\n{context}\n\nQuestion: {question}")
    chain = {"context": Shelf() | join, "question": RunnablePassthrough()} | prompt | Model() | StrOutputParser()
    house = ragtrace.observe(hook="response", name="house-mask")(lambda answer: answer.replace("dose", "[DOSE]"))
    tracer = trace.get_tracer("app")
    for number in range(REQUESTS):
        query = f"{text(10)} {MARK} {text(2)}" + (" overdue" if number % 97 == 0 else "")
        query += f" {CANARIES[number % 2]}" if number % 50 == 0 else ""
        streamed = number % 4 == 0
        route = ("/chat", "/search", "/summary")[number % 3]
        with (
            tracer.start_as_current_span(
                f"POST {route}", attributes={"http.route": route, "user.id": f"u{number % 40}"}
            ),
            ragtrace.conversation(f"{TALK}-{number % 25}"),
            ragtrace.defend(*(RegexMask(),) * bool(number % 5), SimilarityThreshold(0.25)),
        ):
            try:
                if streamed:
                    "".join(chain.stream(query))
                else:
                    house(chain.invoke(query))
            except TimeoutError:
                pass
    for number in range(REQUESTS // 5):
        probe = Probe(f"p{number}", "canary", "bench", 1, f"{text(8)} {number}", canary=CANARIES[number % 2])
        with probing("audit", "none", probe):
            chain.invoke(probe.query)
        with probing("audit", "masked", probe), ragtrace.defend(RegexMask()):
            chain.invoke(probe.query)


# Spans of one request: t is the request, new ids keep the first half of the old ones.
TEMPLATE = """
CREATE TEMP TABLE template AS
WITH traffic AS (
    SELECT trace_id, row_number() OVER (ORDER BY trace_id) - 1 AS t, min(start_ns) AS began FROM old.span_data
    GROUP BY trace_id HAVING max(run_id) IS NULL
)
SELECT s.* EXCLUDE (trace_id) REPLACE (regexp_replace(s.attributes::VARCHAR,
        '(span\\\\":\\\\"[0-9a-f]{8})[0-9a-f]{8}', '\\1hhhhhhhh', 'g') AS attributes), s.trace_id AS old_trace, t.t, s.start_ns - t.began AS since, s.end_ns - t.began AS until
FROM old.span_data s JOIN traffic t USING (trace_id) ORDER BY t.t, s.rowid
"""
COPIES = """
INSERT INTO span_data BY NAME
SELECT md5(i::VARCHAR) AS trace_id, substr(span_id, 1, 8) || hex AS span_id,
    substr(parent_span_id, 1, 8) || hex AS parent_span_id,
    if(request_id <> '', substr(request_id, 1, 8) || hex, request_id) AS request_id,
    replace(replace(replace(attributes, $mark, own), $talk, talk), 'hhhhhhhh', hex) AS attributes,
    replace(query, $mark, own) AS query, replace(conversation, $talk, talk) AS conversation,
    if(outgoing IS NULL, NULL, struct_update(outgoing, left_by := substr(outgoing.left_by, 1, 8) || hex, start_ns := began + since)) AS outgoing, effects_of(effects, hex) AS effects,
    began + since AS start_ns, began + until AS end_ns,
    'app-' || i % 3 AS service, replace(resource::VARCHAR, '"unknown_service"', '"app-' || i % 3 || '"') AS resource,
    template.* EXCLUDE (span_id, parent_span_id, request_id, attributes, query, conversation, outgoing, effects, start_ns, end_ns, service, resource, t, since, until, old_trace)
FROM (
    SELECT range AS i, printf('%08x', range) AS hex, $start + range * $step AS began, range // 2 % $templates AS t,
        substr(md5('q' || range // 2), 1, 16) AS own, substr(md5('c' || range // (2 * $templates)), 1, 16) AS talk FROM range($low, $high)
) JOIN template USING (t) ORDER BY i, template.rowid
"""
OF_SPANS = """
INSERT INTO {table} BY NAME
SELECT d.* REPLACE (md5(i::VARCHAR) AS trace_id, substr(d.span_id, 1, 8) || printf('%08x', i) AS span_id{more})
FROM range($low, $high) r(i) JOIN (SELECT DISTINCT old_trace, t FROM template) o ON o.t = i // 2 % $templates
JOIN old.{table} d ON d.trace_id = o.old_trace ORDER BY i
"""
PLANTED = """
INSERT INTO span_data BY NAME SELECT repeat('f', 32) AS trace_id, repeat('f', 16) AS span_id, 'run' AS name, $start AS start_ns,
    $start AS end_ns, 'OK' AS status, 'ragtrace' AS scope, 'ragtrace' AS dialect, 'audit' AS run_id, false AS nested, '' AS request_id,
    json_object('ragtrace.run', $run) AS attributes
"""
# the exposure of what was copied is copied too
MEASURED = """
UPDATE exposure_mark_data SET row_id = l.row_id, trace_id = l.trace_id, span_id = l.span_id
FROM (SELECT rowid AS row_id, trace_id, span_id FROM span_data ORDER BY rowid DESC LIMIT 1) l
"""


def make(file: Path, recorded: Path, spans: int, days: float) -> int:
    """A store of about that many spans."""
    with ragtrace.open(file) as db:
        db.execute(f"ATTACH '{recorded}' AS old (READ_ONLY)")
        db.execute(TEMPLATE)
        # ids of spans inside of effects are the crossings: known by their first half
        db.execute(
            "CREATE TEMP MACRO effects_of(told, hex) AS regexp_replace(told, '\"([0-9a-f]{8})[0-9a-f]{8}\"', '\"\\1' || hex || '\"', 'g')"
        )
        [(templates, size)] = db.execute("SELECT count(DISTINCT t), count(*) FROM template").fetchall()
        requests = spans * templates // size
        given = {"templates": templates}
        tables = [
            (table, started) for table, started in db.execute(
                "SELECT table_name, bool_or(column_name = 'start_ns') FROM duckdb_columns() WHERE database_name = 'old' AND table_name LIKE '%_data' "
                "AND table_name NOT IN ('span_data', 'exposure_mark_data') GROUP BY ALL HAVING count(*) FILTER (column_name IN ('trace_id', 'span_id')) = 2"
            ).fetchall()
        ]  # fmt: skip
        step = int(days * 86_400e9 / requests)
        for low in range(0, requests, BATCH):
            part = given | {"low": low, "high": min(low + BATCH, requests)}
            db.execute(COPIES, part | {"mark": MARK, "talk": TALK, "start": START, "step": step})
            for table, started in tables:
                more = f", {START} + i * {step} AS start_ns" if started else ""
                more += ", substr(d.left_by, 1, 8) || printf('%08x', i) AS left_by" if table == "entity_data" else ""
                db.execute(OF_SPANS.format(table=table, more=more), part)
        db.execute("INSERT INTO span_data BY NAME SELECT * FROM old.span_data WHERE run_id IS NOT NULL")
        planted = [{"text": c, "family": "phrase", "document_id": "doc-0001"} for c in CANARIES]
        db.execute(
            PLANTED,
            {"start": START, "run": json.dumps({"canaries": planted, "arms": {"none": [], "masked": ["regex-mask"]}})},
        )
        db.execute("DETACH old")
        search_for_planted(db)
        db.execute(MEASURED)
        [(count,)] = db.execute("SELECT count(*) FROM span_data").fetchall()
        db.execute("CHECKPOINT")
    return int(count)


def asked(db: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """The questions, by what they ask."""
    [(trace, last)] = db.execute(
        "SELECT (SELECT trace_id FROM span_data WHERE stage = 'generation' AND run_id IS NULL AND rowid >= (SELECT max(rowid) // 2 FROM span_data) LIMIT 1), "
        "(SELECT max(make_timestamp(start_ns // 1000)) FROM span_data WHERE run_id IS NULL AND stage IS NOT NULL)"
    ).fetchall()
    day = (last - timedelta(days=4)).date()
    of_day = f"start_time >= '{day}' AND start_time < '{day + timedelta(days=1)}'"
    hour = last - timedelta(hours=1)
    views = [v for (v,) in db.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1").fetchall()]
    with_trace = {
        v for (v,) in db.execute("SELECT table_name FROM duckdb_columns() WHERE column_name = 'trace_id' AND table_name IN (SELECT view_name FROM duckdb_views())").fetchall()
    }  # fmt: skip
    found = {f"{view}: one trace": f"FROM {view} WHERE trace_id = '{trace}'" for view in views if view in with_trace}
    found |= {f"{view}: all of it": f"FROM {view} LIMIT 1000" for view in views if view not in with_trace}
    found |= {
        f"{view}_between: one day": f"FROM {view}_between('{day}', '{day + timedelta(days=1)}')" for view in WINDOWED
    }
    found |= {
        "exposure: leak rate by route and day": "SELECT route, day, avg((entities_leaked > 0)::INT) AS share FROM exposure WHERE measured GROUP BY ALL",
        "entities_between: leak rate of a day, by path": f"SELECT path, type, count(DISTINCT (trace_id, span_id)) FROM entities_between('{day}', '{day + timedelta(days=1)}') "
        f"JOIN stages_between('{day}', '{day + timedelta(days=1)}') USING (trace_id, span_id) WHERE in_documents AND NOT in_query GROUP BY ALL",
        "stages_between: errors of a day, by kind": f"SELECT stage, path, error_type, count(*) FROM stages_between('{day}', '{day + timedelta(days=1)}') WHERE status = 'ERROR' GROUP BY ALL",
        "stages_between: times of a day": f"SELECT stage, path, model, count(*), quantile_cont(duration_ms, 0.95) FROM stages_between('{day}', '{day + timedelta(days=1)}') GROUP BY ALL",
        "generations_between: models of a day": f"SELECT model, count(*), sum(prompt_tokens), sum(completion_tokens) FROM generations_between('{day}', '{day + timedelta(days=1)}') GROUP BY ALL",
        "documents_between: most retrieved of a day": f"SELECT document_id, count(*) FROM documents_between('{day}', '{day + timedelta(days=1)}') WHERE phase = 'retrieved' GROUP BY ALL ORDER BY 2 DESC LIMIT 20",
        "coverage_between: bypasses of a day": f"SELECT defense, hook, path, count(*) FROM coverage_between('{day}', '{day + timedelta(days=1)}') WHERE NOT ran GROUP BY ALL",
        "effects_between: changes of a day": f"SELECT defense, hook, status, count(*) FROM effects_between('{day}', '{day + timedelta(days=1)}') GROUP BY ALL",
        "canary_hits_between: leaks of a day": f"SELECT canary, channel, count(DISTINCT trace_id) FROM canary_hits_between('{day}', '{day + timedelta(days=1)}') GROUP BY ALL",
        "exposure: most exposed documents of a day": f"SELECT document_id, max(longest_run) FROM exposure WHERE measured AND day = '{day}' GROUP BY ALL ORDER BY 2 DESC LIMIT 20",
        "spans: errors of the last hour": f"FROM spans WHERE status = 'ERROR' AND start_time > '{hour}' ORDER BY start_time DESC",
        "stages: errors of a day, by kind": f"SELECT stage, path, error_type, count(*) FROM stages WHERE status = 'ERROR' AND {of_day} GROUP BY ALL",
        "stages: times of a day": f"SELECT stage, path, model, count(*), quantile_cont(duration_ms, 0.95) FROM stages WHERE {of_day} GROUP BY ALL",
        "spans: latest 50 traces": "SELECT trace_id, start_time, name, duration_ms FROM spans WHERE parent_span_id IS NULL ORDER BY start_time DESC LIMIT 50",
        "generations: latest 20": "FROM generations ORDER BY start_time DESC LIMIT 20",
        "generations: models of a day": f"SELECT model, count(*), sum(prompt_tokens), sum(completion_tokens) FROM generations WHERE {of_day} GROUP BY ALL",
    }
    return found


def ask(file: Path, only: str, plans: bool) -> None:
    """Prints one JSON line a question."""
    with open_readonly(file) as db:
        named: dict[str, tuple[str, dict[str, Any]]] = {what: (sql, {}) for what, sql in asked(db).items()}
        named |= {f"ask {q.name}": (q.sql, q.bound([])) for q in questions.load().values()}
        for what, (sql, values) in named.items():
            if only not in what:
                continue
            if plans:
                print(what, db.execute(f"EXPLAIN ANALYZE {sql}", values).fetchall()[0][1], file=sys.stderr)
            for _ in range(2):
                clock, processor = time.perf_counter(), time.process_time()
                with time_limit(db, GIVEN_UP):
                    try:
                        rows = str(len(db.execute(sql, values).fetchmany(2_000)))
                    except duckdb.Error as error:
                        rows = str(error).splitlines()[0][:60]
                took = time.perf_counter() - clock, time.process_time() - processor
                if took[0] > 2 * LIMIT:
                    break
            print(json.dumps([what, *took, most_held(), rows]), flush=True)


def _target(what: str) -> str:
    return "(whole store)" if WHOLE.match(what) else f"(under {LIMIT:g} s)"


def most_held() -> int:
    """Bytes; what Linux says of a child by getrusage holds its parent's too."""
    if sys.platform == "linux":
        [kilobytes] = re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
        return int(kilobytes) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def child(*arguments: object) -> list[list[Any]]:
    command = [sys.executable, __file__, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        found = [json.loads(line) for line in process.stdout]
    if process.returncode:
        raise SystemExit(process.returncode)
    return found


def main() -> int:
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--spans", type=int, nargs="+", default=[100_000, 1_000_000])
    given.add_argument("--days", type=float, default=10)
    given.add_argument("--only", default="", help="questions whose name holds this")
    given.add_argument("--keep", type=Path, help="keep the stores in this folder, or use those that are there")
    given.add_argument("--plans", action="store_true", help="print DuckDB's plans too")
    given.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    given.add_argument("--ask", type=Path, help=argparse.SUPPRESS)
    told = given.parse_args()
    if told.record:
        record(told.record)
        return 0
    if told.ask:
        ask(told.ask, told.only, told.plans)
        return 0
    with tempfile.TemporaryDirectory() as name:
        folder = told.keep or Path(name)
        folder.mkdir(exist_ok=True)
        times: dict[str, list[float]] = {}
        for spans in told.spans:
            file = folder / f"{spans}.duckdb"
            if not file.exists():
                recorded = folder / "recorded.duckdb"
                if not recorded.exists():
                    child("--record", folder)
                    ragtrace.open(recorded).close()
                clock = time.perf_counter()
                count = make(file, recorded, spans, told.days)
                print(
                    f"{count:,} spans made in {time.perf_counter() - clock:.0f} s, {file.stat().st_size / 1e6:,.0f} MB"
                )
            else:
                ragtrace.open(file).close()  # the views of this version
            print(f"\n{spans:,} spans; load {os.getloadavg()[0]:.1f}")
            for what, clock, processor, held, rows in child(
                "--ask", file, "--only", told.only, *["--plans"] * told.plans
            ):
                before = times.setdefault(what, [])
                grown = clock / max(before[-1], LEAST) if before else 0.0
                before.append(clock)
                print(
                    f"{what:48} {clock:7.2f} s  {processor:7.2f} s of processor  {_target(what)}  {held / 1e6:6.0f} MB  "
                    f"{rows} rows" + f"  x {grown:.1f}" * bool(grown)
                )
    largest = [what for what, took in times.items() if took[-1] > LIMIT and not WHOLE.match(what)]
    steep = [
        what for what, took in times.items()
        for (small, first), (large, second) in pairwise(zip(told.spans, took, strict=True))
        if second > SLACK * large / small * max(first, LEAST)
    ]  # fmt: skip
    print(f"above {LIMIT:g} s at {told.spans[-1]:,} spans: {', '.join(largest) or 'none'}")
    print(f"growing faster than the store: {', '.join(dict.fromkeys(steep)) or 'none'}")
    return 1 if largest or steep else 0


if __name__ == "__main__":
    sys.exit(main())
