"""A view as the store has it: the name of a filter over a topic. It holds no messages.

A *materialized* view is a topic, which has the same name and holds what the query shows: brokers fill it. The
view is then what it is filled by, and is known to clients by nothing but the settings of the topic.
"""

from __future__ import annotations

from collections.abc import Mapping

from forebay.lazy import dataclass

FORMAT = 1
"""Of the text in the store. Views from before there was the number have none, and are of this one."""
FORMAT_MATERIALIZED = 2
"""The text says that there is a topic to fill."""
FORMAT_MAX = FORMAT_MATERIALIZED


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewImage:
    """A view is made and deleted, never altered: another query has another id."""

    name: str
    view_id: bytes
    """What clients take for the id of a topic. Of a materialized view: by which brokers read the query."""
    source_id: bytes
    """The id of the topic that it shows."""
    where: str | None = None
    """The condition as it was written; None: every record."""
    select: str | None = None
    """The columns that make up the value; None: the value as it is."""
    keep_tombstones: bool = False
    materialized: bool = False
    format: int = FORMAT
    """Above FORMAT_MAX, it was made by a later version, and may mean more than is known here."""
    revision: int = 0
    """The mod revision of the view's key; 0 while it is only planned."""

    @property
    def is_known(self) -> bool:
        """Whether this version knows all that the stored text can say."""
        return self.format <= FORMAT_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewPut:
    view: ViewImage


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewDeleted:
    name: str


class ViewsDraft:
    """Views in the making: maps are copied when they are first written to."""

    def __init__(
        self, views: Mapping[str, ViewImage], fills: Mapping[str, ViewImage], names: Mapping[bytes, str]
    ) -> None:
        """`fills`: the materialized ones. `names`: of both."""
        self.views = views
        self.fills = fills
        self.names = names
        self._own: tuple[dict[str, ViewImage], dict[str, ViewImage], dict[bytes, str]] | None = None

    def apply(self, change: ViewPut | ViewDeleted) -> None:
        if isinstance(change, ViewPut):
            self.put(change.view)
        else:
            self.delete(change.name)

    def put(self, view: ViewImage) -> None:
        self.delete(view.name)
        views, fills, names = self._writable()
        (fills if view.materialized else views)[view.name] = view
        names[view.view_id] = view.name

    def delete(self, name: str) -> None:
        before = self.views.get(name) or self.fills.get(name)
        if before is not None:
            views, fills, names = self._writable()
            views.pop(name, None)
            fills.pop(name, None)
            names.pop(before.view_id, None)

    def _writable(self) -> tuple[dict[str, ViewImage], dict[str, ViewImage], dict[bytes, str]]:
        if self._own is None:
            self._own = dict(self.views), dict(self.fills), dict(self.names)
            self.views, self.fills, self.names = self._own
        return self._own
