"""Every code block of the documentation is executed."""

from __future__ import annotations

from pathlib import Path

import documentation as docs
import pytest

WAYS = [(page, tab) for page in docs.pages() for tab in docs.tabs(page) if docs.blocks(page)]


@pytest.mark.parametrize(("page", "tab"), WAYS, ids=[f"{page}-{tab}" if tab else page for page, tab in WAYS])
def test_every_block_of_a_page_runs_in_order(page: str, tab: str | None, tmp_path: Path) -> None:
    if not page.startswith("reference/"):
        assert docs.run(page, tab, tmp_path) > 0
        return
    import ragtrace

    ragtrace.open(tmp_path / "traces.duckdb").close()  # a page of the reference asks whatever database there is
    assert docs.run(page, tab, tmp_path) > 0


def test_every_block_has_a_language_that_is_executed() -> None:
    found = {(page, block.line): block.language for page in docs.pages() for block in docs.blocks(page)}
    assert {at: language for at, language in found.items() if language not in docs.LANGUAGES} == {}
    opened = sum((docs.DOCS / page).read_text().count("\n```\n") for page in docs.pages())
    assert opened >= len(found) > 30  # the pattern sees the blocks
