"""The refused resources of one request, collected piece by piece: some by name, the rest counted."""

from __future__ import annotations

from collections.abc import Iterable

from forebay.core.guards.guard import Resource

NAMED_MAX = 20
"""Resources that one line of the audit log names."""


class RefusedResources:
    __slots__ = ("_named", "_unnamed")

    def __init__(self) -> None:
        self._named: dict[Resource, None] = {}
        self._unnamed = 0

    def __len__(self) -> int:
        """The number of refusals. A named resource counts once, however many pieces of a request name it."""
        return len(self._named) + self._unnamed

    def add(self, resources: Iterable[Resource]) -> None:
        named = self._named
        for each in resources:
            if each in named:
                continue
            if len(named) < NAMED_MAX:
                named[each] = None
            else:
                self._unnamed += 1

    @property
    def named(self) -> list[Resource]:
        """The first ones."""
        return list(self._named)
