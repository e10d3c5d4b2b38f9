"""How an audit asks: one piece after the other, in threads, or in one event loop; a failing request stops nothing."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Literal, NamedTuple

from ragtrace.record.scope import conversation, probing
from ragtrace.types import Probe

_log = logging.getLogger("ragtrace")
Turns = Literal["single_turn", "multi_turn"]


@dataclass
class AuditReport:
    """What was asked, and what the app failed to answer; ``skipped`` was answered before, in the run resumed."""

    run_id: str
    asked: int = 0
    failures: list[str] = field(default_factory=list)
    skipped: int = 0


class Piece(NamedTuple):
    """Probes that are sent one after the other, and the conversation that they make.

    Without one each is a conversation of its own: budgets that are kept for each conversation begin anew with it.
    """

    probes: Iterable[Probe]
    conversation: str | None = None


def pieces(probes: Sequence[Probe], mode: Turns, prefix: str) -> list[Piece]:
    """Each probe for itself, or those of an attack and seed as one conversation."""
    if mode == "single_turn":
        return [Piece([probe]) for probe in probes]
    turns: dict[tuple[str, int], list[Probe]] = {}
    for probe in probes:
        turns.setdefault((probe.attack, probe.seed), []).append(probe)
    return [Piece(asked, f"{prefix}/{attack}/{seed}") for (attack, seed), asked in turns.items()]


class Asking:
    """One arm's requests."""

    def __init__(self, app: Callable[[str], Any], arm: str, report: AuditReport, step: Callable[[str], None]) -> None:
        self.app, self.arm, self.report, self.step = app, arm, report, step
        self.told = Lock()

    def all(self, pieces: Sequence[Piece], concurrency: int) -> None:
        """Asks ``concurrency`` pieces at a time; what has not begun is not asked where it is interrupted."""
        if inspect.iscoroutinefunction(self.app) or inspect.iscoroutinefunction(type(self.app).__call__):
            asyncio.run(self._together(pieces, concurrency))
        elif concurrency == 1:
            for piece in pieces:
                self._piece(piece)
        else:
            with ThreadPoolExecutor(concurrency, thread_name_prefix="ragtrace-audit") as pool:
                try:
                    for waited in [pool.submit(copy_context().run, self._piece, piece) for piece in pieces]:
                        waited.result()
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise

    def _piece(self, piece: Piece) -> None:
        turns = _turns(piece.probes)
        answer: str | None = None
        while (probe := turns(answer)) is not None:
            answer, error = None, None
            try:
                with self._marked(probe, piece):
                    answer = text_of(self.app(probe.query))
            except Exception as failure:
                error = failure
            self._note(probe, error)

    async def _piece_async(self, piece: Piece, turn: asyncio.Semaphore) -> None:
        async with turn:
            turns = _turns(piece.probes)
            answer: str | None = None
            while (probe := turns(answer)) is not None:
                answer, error = None, None
                try:
                    with self._marked(probe, piece):
                        answer = text_of(await self.app(probe.query))
                except Exception as failure:
                    error = failure
                self._note(probe, error)

    async def _together(self, pieces: Sequence[Piece], concurrency: int) -> None:
        turn = asyncio.Semaphore(concurrency)
        async with asyncio.TaskGroup() as group:
            for piece in pieces:
                group.create_task(self._piece_async(piece, turn))

    def _marked(self, probe: Probe, piece: Piece) -> ExitStack:
        stack = ExitStack()
        stack.enter_context(probing(self.report.run_id, self.arm, probe))
        alone = f"{self.report.run_id}/{self.arm}/{probe.probe_id}"
        stack.enter_context(conversation(piece.conversation or alone))
        return stack

    def _note(self, probe: Probe, error: Exception | None) -> None:
        with self.told:
            self.report.asked += 1
            if error is not None:
                _log.debug("probe %s failed in arm %s", probe.probe_id, self.arm, exc_info=error)
                self.report.failures.append(f"{self.arm}/{probe.probe_id}: {type(error).__name__}: {error}")
            self.step(self.arm)


def _turns(probes: Iterable[Probe]) -> Callable[[str | None], Probe | None]:
    """The next probe, given the last one's answer; ``None`` at the end."""
    if not isinstance(probes, Generator):
        listed = iter(probes)
        return lambda _: next(listed, None)
    session: Generator[Probe, str | None, None] = probes
    begun = False

    def turn(answer: str | None) -> Probe | None:
        nonlocal begun
        try:
            if begun:
                return session.send(answer)
            begun = True
            return next(session)
        except StopIteration:
            return None

    return turn


def text_of(answer: Any) -> str | None:
    """The text of what an app returned: a string, a message or response of LangChain or LlamaIndex, or a dictionary
    with one of the usual keys; ``None`` where there is none.
    """
    if isinstance(answer, dict):
        found = next((answer[key] for key in _ANSWER_KEYS if key in answer), None)
        if isinstance(found, list):
            found = found[-1] if found else None
        return None if found is None else text_of(found)
    for name in ("text", "response", "content", "message"):
        if not isinstance(answer, str) and (found := getattr(answer, name, None)) is not None and not callable(found):
            return text_of(found)
    return str(answer) if isinstance(answer, str) else None


_ANSWER_KEYS = ("answer", "output", "result", "response", "text", "messages")
