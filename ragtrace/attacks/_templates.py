"""Template packs: wordings of an attack as a TOML file that a user may replace.

Each table of the file is a family with a list ``templates``; every template holds the attack's placeholder.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ragtrace.errors import InputError, UsageError

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

TOPIC, REQUEST = "{topic}", "{request}"


class Template(NamedTuple):
    """One wording, and the family it belongs to."""

    family: str
    text: str


def read(name: str, placeholder: str, path: str | Path | None = None) -> tuple[Template, ...]:
    """The templates of the file at ``path``, else of the pack ``name`` that is shipped.

    :raises InputError: no such file, no TOML, no templates, or one without its placeholder.
    """
    where = Path(path) if path is not None else files("ragtrace.attacks") / "packs" / f"{name}.toml"
    shown = repr(str(path)) if path is not None else f"{name}.toml"
    try:
        told = tomllib.loads(where.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"template pack {shown} cannot be read ({error.strerror}); expected a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"template pack {shown} is not TOML: {error}") from error
    found: list[Template] = []
    for family, table in told.items():
        texts = table.get("templates") if isinstance(table, dict) else None
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InputError(
                f'template pack {shown}: [{family}] has no list of texts; expected templates = ["… {placeholder} …"]'
            )
        for text in texts:
            if placeholder not in text:
                raise InputError(
                    f"template pack {shown}: [{family}] has a template without its placeholder {placeholder}: "
                    f"{text[:80]!r}; write {placeholder} where it is to be filled in"
                )
            found.append(Template(family, text))
    if not found:
        raise InputError(f"template pack {shown} has no templates; expected a table with templates = [...]")
    return tuple(dict.fromkeys(found))


def filled(
    templates: Sequence[Template], placeholder: str, texts: Sequence[str], count: int, rng: random.Random
) -> list[Template]:
    """``count`` different queries; texts and templates are shuffled and each used up before one comes again.

    :raises UsageError: for a count below 1, or more than templates and texts can make.
    """
    most = len(templates) * len(texts)
    if type(count) is not int or not 1 <= count <= most:
        raise UsageError(
            f"{count!r} queries asked for; expected 1 to {most} "
            f"({len(templates)} templates, {len(texts)} texts to fill them with)"
        )
    shuffled, fillers = rng.sample(templates, len(templates)), rng.sample(texts, len(texts))
    made: dict[str, Template] = {}
    for turn in range(len(shuffled)):
        for i, text in enumerate(fillers):
            template = shuffled[(i + turn) % len(shuffled)]
            query = template.text.replace(placeholder, text)
            made.setdefault(query, Template(template.family, query))
            if len(made) == count:
                return list(made.values())
    raise UsageError(f"only {len(made)} different queries could be made; expected {count}: ask for fewer")
