"""What may leave the join point: ``full`` text, ``masked`` text, ``digest`` only, or ``none``.

Also the one place where foreign values become JSON: plain values stay, objects are left out and never
printed (they hold credentials), and whatever is left out is named as a loss.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping
from datetime import date, time
from hashlib import blake2b
from numbers import Integral, Real
from pathlib import PurePath
from typing import Any, Literal, get_args
from uuid import UUID

import orjson

from ragtrace.errors import UsageError
from ragtrace.record.bounds import CONTENT, Side, hidden, no_content
from ragtrace.record.planted import Canaries, Planted
from ragtrace.record.statistics import Statistics

Mode = Literal["full", "masked", "digest", "none"]
Also = Literal["openinference", ""]
_ALSO = get_args(Also)
_log = logging.getLogger("ragtrace")
_DEPTH = 8
_ITEMS = 1_000  # kept of one list or mapping
_VALUES = 10_000  # kept of one call: lists that share their parts grow exponentially when written out
_MASKED = 1_000_000  # characters of one text: recognising entities takes time, and the app waits
_MARGIN = 1_000  # read beyond the last character kept, for what is cut there
_FEW = 32
_BITS = 1_024  # Python refuses to print integers much longer than this


def dumps(value: Any) -> str:
    """JSON of values that :func:`plain` or we ourselves have made."""
    try:
        return orjson.dumps(value, option=_NO_OBJECTS).decode()
    except TypeError:  # a lone surrogate, or an integer of more than 64 bits
        return well_formed(_encode(value))


_NO_OBJECTS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_SUBCLASS
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def well_formed(text: str) -> str:
    """``text``, with lone surrogates replaced: no UTF-8 holds them, so one would lose the whole batch of spans."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def plain(value: Any, losses: list[str], where: str, text: Callable[[str], Any] = well_formed) -> Any:
    """The part of ``value`` that JSON can hold; what is left out is appended to ``losses`` by place and type.

    No object of a foreign class is printed. ``text`` makes what is kept of each string.
    """
    if type(value) is dict and len(value) <= _FEW:  # most metadata
        flat = {text(k): text(v) if type(v) is str else v for k, v in value.items() if _flat(k, v)}
        if len(flat) == len(value):
            return flat
    made = _Plain(losses, text).of(value, where, 0)
    return None if made is _LEFT_OUT else made


def _flat(key: Any, value: Any) -> bool:
    kind = type(value)
    return type(key) is str and (
        kind is str or kind is bool or value is None or (kind is float and math.isfinite(value))
    )


_LEFT_OUT: Any = object()


class _Plain:
    """One call of :func:`plain`."""

    def __init__(self, losses: list[str], text: Callable[[str], Any]) -> None:
        self.losses, self.text, self.left = losses, text, _VALUES

    def lose(self, where: str, why: str) -> Any:
        self.losses.append(f"{where}: {why}")
        return _LEFT_OUT

    def of(self, value: Any, where: str, depth: int) -> Any:
        self.left -= 1
        try:
            if (kind := type(value)) is str:  # what metadata mostly holds: no search through abstract classes for it
                return self.text(value)
            if value is None or kind is bool or (kind is float and math.isfinite(value)):
                return value
            return self.scalar(value, where) if not isinstance(value, _CONTAINERS) else self.inner(value, where, depth)
        except Exception:
            return self.lose(where, f"{type(value).__name__} cannot be read, left out")

    def scalar(self, value: Any, where: str) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self.text(str.__str__(value))  # not the subclass's own way to print itself
        if isinstance(value, Integral):
            whole = int(value)
            return whole if whole.bit_length() <= _BITS else self.lose(where, "an integer too long, left out")
        if isinstance(value, Real):
            number = float(value)
            if math.isfinite(number):
                return number
            self.lose(where, f"{number} is not a number JSON can hold")
            return None
        if isinstance(value, date | time):
            return value.isoformat()
        if isinstance(value, UUID):
            return UUID.__str__(value)
        if isinstance(value, PurePath):
            return self.text(PurePath.__str__(value))
        return self.lose(where, f"{type(value).__name__} left out")

    def inner(self, value: Any, where: str, depth: int) -> Any:
        if depth == _DEPTH:
            return self.lose(where, f"nested deeper than {_DEPTH} (or cyclic), left out")
        if len(value) > _ITEMS:
            self.lose(where, f"only {_ITEMS} of {len(value)} items kept")
        mapping = isinstance(value, Mapping)
        kept: list[tuple[Any, Any]] = []
        for place, item in zip(range(_ITEMS), value.items() if mapping else value, strict=False):
            if self.left <= 0:
                self.lose(where, f"more than {_VALUES} values (or cyclic), the rest left out")
                break
            key, inner = item if mapping else (place, item)
            name = self.key(key, where) if mapping else place
            if name is _LEFT_OUT:
                continue
            made = self.of(inner, f"{where}.{name}" if mapping else f"{where}[{place}]", depth + 1)
            if made is not _LEFT_OUT:
                kept.append((name, made))
        return dict(kept) if mapping else [made for _, made in kept]

    def key(self, key: Any, where: str) -> Any:
        if type(key) is str:
            return self.text(key)
        made = _LEFT_OUT if isinstance(key, _CONTAINERS) else self.scalar(key, f"{where}, a key")
        return made if made is _LEFT_OUT or isinstance(made, str) else str(made)


