"""Lists that are searched, sorted and cut into pages on the server.

The query of a list: `search` (text in the name), `sort` (a column, with `-` in front for descending), `page`
(from 1), `size`, and `only` (names with commas: a person's favourites).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from forebay.console.web.asking import Ask, WrongInput

ROWS_DEFAULT = 50
ROWS_MAX = 500

T = TypeVar("T")
Column = Callable[[T], Any]


def page_of(
    ask: Ask,
    rows: Sequence[T],
    *,
    name: Callable[[T], str],
    columns: Mapping[str, Column[T]],
    default: str,
    show: Callable[[T], dict[str, Any]],
    size: int = ROWS_DEFAULT,
) -> dict[str, Any]:
    """The requested page. Rows without a value in the sorted column come last, whatever the direction.
    `size`: rows of a page, unless the query says otherwise."""
    found = _searched(ask, rows, name)
    chosen = ask.text("sort", default)
    column, descending = chosen.removeprefix("-"), chosen.startswith("-")
    if column not in columns:
        raise WrongInput(f"there is no column {column}: sort by {', '.join(columns)}", "sort")
    size = ask.number("size", size, least=1, most=ROWS_MAX)
    pages = max(1, -(-len(found) // size))
    page = min(ask.number("page", 1, least=1), pages)
    ordered = _sorted(found, columns[column], descending, name)
    return {
        "rows": [show(row) for row in ordered[(page - 1) * size : page * size]],
        "total": len(found),
        "all": len(rows),
        "page": page,
        "pages": pages,
        "size": size,
        "sort": chosen,
    }


def _searched(ask: Ask, rows: Sequence[T], name: Callable[[T], str]) -> Sequence[T]:
    words = ask.text("search").lower().split()
    if words:
        rows = [row for row in rows if all(word in name(row).lower() for word in words)]
    if only := ask.text("only"):
        wanted = set(only.split(","))
        rows = [row for row in rows if name(row) in wanted]
    return rows


def _sorted(rows: Sequence[T], column: Column[T], descending: bool, name: Callable[[T], str]) -> list[T]:
    ordered = sorted(rows, key=name)
    known = [row for row in ordered if column(row) is not None]
    known.sort(key=column, reverse=descending)
    return known + [row for row in ordered if column(row) is None]
