"""The Python interface: what ``__all__`` says is public, by its docstrings."""

from __future__ import annotations

import inspect
from importlib import import_module

from from_code.writing import rest

HANDED_OUT = (
    "ragtrace.record.setup.Tracing",
    "ragtrace.record.handles.RetrievalStage",
    "ragtrace.record.handles.AsyncRetrievalStage",
    "ragtrace.record.handles.ContextStage",
    "ragtrace.record.handles.GenerationStage",
    "ragtrace.record.handles.AsyncGenerationStage",
    "ragtrace.tables.Table",
)
"""What public functions hand out, so that its methods are public too."""
ADAPTERS = ("ragtrace_langchain.LangChainInstrumentor", "ragtrace_llama_index.LlamaIndexInstrumentor")
ANALYST = {
    "Audits in Python": ("ragtrace.audit.Arm", "ragtrace.audit.run", "ragtrace.audit_file.read",
                         "ragtrace.auditing.conduct", "ragtrace.score.score"),
    "What an attack is": ("ragtrace.attacks.base.Card", "ragtrace.attacks.base.Attack",
                          "ragtrace.attacks.base.AdaptiveAttack"),
    "What a metric is": ("ragtrace.metrics.base.Metric", "ragtrace.metrics.base.Score", "ragtrace.metrics.base.Result"),
    "What a corpus is": ("ragtrace.corpora.base.CorpusSource", "ragtrace.corpora.base.split"),
    "What a rule is": ("ragtrace.gate.rules.base.Rule", "ragtrace.gate.rules.base.Evidence"),
    "Canaries": ("ragtrace.canaries.mint", "ragtrace.canaries.plant_corpus", "ragtrace.canaries.scan"),
    "Source and battery": ("ragtrace.inventory.inventory", "ragtrace.inventory.battery.battery"),
    "The gate": ("ragtrace.gate.check",),
    "In pytest": ("ragtrace.pytest_plugin.Traced",),
}  # fmt: skip


def public() -> list[str]:
    """The names of ``import ragtrace``."""
    import ragtrace

    return list(ragtrace.__all__)


def found(path: str) -> object:
    """The thing of a dotted path."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def _entry(path: str) -> str:
    thing = found(path)
    if not inspect.isclass(thing):
        return f".. autofunction:: {path}"
    inherited = "   :inherited-members: Generic\n" if path in HANDED_OUT else ""
    hidden = "   :exclude-members: instrument, uninstrument\n" if path in ADAPTERS else ""
    return f".. autoclass:: {path}\n   :members:\n{inherited}{hidden}"


def _part(title: str, paths: list[str]) -> str:
    return f"## {title}\n\n" + rest("\n\n".join(_entry(path) for path in paths))


def python() -> str:
    """What an app uses."""
    names = [f"ragtrace.{n}" for n in public()]
    functions = [n for n in names if not inspect.isclass(found(n))]
    classes = [n for n in names if inspect.isclass(found(n)) and not issubclass(found(n), Exception)]  # type: ignore[arg-type]
    return "\n".join(
        (
            _part("Functions", functions),
            _part("Classes", classes),
            _part("What these hand out", list(HANDED_OUT)),
            _part("Instrumentors", list(ADAPTERS)),
        )
    )


def analyst() -> str:
    """What an audit, an attack, a metric is made with."""
    from ragtrace import stats

    parts = [_part(title, list(paths)) for title, paths in ANALYST.items()]
    named = [f"ragtrace.stats.{n}" for n in stats.__all__ if not n.isupper()]
    return "\n".join((*parts, _part("Statistics", named)))


def errors() -> str:
    """The tree of errors, as its module draws it."""
    from ragtrace import errors

    classes = [n for n, c in vars(errors).items() if inspect.isclass(c) and issubclass(c, Exception)]
    named = "\n\n".join(f".. autoexception:: ragtrace.errors.{name}" for name in classes)
    return rest(f"{inspect.getdoc(errors)}\n\n{named}")


def audit_file() -> str:
    """What an audit file may say."""
    from ragtrace import audit_file

    return rest((inspect.getdoc(audit_file) or "").replace("::\n", ".. code-block:: toml\n", 1))
