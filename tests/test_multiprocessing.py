"""Workers that multiprocessing forks end by ``os._exit``: what they recorded is written all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_losses import losses, run


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_worker_that_ends_has_written(tmp_path: Path, method: str) -> None:
    (tmp_path / "work.py").write_text(
        """
import multiprocessing, sys, ragtrace
def work(n):
    tracing = ragtrace.setup("t.duckdb")
    for _ in range(n):
        tracing.provider.get_tracer("app").start_span("x").end()
if __name__ == "__main__":
    method = sys.argv[1]
    if method == "fork":
        work(3)
    child = multiprocessing.get_context(method).Process(target=work, args=(5,))
    child.start()
    child.join()
"""
    )
    run(f"import runpy, sys; sys.argv[1:] = [{method!r}]; runpy.run_path('work.py', run_name='__main__')", tmp_path)
    found = sorted(row[:2] for row in losses(tmp_path / "t.duckdb"))
    assert found == ([(3, 3), (5, 5)] if method == "fork" else [(5, 5)])
