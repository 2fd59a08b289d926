"""The settings of one group: its own overrides, and the broker's values for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from forebay.config.declared_settings import value_of
from forebay.config.keys.broker import BROKER_KEYS
from forebay.config.keys.coordinators.group import GroupsConfig
from forebay.config.keys.coordinators.share import SHARE_GROUP_KEYS
from forebay.config.keys.ignored import IGNORED_GROUP_KEYS
from forebay.config.offset_reset import OffsetReset
from forebay.config.values import Definition, Value
from forebay.errors import ConfigError
from forebay.lazy import dataclass

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"
SHARE_SESSION_TIMEOUT = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL = "share.heartbeat.interval.ms"
SHARE_ASSIGNMENT_INTERVAL = "share.assignment.interval.ms"
SHARE_LOCK_DURATION = "share.record.lock.duration.ms"
SHARE_DELIVERY_LIMIT = "share.delivery.count.limit"
SHARE_RECORD_LOCKS = "share.partition.max.record.locks"
SHARE_OFFSET_RESET = "share.auto.offset.reset"
SHARE_ISOLATION_LEVEL = "share.isolation.level"
SHARE_RENEW = "share.renew.acknowledge.enable"
SHARE_BACKOFF = "forebay.share.retry.backoff.ms"
SHARE_BACKOFF_MAX = "forebay.share.retry.backoff.max.ms"
SHARE_UNREADABLE_TIMEOUT = "forebay.share.unreadable.timeout.ms"
SHARE_RECORD_LIMIT = "forebay.share.record.limit.enable"
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
DEAD_LETTER_COPY = "errors.deadletterqueue.copy.record.enable"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKey:
    definition: Definition
    fallback: str | None
    """The broker setting that applies to a group without its own value."""


class _Range(NamedTuple):
    """The broker's default and bounds of a setting of groups."""

    default: int
    low: int
    high: int


_BOUNDED = (
    SESSION_TIMEOUT,
    HEARTBEAT_INTERVAL,
    ASSIGNMENT_INTERVAL,
    SHARE_SESSION_TIMEOUT,
    SHARE_HEARTBEAT_INTERVAL,
    SHARE_ASSIGNMENT_INTERVAL,
    SHARE_LOCK_DURATION,
    SHARE_DELIVERY_LIMIT,
    SHARE_RECORD_LOCKS,
)
"""Settings whose default and bounds are settings of the broker."""


def bound_names(name: str) -> tuple[str, str] | None:
    """The names of the broker settings that bound a group's setting, if there are any."""
    if name not in _BOUNDED:
        return None
    protocol, _, rest = name.partition(".")
    return f"group.{protocol}.min.{rest}", f"group.{protocol}.max.{rest}"


def _range_of(config: GroupsConfig, name: str) -> _Range:
    bounds = bound_names(name)
    assert bounds is not None
    default, low, high = (value_of(config, key) for key in (f"group.{name}", *bounds))
    return _Range(default, low, high)


def _key(name: str) -> GroupKey:
    fallback = f"group.{name}"
    definition = replace(BROKER_KEYS[fallback], name=name, default=None, dynamic=True)
    return GroupKey(definition=definition, fallback=fallback)


def _ignored_key(definition: Definition) -> GroupKey:
    fallback = f"group.{definition.name}"
    return GroupKey(definition=definition, fallback=fallback if fallback in BROKER_KEYS else None)


