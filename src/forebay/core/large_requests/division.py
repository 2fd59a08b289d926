"""A request with many elements as a sequence of small ones, and their responses as one.

A handler that looks at thousands of names blocks the event loop for that time. Most requests are lists of
independent items, so a large one is handled as if the client had sent several. Guards and handlers do not
notice. `table.py` says which requests can be cut, and where.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from enum import Enum, auto
from functools import cache
from typing import Any, NamedTuple

from forebay.wire.fields import FORMATS, Struct, changed

_LOOKED_AT = 500
"""The number of items that are compared before other work has its turn."""


class Repeats(Enum):
    """How to treat an item that is in a request twice."""

    EACH = auto()
    """Both are handled."""
    ONCE = auto()
    """It is handled and answered once."""
    REFUSED = auto()
    """The handler refuses both, so they have to stay together."""


class Division(NamedTuple):
    asked: tuple[str, ...]
    """The arrays of a request that are cut, from the outermost: ("topics", "partitions")."""
    answered: tuple[str, ...]
    """The arrays of the response that have an element for each of these."""
    repeats: Repeats = Repeats.EACH
    """Other than EACH only if a single array is cut."""
    names: tuple[str, ...] = ()
    """The fields that identify its items; none if they are plain values."""
    at_once: int = 250
    """The number of elements that are handled at once: a few milliseconds of work."""
    distinct: Callable[[Iterable[Any]], Iterator[Any]] | None = None
    """Leaves out repeats among the elements of the first array, where the answer of one may be large. It has
    None in place of an element that is left out."""

    def concerns(self, request: Any) -> bool:
        return bool(getattr(request, self.asked[0]))

    def is_large(self, request: Any) -> bool:
        """True if the request has to be cut."""
        return weight(request, self.at_once + 1) > self.at_once + 1

    def pieces(self, request: Struct) -> Iterator[Any]:
        """The requests to handle one after the other, with None between them where nothing is ready yet."""
        if self.repeats is Repeats.EACH:
            items = getattr(request, self.asked[0])
            wanted = items if self.distinct is None else self.distinct(items)
            for piece, _ in _packed_pieces(request, self.asked, self.at_once, wanted):
                yield piece
            return
        (field,) = self.asked
        groups: list[list[Any]] = []
        for found in _grouped(getattr(request, field), self.names, self.repeats):
            groups = found or groups
            yield None
        for items in _packed(groups, self.at_once):
            yield changed(request, **{field: items})


# -- cutting ---------------------------------------------------------------------------------------------


def _arrays(value: Any) -> tuple[str, ...]:
    cls: type[Struct] = type(value)
    return _arrays_of(cls)


@cache
def _arrays_of(cls: type[Struct]) -> tuple[str, ...]:
    return tuple(name for name, field in cls.FIELDS.items() if field.kind == "array")


def weight(value: Any, enough: int) -> int:
    """The number of elements of a value and of all its arrays; hardly counted beyond `enough`."""
    if not isinstance(value, Struct):
        return 1
    found = 1
    for name in _arrays(value):
        items = getattr(value, name)
        if not items:
            continue
        if isinstance(items[0], Struct) and len(items) <= enough:
            for item in items:
                found += weight(item, enough - found)
                if found > enough:
                    return found
        else:
            found += len(items)
        if found > enough:
            return found
    return found


def _cut(value: Any, path: tuple[str, ...], most: int) -> Iterator[tuple[Any, int]]:
    """Pieces of at most this many elements, unless a single element has more; each with its number."""
    size = weight(value, most)
    if size <= most or not path:
        yield value, size
        return
    yield from _packed_pieces(value, path, most, getattr(value, path[0]))


def _packed_pieces(
    value: Any, path: tuple[str, ...], most: int, items: Iterable[Any]
) -> Iterator[tuple[Any, int]]:
    """Pieces of a value with these items in its first array. None where an item is left out."""
    field, rest = path[0], path[1:]
    chosen: list[Any] = []
    total = 0
    for item in items:
        if item is None:
            yield None, 0
            continue
        for piece, size in _cut(item, rest, most):
            if chosen and total + size > most:
                yield changed(value, **{field: chosen}), total
                chosen, total = [], 0
            chosen.append(piece)
            total += size
    if chosen or not getattr(value, field):
        yield changed(value, **{field: chosen}), total


def _key(item: Any, names: tuple[str, ...]) -> Hashable:
    """The key that identifies an item. Lists are compared by content, in any order."""
    if not isinstance(item, Struct):
        plain: Hashable = item
        return plain
    values = (getattr(item, name) for name in names)
    return tuple([frozenset(map(_held, value)) if isinstance(value, list) else value for value in values])


def _held(value: Any) -> Hashable:
    held: Hashable = _identity(value) if isinstance(value, Struct) else value
    return held


def _grouped(items: list[Any], names: tuple[str, ...], repeats: Repeats) -> Iterator[list[list[Any]] | None]:
    """The items in groups that stay together: one, or at least two that are the same; None until ready."""
    same: dict[Hashable, list[Any]] = {}
    for count, item in enumerate(items):
        group = same.setdefault(_key(item, names), [])
        if repeats is not Repeats.ONCE or not group:
            group.append(item)
        if count % _LOOKED_AT == 0:
            yield None
    groups = []
    for group in same.values():
        while len(group) > 3:
            groups.append([group.pop(), group.pop()])
        groups.append(group)
        if len(groups) % _LOOKED_AT == 0:
            yield None
    yield groups


def _packed(groups: Iterable[list[Any]], most: int) -> Iterator[list[Any]]:
    chosen: list[Any] = []
    total = 0
    for group in groups:
        size = sum(weight(item, most) for item in group)
        if chosen and total + size > most:
            yield chosen
            chosen, total = [], 0
        chosen += group
        total += size
    if chosen:
        yield chosen


# -- putting together ------------------------------------------------------------------------------------


@cache
def _scalars(cls: type[Struct]) -> tuple[str, ...]:
    kinds = {*FORMATS, "string", "bytes"}
    return tuple(name for name, field in cls.FIELDS.items() if field.kind in kinds)


def _identity(value: Struct) -> Hashable:
    return type(value), *(getattr(value, name) for name in _scalars(type(value)))


class JoinedResponse:
    """The response to a request that was cut: the fields of the first response, the elements of all."""

    def __init__(self, division: Division) -> None:
        self._path = division.answered
        self._known: dict[tuple[int, str], dict[Hashable, Any]] = {}
        """Elements by key, for each struct that holds elements: one that was cut is whole again in the
        response."""
        self.whole: Any = None

    def add(self, response: Any) -> bool:
        """Add a response. True if the rest of the request is to be handled too: a general error ends it."""
        whole = self.whole
        if whole is not None and getattr(whole, "throttle_time_ms", 0) > getattr(
            response, "throttle_time_ms", 0
        ):
            response.throttle_time_ms = whole.throttle_time_ms
        if getattr(response, "error_code", 0):
            self.whole = response
            return False
        if self.whole is None:
            self.whole = changed(response)
            for field in _arrays(response):
                setattr(self.whole, field, list(getattr(response, field) or ()))
        else:
            self._join(whole, response, self._path)
            self._add_others(response)
            if hasattr(whole, "throttle_time_ms"):
                whole.throttle_time_ms = response.throttle_time_ms
        return True

    def _join(self, into: Any, more: Any, path: tuple[str, ...]) -> None:
        field, rest = path[0], path[1:]
        items, added = getattr(into, field), getattr(more, field) or ()
        if not rest:
            items.extend(added)
            return
        known = self._index(into, field)
        for item in added:
            same = known.setdefault(_identity(item), item)
            if same is item:
                items.append(item)
            else:
                self._join(same, item, rest)

    def _add_others(self, more: Any) -> None:
        """Join other arrays, such as those of brokers: each item is listed once."""
        for field in _arrays(more):
            if field != self._path[0] and (added := getattr(more, field)):
                known, items = self._index(self.whole, field), getattr(self.whole, field)
                for item in added:
                    if (key := _held(item)) not in known:
                        known[key] = item
                        items.append(item)

    def _index(self, holder: Any, field: str) -> dict[Hashable, Any]:
        known = self._known.get((id(holder), field))
        if known is None:
            known = {_held(item): item for item in getattr(holder, field)}
            self._known[id(holder), field] = known
        return known
