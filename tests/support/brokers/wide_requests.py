"""Requests of any API with as many elements as wanted in one of their lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from forebay.wire.codec.layout import Layout
from forebay.wire.fields import Field, Struct
from forebay.wire.messages import api

Path = tuple[str, ...]
"""The names of lists, from the outermost."""

_MEANINGFUL = {
    "acks": 1,
    "max_wait_ms": 0,
    "max_wait_time_ms": 0,
    "num_partitions": 1,
    "replica_id": -1,
    "replication_factor": 1,
    "resource_type": 2,
    "session_epoch": -1,
    "session_id": 0,
    "timeout_ms": 1000,
    "validate_only": True,
}
"""Values without which a broker would wait, or refuse a request before it looks at its lists."""


def lists(key: int, version: int) -> list[Path]:
    """All lists of a request."""
    cls = api(key).request
    return list(_lists(Layout(cls, version), cls, ()))


def _lists(layout: Layout, cls: type[Struct], path: Path) -> Iterator[Path]:
    for name, field in _fields(layout, cls):
        struct = field.struct if field.element is None else field.element.struct
        if field.element is not None:
            yield (*path, name)
        if struct is not None:
            yield from _lists(layout, struct, (*path, name))


def wide(key: int, version: int, path: Path, count: int, *, known: str) -> Any:
    """A request with so many elements in one list, each with another name, and one in each list around it.
    What is around them has a name that the broker knows."""
    cls = api(key).request
    return _struct(Layout(cls, version), cls, path, count, known)


def _fields(layout: Layout, cls: type[Struct]) -> list[tuple[str, Field]]:
    return [*layout.plain(cls), *layout.tagged(cls)]


def _struct(layout: Layout, cls: type[Struct], path: Path, count: int, name: str) -> Any:
    values = {
        each: _value(layout, each, field, path[1:] if path[:1] == (each,) else None, count, name)
        for each, field in _fields(layout, cls)
    }
    return cls(**{each: value for each, value in values.items() if value is not _LEFT_OUT})


_LEFT_OUT = object()


def _value(layout: Layout, own: str, field: Field, path: Path | None, count: int, name: str) -> Any:
    """`path`: where the elements are below this field; None if they are elsewhere."""
    if own in _MEANINGFUL and field.element is None:
        return _MEANINGFUL[own]
    if field.element is not None:
        if path is None:
            return [] if field.default is not None else None
        names = [f"{name}{number}" for number in range(count)] if not path else [name]
        return [_element(layout, field.element, path, count, each) for each in names]
    if field.struct is not None:
        if path is None and layout.nullable(field):
            return None
        return _struct(layout, field.struct, path or (), count, name)
    return _LEFT_OUT if field.tag is not None else _scalar(field.kind, name)


def _element(layout: Layout, element: Field, path: Path, count: int, name: str) -> Any:
    if element.struct is not None:
        return _struct(layout, element.struct, path, count, name)
    return _scalar(element.kind, name)


def _scalar(kind: str, name: str) -> Any:
    number = int("".join(filter(str.isdigit, name)) or 0)
    match kind:
        case "string":
            return name
        case "bytes":
            return b"x"
        case "int32" | "int64":
            return number
        case "int8" | "int16" | "uint16":
            return 1
        case _:
            return _LEFT_OUT if kind != "uuid" else bytes(16)
