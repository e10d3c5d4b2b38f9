"""In the battery's child: calling a function whose signature nobody knows, by the names of its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from numbers import Real
from types import CodeType
from typing import Any

from ragtrace.errors import UsageError
from ragtrace.inventory import battery_inputs as inputs
from ragtrace.inventory.battery_inputs import Specimen
from ragtrace.record import pictures
from ragtrace.types import Document, Message

_NAMES = {
    "query": "query question q user_query search_query user_input",
    "documents": "documents docs nodes results chunks passages retrieved retrieved_docs retrieved_documents hits "
    "contexts candidates items retrieved_chunks",
    "scores": "scores similarities distances relevance_scores similarity_scores",
    "messages": "messages chat_messages history conversation",
    "text": "text response answer output generated generated_text generation completion prompt content context reply "
    "value llm_output raw document doc chunk",
    "k": "k top_k topk n limit",
}
_ROLES = {name: role for role, names in _NAMES.items() for name in names.split()}
_SUBJECTS = {
    "query": ("query", "text"),
    "retrieval": ("documents", "scores"),
    "content": ("documents", "text"),
    "prompt": ("messages", "text", "query"),
    "response": ("text", "messages"),
}
_KEYS = ("text", "content", "page_content", "answer", "response", "output", "result")
_FORMS = {
    "documents": ("ours", "text in text", "text in content", "text in page_content", "text", "langchain", "pair"),
    "messages": ("ours", "text in content"),
    "text": ("text", "message", *(f"text in {key}" for key in _KEYS)),
}
"""Role → the forms that its value may have, tried in this order; ``text in KEY`` is a dict."""


class Call:
    """A function at a hook. The parameter named ``arg`` gets the input; else the one whose name fits the hook."""

    def __init__(self, function: Callable[..., Any], hook: str, arg: str | None = None) -> None:
        self.function, self.hook = inspect.unwrap(function, stop=_is_bare), hook
        try:
            self.parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):  # of a builtin
            self.parameters = inspect.signature(lambda text: None).parameters
        self.subject, self.role = self._choose(arg)
        names, constants = _words(function, set())
        forms = _FORMS.get(self.role, ())
        self.forms = tuple(sorted(forms, key=lambda form: not _speaks_of(form, names, constants)))
        self.form = self.forms[0] if self.forms else ""

    def _choose(self, arg: str | None) -> tuple[str, str]:
        plain = [n for n, p in self.parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        roles = _SUBJECTS[self.hook]
        if arg is not None:
            role = _ROLES.get(arg)
            return arg, role if role in roles else roles[0]
        for role in roles:
            for name in plain:
                if _ROLES.get(name) == role:
                    return name, role
        if not self.parameters:
            raise UsageError(f"{_name(self.function)} takes no argument, so nothing can be fed to it")
        return next((n for n in plain if n not in _ROLES), plain[0] if plain else ""), roles[0]

    def make(self, specimen: Specimen) -> Any:
        """The specimen in the form that the function takes."""
        return self._value(self.role, specimen, subject=True)

    def __call__(self, given: Any, specimen: Specimen) -> Any:
        """The result, as documents, messages or text."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, parameter in self.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                continue
            if parameter.kind is parameter.VAR_POSITIONAL:
                args += [given] if not self.subject else []
                continue
            value = given if name == self.subject else self._other(name, parameter, specimen)
            if value is _NOTHING:
                continue
            if parameter.kind is parameter.POSITIONAL_ONLY:
                args.append(value)
            else:
                kwargs[name] = value
        result = self.function(*args, **kwargs)
        if result is None and isinstance(given, list | dict) and given != self.make(specimen):
            return given  # it edits its input, and returns nothing
        return result

    def read(self, result: Any, given: Any) -> Any:
        """What came out, in a form that can be compared."""
        if self.role == "scores" or (self.role == "documents" and self.hook in ("retrieval", "content")):
            return _documents(result, given)
        if isinstance(result, dict) and self.form.startswith("text in ") and (key := self.form[8:]) in result:
            return result[key]
        if isinstance(result, tuple | dict) and self.role == "text" and pictures.text(result) is None:
            values: Iterable[Any] = result.values() if isinstance(result, dict) else result
            return next((v for v in values if pictures.text(v) is not None), result)  # the text, and what is said of it
        return result

    def _other(self, name: str, parameter: inspect.Parameter, specimen: Specimen) -> Any:
        role = _ROLES.get(name)
        if role == "k" or (parameter.default is not parameter.empty and role not in ("query", "documents", "scores")):
            return 3 if parameter.default is parameter.empty else _NOTHING
        if role is None:
            raise UsageError(f"cannot tell what to give to the parameter {name!r} of {_name(self.function)}")
        return self._value(role, specimen if role == "scores" else Specimen(inputs.PLAIN[0]))

    def _value(self, role: str, specimen: Specimen, subject: bool = False) -> Any:
        if role == "query":
            return specimen.text if subject else inputs.QUERY
        if role == "scores":
            return [d.score if d.score is not None else 0.0 for d in inputs.documents(specimen)]
        if role == "documents":
            found = inputs.documents(specimen)
            if any(_ROLES.get(name) == "scores" for name in self.parameters):
                found = [replace(d, score=d.score or 0.0) for d in found]  # as they are given beside
            form = self.form if self.form in _FORMS["documents"] else "ours"
            return [_in_form(form, d) for d in found]
        if role == "messages":
            return self._messages(specimen)
        if specimen.documents is not None:
            return "\n\n".join(d.content for d in specimen.documents)
        text = inputs.question(specimen) if subject and self.hook == "prompt" else specimen.text
        if subject and self.form == "message":
            return Message("assistant", text)
        return {self.form[8:]: text} if subject and self.form.startswith("text in ") else text

    def _messages(self, specimen: Specimen) -> list[Any]:
        said = [("user", inputs.QUERY), ("assistant", specimen.text)]
        if self.hook == "prompt":
            said = [("system", "You answer questions."), ("user", inputs.question(specimen))]
        if self.form != "ours":
            return [{"role": role, "content": content} for role, content in said]
        return [Message(role, content) for role, content in said]


