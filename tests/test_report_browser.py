"""The report in a real browser, at a desk and on a phone: it loads, it is quiet, it is accessible, and hostile text in
it does nothing.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_store import HOSTILE, grid, hostile, small

from ragtrace.report import reporting

sync_api = pytest.importorskip("playwright.sync_api", reason="needs Playwright (the extra `test`)")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-core (the extra `test`)")
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the PATH (Debian: chromium)")
SIZES = {"desktop": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
}
_QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_QUIET))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report of each store; the hostile one with its texts shown and masked."""
    folder = tmp_path_factory.mktemp("pages")
    made = {}
    for name, make, show in (
        ("small", small, True), ("grid", grid, False), ("hostile", hostile, True), ("masked", None, False),
    ):  # fmt: skip
        store = make(folder) if make else folder / "hostile.duckdb"
        made[name] = folder / f"{name}.html"
        reporting.write(made[name], reporting.report(store, "html", show_content=show))
    return made


class Opened:
    """A page, with all that it said and asked for."""

    def __init__(self, browser: Any, file: Path, size: str, scheme: str = "light", **more: Any) -> None:
        self.context = browser.new_context(viewport=SIZES[size], color_scheme=scheme, **more)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.url = file.as_uri()
        self.page.goto(self.url)

    def open_all(self) -> None:
        self.page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["small", "grid"])
def test_it_is_quiet_and_asks_for_nothing(browser: Any, pages: dict[str, Path], name: str, size: str) -> None:
    with Opened(browser, pages[name], size) as opened:
        opened.open_all()
        opened.page.wait_for_function("document.readyState === 'complete'")
        assert opened.said == []
        assert opened.asked == [opened.url]
        assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert (
            opened.page.evaluate("document.scrollingElement.scrollLeft = 99, document.scrollingElement.scrollLeft") == 0
        )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_axe_finds_no_violation(browser: Any, pages: dict[str, Path], size: str, scheme: str) -> None:
    with Opened(browser, pages["small"], size, scheme) as opened:
        opened.open_all()
        found = axe.Axe().run(opened.page, options=RULES).response
        assert [(v["id"], v["nodes"][0]["html"]) for v in found["violations"]] == []
        assert {"color-contrast", "landmark-one-main", "region", "th-has-data-cells"} <= {
            p["id"] for p in found["passes"]
        }


def test_a_report_of_432_cells_is_small_and_there_within_a_second(browser: Any, pages: dict[str, Path]) -> None:
    assert pages["grid"].stat().st_size < 3_000_000
    with Opened(browser, pages["grid"], "desktop") as opened:
        assert opened.page.locator("#results .run").count() == 72
        assert opened.page.evaluate(
            "[...document.querySelectorAll('#results .run')].every(r => r.querySelectorAll('thead th').length === 8)"
        )
        first = opened.page.evaluate(
            """() => new Promise(done => new PerformanceObserver(list => {
                const found = list.getEntriesByName('first-contentful-paint')[0];
                if (found) done(found.startTime);
            }).observe({type: 'paint', buffered: true}))"""
        )
        assert first < 1_000


def test_the_first_screen_has_verdicts_and_numbers(browser: Any, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["small"], "desktop") as opened:
        for words in ("1 verdict needs attention", "What leaked, and may the number be read?", "0.25 to 0.75"):
            box = opened.page.get_by_text(words).first.bounding_box()
            assert box["y"] + box["height"] <= SIZES["desktop"]["height"], words


def test_evidence_is_one_key_away(browser: Any, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["small"], "desktop") as opened:
        verdict = opened.page.locator(".matrix summary", has_text="bypassed")
        evidence = opened.page.locator(".matrix .evidence").first
        assert not evidence.is_visible()
        for _ in range(40):
            opened.page.keyboard.press("Tab")
            if verdict.evaluate("e => e === document.activeElement"):
                break
        assert verdict.evaluate("e => getComputedStyle(e).outlineStyle") == "solid", "the focus can be seen"
        opened.page.keyboard.press("Enter")
        assert evidence.is_visible()
        assert "crossed without it in 1 of 3 crossings (path stream)" in evidence.inner_text()


