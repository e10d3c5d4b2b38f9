"""Functions marked with ``observe``: importing this declares them."""

from __future__ import annotations

from typing import Any

import ragtrace


@ragtrace.observe(hook="response", name="house-mask")
def house_mask(text: str) -> str:
    return text.replace("@", "*")


@ragtrace.observe(hook="content")
async def pages(question: str, docs: list[Any], *, k: int = 4) -> list[Any]:
    return [type(d)(page_content=d.page_content.replace("@", "*"), metadata=d.metadata) for d in docs]