_NOTHING = object()


def _is_bare(function: Any) -> bool:
    return not hasattr(function, "__ragtrace_observed__")


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


def _in_form(form: str, document: Document) -> Any:
    if form == "text":
        return document.content
    if form == "pair":
        return (document.content, document.score)
    if form.startswith("text in "):
        return {
            "id": document.id, form[8:]: document.content, "score": document.score, "metadata": document.metadata,
        }  # fmt: skip
    if form == "langchain":
        from ragtrace.inventory.battery_frameworks import langchain_document

        return langchain_document(document)
    return document


def _speaks_of(form: str, names: set[str], constants: set[str]) -> bool:
    """Whether code with these names and constants seems to take this form."""
    if form.startswith("text in "):
        return form[8:] in constants and "getattr" not in names
    return {"langchain": "page_content", "ours": "content", "message": "content"}.get(form, "") in names


def _words(function: Any, seen: set[CodeType]) -> tuple[set[str], set[str]]:
    """The names and text constants in the code of a function, and of what it calls of its class and module."""
    function = inspect.unwrap(function)
    names, constants = _read_code(getattr(function, "__code__", None), seen)
    owner, module = type(getattr(function, "__self__", None)), getattr(function, "__globals__", {})
    for name in tuple(names):
        called = getattr(owner, name, None) or module.get(name)
        if inspect.isfunction(called) and called.__code__ not in seen and len(seen) < 50:
            more = _words(called, seen)
            names |= more[0]
            constants |= more[1]
    return names, constants


def _read_code(code: CodeType | None, seen: set[CodeType]) -> tuple[set[str], set[str]]:
    if code is None:
        return set(), set()
    seen.add(code)
    names = set(code.co_names)
    constants = {c for c in code.co_consts if isinstance(c, str)}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            more = _read_code(inner, seen)
            names |= more[0]
            constants |= more[1]
    return names, constants


def _documents(result: Any, given: Any) -> Any:
    """Documents from what a function of unknown kind gave back: documents, scores, both, or pairs of them."""
    result = result.tolist() if hasattr(result, "tolist") else result
    if isinstance(result, tuple) and len(result) == 2 and all(isinstance(r, list) for r in result):
        documents, scores = result
        return _with_scores(documents, scores) if _are_numbers(scores) else documents
    if isinstance(result, list | tuple) and result:
        if _are_numbers(result):
            return _with_scores(given, result)
        if all(isinstance(r, tuple) and len(r) == 2 for r in result):
            return _with_scores([r[0] for r in result], [r[1] for r in result])
    return list(result) if isinstance(result, tuple) else result


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(v, Real) or v is None for v in values)


def _with_scores(documents: Any, scores: Any) -> Any:
    if _are_numbers(documents):
        documents = [f"document {i}" for i in range(len(documents))]
    texts = [pictures.text(d) for d in documents]
    ids, about = _read(documents, "id"), _read(documents, "metadata")
    if len(documents) != len(scores) or None in texts:
        return documents
    return [
        Document(text or "", str(id or text), None if score is None else float(score), dict(metadata or {}))
        for text, id, score, metadata in zip(texts, ids, scores, about, strict=True)
    ]


def _read(documents: Any, name: str) -> list[Any]:
    return [d.get(name) if isinstance(d, dict) else getattr(d, name, None) for d in documents]
