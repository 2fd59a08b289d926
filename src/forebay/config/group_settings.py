"""The settings of one group (KIP-848): its own overrides over what the broker says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from forebay.config.keys.broker import BROKER_KEYS
from forebay.config.keys.group import GroupsConfig
from forebay.config.keys.ignored import IGNORED_GROUP_KEYS
from forebay.config.values import Definition
from forebay.errors import ConfigError

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKey:
    definition: Definition
    fallback: str | None
    """The broker setting that a group without a value of its own takes."""


def _key(name: str) -> GroupKey:
    fallback = f"group.{name}"
    definition = replace(BROKER_KEYS[fallback], name=name, default=None, dynamic=True)
    return GroupKey(definition=definition, fallback=fallback)


GROUP_RESOURCE_KEYS: dict[str, GroupKey] = {
    key.definition.name: key
    for key in (
        _key(SESSION_TIMEOUT),
        _key(HEARTBEAT_INTERVAL),
        *(GroupKey(definition=definition, fallback=None) for definition in IGNORED_GROUP_KEYS),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """What is in force for one group of the consumer protocol."""

    session_timeout_ms: int
    heartbeat_interval_ms: int

    @staticmethod
    def resolve(config: GroupsConfig, overrides: Mapping[str, str]) -> GroupSettings:
        """Values that were stored under wider bounds than this broker's are brought within them."""
        session_ms = _number(SESSION_TIMEOUT, overrides)
        heartbeat_ms = _number(HEARTBEAT_INTERVAL, overrides)
        return GroupSettings(
            session_timeout_ms=config.consumer_session_timeout_ms
            if session_ms is None
            else _within(session_ms, _session_bounds(config)),
            heartbeat_interval_ms=config.consumer_heartbeat_interval_ms
            if heartbeat_ms is None
            else _within(heartbeat_ms, _heartbeat_bounds(config)),
        )


def check_group_overrides(config: GroupsConfig, overrides: Mapping[str, str]) -> None:
    """Whether these values are allowed together; raises ConfigError."""
    for name, (low, high) in (
        (SESSION_TIMEOUT, _session_bounds(config)),
        (HEARTBEAT_INTERVAL, _heartbeat_bounds(config)),
    ):
        value = _number(name, overrides)
        least, most = (name.replace("consumer.", f"group.consumer.{bound}.") for bound in ("min", "max"))
        if value is not None and value < low:
            raise ConfigError(f"{name} must be greater than or equal to {least} ({low})")
        if value is not None and value > high:
            raise ConfigError(f"{name} must be less than or equal to {most} ({high})")
    settings = GroupSettings.resolve(config, overrides)
    if settings.session_timeout_ms <= settings.heartbeat_interval_ms:
        raise ConfigError(
            f"{SESSION_TIMEOUT} ({settings.session_timeout_ms}) must be greater than "
            f"{HEARTBEAT_INTERVAL} ({settings.heartbeat_interval_ms})"
        )


def _number(name: str, overrides: Mapping[str, str]) -> int | None:
    text = overrides.get(name)
    if text is None:
        return None
    value = GROUP_RESOURCE_KEYS[name].definition.parse(text)
    assert isinstance(value, int)
    return value


def _within(value: int, bounds: tuple[int, int]) -> int:
    low, high = bounds
    return max(low, min(value, high))


def _session_bounds(config: GroupsConfig) -> tuple[int, int]:
    return config.consumer_min_session_timeout_ms, config.consumer_max_session_timeout_ms


def _heartbeat_bounds(config: GroupsConfig) -> tuple[int, int]:
    return config.consumer_min_heartbeat_interval_ms, config.consumer_max_heartbeat_interval_ms
