"""The frameworks' classes that carry text: how objects of them are made, and what they have."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from ragtrace.inventory.fields import FIELDS
from ragtrace.inventory.trial.things import Chain, GiveUpError, Instance, Record, own
from ragtrace.inventory.trial.watch import Watch

RECORDS: dict[str, dict[str, Any]] = {
    "Document": {"page_content": "", "metadata": {}, "id": None},
    "ragtrace.Document": {"content": ..., "id": ..., "score": None, "metadata": {}},
    "ragtrace.Message": {"role": ..., "content": ...},
    **{n: {"content": "", "id": None, "name": None, "additional_kwargs": {}, "response_metadata": {}}
       for n in ("AIMessage", "HumanMessage", "SystemMessage", "ToolMessage", "AIMessageChunk", "ChatMessage")},
    "RemoveMessage": {"id": ..., "content": ""},
    "TextNode": {"text": "", "id_": "n", "metadata": {}, "relationships": {}},
    "NodeWithScore": {"node": ..., "score": None},
    "QueryBundle": {"query_str": ..., "custom_embedding_strs": None, "embedding": None},
    "ModelRequest": {"model": None, "messages": [], "system_message": None, "tools": [], "state": {}, "runtime": None},
    "ModelResponse": {"result": ..., "structured_response": None},
    "Response": {"response": None, "source_nodes": [], "metadata": {}},
    "Message": {"role": ..., "content": ...},
}  # fmt: skip
_MESSAGES = {"AIMessage", "HumanMessage", "SystemMessage", "ToolMessage"}
SAME: dict[str, set[str]] = {
    "BaseMessage": _MESSAGES | {"AIMessageChunk"}, "AnyMessage": _MESSAGES, "BaseNode": {"TextNode"},
    **{n: set() for n in ("RunnableLambda", "ImageNode", "IndexNode", "AIMessageChunk")},
}  # fmt: skip
"""Base classes, and what is of them."""
_TYPES = {"AIMessage": "ai", "HumanMessage": "human", "SystemMessage": "system", "ToolMessage": "tool"}


_OF_THE_NODE = frozenset("text metadata id_ node_id get_content get_text set_content".split())


class Records(Watch):
    """Classes in sight are in :class:`~ragtrace.inventory.trial.classes.Classes`."""

    attribute: Any

    def record_named(self, dotted: str) -> Record | None:
        """A framework's class that carries text, by its full name."""
        top, _, short = dotted.partition(".")[0], *dotted.rpartition(".")[1:]
        if top == "ragtrace" and f"ragtrace.{short}" in RECORDS:
            return Record(self, f"ragtrace.{short}")
        known = top.startswith(("langchain", "llama_index")) and (short in RECORDS or short in SAME)
        return Record(self, short) if known else None

    def record(self, kind: Record, args: tuple[Any, ...], kw: dict[str, Any]) -> Instance:
        """An object of such a class."""
        if kind.name == "RunnableLambda":
            return Chain(list(args))  # type: ignore[return-value]
        if kind.name not in RECORDS:
            raise GiveUpError(kind.name)
        defaults = RECORDS[kind.name]
        names = list(defaults)
        if kind.name in ("AIMessage", "HumanMessage", "SystemMessage"):
            names = list(FIELDS[kind.name])
        if len(args) > len(names):
            raise TypeError("too many arguments")
        given = dict(zip(names, args, strict=False)) | kw
        made = {k: copy.deepcopy(v) for k, v in defaults.items() if k not in given} | given
        if any(v is ... for v in made.values()):
            raise TypeError(f"{kind.name} lacks an argument")
        return Instance(self, kind.name, made)

    def _of_record(self, obj: Instance, name: str) -> Any:
        kind, held = obj._k, obj._a
        node = held.get("node")
        if kind == "NodeWithScore" and isinstance(node, Instance) and name in _OF_THE_NODE:
            return self.attribute(node, name)
        if kind == "TextNode" and name in ("node_id", "id"):
            return held["id_"]
        if name in ("get_content", "get_text"):
            return own(lambda *_, **__: held["text"])
        if name == "set_content":
            return own(lambda text: held.update(text=text))
        if name in ("model_copy", "copy", "with_content", "override", "replace"):
            return own(lambda update=None, deep=False, **kw: self._copied(obj, update, deep, kw))
        if name in ("dict", "model_dump", "to_dict"):
            return own(lambda **_: copy.deepcopy(held))
        if name == "type" and kind in _TYPES:
            return _TYPES[kind]
        if name == "text" and "content" in held:
            return held["content"]
        if name == "get" and kind == "state":
            return own(lambda *key: held.get(*key))
        raise (
            AttributeError(f"{kind!r} object has no attribute {name!r}")
            if kind.startswith("ragtrace.")
            else (GiveUpError(f"{kind}.{name}"))
        )

    def _copied(self, obj: Instance, update: Any, deep: bool, kw: dict[str, Any]) -> Instance:
        made = copy.deepcopy(obj) if deep else copy.copy(obj)
        if update is not None and not isinstance(update, Mapping):
            raise GiveUpError("an update")
        made._a.update({**(update or {}), **kw})
        return made
