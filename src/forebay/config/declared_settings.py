"""Settings that are read together: a class with a declared setting for each field.

    @settings_group
    class FetchConfig:
        max_bytes: int = int_key("fetch.max.bytes", 57671680, "The most data of one Fetch response.", 1024)

So the name, default, bounds and meaning of a setting are in one place. The class is an immutable dataclass,
whose fields have the defaults of their settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, dataclass_transform

from forebay.config.values import Definition
from forebay.lazy import dataclass

G = TypeVar("G")


class _Subgroup(NamedTuple):
    group: type


@dataclass_transform(frozen_default=True, kw_only_default=True)
def settings_group(cls: type[G]) -> type[G]:
    declared: dict[str, Any] = {
        name: value for name, value in vars(cls).items() if isinstance(value, Definition | _Subgroup)
    }
    for name, value in declared.items():
        is_group = isinstance(value, _Subgroup)
        setattr(cls, name, field(default_factory=value.group) if is_group else value.default)
    cls.DECLARED = declared  # type: ignore[attr-defined]
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


def subgroup(group: type[G]) -> Any:
    """A group inside of a group."""
    return _Subgroup(group)


def definitions_of(group: Any) -> list[Definition]:
    found: list[Definition] = []
    for value in group.DECLARED.values():
        found += definitions_of(value.group) if isinstance(value, _Subgroup) else [value]
    return found


def read_group(group: type[G], values: Mapping[str, Any]) -> G:
    """A group with its values among those of all settings, by their names."""
    declared: dict[str, Any] = group.DECLARED  # type: ignore[attr-defined]
    return group(
        **{
            name: read_group(value.group, values) if isinstance(value, _Subgroup) else values[value.name]
            for name, value in declared.items()
        }
    )


def value_of(group: Any, name: str) -> Any:
    """The value of the setting of this name."""
    kind: Any = type(group)
    return attrgetter(_paths(kind)[name])(group)


@cache
def _paths(group: Any) -> dict[str, str]:
    """The attribute path of each setting, by its name."""
    found: dict[str, str] = {}
    for attribute, value in group.DECLARED.items():
        if isinstance(value, _Subgroup):
            found |= {name: f"{attribute}.{path}" for name, path in _paths(value.group).items()}
        else:
            found[value.name] = attribute
    return found
