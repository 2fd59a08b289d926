"""Asks axe-core whether people with other means than eyes and a mouse can use a page."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from playwright.sync_api import Page

_SEVERE = ("serious", "critical")


@cache
def _axe() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


def accessibility_problems(page: Page, *, menu: bool = True) -> list[str]:
    """What axe counts as serious or critical, with the elements that it is about.

    `menu`: look also at what all views share: the menu, and the style sheets.
    """
    if not page.evaluate("typeof window.axe === 'object'"):
        page.evaluate(_axe())
    context = {"exclude": [] if menu else [[".menu"]]}
    options = {"resultTypes": ["violations"], "preload": menu}
    found: dict[str, Any] = page.evaluate(
        "([context, options]) => axe.run(context, options)", [context, options]
    )
    return [
        f"{each['id']}: {each['help']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
        for each in found["violations"]
        if each["impact"] in _SEVERE
        for node in each["nodes"][:3]
    ]
