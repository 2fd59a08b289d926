"""Filters of DescribeClientQuotas: they select entities."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from forebay.core.quotas.entities import EntityType, QuotaEntity
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass


class MatchType(IntEnum):
    EXACT = 0
    DEFAULT = 1
    ANY = 2
    """Any name, and the default."""


class Component(NamedTuple):
    kind: EntityType
    match: MatchType
    name: str | None

    def matches(self, entity: QuotaEntity) -> bool:
        names = entity.names
        if self.kind not in names:
            return False
        return self.match is MatchType.ANY or names[self.kind] == self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaFilter:
    components: tuple[Component, ...] = ()
    strict: bool = False
    """An entity with parts that the filter does not name does not match."""

    def matches(self, entity: QuotaEntity) -> bool:
        if self.strict and len(entity.parts) != len(self.components):
            return False
        return all(component.matches(entity) for component in self.components)


def read_filter(components: Iterable[tuple[str, int, str | None]], *, strict: bool) -> QuotaFilter:
    """Read a filter from types, match types and names of a request; raises KafkaError."""
    found = [_component(*each) for each in components]
    kinds = [component.kind for component in found]
    for kind in kinds:
        if kinds.count(kind) > 1:
            raise _invalid(f"the filter has more than one component of the type {kind}")
    if EntityType.IP in kinds and len(kinds) > 1:
        raise _invalid("a filter for an ip cannot be combined with a user or a client-id")
    return QuotaFilter(components=tuple(found), strict=strict)


def _component(word: str, match: int, name: str | None) -> Component:
    if not word:
        raise _invalid("a component of the filter has no type: use user, client-id or ip")
    try:
        kind = EntityType(word)
    except ValueError:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION, f"{word!r} is no type of entity here: use user, client-id or ip"
        ) from None
    try:
        matching = MatchType(match)
    except ValueError:
        raise _invalid(f"{match} is no match type: use 0 (exact), 1 (default) or 2 (any)") from None
    if (matching is MatchType.EXACT) != (name is not None):
        rule = "needs a name" if matching is MatchType.EXACT else "has no name"
        raise _invalid(f"a component of the match type {matching.name.lower()} {rule}")
    return Component(kind, matching, name)


def _invalid(problem: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, problem)
