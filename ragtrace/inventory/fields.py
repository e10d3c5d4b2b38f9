"""What the objects of ragtrace and of the frameworks hold: constructors, and the many names of one field."""

from __future__ import annotations

import re

FIELDS: dict[str, tuple[str, ...]] = {
    "Document": ("content", "id", "score", "metadata"),
    "Message": ("role", "content"),
    "NodeWithScore": ("node", "score"),
    "QueryBundle": ("content",),
    "TextNode": (),
    "AIMessage": ("content",),
    "HumanMessage": ("content",),
    "SystemMessage": ("content",),
    "ToolMessage": ("content",),
    "ModelResponse": ("result",),
    "Command": (),
    "Response": ("response",),
}
"""Positional arguments of the constructors that are known; others only by keyword."""
NEEDED = {"Document": {"content", "metadata"}, "Message": {"role", "content"}, "NodeWithScore": {"node", "score"},
          "QueryBundle": {"content"}}  # fmt: skip
"""The fields that make the object what it was, where each of them is taken from one element."""
LISTS = frozenset({"messages", "result", "source_nodes"})
"""Attributes and keys that hold a list of elements."""
_TEXTS = frozenset({"page_content", "text", "query_str", "content", "response"})
_READS = frozenset({"get_content", "get_text"})
WRITES = frozenset({"set_content"})

LIBRARIES = ("re.", "html.", "textwrap.", "unicodedata.", "hashlib.", "string.", "math.", "statistics.", "difflib.")
TO_AND_FRO = ("json.", "base64.", "urllib.parse.", "binascii.", "codecs.", "pickle.", "itertools.", "ast.", "zlib.")
MODEL_CALLS = frozenset(
    "invoke ainvoke predict apredict complete acomplete generate agenerate chat achat batch abatch run arun "
    "predict_messages structured_predict astructured_predict apply".split()
)
PROTECTORS = ("presidio_anonymizer.", "scrubadub.")
MODEL = re.compile(r"(?i)llm|chain|model|agent|paraphras|rewrit")

PURE = frozenset(
    "len print isinstance issubclass any all sum hash id range type callable hasattr bool int float abs round ord "
    "repr".split()
)


def canonical(name: str) -> str:
    """One name for all that mean the text of a document, message or node."""
    head, _, last = name.rpartition(".")
    if last in _TEXTS:
        last = "content"
    return last if head in ("", "node") and last == "content" else f"{head}.{last}" if head else last


def reads_text(method: str) -> bool:
    """Whether a method of an element gives its text."""
    return method in _READS
