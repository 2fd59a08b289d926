"""The quantities that can be limited, and the valid values of each limit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from forebay.config.names import WHITE_SPACE, is_trimmed
from forebay.core.quotas.entities import EntityType, QuotaEntity
from forebay.errors import ErrorCode, KafkaError

_INTEGRAL_TO = 1e-6
_LONG_MAX = 2.0**63
_INT_MAX = 2.0**31


class QuotaKey(StrEnum):
    PRODUCE = "producer_byte_rate"
    """Bytes of Produce requests per second."""
    FETCH = "consumer_byte_rate"
    """Bytes of fetched messages per second."""
    REQUEST = "request_percentage"
    """How much of the broker's time requests take; 100 is all of one thread."""
    MUTATION = "controller_mutation_rate"
    """Partitions created and deleted per second."""
    CONNECTION = "connection_creation_rate"
    """New connections per second; for IP addresses only."""


_OF_IP = frozenset({QuotaKey.CONNECTION})
_OF_CLIENTS = frozenset(QuotaKey) - _OF_IP
_BOUNDS = {
    QuotaKey.PRODUCE: _LONG_MAX,
    QuotaKey.FETCH: _LONG_MAX,
    QuotaKey.CONNECTION: _INT_MAX,
}
"""Where a value has to be a whole number, with what it has to be less than."""


class QuotaOp(NamedTuple):
    """Sets a value; removes it if there is none."""

    key: str
    value: float | None


def altered(entity: QuotaEntity, values: Mapping[str, float], ops: Iterable[QuotaOp]) -> dict[str, float]:
    """The values of an entity after these operations, none if it has no quota any more. Raises KafkaError."""
    after = dict(values)
    seen: set[str] = set()
    for op in ops:
        key = _known_key(entity, op.key)
        if key in seen:
            raise _invalid(f"{key} is altered twice")
        seen.add(key)
        if op.value is None:
            after.pop(key, None)
        else:
            _check_user(entity)
            after[key] = _checked(key, op.value)
    return after


def _known_key(entity: QuotaEntity, word: str) -> QuotaKey:
    allowed = _OF_IP if entity.is_ip else _OF_CLIENTS
    for key in QuotaKey:
        if key == word and key in allowed:
            return key
    words = ", ".join(sorted(allowed))
    raise _invalid(f"{word!r} is no quota of {entity}: use {words}")


def _check_user(entity: QuotaEntity) -> None:
    user = entity.names.get(EntityType.USER)
    if user is not None and not is_trimmed(user):
        raise _invalid(f"{user!r} has {WHITE_SPACE.format(what='user')}")


def _checked(key: QuotaKey, value: float) -> float:
    if not math.isfinite(value) or value <= 0:
        raise _invalid(f"{key} has to be a number above 0, not {value:g}")
    bound = _BOUNDS.get(key)
    if bound is None:
        return value
    whole = round(value)
    if abs(whole - value) > _INTEGRAL_TO or whole < 1:
        raise _invalid(f"{key} has to be a whole number, not {value:g}")
    if whole >= bound:
        raise _invalid(f"{key} has to be less than {bound:g}, not {value:g}")
    return float(whole)


def _invalid(problem: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, problem)
