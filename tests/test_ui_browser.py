"""The trace viewer in a real browser, at a desk and on a phone: quiet, accessible, and deaf to hostile text."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_store import HOSTILE, hostile, small

from ragtrace.store import open_readonly

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
_WIDER = """() => [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, svg')
    && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""


class Served:
    """`ragtrace ui` as a user starts it."""

    def __init__(self, database: Path, *more: str) -> None:
        self.database = database
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from ragtrace.cli import main; main()", "ui", "--db", str(database), "--no-browser",
             *more], stdout=subprocess.PIPE, text=True, env={**os.environ, "DISPLAY": ""},
        )  # fmt: skip
        assert self.process.stdout
        self.url = re.search(r"http\S+", self.process.stdout.readline())[0]
        self.base = self.url.partition("/?")[0]

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=60)

    def one(self, query: str) -> str:
        with open_readonly(self.database) as db:
            [(found,)] = db.execute(f"{query} LIMIT 1").fetchall()
        return f"/trace/{found}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(_QUIET))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    found = Served(small(tmp_path_factory.mktemp("small")), "--show-content")
    yield found
    found.stop()


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    found = Served(hostile(tmp_path_factory.mktemp("hostile")), "--show-content")
    yield found
    found.stop()


class Opened:
    """A page that got in by the printed address, with all that it said and asked for since."""

    def __init__(self, browser: Any, served: Served, size: str = "desktop", scheme: str = "light", **more: Any) -> None:
        self.context = browser.new_context(viewport=SIZES[size], color_scheme=scheme, **more)
        self.page = self.context.new_page()
        self.base = served.base
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(served.url)
        if more.get("java_script_enabled", True):
            self.page.wait_for_url(f"{served.base}/")
            self.page.wait_for_selector(".matrix", timeout=120_000)

    def go(self, path: str) -> None:
        self.page.goto(self.base + path)

    def open_all(self) -> None:
        self.page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")

    def strangers(self) -> list[str]:
        """Requests that left the page's origin."""
        return [url for url in self.asked if not url.startswith(f"{self.base}/")]

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


def pages(served: Served) -> list[str]:
    return [
        "/", "/traces", "/traces?text=signed&path=invoke", "/sql", "/sql?question=documents", "/nothing",
        served.one("SELECT trace_id FROM coverage WHERE NOT ran"),
        served.one("SELECT trace_id FROM generations WHERE probe_id = 'canary-1' AND arm = 'mask'"),
        served.one("SELECT trace_id FROM effects WHERE defense = 'rewriter'"),
    ]  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
def test_pages_are_quiet_ask_nobody_else_and_are_as_wide_as_the_screen(browser: Any, served: Served, size: str) -> None:
    with Opened(browser, served, size) as opened:
        for path in pages(served):
            if path == "/nothing":  # the browser itself tells of a page that is not there
                continue
            opened.go(path)
            opened.open_all()
            assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
            assert opened.page.evaluate(_WIDER) == [], path
        assert opened.said == []
        assert opened.strangers() == []
        assert not [url for url in opened.asked[1:] if "token" in url], "the token is in no address after the first"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_axe_finds_no_violation(browser: Any, served: Served, size: str, scheme: str) -> None:
    with Opened(browser, served, size, scheme) as opened:
        passed = set()
        for path in [*pages(served), None]:
            if path is None:  # an answer
                opened.go("/sql")
                opened.page.get_by_role("button", name="Ask").click()
                opened.page.wait_for_selector(".answer")
            else:
                opened.go(path)
            opened.open_all()
            found = axe.Axe().run(opened.page, options=RULES).response
            assert [(path, v["id"], v["nodes"][0]["html"]) for v in found["violations"]] == []
            passed |= {p["id"] for p in found["passes"]}
        assert {"color-contrast", "label", "landmark-one-main", "region", "th-has-data-cells"} <= passed


def test_from_the_verdict_to_the_trace_that_shows_it_by_keyboard_alone(browser: Any, served: Served) -> None:
    with Opened(browser, served) as opened:
        page = opened.page

        def reach(target: Any) -> None:
            for _ in range(60):
                page.keyboard.press("Tab")
                if target.evaluate("e => e === document.activeElement"):
                    assert target.evaluate("e => getComputedStyle(e).outlineStyle") == "solid", "the focus can be seen"
                    return
            raise AssertionError("not reached")

        reach(page.locator(".skip"))
        reach(page.locator(".matrix summary").first)
        page.keyboard.press("Enter")
        assert page.locator(".matrix .evidence").first.is_visible()
        reach(page.get_by_role("link", name="bypassed in 1 trace"))
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("status=bypassed"))
        reach(page.locator(".list a").first)
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("/trace/"))
        reach(page.locator(".fall summary").first)
        page.keyboard.press("Enter")
        assert page.locator(".fall .facts").first.is_visible()
        assert page.get_by_text("1 bypass", exact=True).is_visible()