GROUP_RESOURCE_KEYS: dict[str, GroupKey] = {
    key.definition.name: key
    for key in (
        *map(_key, _BOUNDED),
        *(GroupKey(definition=definition, fallback=None) for definition in SHARE_GROUP_KEYS),
        *map(_ignored_key, IGNORED_GROUP_KEYS),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupSettings:
    """The settings in force for one share group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    record_lock_duration_ms: int
    delivery_count_limit: int
    partition_max_record_locks: int
    offset_reset: OffsetReset
    is_read_committed: bool
    renew_enabled: bool
    retry_backoff_ms: int
    """0: released records are delivered again at once."""
    retry_backoff_ms_max: int
    unreadable_timeout_ms: int
    """How long to retry a record that the disk cannot read, while it reads others."""
    is_record_limit: bool
    """True if a member gets no more records than it asks for, whatever acquire mode its client knows."""
    dead_letter_topic: str
    """Empty: no dead letters."""
    dead_letter_copies_record: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The settings in force for one group: of the consumer protocol, or for a share group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    share: ShareGroupSettings

    @staticmethod
    def resolve(config: GroupsConfig, overrides: Mapping[str, str]) -> GroupSettings:
        """Values that were stored under wider bounds than this broker's are clamped to them."""
        return GroupSettings(
            session_timeout_ms=_within(config, overrides, SESSION_TIMEOUT),
            heartbeat_interval_ms=_within(config, overrides, HEARTBEAT_INTERVAL),
            assignment_interval_ms=_within(config, overrides, ASSIGNMENT_INTERVAL),
            share=_resolve_share(config, overrides),
        )


def _resolve_share(config: GroupsConfig, overrides: Mapping[str, str]) -> ShareGroupSettings:
    return ShareGroupSettings(
        session_timeout_ms=_within(config, overrides, SHARE_SESSION_TIMEOUT),
        heartbeat_interval_ms=_within(config, overrides, SHARE_HEARTBEAT_INTERVAL),
        assignment_interval_ms=_within(config, overrides, SHARE_ASSIGNMENT_INTERVAL),
        record_lock_duration_ms=_within(config, overrides, SHARE_LOCK_DURATION),
        delivery_count_limit=_within(config, overrides, SHARE_DELIVERY_LIMIT),
        partition_max_record_locks=_within(config, overrides, SHARE_RECORD_LOCKS),
        offset_reset=OffsetReset.parse(str(_value(overrides, SHARE_OFFSET_RESET))),
        is_read_committed=_value(overrides, SHARE_ISOLATION_LEVEL) == "read_committed",
        renew_enabled=bool(_value(overrides, SHARE_RENEW)),
        retry_backoff_ms=_number(overrides, SHARE_BACKOFF),
        retry_backoff_ms_max=_number(overrides, SHARE_BACKOFF_MAX),
        unreadable_timeout_ms=_number(overrides, SHARE_UNREADABLE_TIMEOUT),
        is_record_limit=bool(_value(overrides, SHARE_RECORD_LIMIT)),
        dead_letter_topic=str(_value(overrides, DEAD_LETTER_TOPIC)),
        dead_letter_copies_record=bool(_value(overrides, DEAD_LETTER_COPY)),
    )


def check_group_overrides(config: GroupsConfig, overrides: Mapping[str, str]) -> None:
    """Check that these values are allowed together; raises ConfigError."""
    for name in _BOUNDED:
        value = _value(overrides, name)
        if isinstance(value, int):
            _check_bounds(name, value, _range_of(config, name))
    for session, heartbeat in (
        (SESSION_TIMEOUT, HEARTBEAT_INTERVAL),
        (SHARE_SESSION_TIMEOUT, SHARE_HEARTBEAT_INTERVAL),
    ):
        session_ms, heartbeat_ms = (_within(config, overrides, name) for name in (session, heartbeat))
        if session_ms <= heartbeat_ms:
            raise ConfigError(f"{session} ({session_ms}) must be greater than {heartbeat} ({heartbeat_ms})")
    backoff_ms, backoff_ms_max = _number(overrides, SHARE_BACKOFF), _number(overrides, SHARE_BACKOFF_MAX)
    if backoff_ms > backoff_ms_max:
        raise ConfigError(
            f"{SHARE_BACKOFF} ({backoff_ms}) must not be greater than {SHARE_BACKOFF_MAX} ({backoff_ms_max})"
        )


def _check_bounds(name: str, value: int, allowed: _Range) -> None:
    bounds = bound_names(name)
    assert bounds is not None
    if value < allowed.low:
        raise ConfigError(f"{name} must be greater than or equal to {bounds[0]} ({allowed.low})")
    if value > allowed.high:
        raise ConfigError(f"{name} must be less than or equal to {bounds[1]} ({allowed.high})")


def _value(overrides: Mapping[str, str], name: str) -> Value:
    """The stored value, or the default: an earlier version may have stored what this one does not accept."""
    definition = GROUP_RESOURCE_KEYS[name].definition
    text = overrides.get(name)
    try:
        return definition.default if text is None else definition.parse(text)
    except ConfigError:
        return definition.default


def _number(overrides: Mapping[str, str], name: str) -> int:
    value = _value(overrides, name)
    assert isinstance(value, int)
    return value


def _within(config: GroupsConfig, overrides: Mapping[str, str], name: str) -> int:
    """The group's own value within the broker's bounds, or the broker's value."""
    allowed = _range_of(config, name)
    value = _value(overrides, name)
    return max(allowed.low, min(value, allowed.high)) if isinstance(value, int) else allowed.default
