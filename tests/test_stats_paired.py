"""The change between two arms over the same units, against scipy's paired bootstrap and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import bootstrap

from ragtrace.errors import UsageError
from ragtrace.stats import LEAST_DIFFERING, paired_change

MANY = 20_000


def drawn(seed: int, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    before = rng.poisson(2.2, n).astype(float)
    return before, np.maximum(before + rng.integers(-2, 2, n), 0.0)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_both_intervals_are_scipys(seed: int) -> None:
    before, after = drawn(seed)
    found = paired_change(before, after, resamples=MANY)
    for ours, statistic in (
        (found.difference, lambda b, a, axis: a.mean(axis) - b.mean(axis)),
        (found.share, lambda b, a, axis: (a.sum(axis) - b.sum(axis)) / b.sum(axis)),
    ):
        theirs = bootstrap(
            (before, after), statistic, paired=True, n_resamples=MANY, method="BCa", rng=np.random.default_rng(9)
        ).confidence_interval
        width = theirs.high - theirs.low
        assert ours.method == "BCa"
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.04 * width)


def test_pairing_narrows_the_interval() -> None:
    before, after = drawn(4)
    together = paired_change(before, after).difference
    apart = paired_change(before, np.roll(after, 7)).difference
    assert together.value == pytest.approx(apart.value)
    assert together.high - together.low < 0.7 * (apart.high - apart.low)  # type: ignore[operator]


def test_by_hand() -> None:
    """3 + 2 + 1 + 0 items before, 0 + 1 + 1 + 1 after: a mean of 1.5 and of 0.75, half as much."""
    found = paired_change([3, 2, 1, 0], [0, 1, 1, 1])
    assert (found.before, found.after, found.n, found.differing) == (1.5, 0.75, 4, 3)
    assert (found.difference.value, found.share.value) == (-0.75, -0.5)
    assert found.direction is None, "3 units that differ tell no direction"


@pytest.mark.parametrize(("n", "direction"), [(LEAST_DIFFERING - 1, None), (LEAST_DIFFERING, "lowers")])
def test_all_units_alike_have_a_direction_once_they_are_enough(n: int, direction: str | None) -> None:
    found = paired_change([1.0] * n, [0.0] * n)
    assert (found.difference.value, found.difference.low, found.direction) == (-1, None, direction)
    assert found.share.value == -1 and "no interval" in str(found.share.reason)


def test_nothing_before_has_no_share() -> None:
    found = paired_change([0.0] * 20, [1.0] * 12 + [0.0] * 8)
    assert found.direction == "raises"
    assert found.share.value is None and "nothing before" in str(found.share.reason)


def test_hardly_anything_before_has_a_share_without_interval() -> None:
    found = paired_change([1.0] + [0.0] * 19, [0.0, 2.0] + [0.0] * 18)
    assert found.share.value == 1.0 and found.share.low is None and "too few" in str(found.share.reason)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=30))
def test_a_direction_needs_an_interval_without_zero(units: list[tuple[int, int]]) -> None:
    before, after = zip(*units, strict=True)
    found, mirrored = (paired_change(b, a, resamples=400) for b, a in ((before, after), (after, before)))
    low, high = found.difference.low, found.difference.high
    if low is not None and high is not None and low <= 0 <= high:
        assert found.direction is None
    turned = {"lowers": "raises", "raises": "lowers", None: None}
    assert mirrored.difference.value == pytest.approx(-(found.difference.value or 0.0))
    if found.differing == len(units) and len({a - b for b, a in units}) == 1:
        assert mirrored.direction == turned[found.direction]


def test_by_chance_a_direction_is_told_about_as_rarely_as_it_says() -> None:
    """No difference in truth, 30 units: 5 % of intervals leave out 0, give or take what a bootstrap misses."""
    rng = np.random.default_rng(5)
    told = 0
    for _ in range(400):
        one, other = rng.poisson(1.5, (2, 30))
        told += paired_change(one, other, resamples=500).direction is not None
    assert told / 400 < 0.10


@pytest.mark.parametrize(("before", "after", "says"), [
    ([], [], "n ≥ 1"), ([1, 2], [1], "shapes"), ([1.0, float("nan")], [1.0, 2.0], "not finite"),
])  # fmt: skip
def test_bad_input(before: list[float], after: list[float], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        paired_change(before, after)
