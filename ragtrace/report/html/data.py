"""What a report shows, as plain rows: read from the store by SQL, nothing computed twice.

Texts of traces are masked here (``words.mask``) unless asked for, so that no format can show them by mistake.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ragtrace.errors import UsageError
from ragtrace.report.html.changes import changes
from ragtrace.report.terminal import WEAK_MODELS, harmless

if TYPE_CHECKING:
    import duckdb

Row = dict[str, Any]

_MINE = "($run IS NULL OR run_id = $run)"
_HOOKS = "['query', 'retrieval', 'content', 'prompt', 'response']"
_EXPOSED = 20

# `hits` is canary_hits, searched for once
_QUERIES = {
    "verdicts": f"""
        SELECT v.*, x.example FROM verdicts v LEFT JOIN (
            SELECT defense, hook, min(trace_id) AS example FROM coverage WHERE NOT ran GROUP BY ALL
        ) x USING (defense, hook) ORDER BY defense, list_position({_HOOKS}, hook)""",  # noqa: S608
    "paths": f"SELECT * FROM verdict_paths ORDER BY defense, list_position({_HOOKS}, hook), path",  # noqa: S608
    "results": f"""
        SELECT * FROM results WHERE {_MINE}
        ORDER BY run_id, attack = 'benign', attack, metric, corpus, arm <> 'none', arm""",  # noqa: S608
    "channels": f"""
        SELECT arm, channel, count(*) FILTER (how = 'direct') AS direct, count(*) FILTER (how = 'through') AS through,
            count(*) FILTER (how = 'same') AS same, count(*) FILTER (how = 'no data') AS no_data,
            string_agg(DISTINCT origin, ', ' ORDER BY origin) FILTER (how = 'through') AS origins
        FROM paired WHERE {_MINE} GROUP BY arm, channel ORDER BY arm, list_position({_HOOKS}, channel)""",  # noqa: S608
    "capabilities": f"""
        SELECT * FROM capabilities ORDER BY defense, list_position({_HOOKS}, hook), family""",  # noqa: S608
    "memberships": f"""
        SELECT run_id, attack, metric, arm, list(value ORDER BY value) FILTER (is_member) AS members,
            list(value ORDER BY value) FILTER (NOT is_member) AS others
        FROM scores JOIN (SELECT DISTINCT run_id, probe_id, arm, is_member FROM probes WHERE is_member IS NOT NULL)
            USING (run_id, probe_id, arm)
        WHERE {_MINE} AND isfinite(value) AND metric IN (SELECT unnest($scores::VARCHAR[])) GROUP BY ALL
        ORDER BY run_id, attack, metric, arm""",  # noqa: S608
    "canaries": """
        WITH planted AS (
            SELECT run_id, try_cast(told->>'seed' AS BIGINT) AS seed, count(*) AS planted, c.family AS family
            FROM (
                SELECT run_id, told, unnest(try(from_json(told->'canaries',
                    '[{"text":"VARCHAR","family":"VARCHAR"}]'))) AS c
                FROM (SELECT DISTINCT run_id, (attributes->>'ragtrace.run')::JSON AS told FROM own_spans
                    WHERE stage IS NULL AND (attributes->>'ragtrace.run') IS NOT NULL)
            ) GROUP BY ALL
        ), asked AS (
            SELECT DISTINCT run_id, arm, attack, seed FROM probes WHERE attack <> 'benign' AND is_member IS NULL
        )
        SELECT a.run_id, a.arm, a.attack, p.family, a.seed, any_value(p.planted) AS planted,
            count(DISTINCT h.canary) AS recovered
        FROM asked a JOIN planted p ON p.run_id = a.run_id AND coalesce(p.seed = a.seed, true)
        LEFT JOIN (
            SELECT DISTINCT h.run_id, h.arm, h.canary, h.family, q.attack, q.seed
            FROM hits h JOIN probes q ON q.trace_id = h.trace_id AND NOT contains(q.query, h.canary)
            WHERE h.channel = 'response'
        ) h ON h.run_id = a.run_id AND h.arm = a.arm AND h.attack = a.attack AND h.seed = a.seed
            AND h.family = p.family
        WHERE ($run IS NULL OR a.run_id = $run) GROUP BY ALL ORDER BY ALL""",
    "curves": f"""
        SELECT run_id, attack, corpus, arm, seed, list(value ORDER BY probe_id) AS shares
        FROM scores JOIN (SELECT DISTINCT run_id, probe_id, arm, corpus, seed FROM probes WHERE target_id IS NULL)
            USING (run_id, probe_id, arm)
        WHERE {_MINE} AND metric = 'extraction_coverage' AND value IS NOT NULL AND attack <> 'benign' GROUP BY ALL
        ORDER BY run_id, attack, corpus, arm, seed""",  # noqa: S608
    "exposed": f"""
        WITH planted AS (
            SELECT document_id, count(DISTINCT canary) AS canaries, count(DISTINCT trace_id) AS answers,
                string_agg(DISTINCT arm, ', ' ORDER BY arm) AS arms
            FROM hits WHERE channel = 'response' AND document_id IS NOT NULL AND {_MINE} GROUP BY ALL
        ), named AS (
            SELECT d.document_id, count(DISTINCT (e.type, lower(e.text))) AS entities
            FROM entities e JOIN (SELECT DISTINCT trace_id, document_id, lower(content) AS content FROM documents
                WHERE phase = 'retrieved' AND content IS NOT NULL AND {_MINE}) d
                ON d.trace_id = e.trace_id AND contains(d.content, lower(e.text))
            WHERE e.in_documents AND NOT e.in_query GROUP BY ALL
        )
        SELECT document_id, coalesce(canaries, 0) AS canaries, coalesce(answers, 0) AS answers,
            coalesce(entities, 0) AS entities, arms
        FROM planted FULL JOIN named USING (document_id)
        ORDER BY canaries DESC, entities DESC, document_id LIMIT {_EXPOSED}""",  # noqa: S608
    "tradeoffs": f"""
        SELECT * FROM tradeoffs WHERE {_MINE}
        ORDER BY run_id, attack, corpus, list_position({_HOOKS}, channel), arm, kind DESC, type""",  # noqa: S608
    "replications": f"""
        SELECT * FROM replications WHERE {_MINE} AND value IS NOT NULL
        ORDER BY run_id, attack = 'benign', attack, metric, corpus, arm <> 'none', arm""",  # noqa: S608
    "losses": "SELECT * FROM losses WHERE lost > 0 OR unwritten > 0 ORDER BY lost DESC, process LIMIT 50",
}
_FACTS = """
SELECT (SELECT count(DISTINCT trace_id) FROM span_data) AS traces, (SELECT count(*) FROM span_data) AS spans,
    (SELECT count(*) FROM probes WHERE $run IS NULL OR run_id = $run) AS probes,
    (SELECT string_agg(DISTINCT model, ', ' ORDER BY model) FROM stages WHERE model IS NOT NULL) AS models,
    (SELECT strftime(min(start_time), '%Y-%m-%d %H:%M') FROM spans) AS first,
    (SELECT strftime(max(start_time), '%Y-%m-%d %H:%M') FROM spans) AS last,
    (SELECT coalesce(sum(lost), 0) FROM losses)::BIGINT AS lost,
    (SELECT count(*) FROM losses) AS processes