def test_it_is_complete_without_its_script(browser: Any, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["small"], "phone", java_script_enabled=False) as opened:
        assert opened.page.locator(".filter").is_hidden()
        opened.page.locator(".matrix summary").first.click()
        assert opened.page.locator(".matrix .evidence").first.is_visible()


def test_the_filter_leaves_the_lines_that_match(browser: Any, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["grid"], "desktop") as opened:
        opened.page.get_by_label("Filter by metric").fill("corp-full NEL_STRICT")
        assert opened.page.locator("#found").inner_text() == "12 lines"
        assert opened.page.locator("#results .run:visible").count() == 12
        opened.page.get_by_label("Filter by metric").fill("")
        assert opened.page.locator("#results .run:visible").count() == 72


def test_the_matrix_collapses_on_a_phone_and_tables_scroll_by_themselves(browser: Any, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["grid"], "phone") as opened:
        assert opened.page.locator(".matrix thead").bounding_box()["x"] < 0
        assert opened.page.locator(".matrix td:visible").count() == 6, "one line a verdict, none for empty cells"
        assert opened.page.evaluate(
            "(t => t.scrollWidth > t.clientWidth)(document.querySelector('#results .scroll'))"
        ), "the table is wider than its container"


def test_dark_is_dark_with_plots_that_can_be_seen(browser: Any, pages: dict[str, Path]) -> None:
    ink = "e => getComputedStyle(e).fill"
    found = {}
    for scheme in ("light", "dark"):
        with Opened(browser, pages["small"], "desktop", scheme) as opened:
            back = opened.page.evaluate("getComputedStyle(document.body).backgroundColor")
            found[scheme] = back, opened.page.locator("svg.plot text").first.evaluate(ink)
    assert found == {
        "light": ("rgb(255, 255, 255)", "rgb(27, 31, 36)"),
        "dark": ("rgb(20, 23, 27)", "rgb(231, 234, 238)"),
    }


def test_on_paper_everything_is_open(browser: Any, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["grid"], "desktop", "dark") as opened:
        opened.page.emulate_media(media="print")
        assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert opened.page.locator("nav").is_hidden()
        assert opened.page.locator(".matrix .evidence").first.evaluate("e => e.getBoundingClientRect().height") > 10
        opened.page.set_viewport_size({"width": 718, "height": 1000})  # A4 less its margins
        assert opened.page.evaluate("[...document.querySelectorAll('table')].every(t => t.scrollWidth <= innerWidth)")
        assert len(opened.page.pdf()) > 10_000


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["hostile", "masked"])
def test_hostile_text_does_nothing_and_the_layout_holds(
    browser: Any, pages: dict[str, Path], name: str, size: str
) -> None:
    with Opened(browser, pages[name], size) as opened:
        opened.open_all()
        opened.page.locator("[tabindex]").first.hover()
        assert opened.page.evaluate("window.owned") is None
        assert opened.said == []
        assert opened.asked == [opened.url]
        assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert (
            opened.page.evaluate("document.querySelectorAll('script, iframe, img, form, base, link, object').length")
            == 1
        )
        assert (
            opened.page.evaluate(
                "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())"
                ".filter(n => /^on|^style$/.test(n))"
            )
            == []
        )
        wider = opened.page.evaluate(
            """() => [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, svg')
                && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""
        )
        assert wider == []
        text = opened.page.evaluate("document.body.textContent")
        assert "<script>window.owned=1</script>" in text, "shown as text"
        assert not set(text) & set("\u202e\u2066\u2067\u2069\x1b\x07\u200b\ufeff\u2028")
    assert pages[name].stat().st_size < 3_000_000, "a megabyte in every field does not make the page long"
    assert max(map(len, HOSTILE)) == 1_000_000
