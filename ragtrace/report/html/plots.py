"""The report's plots, drawn by matplotlib. Each function takes plain rows and gives figures: title, SVG, caption."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from ragtrace.report.html.svg import FAINT, INK, SERIES, STYLE, inline
from ragtrace.report.terminal import harmless

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes

Row = dict[str, Any]
MARKS = "os^Dv<>P"
_LINES = ("-", "--", "-.", ":")
_FOREST_ROWS = 40
_LOW = 1e-3  # left end of log axes where a rate is 0


class Plot(NamedTuple):
    """One figure of the page."""

    title: str
    svg: Markup
    caption: str


class Drawn:
    """Draws, and counts: what one report draws stays within limits, and what was left out is said."""

    def __init__(self) -> None:
        self._number = 0

    def plots(
        self, groups: Iterable[tuple[str, list[Row]]], draw: Callable[[Axes, list[Row]], str], limit: int,
        height: float = 3.3,
    ) -> tuple[list[Plot], int]:  # fmt: skip
        """One plot a group, ``limit`` at most, and how many groups were not drawn."""
        found = list(groups)
        with mpl.rc_context(STYLE):  # type: ignore[arg-type] # its stubs list every key
            made = [self._one(title, given, draw, height) for title, given in found[:limit]]
        return made, max(0, len(found) - limit)

    def _one(self, title: str, given: list[Row], draw: Callable[[Axes, list[Row]], str], height: float) -> Plot:
        self._number += 1
        figure = Figure(figsize=(4.6, height), layout="constrained")
        axes = figure.subplots()
        caption = draw(axes, given)
        handles, labels = axes.get_legend_handles_labels()
        if handles:
            rows = -(-len(handles) // 2)
            figure.set_figheight(height + 0.2 * rows)
            figure.legend(handles, labels, loc="outside lower left", ncols=2, handlelength=2.4)
        return Plot(title, inline(figure, f"Plot. {title}. {caption}", self._number), caption)


def name(value: Any, longest: int = 28) -> str:
    """A label of foreign text that fits a legend; a leading ``_`` would hide it there."""
    shown = harmless(value, longest)
    return f"\u200a{shown}" if shown.startswith("_") else shown


def by(rows: Iterable[Row], *keys: str) -> Iterator[tuple[str, list[Row]]]:
    """Groups of rows with a title made of their keys."""
    found: defaultdict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[tuple(row[k] for k in keys)].append(row)
    for key, group in found.items():
        yield " · ".join(harmless(k, 60) for k in key if k is not None), group


def first(rows: Iterable[Row]) -> list[Row]:
    """The undefended arm first, then by name."""
    return sorted(rows, key=lambda r: (r["arm"] != "none", str(r["arm"])))


def _series(i: int) -> dict[str, Any]:
    """Colour and line together tell series apart, also without colour."""
    return {"color": SERIES[i % len(SERIES)], "linestyle": _LINES[i % len(_LINES)]}


def roc(axes: Axes, rows: list[Row], log: bool = False) -> str:
    """Every arm's curve; on log axes as membership inference is judged: at low false-positive rates."""
    from sklearn.metrics import roc_curve

    for i, row in enumerate(first(rows)):
        if row["members"] and row["others"]:
            values = row["sign"] * np.array([*row["members"], *row["others"]], dtype=float)
            labels = np.repeat([1, 0], [len(row["members"]), len(row["others"])])
            fpr, tpr, _ = roc_curve(labels, values)
            n = f"{len(row['members'])}+{len(row['others'])}"
            axes.step(
                np.maximum(fpr, _LOW) if log else fpr, np.maximum(tpr, _LOW) if log else tpr, where="post",
                label=f"{name(row['arm'])} (n={n})", **_series(i),
            )  # fmt: skip
    diagonal = np.geomspace(_LOW, 1, 30) if log else np.array([0, 1])
    axes.plot(diagonal, diagonal, color=INK, linewidth=0.8, linestyle=":")
    axes.set(xlabel="false-positive rate", ylabel="true-positive rate")
    if log:
        axes.set(xscale="log", yscale="log", xlim=(_LOW, 1.1), ylim=(_LOW, 1.1))
        ticks = (0.001, 0.01, 0.1, 1)  # as words: powers would be mathtext, which foreign labels must not be
        axes.set_xticks(ticks, [f"{t:g}" for t in ticks])
        axes.set_yticks(ticks, [f"{t:g}" for t in ticks])
        return "Both axes logarithmic; a rate of 0 is drawn at 0.001; dotted: guessing."
    return "Dotted: guessing."


