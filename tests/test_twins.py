"""What doubles what in one trace of thousands of calls: the same as in a small one, and in time that grows with it."""

from __future__ import annotations

from typing import Any

import pytest

from ragtrace.store import twins

N = 400


def _call(name: str, scope: str, start: int, end: int, text: str = "same") -> twins._Stage:
    return twins._Stage(name, False, scope, "generation", start, end, None, (("text", text),), 1)


def _marked(calls: list[twins._Stage], parents: dict[str, str]) -> int:
    return sum(twin is not None for _, twin in twins._of_trace(calls, parents))


@pytest.fixture
def compared(monkeypatch: Any) -> list[int]:
    """How many pairs were compared, in its only element."""
    count, overlap = [0], twins._overlap

    def counting(*pair: twins._Stage) -> bool:
        count[0] += 1
        return overlap(*pair)

    monkeypatch.setattr(twins, "_overlap", counting)
    return count


@pytest.mark.parametrize(
    ("start", "length", "later", "texts", "doubles"),
    [
        (10, 5, 1, 1, N),  # one after the other, all say the same
        (0, 5, 1, N, N),  # all at the same time, each says something else
        (0, 5, 1, 1, N),
        (10, 5, 10 * N, 1, 0),  # one instrumentation begins when the other has ended
        (10, 1_000, 10 * N + 2_000, N, 0),
    ],
)
def test_two_instrumentations_of_many_calls(
    compared: list[int], start: int, length: int, later: int, texts: int, doubles: int
) -> None:
    calls = [
        _call(f"{scope}{i}", scope, i * start + offset, i * start + offset + length, str(i % texts))
        for i in range(N)
        for scope, offset in (("a", 0), ("b", later))
    ]
    assert _marked(calls, {}) == doubles
    assert compared[0] <= 2 * N


def test_many_calls_inside_each_other() -> None:
    calls = [_call(f"s{i}", "a", i, 10**6 - i) for i in range(5_000)]  # more than Python may recurse
    parents = {f"s{i}": f"s{i - 1}" for i in range(1, len(calls))}
    assert dict(twins._of_trace(calls, parents))["s0"] == "s4999"
    assert _marked(calls, parents) == len(calls) - 1


def test_each_span_above_a_call_is_looked_at_once() -> None:
    """A thousand calls below the same thousand spans, which are no calls."""

    class Counting(dict[str, str]):
        asked = 0

        def __getitem__(self, key: str) -> str:
            self.asked += 1
            return super().__getitem__(key)

    parents = Counting({f"p{i}": f"p{i - 1}" for i in range(1, N)} | {f"s{i}": f"p{N - 1}" for i in range(N)})
    calls = [_call(f"s{i}", "a", i * 10, i * 10 + 5) for i in range(N)]
    assert _marked(calls, parents) == 0
    assert parents.asked <= len(parents)
