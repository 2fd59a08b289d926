"""Debian's chromium, driven by Playwright: a page for each test, which fails on any script error.

Starting a browser takes as long as a whole test, so all modules of a process share one (`SharedBrowser`).
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PICTURES = os.environ.pop("FOREBAY_CONSOLE_PICTURES", None)
"""A directory for pictures of the pages; none are made without it. Brokers refuse names like settings."""

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing: make tools installs it")

_WAIT_MS_MAX = 120_000
_SHOW = """address => {
  history.pushState(null, "", address);
  dispatchEvent(new PopStateEvent("popstate"));
}"""
_EXPECTED = ("Failed to load resource", "net::ERR")
"""Answers with an error are part of tests; an error of a script is not."""


@contextmanager
def running_browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


class SharedBrowser:
    """One browser for all tests of a process, between whose modules others may run event loops.

    Playwright's loop counts as running in its thread for as long as Playwright is open, and while it does, no
    test can run another one. So it is taken away while no module uses the browser.
    """

    def __init__(self) -> None:
        self._opened = ExitStack()
        self._browser: Browser | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def used(self) -> Iterator[Browser]:
        if self._browser is None:
            self._browser = self._opened.enter_context(running_browser())
        else:
            asyncio._set_running_loop(self._loop)
        try:
            yield self._browser
        finally:
            self._loop = asyncio._get_running_loop()
            asyncio._set_running_loop(None)

    def close(self) -> None:
        asyncio._set_running_loop(self._loop)
        self._opened.close()


def show(page: Page, address: str) -> None:
    """Go to another view of the same cluster, as a link does: without loading the page anew."""
    page.evaluate(_SHOW, f"/local/{address}")


@contextmanager
def opened_page(browser: Browser, url: str, *, width: int = 1280, height: int = 860) -> Iterator[Page]:
    context = browser.new_context(
        viewport={"width": width, "height": height},
        reduced_motion="reduce",  # what breathes is painted sixty times a second
    )
    context.set_default_timeout(_WAIT_MS_MAX)
    page = context.new_page()
    problems: list[str] = []

    def note(message: ConsoleMessage) -> None:
        if message.type == "error" and not message.text.startswith(_EXPECTED):
            problems.append(message.text)

    page.on("console", note)
    page.on("pageerror", lambda error: problems.append(str(error)))
    try:
        page.goto(url)
        yield page
        assert problems == []
    finally:
        context.close()


def picture(page: Page, name: str) -> None:
    """A picture of the page, if pictures are wanted."""
    if PICTURES is not None:
        Path(PICTURES).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(Path(PICTURES) / f"{name}.png"))
