"""Figure 2: how the two scores are distributed over members and non-members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ragtrace.errors import UsageError
from ragtrace.papers.s2mia.conduct import run_id

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

    from ragtrace.papers.s2mia.plan import Design

FEATURES = {"cosine": "cosine similarity of answer and target", "perplexity": "perplexity of the answer"}
_VALUES = """
SELECT value FROM scores JOIN (SELECT DISTINCT run_id, probe_id, arm, is_member FROM probes)
USING (run_id, probe_id, arm)
WHERE run_id = ? AND arm = 'none' AND metric = ? AND is_member = ? AND isfinite(value)
"""


def figure_2(db: duckdb.DuckDBPyConnection, design: Design, file: Path) -> None:
    """Writes the figure as SVG.

    :raises UsageError: the extra ``papers`` is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise UsageError(
            'plots need matplotlib, which is not installed; install it with: pip install "ragtrace-audit[papers]"'
        ) from error
    cells = [c for c in design.cells() if 2 in c.tables]
    figure = Figure(figsize=(9, 3.2 * len(cells)), layout="constrained")
    axes = figure.subplots(len(cells), len(FEATURES), squeeze=False)
    for row, cell in zip(axes, cells, strict=True):
        for axis, (feature, label) in zip(row, FEATURES.items(), strict=True):
            for member, name in ((True, "members"), (False, "non-members")):
                values = [v for (v,) in db.execute(_VALUES, [run_id(design, cell), feature, member]).fetchall()]
                if values:
                    axis.hist(values, bins=30, density=True, alpha=0.55, label=f"{name} (n={len(values)})")
            axis.set(xlabel=label, ylabel="density", title=cell.name)
            if axis.get_legend_handles_labels()[0]:
                axis.legend()
    figure.savefig(file, format="svg", metadata={"Date": None})
