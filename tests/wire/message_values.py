"""Random messages made from the declarations: any value that a version can carry."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

from forebay.wire.codec.layout import Layout
from forebay.wire.fields import FORMATS, Field, Message, Struct, shared_default
from forebay.wire.messages import API_KEYS, Api, api

# Lengths around the places where a varint grows by a byte.
LENGTHS = (0, 1, 2, 5, 125, 126, 127, 128, 300)
ALPHABET = "az09-._ äß中\U0001f600\0"


def every_message() -> list[tuple[type[Message], int]]:
    return [
        (cls, version)
        for key in API_KEYS
        for cls in (api(key).request, api(key).response)
        for version in range(cls.MIN_VERSION, cls.MAX_VERSION + 1)
    ]


def kio_versions(ours: Api) -> range:
    """The versions that kio can be asked about: it has forgotten the oldest of Produce."""
    return range(3 if ours.name == "Produce" else ours.min_version, ours.max_version + 1)


def message_id(case: tuple[type[Message], int]) -> str:
    return f"{case[0].__name__}-v{case[1]}"


def random_message(random: Random, cls: type[Message], version: int) -> Any:
    """Fields of other versions keep their defaults, so that what is decoded again is equal."""
    return _struct(random, Layout(cls, version), cls)


def sparse_message(cls: type[Message], version: int) -> Any:
    """Everything left out that can be, but one element in each array: every struct at its defaults."""
    return _sparse(Layout(cls, version), cls)


def _sparse(layout: Layout, cls: type[Struct]) -> Any:
    arrays = [(name, field.element) for name, field in layout.plain(cls) if field.element is not None]
    structs = {name: element.struct for name, element in arrays if element.struct is not None}
    return cls(**{name: [_sparse(layout, struct)] for name, struct in structs.items()})


def _struct(random: Random, layout: Layout, cls: type[Struct]) -> Any:
    fields = [*layout.plain(cls), *layout.tagged(cls)]
    return cls(**{name: _value(random, layout, field) for name, field in fields})


def _value(random: Random, layout: Layout, field: Field) -> Any:
    if layout.nullable(field) and random.random() < 0.3:
        return None
    if field.tag is not None and random.random() < 0.5:
        return shared_default(field.struct) if field.struct and field.default else _default(field)
    if field.struct is not None:
        return _struct(random, layout, field.struct)
    if field.element is not None:
        return [_value(random, layout, field.element) for _ in range(random.choice((0, 1, 1, 2, 3)))]
    return random_scalar(random, field.kind)


def _default(field: Field) -> Any:
    return [] if field.default == () else field.default


def random_scalar(random: Random, kind: str) -> Any:
    if kind == "string":
        return random_text(random)
    if kind in ("bytes", "records"):
        return random.randbytes(random.choice(LENGTHS))
    if kind == "uuid":
        return random.randbytes(16)
    if kind == "float64":
        return random.uniform(-1e12, 1e12)
    if kind == "bool":
        return random.random() < 0.5
    return random_integer(random, FORMATS[kind])


def random_text(random: Random) -> str:
    return "".join(random.choices(ALPHABET, k=random.choice(LENGTHS)))


def random_integer(random: Random, fmt: str) -> int:
    """Often an extreme, a small number or the usual defaults; else anything of the width."""
    width = struct.calcsize(">" + fmt)
    (value,) = struct.unpack(">" + fmt, random.randbytes(width))
    highest = (1 << 8 * width - fmt.islower()) - 1
    lowest = -highest - 1 if fmt.islower() else 0
    picked: int = random.choice((value, value, 0, 1, lowest, highest, max(lowest, -1)))
    return picked
