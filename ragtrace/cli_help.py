"""What every command's ``--help`` ends with: an example that can be copied; and where commands print."""

from __future__ import annotations

import sys
from enum import StrEnum

import typer
from rich.console import Console

EXAMPLES = {
    "demo": "ragtrace demo --out ragtrace-demo",
    "sql": 'ragtrace sql --db traces.duckdb "SELECT defense, hook, verdict FROM verdicts" --format csv',
    "ask": "ragtrace ask list\nragtrace ask documents limit=5 --db traces.duckdb",
    "exposure": "ragtrace exposure --db traces.duckdb --words 10",
    "watch": "ragtrace watch --db traces.duckdb --webhook https://alarms.example.com/ragtrace",
    "detect": "ragtrace detect --db traces.duckdb --fail",
    "lake add": "ragtrace lake add --db traces.duckdb --lake s3://bucket/traces",
    "lake sql": 'ragtrace lake sql "SELECT count(*) FROM spans" --lake s3://bucket/traces --engine spark',
    "import": "ragtrace import exports/ traces.otlp.json --db traces.duckdb",
    "collect": "ragtrace collect --db traces.duckdb --port 4318",
    "compact": "ragtrace compact --db traces.duckdb --older-than 30d",
    "forget": "ragtrace forget --db traces.duckdb --user 4711",
    "score": "ragtrace score --db traces.duckdb --metric 's2mia_*' --metric 'canary_*'\n"
    "ragtrace score --engine spark --lake s3://bucket/traces --db results.duckdb",
    "inventory": "ragtrace inventory src/ --fail-on stub,dead --db traces.duckdb",
    "battery": "ragtrace battery my_app.defenses:Mask --protect email,person",
    "audit": "ragtrace audit AUDIT.toml\n"
    "ragtrace audit --app my_app:make --attack canary --canary email --defense regex_mask",
    "check": "ragtrace check --init --policy policy.toml\n"
    "ragtrace check --db traces.duckdb --policy policy.toml --baseline last.duckdb --sarif ragtrace.sarif",
    "doctor": "ragtrace doctor --db traces.duckdb",
    "ui": "ragtrace ui --db traces.duckdb",
    "report": "ragtrace report --db traces.duckdb -o report.html",
    "papers s2mia": "ragtrace papers s2mia --size 100 --dry-run",
    "papers mind-the-hook": "ragtrace papers mind-the-hook --quick --dry-run",
    "canary mint": "ragtrace canary mint --family email --count 20",
    "canary plant": "ragtrace canary plant documents.jsonl --family email",
    "canary scan": "ragtrace canary scan --db traces.duckdb",
}


class Format(StrEnum):
    """How an answer is printed."""

    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


def console(*, err: bool = False) -> Console:
    """Where nobody watches (a pipe, a file), lines are as long as their content.

    :param err: standard error, for what is not the JSON that was asked for.
    """
    watched = (sys.stderr if err else sys.stdout).isatty()
    return Console(stderr=err) if watched else Console(stderr=err, width=100_000)


def add_examples(app: typer.Typer, group: str = "") -> None:
    """Puts the example of each command under its help; those of a ``group`` are named with it."""
    for command in app.registered_commands:
        name = command.name or getattr(command.callback, "__name__", "").strip("_").replace("_", "-")
        if (key := f"{group} {name}".strip()) in EXAMPLES and not command.epilog:
            shown = "".join(f"\n  {line}" for line in EXAMPLES[key].splitlines())
            command.epilog = f"\b\nFor example:{shown}"
    for inner in app.registered_groups:
        if inner.typer_instance is not None:
            add_examples(inner.typer_instance, f"{group} {inner.name}".strip())
