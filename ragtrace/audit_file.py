"""``ragtrace audit AUDIT.toml``: what to audit, written down.

::

    app = "my_app:make_app"      # a factory: called with the documents to index, or without where it takes none
    db = "traces.duckdb"
    capture = "full"             # scores read text
    seeds = [101, 102]           # a finding needs more than one
    concurrency = 4
    mode = "single_turn"         # or "multi_turn": an attack's queries are one conversation
    controls = true              # the default: attacks also run without retrieval, membership ones without the target
    recommended = true           # also an arm `recommended`: the fewest of the defenses below that cover what any does

    [corpus]                     # a corpus of `ragtrace.corpora` with its own parameters …
    name = "synthetic_email"
    members = 50
    non_members = 20
    canaries = ["email", "person"]

    [attacks]                    # attacks of `ragtrace.attacks` with their parameters
    canary = { count = 20 }
    s2mia = {}

    [arms]                       # each a list of defenses: names, { name = …, parameter = … }, or "module:Class"
    none = []
    masked = ["regex_mask"]
    noisy = [{ name = "dp_retrieval", epsilon = 1.0 }]

The factory returns what takes a query: a function, a coroutine function, or anything with ``invoke`` or ``query``.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from ragtrace import attacks, corpora, defenses
from ragtrace.asking import Turns
from ragtrace.audit import Arm
from ragtrace.controls import Control, controls_of
from ragtrace.defense import Defense
from ragtrace.errors import InputError, UsageError
from ragtrace.record.capture import Mode

if TYPE_CHECKING:
    from ragtrace.attacks.base import AdaptiveAttack, Attack
    from ragtrace.types import Corpus, Document

DEFAULT_SEED = 101
RECOMMENDED = "recommended"
_KEYS = (
    "app", "db", "capture", "seeds", "concurrency", "mode", "controls", "recommended", "corpus", "attacks", "arms",
)  # fmt: skip
_CORPUS_KEYS = ("name", "members", "non_members", "canaries")


@dataclass(frozen=True)
class AuditFile:
    """An audit as it was written down; everything in it has been checked but the app, which is imported last."""

    app: str
    arms: tuple[Arm, ...]
    attacks: tuple[Attack | AdaptiveAttack, ...]
    source: Any
    db: Path = Path("traces.duckdb")
    capture: Mode = "full"
    seeds: tuple[int, ...] = (DEFAULT_SEED,)
    concurrency: int = 1
    mode: Turns = "single_turn"
    members: int = 50
    non_members: int = 0
    families: tuple[str, ...] = ()
    recommended: bool = False
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def defenses(self) -> list[Defense]:
        """Every defense of every arm; a control is none."""
        return [d for arm in self.arms for d in arm.defenses if not isinstance(d, Control)]

    def corpus(self, seed: int) -> Corpus:
        """The corpus of one seed, canaries planted."""
        from ragtrace.canaries import plant_corpus

        drawn: Corpus = self.source.build(self.members, seed, non_members=self.non_members)
        if not self.families:
            return drawn
        avoid = frozenset().union(*(d.constants() for d in self.defenses))
        return plant_corpus(drawn, self.families, seed, avoid)

    def ask(self, documents: Sequence[Document]) -> Callable[[str], Any]:
        """The app, built by its factory.

        :raises UsageError: a factory that cannot be had, or that takes no documents where canaries are to be planted.
        """
        factory = imported(self.app, "app")
        try:
            takes = [p for p in inspect.signature(factory).parameters.values() if p.kind in _POSITIONAL]
        except (TypeError, ValueError):
            takes = []
        if not takes and self.families:
            raise UsageError(
                f"{self.app} takes no documents, so no canaries can be planted in its index; expected a factory with "
                "one parameter, the documents to index, or no `canaries` in [corpus]"
            )
        return callable_of(factory(list(documents)) if takes else factory(), self.app)


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def read(path: Path) -> AuditFile:
    """The audit in the TOML file at ``path``.

    :raises InputError: no such file, or no TOML. :raises UsageError: something in it that is not known.
    """
    try:
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); expected an audit file, as in the docs") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from error
    return made(told, str(path))


def made(told: Mapping[str, Any], where: str = "the audit") -> AuditFile:
    """An audit from plain values, as they stand in the file.

    :raises UsageError: a missing app, or anything that is not known, with what was expected.
    """
    _known(told, _KEYS, where)
    app = told.get("app")
    if not isinstance(app, str) or ":" not in app:
        raise UsageError(f"{where}: app is {app!r}; expected 'module:factory'")
    corpus = dict(_table(told, "corpus", where))
    capture = told.get("capture", "full")
    mode = told.get("mode", "single_turn")
    for key, given, one_of in (("capture", capture, get_args(Mode)), ("mode", mode, get_args(Turns))):
        if given not in one_of:
            raise UsageError(f"{where}: {key} is {given!r}; expected one of {', '.join(one_of)}")
    arms = [Arm(name, tuple(_defenses(given, f"{where}: arm {name}"))) for name, given in _arms(told, where).items()]
    asked = tuple(_attacks(told, where))
    recommended = told.get("recommended", False)
    if not isinstance(recommended, bool):
        raise UsageError(f"{where}: recommended is {recommended!r}; expected true or false")
    if recommended and (RECOMMENDED in [arm.name for arm in arms] or not any(arm.defenses for arm in arms)):
        raise UsageError(
            f"{where}: recommended = true adds an arm {RECOMMENDED!r} made of the other arms' defenses; expected some, "
            "and no other arm of that name"
        )
    if told.get("controls", True) is True:
        arms += controls_of(asked, [arm.name for arm in arms])
    families = corpus.pop("canaries", ())
    if not isinstance(families, list | tuple):
        raise UsageError(f"{where}: [corpus] canaries is {families!r}; expected a list of families")
    members, non_members = corpus.pop("members", 50), corpus.pop("non_members", 0)
    for key, number in (("members", members), ("non_members", non_members)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise UsageError(f"{where}: [corpus] {key} is {number!r}; expected a whole number from 0 on")
    name = corpus.pop("name", None)
    source = _build(corpora.load(), name, corpus, f"{where}: corpus")
    seeds = told.get("seeds", [DEFAULT_SEED])
    if not isinstance(seeds, list | tuple) or not seeds or any(type(s) is not int for s in seeds):
        raise UsageError(f"{where}: seeds is {seeds!r}; expected a list of whole numbers")
    concurrency = told.get("concurrency", 1)
    if type(concurrency) is not int or concurrency < 1:
        raise UsageError(f"{where}: concurrency is {concurrency!r}; expected 1 or more requests at a time")
    return AuditFile(
        app=app,
        arms=tuple(arms),
        attacks=asked,
        source=source,
        db=Path(str(told.get("db", "traces.duckdb"))),
        capture=capture,
        seeds=tuple(dict.fromkeys(seeds)),
        concurrency=concurrency,
        mode=mode,
        members=members,
        non_members=non_members,
        families=tuple(families),
        recommended=recommended,
        facts={"corpus": name, "app": app},
    )


def imported(name: str, what: str) -> Any:
    """``module:attribute``, with the current folder importable as for ``python -m``.

    :raises UsageError: it is not there, or its module cannot be imported.
    """
    module, _, attribute = name.partition(":")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"{what} {name!r} cannot be imported: {error}; expected 'module:name', from here") from error
    return found


def callable_of(app: Any, name: str) -> Callable[[str], Any]:
    """What takes a query: the app itself, or its ``invoke`` (LangChain) or ``query`` (LlamaIndex).

    :raises UsageError: it has none of them.
    """
    for method in ("invoke", "query", "chat", "run"):
        if callable(found := getattr(app, method, None)):
            return found  # type: ignore[no-any-return]
    if callable(app):
        return app  # type: ignore[no-any-return]
    raise UsageError(f"{name} made {type(app).__name__}; expected a function of a query, or an object with .invoke")


def _table(told: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    found = told.get(key, {})
    if not isinstance(found, Mapping):
        raise UsageError(f"{where}: {key} is {found!r}; expected a table, [{key}]")
    return found


def _arms(told: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    return _table(told, "arms", where) or {"none": []}


def _attacks(told: Mapping[str, Any], where: str) -> Iterable[Attack | AdaptiveAttack]:
    wanted = _table(told, "attacks", where)
    if not wanted:
        raise UsageError(f"{where}: no attacks; expected a table [attacks] with some of {', '.join(attacks.load())}")
    for name, parameters in wanted.items():
        if not isinstance(parameters, Mapping):
            raise UsageError(f"{where}: attack {name} is {parameters!r}; expected its parameters, {{}} for none")
        yield _build(attacks.load(), name, parameters, f"{where}: attack")


def _defenses(given: Any, where: str) -> Iterable[Defense]:
    if not isinstance(given, list | tuple):
        raise UsageError(f"{where} is {given!r}; expected a list of defenses, [] for none")
    for one in given:
        parameters = dict(one) if isinstance(one, Mapping) else {"name": one}
        name = parameters.pop("name", None)
        if isinstance(name, str) and ":" in name:
            made = imported(name, "defense")
            made = made if isinstance(made, Defense) else _called(made, parameters, f"{where}: {name}")
        else:
            made = _build(defenses.load(), name, parameters, f"{where}: defense")
        if not isinstance(made, Defense):
            raise UsageError(f"{where}: {name} made {type(made).__name__}; expected a ragtrace.Defense")
        yield made


def _build(known: Mapping[str, Any], name: Any, parameters: Mapping[str, Any], where: str) -> Any:
    if not isinstance(name, str) or name not in known:
        near = get_close_matches(str(name), known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(sorted(known))}"
        raise UsageError(f"{where} {name!r} is not known; {hint}")
    found = known[name]
    if not parameters and not isinstance(found, type):
        return found
    return _called(found if isinstance(found, type) else type(found), parameters, f"{where} {name}")


def _called(of: Any, parameters: Mapping[str, Any], where: str) -> Any:
    try:
        inspect.signature(of).bind(**parameters)
    except (TypeError, ValueError) as error:
        takes = ", ".join(inspect.signature(of).parameters) or "no parameters"
        raise UsageError(f"{where}: {error}; it takes {takes}") from error
    return of(**parameters)


def _known(told: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    for key in told:
        if key not in keys:
            near = get_close_matches(key, keys, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"expected some of {', '.join(keys)}"
            raise UsageError(f"{where}: {key!r} is not known; {hint}")
