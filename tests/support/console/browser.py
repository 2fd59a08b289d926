"""Debian's chromium, driven by Playwright: a page for each test, which fails on any script error."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PICTURES = os.environ.pop("FOREBAY_CONSOLE_PICTURES", None)
"""A directory for pictures of the pages; none are made without it. Brokers refuse names like settings."""

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing: make tools installs it")

_WAIT_MS_MAX = 120_000
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


@contextmanager
def opened_page(browser: Browser, url: str, *, width: int = 1280, height: int = 860) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": width, "height": height})
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
