"""Settings that are read together: a class whose fields are each declared by the setting that fills them.

    @settings_group
    class FetchConfig:
        max_bytes: int = int_key("fetch.max.bytes", 57671680, "The most data of one Fetch response.", 1024)

So the name, default, bounds and meaning of a setting are said once. The class is an immutable dataclass,
whose fields have the defaults of their settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

from forebay.config.values import Definition

G = TypeVar("G")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def settings_group(cls: type[G]) -> type[G]:
    for name, definition in list(vars(cls).items()):
        if isinstance(definition, Definition):
            setattr(cls, name, field(default=definition.default, metadata={"definition": definition}))
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


def subgroup(group: type[G]) -> Any:
    """A group inside of a group."""
    return field(default_factory=group, metadata={"group": group})


def definitions_of(group: Any) -> list[Definition]:
    found: list[Definition] = []
    for each in fields(group):
        inner = each.metadata.get("group")
        found += definitions_of(inner) if inner else [each.metadata["definition"]]
    return found


def read_group(group: type[G], values: Mapping[str, Any]) -> G:
    """A group with its values among those of all settings, by their names."""
    found: dict[str, Any] = {}
    for each in fields(group):  # type: ignore[arg-type]
        inner = each.metadata.get("group")
        found[each.name] = read_group(inner, values) if inner else values[each.metadata["definition"].name]
    return group(**found)


def value_of(group: Any, name: str) -> Any:
    """The value of the setting of this name."""
    kind: Any = type(group)
    return attrgetter(_paths(kind)[name])(group)


@cache
def _paths(group: Any) -> dict[str, str]:
    """Where each setting is found, by its name."""
    found: dict[str, str] = {}
    for each in fields(group):
        inner = each.metadata.get("group")
        if inner:
            found |= {name: f"{each.name}.{path}" for name, path in _paths(inner).items()}
        else:
            found[each.metadata["definition"].name] = each.name
    return found