"""


@dataclass(frozen=True)
class Report:
    """What is shown. ``sections`` maps names to rows; one without rows has a sentence in ``missing`` that says why."""

    database: str
    run: str | None
    content_shown: bool
    runs: list[str]
    facts: Row
    sections: dict[str, list[Row]]
    missing: dict[str, str]
    weak_model: bool


def read(db: duckdb.DuckDBPyConnection, database: str, run: str | None = None, show_content: bool = False) -> Report:
    """Reads all that a report shows of one run, or of all.

    :raises UsageError: no such run.
    """
    known = [
        r for (r,) in db.execute("SELECT run_id FROM probes UNION SELECT run_id FROM results ORDER BY 1").fetchall()
    ]
    known = [r for r in known if r is not None]
    if run is not None and run not in known:
        raise UsageError(
            f"no run {harmless(run)!r} in this database; it has: "
            f"{', '.join(harmless(r, 60) for r in known[:20]) or 'none (no probes)'}"
            f"{f' and {len(known) - 20} more' if len(known) > 20 else ''}"
        )
    methods = _Methods()
    db.execute(f"CREATE OR REPLACE TEMP TABLE hits AS FROM canary_hits WHERE {_MINE}", {"run": run})
    given = {"run": run, "scores": list(methods.signs)}
    sections = {
        name: rows(db, query, {k: v for k, v in given.items() if f"${k}" in query}) for name, query in _QUERIES.items()
    }
    for row in sections["memberships"]:
        row["sign"] = methods.signs[row["metric"]]
    sections["changes"] = changes(db, run, show_content)
    sections["metrics"] = methods.metrics({row["metric"] for row in sections["results"]})
    sections["attacks"] = methods.attacks({row["attack"] for row in sections["results"]})
    [facts] = rows(db, _FACTS, {"run": run})
    return Report(
        database, run, show_content, [run] if run is not None else known, facts, sections,
        _missing(sections, facts), any(_is_weak(row["signature"]) for row in sections["results"]),
    )  # fmt: skip


def rows(db: duckdb.DuckDBPyConnection, query: str, given: Row | None = None) -> list[Row]:
    """The answer, a dict for each row."""
    answer = db.execute(query, given or {})
    names = [column[0] for column in answer.description or ()]
    return [dict(zip(names, map(_finite, row), strict=True)) for row in answer.fetchall()]


def _finite(value: Any) -> Any:
    """A number that is none is no data."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _is_weak(signature: str | None) -> bool:
    return any(f"model:{model}" in (signature or "").split("|") for model in WEAK_MODELS)