_CONTAINERS = (Mapping, list, tuple, set, frozenset)


class Capture:
    """One capture mode. ``key`` makes digests unguessable from outside; equal text has equal digests.

    ``also`` is whose names are written beside ours. The environment may forbid more than the mode does, so ``mode`` may
    be another one than was asked for, and some texts ``hidden``.

    :param key: without, that of ``RAGTRACE_DIGEST_KEY``, where it is set.
    :param statistics: whether entities and overlap are computed of texts that are not kept as they are.
    :param canaries: looked for in every text, except in mode ``none``.
    """

    __slots__ = ("also", "canaries", "hidden", "keeps_text", "key", "mode", "statistics")

    def __init__(
        self,
        mode: Mode = "digest",
        key: bytes = b"",
        also: Also | None = None,
        statistics: bool = True,
        canaries: Canaries | None = None,
    ) -> None:
        if mode not in get_args(Mode):
            raise UsageError(f"capture={mode!r}; expected one of {', '.join(get_args(Mode))}")
        if mode in ("full", "masked") and no_content():
            _log.warning("ragtrace keeps digests only, not capture=%r: %s forbids content in spans", mode, CONTENT)
            mode = "digest"
        self.mode = mode
        self.also = also_of(also)
        self.keeps_text = mode in ("full", "masked")
        self.hidden = hidden() if self.keeps_text else {}
        self.key = key or (b"" if self.keeps_all else given_key())
        for side, variable in self.hidden.items():
            _log.warning("ragtrace keeps digests only of %s: %s is set", side, variable)
        self.canaries = canaries if mode != "none" else None
        self.statistics = Statistics(self, statistics and mode != "none" and not self.keeps_all)

    @property
    def keeps_all(self) -> bool:
        """Whether every text is kept as it is: then nothing need be computed of it here."""
        return self.mode == "full" and not self.hidden

    def look_for(self, more: Iterable[Planted]) -> None:
        """Looks for these canaries too, from now on."""
        known = self.canaries.all if self.canaries is not None else ()
        if (wanted := (*known, *more)) and self.mode != "none":
            self.canaries = Canaries(wanted)

    def side(self, *sides: Side) -> Capture:
        """The capture for texts of these sides: this one, or one for digests where one of them is hidden."""
        return self if self.hidden.keys().isdisjoint(sides) else Capture("digest", self.key, "", False)

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


def given_key() -> bytes:
    """The key of digests that ``RAGTRACE_DIGEST_KEY`` gives; empty where it gives none."""
    return os.environ.get("RAGTRACE_DIGEST_KEY", "").encode("utf-8", "surrogateescape")[:64]


def also_of(given: Any) -> Also | None:
    """What ``also=`` or ``RAGTRACE_ALSO`` says; a wrong word in the environment stops no app."""
    if given is None and (given := os.environ.get("RAGTRACE_ALSO", "").strip().lower()) not in _ALSO:
        _log.warning("RAGTRACE_ALSO is not known and ignored; expected openinference")
        return None
    if given not in _ALSO:
        raise UsageError(f"also={given!r}; expected 'openinference', or '' for none")
    return given or None


def digest(text: str, key: bytes = b"") -> str:
    """128-bit BLAKE2b of the text's UTF-8, as hex."""
    return blake2b(text.encode("utf-8", "replace"), digest_size=16, key=key).hexdigest()


def mask(text: str) -> str:
    """``text`` with every recognised entity replaced by its type in angle brackets; of a very long one, the start."""
    from ragtrace.ner import entities

    out: list[str] = []
    end, stop = 0, min(len(text), _MASKED)
    for entity in entities(text[: stop + _MARGIN]):
        if entity.start >= stop:
            break
        out += (text[end : entity.start], f"<{entity.type}>")
        end = entity.end
    out.append(text[end:stop])
    if (more := len(text) - max(end, stop)) > 0:
        out.append(f" [{more} more characters left out]")
    return "".join(out)
