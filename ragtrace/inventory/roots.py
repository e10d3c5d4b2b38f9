"""The classes of the frameworks that a defense derives from, by name: their source need not be in sight."""

from __future__ import annotations

import re
from pathlib import Path, PurePath

FRAMEWORKS = ("langchain", "llama_index")
LANGCHAIN = frozenset(
    "BaseDocumentCompressor BaseDocumentTransformer AgentMiddleware BaseOutputParser BaseLLMOutputParser "
    "BaseTransformOutputParser BaseCumulativeTransformOutputParser StrOutputParser Runnable "
    "RunnableSerializable".split()
)
LLAMA_INDEX = frozenset("BaseNodePostprocessor BaseQueryTransform BaseSynthesizer TransformComponent".split())

MODELS = (LANGCHAIN | LLAMA_INDEX | {"BaseModel", "BaseSettings"}) - {"AgentMiddleware"}
"""Roots whose subclasses take their annotated attributes as parameters."""


_PACKAGES = re.compile(r"langchain(_core|_classic|_community|_experimental|_text_splitters|_openai)?|llama_index")


def in_framework(file: str | Path) -> bool:
    """Whether a file is a framework's own."""
    return any(_PACKAGES.fullmatch(part) for part in PurePath(file).parts)


def is_framework_root(full_name: str, file: Path) -> bool:
    """Whether a base class, by its full name in ``file``, is one of those."""
    module, _, name = full_name.rpartition(".")
    if name in LANGCHAIN:
        package = "langchain"
    elif name in LLAMA_INDEX:
        package = "llama_index"
    else:
        return False
    return module.startswith(package) or (full_name.startswith(".") and in_framework(file))
