"""What may leave the join point: ``full`` text, ``masked`` text, ``digest`` only, or ``none``.

Also the one place where foreign values become JSON: plain values stay, objects are left out and never
printed (they hold credentials), and whatever is left out is named as a loss.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import date, time
from hashlib import blake2b
from numbers import Integral, Real
from typing import Any, Literal, get_args
from uuid import UUID

from ragtrace.errors import UsageError

Mode = Literal["full", "masked", "digest", "none"]
_DEPTH = 8
_ITEMS = 1_000


def dumps(value: Any) -> str:
    """JSON of values that :func:`plain` or we ourselves have made."""
    return json.dumps(value, separators=(",", ":"))


def well_formed(text: str) -> str:
    """``text``, with lone surrogates replaced: no UTF-8 holds them, so one would lose the whole batch of spans."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def plain(value: Any, losses: list[str], where: str, depth: int = 0) -> Any:
    """The part of ``value`` that JSON can hold; what is left out is appended to ``losses`` by place and type."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return well_formed(str(value))
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        if math.isfinite(number):
            return number
        losses.append(f"{where}: {number} is not a number JSON can hold")
        return None
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        if depth == _DEPTH:
            losses.append(f"{where}: nested deeper than {_DEPTH} (or cyclic), left out")
            return None
        if len(value) > _ITEMS:
            losses.append(f"{where}: only {_ITEMS} of {len(value)} items kept")
        if isinstance(value, Mapping):
            return _object(value, losses, where, depth)
        kept = (plain(v, losses, f"{where}[{i}]", depth + 1) for i, v in zip(range(_ITEMS), value, strict=False))
        return [v for v in kept if v is not _LEFT_OUT]
    losses.append(f"{where}: {type(value).__name__} left out")
    return _LEFT_OUT if depth else None


_LEFT_OUT: Any = object()


def _object(value: Mapping[Any, Any], losses: list[str], where: str, depth: int) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for _, (key, item) in zip(range(_ITEMS), value.items(), strict=False):
        if not isinstance(key, str | int | float | bool | date | UUID | None):
            losses.append(f"{where}: a key of type {type(key).__name__} left out")
            continue
        name = well_formed(str(key))
        made = plain(item, losses, f"{where}.{name}", depth + 1)
        if made is not _LEFT_OUT:
            kept[name] = made
    return kept


class Capture:
    """One capture mode. ``key`` makes digests unguessable from outside; equal text has equal digests."""

    __slots__ = ("key", "keeps_text", "mode")

    def __init__(self, mode: Mode = "digest", key: bytes = b"") -> None:
        if mode not in get_args(Mode):
            raise UsageError(f"capture={mode!r}; expected one of {', '.join(get_args(Mode))}")
        self.mode = mode
        self.key = key
        self.keeps_text = mode in ("full", "masked")

    def text(self, text: str) -> str | None:
        """What may be kept of ``text``; ``None`` in the modes that keep none."""
        if self.mode == "full":
            return well_formed(text)
        if self.mode == "masked":
            return mask(well_formed(text))
        return None

    def digest(self, text: str) -> str | None:
        """128-bit BLAKE2b of the text, as hex; ``None`` in mode ``none``."""
        if self.mode == "none":
            return None
        return digest(text, self.key)


def digest(text: str, key: bytes = b"") -> str:
    """128-bit BLAKE2b of the text's UTF-8, as hex."""
    return blake2b(text.encode("utf-8", "replace"), digest_size=16, key=key).hexdigest()


def mask(text: str) -> str:
    """``text`` with every recognised entity replaced by its type in angle brackets."""
    from ragtrace.ner import entities

    out: list[str] = []
    end = 0
    for entity in entities(text):
        out += (text[end : entity.start], f"<{entity.type}>")
        end = entity.end
    return "".join(out) + text[end:]
