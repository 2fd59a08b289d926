"""A view as the store has it: the name of a filter over a topic. It holds no messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewImage:
    """A view is made and deleted, never altered: another query has another id."""

    name: str
    view_id: bytes
    """What clients take for the id of a topic."""
    source_id: bytes
    """The id of the topic that it shows."""
    where: str | None = None
    """The condition as it was written; None: every record."""
    select: str | None = None
    """The columns that make up the value; None: the value as it is."""
    keep_tombstones: bool = False
    revision: int = 0
    """The mod revision of the view's key; 0 while it is only planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPut:
    view: ViewImage


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewDeleted:
    name: str


class ViewsDraft:
    """Views in the making: maps are copied when they are first written to."""

    def __init__(self, views: Mapping[str, ViewImage], names: Mapping[bytes, str]) -> None:
        self.views = views
        self.names = names
        self._own: dict[str, ViewImage] | None = None
        self._own_names: dict[bytes, str] | None = None

    def put(self, view: ViewImage) -> None:
        self.delete(view.name)
        views, names = self._writable()
        views[view.name] = view
        names[view.view_id] = view.name

    def delete(self, name: str) -> None:
        before = self.views.get(name)
        if before is not None:
            views, names = self._writable()
            del views[name]
            names.pop(before.view_id, None)

    def _writable(self) -> tuple[dict[str, ViewImage], dict[bytes, str]]:
        if self._own is None or self._own_names is None:
            self.views = self._own = dict(self.views)
            self.names = self._own_names = dict(self.names)
        return self._own, self._own_names
