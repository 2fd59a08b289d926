"""The columns of decoded values when their schema changes: fields are added, and none is taken away.

All files that are written from then on have the wider column, so that the last one always has every field. A
field keeps its type. Iceberg alone widens an int to a long and a float to a double, as its tables allow it.
Where a type cannot follow, values that fit the old one are still stored in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa

_PROMOTIONS = {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}


class Widened(NamedTuple):
    kind: pa.DataType
    added: tuple[str, ...] = ()
    """Paths of the fields that are new."""
    kept: tuple[str, ...] = ()
    """Fields whose new type the archive cannot take; each with that type."""


def widened(old: pa.DataType, new: pa.DataType, *, promotes: bool, path: str = "") -> Widened:
    """The type that holds the values of both, as far as a column can change."""
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        return _struct(old, new, promotes, path)
    if pa.types.is_list(old) and pa.types.is_list(new):
        items = widened(old.value_type, new.value_type, promotes=promotes, path=path)
        return items._replace(kind=pa.list_(items.kind))
    if pa.types.is_map(old) and pa.types.is_map(new) and old.key_type == new.key_type:
        items = widened(old.item_type, new.item_type, promotes=promotes, path=path)
        return items._replace(kind=pa.map_(old.key_type, items.kind))
    if old == new or (new, old) in _PROMOTIONS:
        return Widened(old)
    if promotes and (old, new) in _PROMOTIONS:
        return Widened(new)
    return Widened(old, kept=(f"{path}: {new}",))


def _struct(old: pa.StructType, new: pa.StructType, promotes: bool, path: str) -> Widened:
    fields: list[pa.Field] = []
    added: list[str] = []
    kept: list[str] = []
    for field in old:
        if new.get_field_index(field.name) < 0:
            fields.append(field)
            continue
        below = _below(path, field.name)
        found = widened(field.type, new.field(field.name).type, promotes=promotes, path=below)
        fields.append(pa.field(field.name, found.kind))
        added += found.added
        kept += found.kept
    for field in _new_fields(old, new):
        if field.name.lower() in {known.name.lower() for known in fields}:
            # Spark and Delta take names that differ in case for the same.
            kept.append(f"{_below(path, field.name)}: {field.type}")
        else:
            fields.append(pa.field(field.name, field.type))
            added.append(_below(path, field.name))
    return Widened(pa.struct(fields), tuple(added), tuple(kept))


def _new_fields(old: pa.StructType, new: pa.StructType) -> Iterator[pa.Field]:
    return (field for field in new if old.get_field_index(field.name) < 0)


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
