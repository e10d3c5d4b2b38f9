"""The named questions of ``ragtrace ask``."""

from __future__ import annotations

from from_code.writing import code, plain, table


def markdown() -> str:
    """A section a question. Of the lexers for SQL, it is MySQL's that knows parameters as ``$name``."""
    from ragtrace.questions import load

    made = []
    for name, question in load().items():
        rows = [
            (code(n), code(p.kind), code("NULL" if p.default is None else p.default), plain(p.meaning))
            for n, p in question.parameters.items()
        ]
        taken = table(("parameter", "type", "default", "is"), rows) if rows else ""
        made.append(
            f"## {name}\n\n**{plain(question.title)}** {plain(question.description)}\n\n{taken}\n"
            f"```mysql\n{question.sql.strip()}\n```\n"
        )
    return "\n".join(made)
