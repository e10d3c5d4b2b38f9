"""The command line, read from the application itself: what ``--help`` says, on one page."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import Enum
from typing import Any, get_args, get_type_hints

from from_code.writing import code, plain, table


def walk(command: Any = None, name: str = "ragtrace") -> Iterator[tuple[str, Any]]:
    """Every command with its full name; groups have no row of their own, but their commands do."""
    import typer

    from ragtrace.cli import app

    command = typer.main.get_command(app) if command is None else command
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for part in sorted(inner):
        yield from walk(inner[part], f"{name} {part}")


def parameters(command: Any) -> list[Any]:
    """Arguments and options, without ``--help``."""
    return [p for p in command.params if p.name != "help"]


def examples(command: Any) -> list[str]:
    """The lines that the command's help ends with."""
    shown = (command.epilog or "").partition("For example:")[2]
    return [line.strip() for line in shown.splitlines() if line.strip()]


def markdown() -> str:
    """A section a command."""
    made = []
    for name, command in walk():
        rows = [_row(command, p) for p in parameters(command)]
        shown = "".join(f"{line}\n" for line in examples(command))
        made.append(
            f"## {name}\n\n{plain(command.help)}\n\n{table(('name', 'default', 'is'), rows)}\n"
            f"For example:\n\n```shell\n{shown}```\n"
        )
    return "\n".join(made)


def _choices(command: Any, parameter: Any) -> list[str]:
    """The values of an option that takes one of a few words."""
    hint = get_type_hints(inspect.unwrap(command.callback)).get(parameter.name)
    kinds = [k for k in (hint, *get_args(hint)) if isinstance(k, type) and issubclass(k, Enum)]
    return [str(member.value) for kind in kinds for member in kind]


def _row(command: Any, parameter: Any) -> tuple[str, str, str]:
    if parameter.param_type_name == "argument":
        shown = f"{(parameter.metavar or parameter.name).upper()}{'…' if parameter.nargs == -1 else ''}"
        return code(shown), "" if parameter.required else "none", plain(parameter.help or "")
    names = " / ".join(code(n) for n in (*parameter.opts, *parameter.secondary_opts))
    choices = _choices(command, parameter)
    one_of = f" One of {', '.join(map(code, choices))}." if choices else ""
    default = parameter.default
    told = "" if default in (None, ()) else code(str(default).lower() if isinstance(default, bool) else default)
    variable = f" Also the variable {code(parameter.envvar)}." if parameter.envvar else ""
    return names, told, plain(parameter.help or "") + one_of + variable
