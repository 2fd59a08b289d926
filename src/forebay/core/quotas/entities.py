"""The entity of a quota: a user, a client id, both, or an IP address. Each may be named, or be the default,
which applies to all without a quota of their own.

Names, keys and checks are Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from ipaddress import ip_address
from typing import NamedTuple

from forebay.errors import ErrorCode, KafkaError

NAME_CHARS_MAX = 1024


class EntityType(StrEnum):
    USER = "user"
    CLIENT_ID = "client-id"
    IP = "ip"


class QuotaEntity(NamedTuple):
    """Its parts, in the order of `EntityType`. A name of None is the default."""

    parts: tuple[tuple[EntityType, str | None], ...]

    @property
    def names(self) -> Mapping[EntityType, str | None]:
        return dict(self.parts)

    @property
    def is_ip(self) -> bool:
        return self.parts[0][0] is EntityType.IP

    def __str__(self) -> str:
        return ", ".join(
            f"the default {kind}" if name is None else f"{kind} {name}" for kind, name in self.parts
        )


def quota_entity(*, user: str | None = "", client_id: str | None = "", ip: str | None = "") -> QuotaEntity:
    """An entity of these parts. None is the default, "" leaves a part out."""
    given = ((EntityType.USER, user), (EntityType.CLIENT_ID, client_id), (EntityType.IP, ip))
    return QuotaEntity(tuple(part for part in given if part[1] != ""))


def read_entity(parts: Iterable[tuple[str, str | None]], *, is_stored: bool = False) -> QuotaEntity:
    """Read an entity from types and names of a request; raises KafkaError. `is_stored`: it stays as it was
    stored, since it is found by that."""
    found: dict[EntityType, str | None] = {}
    for word, name in parts:
        kind = _entity_type(word)
        if kind in found:
            raise _invalid(f"the entity has more than one part of the type {kind}")
        found[kind] = name if kind is not EntityType.IP else _normal_ip(name, is_stored=is_stored)
        if name == "":
            raise _invalid(f"the name of a {kind} is empty; null means the default")
        if name is not None and len(name) > NAME_CHARS_MAX:
            raise _invalid(f"the name of a {kind} has at most {NAME_CHARS_MAX} characters")
    if not found:
        raise _invalid("the entity has no parts: name a user, a client-id or an ip")
    if EntityType.IP in found and len(found) > 1:
        raise _invalid("an ip cannot be combined with a user or a client-id")
    return QuotaEntity(tuple((kind, found[kind]) for kind in EntityType if kind in found))


def _entity_type(word: str) -> EntityType:
    try:
        return EntityType(word)
    except ValueError:
        raise _invalid(f"{word!r} is no type of entity: use user, client-id or ip") from None


def _normal_ip(name: str | None, *, is_stored: bool) -> str | None:
    """The address as connections have it, also for IPv4 on a dual-stack socket. Host names are not looked up:
    a quota would depend on who answers."""
    if not name:
        return name
    try:
        address = ip_address(name)
    except ValueError:
        raise _invalid(f"{name!r} is no IP address") from None
    mapped = None if is_stored else getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _invalid(problem: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, problem)
