"""What every command's ``--help`` ends with: an example that can be copied; and where commands print."""

from __future__ import annotations

import sys

import typer
from rich.console import Console

EXAMPLES = {
    "demo": "ragtrace demo --out ragtrace-demo",
    "sql": 'ragtrace sql --db traces.duckdb "SELECT defense, hook, verdict FROM verdicts" --format csv',
    "ask": "ragtrace ask list\nragtrace ask documents limit=5 --db traces.duckdb",
    "import": "ragtrace import exports/ traces.otlp.json --db traces.duckdb",
    "collect": "ragtrace collect --db traces.duckdb --port 4318",
    "compact": "ragtrace compact --db traces.duckdb --older-than 30d",
    "forget": "ragtrace forget --db traces.duckdb --user 4711",
    "score": "ragtrace score --db traces.duckdb --metric 's2mia_*' --metric 'canary_*'",
    "inventory": "ragtrace inventory src/ --fail-on stub,dead --db traces.duckdb",
    "battery": "ragtrace battery my_app.defenses:Mask --protect email,person",
    "audit": "ragtrace audit AUDIT.toml\n"
    "ragtrace audit --app my_app:make --attack canary --canary email --defense regex_mask",
    "check": "ragtrace check --init --policy policy.toml\n"
    "ragtrace check --db traces.duckdb --policy policy.toml --baseline last.duckdb --sarif ragtrace.sarif",
    "doctor": "ragtrace doctor --db traces.duckdb",
    "report": "ragtrace report --db traces.duckdb -o report.html",
    "s2mia": "ragtrace papers s2mia --size 100 --dry-run",
    "mind-the-hook": "ragtrace papers mind-the-hook --quick --dry-run",
    "mint": "ragtrace canary mint --family email --count 20",
    "plant": "ragtrace canary plant documents.jsonl --family email",
    "scan": "ragtrace canary scan --db traces.duckdb",
}


def console() -> Console:
    """Where nobody watches (a pipe, a file), lines are as long as their content."""
    return Console() if sys.stdout.isatty() else Console(width=100_000)


def add_examples(app: typer.Typer) -> None:
    """Puts the example of each command under its help."""
    for command in app.registered_commands:
        name = command.name or getattr(command.callback, "__name__", "").strip("_").replace("_", "-")
        if name in EXAMPLES and not command.epilog:
            shown = "".join(f"\n  {line}" for line in EXAMPLES[name].splitlines())
            command.epilog = f"\b\nFor example:{shown}"
    for group in app.registered_groups:
        if group.typer_instance is not None:
            add_examples(group.typer_instance)