def test_search_form_question_and_refresh_work(browser: Any, served: Served) -> None:
    with Opened(browser, served) as opened:
        page = opened.page
        opened.go("/traces")
        page.get_by_label("Text in query or response").fill("signed by")
        page.get_by_label("Text in query or response").press("Enter")
        page.wait_for_url(re.compile("text=signed"))
        assert page.locator(".list tbody tr").count() == 2
        page.get_by_label("Defense", exact=True).select_option("house-mask")
        page.get_by_role("button", name="Search").click()
        page.wait_for_url(re.compile("defense=house-mask"))
        assert page.locator(".list tbody tr").count() == 1
        opened.go("/sql")
        page.get_by_label("One question").fill("SELECT 7 AS seven")
        page.keyboard.press("Control+Enter")
        page.wait_for_selector(".answer")
        assert page.locator(".answer td").inner_text() == "7"
        page.get_by_role("button", name="Refresh").click()
        page.wait_for_url(f"{served.base}/traces")
        assert opened.said == []


def test_an_answer_is_copied_as_csv(browser: Any, served: Served) -> None:
    with Opened(browser, served, permissions=["clipboard-read", "clipboard-write"]) as opened:
        opened.go("/sql")
        opened.page.get_by_label("One question").fill("SELECT 7 AS seven, 'a,b' AS t")
        opened.page.get_by_role("button", name="Ask").click()
        opened.page.get_by_role("button", name="Copy as CSV").click()
        opened.page.get_by_text("copied", exact=True).wait_for()
        assert opened.page.evaluate("navigator.clipboard.readText()") == 'seven,t\n7,"a,b"\n'
        assert opened.said == []


def test_it_works_without_scripts(browser: Any, served: Served) -> None:
    with Opened(browser, served, "phone", java_script_enabled=False) as opened:
        opened.page.get_by_role("link", name="Go on to the traces").click()
        opened.page.get_by_role("link", name="Traces", exact=True).click()
        opened.page.locator(".list a").first.click()
        assert opened.page.locator(".fall > li").count() == 3
        opened.page.locator(".fall summary").first.click()
        assert opened.page.locator(".fall .facts").first.is_visible()


def test_a_page_of_another_site_gets_nothing(browser: Any, served: Served, tmp_path: Path) -> None:
    """It may lead here with the token (an IDE's terminal does), but neither read, frame, nor do anything."""
    with Opened(browser, served) as opened:
        other = tmp_path / "other.html"
        other.write_text(
            f"<iframe src='{served.base}/traces'></iframe><form method=post action='{served.base}/refresh'>"
            f"<button>go</button></form><a href='{served.url}'>in</a>"
        )
        opened.page.goto(other.as_uri())
        frame = opened.page.frames[1]
        assert "13 traces" not in (frame.content() if frame.url.startswith("http") else "")
        opened.page.get_by_role("button", name="go").click()
        opened.page.wait_for_url(f"{served.base}/refresh")
        assert "came from another site" in opened.page.content()
        opened.page.goto(other.as_uri())
        opened.page.get_by_role("link", name="in").click()
        opened.page.wait_for_selector(".matrix")


def test_dark_is_dark(browser: Any, served: Served) -> None:
    found = {}
    for scheme in ("light", "dark"):
        with Opened(browser, served, scheme=scheme) as opened:
            opened.go(served.one("SELECT trace_id FROM span_data WHERE probe_id IS NOT NULL"))
            found[scheme] = (
                opened.page.evaluate("getComputedStyle(document.body).backgroundColor"),
                opened.page.locator(".bars rect").first.evaluate("e => getComputedStyle(e).fill"),
            )
    assert found["light"][0] == "rgb(255, 255, 255)"
    assert found["dark"][0] == "rgb(20, 23, 27)"
    assert found["light"][1] != found["dark"][1]


def test_hostile_text_does_nothing_and_the_layout_holds(browser: Any, owned: Served) -> None:
    shown = ""
    with Opened(browser, owned) as opened:
        opened.page.set_default_timeout(120_000)
        with open_readonly(owned.database) as db:
            traces = [id for (id,) in db.execute(
                "SELECT DISTINCT trace_id FROM generations WHERE arm <> 'none' AND path = 'invoke'"
            ).fetchall()]  # fmt: skip
        assert len(traces) == 50, "each string is a query, a document, an answer, a defense and an arm of one trace"
        for path in ("/", "/traces", *(f"/trace/{id}" for id in traces)):
            opened.go(path)
            opened.open_all()
            page = opened.page
            assert page.evaluate("window.owned") is None
            assert page.evaluate("document.querySelectorAll('iframe, img, base, object, style').length") == 0
            assert page.evaluate("document.scripts.length") == 1
            assert page.evaluate(
                "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())"
                ".filter(n => /^on|^style$/.test(n))"
            ) == []  # fmt: skip
            for size, viewport in SIZES.items():
                page.set_viewport_size(viewport)
                assert page.evaluate("innerWidth") == viewport["width"]
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, size)
                assert page.evaluate(_WIDER) == [], (path, size)
            text = page.evaluate("document.body.textContent")
            assert not set(text) & set("\u202e\u2066\u2067\u2069\x1b\x07\u200b\ufeff\u2028")
            shown += text
        assert opened.said == []
        assert opened.strangers() == []
    for string in HOSTILE:
        if string.isascii() and string.isprintable() and len(string) < 100:
            assert string.strip() in shown, "shown as text"
