"""The views of some hours or days: ``verdicts_between(a, b)`` is what ``verdicts`` says of the traces that began then.

Each is made of the views' own text: in front of them stands another ``span_data``, which holds these traces alone, so
that there is one definition of everything and only the row groups of that time are read. A trace counts where it began;
what is under way at one of the two times is looked for in the hour beside it.
"""

from __future__ import annotations

import re

WINDOWED = (
    "stages", "documents", "generations", "effects", "coverage", "entities", "canary_hits", "verdict_paths", "verdicts",
    "sessions",
)  # fmt: skip
"""The views that are there as ``…_between(a, b)`` too."""

_BEYOND = frozenset({"canaries", "stale_search"})  # of all times: what is looked for was planted before
_ONCE = frozenset({"effects", "late_requests", "session_spans"})  # narrow, dear to make, and read more than once
_VIEW = re.compile(r"^CREATE OR REPLACE VIEW (\w+) AS\s(.*?);\n(?=\n|\Z)", re.DOTALL | re.MULTILINE)
_WITHIN = "start_ns >= epoch_ns({low}) AND start_ns < epoch_ns({high})"
_SINCE, _UNTIL, _HOUR = "since_time::TIMESTAMP", "until_time::TIMESTAMP", "INTERVAL 1 HOUR"
_SETTLED = f"least({_SINCE} + {_HOUR}, {_UNTIL})"


def _of(low: str, high: str, columns: str = "*") -> str:
    return f"SELECT {columns} FROM main.span_data WHERE {_WITHIN.format(low=low, high=high)}"  # noqa: S608 - of ours


_SPANS = f"""
begun_before AS MATERIALIZED (
    SELECT DISTINCT trace_id FROM ({_of(_SINCE, _SETTLED)})
    SEMI JOIN ({_of(f"{_SINCE} - {_HOUR}", _SINCE, "trace_id")}) USING (trace_id)
), under_way AS MATERIALIZED (
    SELECT DISTINCT trace_id FROM ({_of(f"greatest({_SINCE}, {_UNTIL} - {_HOUR})", _UNTIL)})
    SEMI JOIN ({_of(_UNTIL, f"{_UNTIL} + {_HOUR}", "trace_id")}) USING (trace_id)
    ANTI JOIN begun_before USING (trace_id)
), begun AS NOT MATERIALIZED (
    FROM ({_of(_SINCE, _UNTIL)}) ANTI JOIN begun_before USING (trace_id)
    UNION ALL FROM ({_of(_UNTIL, f"{_UNTIL} + {_HOUR}")}) SEMI JOIN under_way USING (trace_id)
), {{narrowed}}, entity_data AS NOT MATERIALIZED (
    FROM main.entity_data SEMI JOIN (SELECT trace_id FROM span_data WHERE stage = 'generation') USING (trace_id)
)
"""  # noqa: S608 - constants


_ALL = "span_data AS NOT MATERIALIZED (FROM begun)"
# LIMIT, which limits nothing, keeps the conditions of those that read it out of the scan: a join whose other side is
# small is looked up in there then, and the texts of the rest are not even read
_SUSPECTED = """suspected_traces AS MATERIALIZED (
    WITH span_data AS NOT MATERIALIZED (FROM begun) {suspected}
), span_data AS MATERIALIZED (FROM begun SEMI JOIN suspected_traces USING (trace_id) LIMIT 4611686018427387904)"""


def windows(definitions: str) -> str:
    """The statements that define them, from those of the views (an empty line ends each)."""
    bodies = dict(_VIEW.findall(definitions))
    return "".join(_window(view, bodies) for view in WINDOWED)


def _window(view: str, bodies: dict[str, str]) -> str:
    parts = "".join(
        f", {name} AS {'' if name in _ONCE and name != view else 'NOT '}MATERIALIZED (\n{bodies[name]}\n)"
        for name in _needed(view, bodies)
    )
    narrowed = _SUSPECTED.format(suspected=bodies["suspected_traces"]) if view == "canary_hits" else _ALL
    name = f"{view}_between"
    return f"""
CREATE OR REPLACE MACRO {name}(since_time, until_time) AS TABLE WITH {_SPANS.format(narrowed=narrowed)}{parts}
FROM {view};
COMMENT ON MACRO TABLE {name} IS '{view}, of the traces that began between two times (UTC; the second excluded).';
"""


def _needed(view: str, bodies: dict[str, str]) -> list[str]:
    """It and all that it reads, in the order of their definition."""
    found, open_ = {view}, [view]
    while open_:
        words = set(re.findall(r"\w+", bodies[open_.pop()]))
        fresh = words & bodies.keys() - found - _BEYOND
        found |= fresh
        open_ += fresh
    return [name for name in bodies if name in found]
