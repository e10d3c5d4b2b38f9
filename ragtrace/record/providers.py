"""Who runs a model, by the package that its class comes from: a look at names, and never at the model itself.

A client that is pointed at another server (``base_url``) still says whose client it is, as the conventions have it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

OTHER: Final = "_OTHER"  # a model of the app's own, or of a test

# By package (LangChain: langchain_NAME; LlamaIndex: llama_index.llms.NAME), where the conventions call it otherwise.
_NAMES = {
    "aws": "aws.bedrock", "azure_ai": "azure.ai.inference", "azure_inference": "azure.ai.inference",
    "azure_openai": "azure.ai.openai", "bedrock": "aws.bedrock", "bedrock_converse": "aws.bedrock",
    "gemini": "gcp.gemini", "google_genai": "gcp.gemini", "google_vertexai": "gcp.vertex_ai", "ibm": "ibm.watsonx.ai",
    "mistralai": "mistral_ai", "openai_like": "openai", "vertex": "gcp.vertex_ai", "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}  # fmt: skip
_NOBODY = ("core", "classic", "tests", "community", "mock", "custom")
_AZURE = "azure.ai.openai"


def provider_of(model: object) -> str:
    """What ``gen_ai.provider.name`` says of this model."""
    kind: Any = type(model)
    return _provider_of(kind)


@lru_cache(256)
def _provider_of(kind: type) -> str:
    for each in kind.__mro__:
        package = each.__module__
        if package.startswith("langchain_"):
            name = package.removeprefix("langchain_").partition(".")[0]
        elif package.startswith("llama_index.llms."):
            name = package.removeprefix("llama_index.llms.").partition(".")[0]
        else:
            continue
        if name not in _NOBODY:
            return _AZURE if each.__name__.startswith("Azure") and name == "openai" else _NAMES.get(name, name)
    return OTHER