class _Methods:
    """What the metrics and attacks of this installation say of themselves; a store may hold numbers of others."""

    def __init__(self) -> None:
        from ragtrace.attacks import load as attacks
        from ragtrace.metrics import load as metrics

        self._metrics, self._attacks = metrics(), attacks()
        self.signs: dict[str, int] = {}
        for metric in self._metrics.values():
            if not getattr(metric, "membership", False):
                continue
            if (feature := getattr(metric, "feature", None)) is not None:
                self.signs[feature.name] = feature.sign
            elif (attack := getattr(metric, "attack", None)) is not None:
                self.signs[getattr(attack, "name", str(attack))] = 1

    def metrics(self, names: set[str]) -> list[Row]:
        return [
            {"metric": name, "channel": metric.channel, "moved_by": ", ".join(metric.moved_by),
             "observes": metric.observes}
            if (metric := self._metrics.get(name)) is not None
            else {"metric": name, "channel": None, "moved_by": None, "observes": None}
            for name in sorted(names)
        ]  # fmt: skip

    def attacks(self, names: set[str | None]) -> list[Row]:
        found = []
        for name in sorted(n for n in names if n is not None):
            card = getattr(self._attacks.get(name), "card", None)
            fields = ("paper", "prompt", "queries", "access", "deviations")
            found.append({"attack": name} | {f: getattr(card, f, None) for f in fields})
        return found


def _missing(sections: dict[str, list[Row]], facts: Row) -> dict[str, str]:
    """Why each empty section is empty, in one sentence, and what would fill it."""
    if not facts["probes"]:
        unscored = "this database holds no probes; `ragtrace audit` sends some"
    elif not sections["results"]:
        unscored = "its probes are not scored yet; run `ragtrace score`"
    else:
        unscored = ""
    why = {
        "verdicts": "nothing is known of any defense: no request declared one, no part was seen at work, and no "
        "inventory is stored (`ragtrace inventory TARGET --db DB`)",
        "results": unscored,
        "channels": unscored or "no probe was sent in another arm than the undefended one",
        "capabilities": "the battery was not stored; `ragtrace battery TARGET --db DB` does it",
        "memberships": unscored or "no membership attack with scores of members and non-members",
        "canaries": unscored or "no canaries were planted and asked for",
        "curves": unscored or "no extraction attack with a coverage score",
        "tradeoffs": unscored or "no defended arm whose leakage could be compared with the undefended one's",
        "replications": unscored or "no result has a number",
        "exposed": "no canary and no entity of a retrieved document was found in an answer"
        if facts["traces"] else "no traces",
        "losses": f"nothing is known to be lost (processes that wrote here: {facts['processes']})",
        "changes": "no defense changed anything" if facts["traces"] else "no traces",
        "metrics": unscored,
        "attacks": unscored,
    }  # fmt: skip
    return {name: why[name] for name, found in sections.items() if not found and name in why}
