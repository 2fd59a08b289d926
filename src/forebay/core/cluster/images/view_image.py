"""A view as it is stored: the name of a filter over a topic. It holds no messages.

A *materialized* view is a topic of the same name that brokers fill with the results of the query. Clients
then see the view only in the settings of that topic.
"""

from __future__ import annotations

from collections.abc import Mapping

from forebay.lazy import dataclass

FORMAT = 1
"""The format of the stored text. Older views have no format number, and are of this one."""
FORMAT_MATERIALIZED = 2
"""The format of a text that names a topic to fill."""
FORMAT_MAX = FORMAT_MATERIALIZED


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewImage:
    """A view is created and deleted, never altered: another query has another id."""

    name: str
    view_id: bytes
    """Clients take it for a topic id. For a materialized view, brokers use it to read the query."""
    source_id: bytes
    """The id of the topic that the view reads."""
    where: str | None = None
    """The condition as it was written; None: every record."""
    select: str | None = None
    """The columns that make up the value; None: the value as it is."""
    keep_tombstones: bool = False
    materialized: bool = False
    format: int = FORMAT
    """Above FORMAT_MAX if a later version created the view: it may mean more than is known here."""
    revision: int = 0
    """The mod revision of the view's key; 0 while it is only planned."""

    @property
    def is_known(self) -> bool:
        """True if this version understands everything that the stored text can say."""
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
        """`fills`: the materialized views. `names`: of both kinds."""
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
