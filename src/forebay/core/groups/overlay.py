"""A mapping over another one, which stays as it is: what is set or deleted here is kept apart.

So it costs as much as is changed, where a copy costs as much as is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class _Deleted:
    """Stands for the value of a key that was deleted."""


_DELETED: Final = _Deleted()


class Overlay(MutableMapping[K, V]):
    """The mapping beneath must not change while this is in use."""

    __slots__ = ("_base", "_changes")

    def __init__(self, base: Mapping[K, V]) -> None:
        self._base = base
        self._changes: dict[K, V | _Deleted] = {}

    def __getitem__(self, key: K) -> V:
        if key not in self._changes:
            return self._base[key]
        value = self._changes[key]
        if isinstance(value, _Deleted):
            raise KeyError(key)
        return value

    def __setitem__(self, key: K, value: V) -> None:
        self._changes[key] = value

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        self._changes[key] = _DELETED

    def __contains__(self, key: object) -> bool:
        if key in self._changes:
            return self._changes[key] is not _DELETED
        return key in self._base

    def __iter__(self) -> Iterator[K]:
        """Those beneath first, in their order, then the new ones."""
        changes = self._changes
        yield from (key for key in self._base if changes.get(key) is not _DELETED)
        yield from (key for key, value in changes.items() if key not in self._base and value is not _DELETED)

    def __len__(self) -> int:
        grown = sum((value is not _DELETED) - (key in self._base) for key, value in self._changes.items())
        return len(self._base) + grown
