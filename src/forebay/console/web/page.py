"""A page's part of the server: its addresses, and the function behind each.

    PAGE = Page()

    @PAGE.get("/topics")
    def topics(ask: Ask) -> dict[str, Any]:
        ...

    @PAGE.change("/topics/{topic}/delete")
    def delete(ask: Ask) -> Change:
        ...

The addresses begin with /api/CLUSTER. A function for `get` returns anything that JSON has, or a `Download`; a
function for `change` returns a `Change` and does nothing by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from forebay.console.web.asking import Ask, Change, Download

Reader = Callable[[Ask], Any]
Changer = Callable[[Ask], Change]


class PageRoute(NamedTuple):
    path: str
    read: Reader | None
    change: Changer | None


class Page:
    def __init__(self) -> None:
        self.routes: list[PageRoute] = []

    def get(self, path: str) -> Callable[[Reader], Reader]:
        def keep(function: Reader) -> Reader:
            self.routes.append(PageRoute(path, function, None))
            return function

        return keep

    def change(self, path: str) -> Callable[[Changer], Changer]:
        def keep(function: Changer) -> Changer:
            self.routes.append(PageRoute(path, None, function))
            return function

        return keep


__all__ = ["Ask", "Change", "Download", "Page", "PageRoute"]