def distributions(axes: Axes, rows: list[Row]) -> str:
    """Members and non-members of one arm."""
    values = [*(rows[0]["members"] or []), *(rows[0]["others"] or [])]
    low, high = min(values), max(values)
    bins = np.linspace(low, high if high > low else low + 1, 21)
    for i, (key, label) in enumerate((("members", "members"), ("others", "non-members"))):
        found = rows[0][key] or []
        if found:
            axes.hist(found, bins=list(bins), histtype="stepfilled", alpha=0.35, color=SERIES[i])
            axes.hist(found, bins=list(bins), histtype="step", label=f"{label} (n={len(found)})", **_series(i))
    axes.set(xlabel="score", ylabel="targets")
    return "" if rows[0]["sign"] > 0 else "Members are expected to score low."


def by_seed(axes: Axes, rows: list[Row]) -> str:
    """Share of planted canaries recovered, a line an arm."""
    seeds = sorted({row["seed"] for row in rows}, key=lambda s: (s is None, s))
    for i, (arm, group) in enumerate(groupby(first(rows), key=lambda r: r["arm"])):
        shares = {row["seed"]: row["recovered"] / row["planted"] for row in group if row["planted"]}
        places = [(k, shares[s]) for k, s in enumerate(seeds) if s in shares]
        axes.plot(*zip(*places, strict=True), marker=MARKS[i % len(MARKS)], markersize=4, label=name(arm), **_series(i))
    axes.set_xticks(range(len(seeds)), [str(s) for s in seeds], rotation=45 if len(seeds) > 6 else 0)
    top = min(1.03, 0.05 + 1.25 * max((r["recovered"] / r["planted"] for r in rows if r["planted"]), default=0))
    axes.set(xlabel="seed", ylabel="recovered share", ylim=(-0.03 * top, top))
    return "Every seed as it came out: no mean, no interval."


def coverage(axes: Axes, rows: list[Row]) -> str:
    """Share of documents that had come out after each probe."""
    for i, (arm, group) in enumerate(groupby(first(rows), key=lambda r: r["arm"])):
        for k, row in enumerate(group):
            shares = row["shares"]
            axes.step(
                range(1, len(shares) + 1), shares, where="post", label=name(arm) if k == 0 else None, **_series(i)
            )
    axes.set(xlabel="probes sent", ylabel="share of documents")
    axes.set_ylim(bottom=0)
    return "One line a seed." if len({r["seed"] for r in rows}) > 1 else ""


def forest(axes: Axes, rows: list[Row]) -> str:
    """Every arm's number with its interval; hollow where it may not be read as it stands."""
    shown = first(r for r in rows if r["value"] is not None)
    runs = {r["run_id"] for r in shown}
    left = max(0, len(shown) - _FOREST_ROWS)
    shown = shown[:_FOREST_ROWS]
    axes.figure.set_figheight(0.9 + 0.22 * len(shown))  # type: ignore[union-attr]
    for i, row in enumerate(shown):
        readable = row["interpretable"] == "interpretable"
        low, high = row["ci_low"], row["ci_high"]
        if low is not None or high is not None:
            axes.plot(
                [row["value"] if low is None else low, row["value"] if high is None else high], [i, i],
                color=SERIES[0], linewidth=1.6, linestyle="-" if readable else ":",
            )  # fmt: skip
        axes.plot(
            row["value"], i, "o", markersize=5, color=SERIES[0], markerfacecolor=SERIES[0] if readable else "none"
        )
    axes.set_yticks(
        range(len(shown)),
        [
            name(r["arm"] if len(runs) == 1 else f"{harmless(r['arm'], 14)} · {harmless(r['run_id'], 20)}", 36)
            for r in shown
        ],
    )
    axes.invert_yaxis()
    axes.locator_params(axis="x", nbins=4)
    axes.grid(axis="y", visible=False)
    chance = 0.5 if shown and str(shown[0]["metric"]).endswith("roc_auc") else None
    if chance is not None:
        axes.axvline(chance, color=INK, linewidth=0.8, linestyle=":")
    said = [
        "Filled: interpretable; hollow and dotted: not to be read as it stands.",
        "Dotted line: guessing." if chance is not None else "",
        f"{left} more not drawn." if left else "",
    ]
    return " ".join(s for s in said if s)


def trade_off(axes: Axes, rows: list[Row]) -> str:
    """Utility to the right, leakage upwards: a good defense stands at the lower right."""
    for i, row in enumerate(first(rows)):
        errors: dict[str, Any] = {
            f"{axis}err": [[max(0.0, value - low)], [max(0.0, high - value)]]
            for axis, (value, low, high) in (("x", row["utility"]), ("y", row["leakage"]))
            if low is not None and high is not None
        }
        axes.errorbar(
            row["utility"][0], row["leakage"][0], **errors, fmt=MARKS[i % len(MARKS)], markersize=6,
            color=SERIES[i % len(SERIES)], ecolor=FAINT, elinewidth=1.2, label=name(row["arm"]),
        )  # fmt: skip
    axes.set(xlabel=name(rows[0]["utility_metric"], 40), ylabel=name(rows[0]["leakage_metric"], 40))
    return "Bars: 95 % intervals."
