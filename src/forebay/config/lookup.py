"""Finding a definition by the name someone wrote, and helping when there is none."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from forebay.config.group_settings import GROUP_RESOURCE_KEYS
from forebay.config.keys.broker import ALIASES, BROKER_KEYS
from forebay.config.keys.topic import TOPIC_KEYS, TopicKey
from forebay.config.per_listener import PER_LISTENER_KEYS
from forebay.config.values import Definition, Value
from forebay.errors import ConfigError

_OF_LISTENER = re.compile(r"listener\.name\.(?P<listener>[a-z0-9_-]{1,100})\.(?P<key>.+)")


def broker_definition(name: str) -> Definition:
    of_listener = _OF_LISTENER.fullmatch(name)
    if of_listener is not None:
        return _listener_definition(name, of_listener["key"])
    definition = BROKER_KEYS.get(ALIASES.get(name, name))
    if definition is None:
        if name in TOPIC_KEYS:
            instead = "".join(
                f"; for all topics set {broker}" for broker, _ in TOPIC_KEYS[name].fallbacks[:1]
            )
            raise ConfigError(f"{name} is a setting of topics{instead}")
        raise ConfigError(f"Unknown broker config name: {name}{_nearest(name, (*BROKER_KEYS, *ALIASES))}")
    return definition


def _listener_definition(name: str, key: str) -> Definition:
    if key not in PER_LISTENER_KEYS:
        raise ConfigError(f"{name}: {key} cannot be set for one listener{_nearest(key, PER_LISTENER_KEYS)}")
    return replace(BROKER_KEYS[key], name=name, dynamic=False)


def topic_key(name: str) -> TopicKey:
    key = TOPIC_KEYS.get(name)
    if key is None:
        raise ConfigError(f"Unknown topic config name: {name}{_nearest(name, TOPIC_KEYS)}")
    return key


def group_definition(name: str) -> Definition:
    key = GROUP_RESOURCE_KEYS.get(name)
    if key is None:
        raise ConfigError(f"Unknown group config name: {name}{_nearest(name, GROUP_RESOURCE_KEYS)}")
    return key.definition


def validate_topic_override(name: str, value: str) -> Value:
    """The typed value, or ConfigError with what is allowed."""
    return topic_key(name).definition.parse(value)


def validate_broker_override(name: str, value: str) -> Value:
    """As for a topic, for a change to a running broker: keys read only at start are refused."""
    definition = broker_definition(name)
    if not definition.dynamic:
        raise ConfigError(
            f"Cannot update these configs dynamically: {definition.name} is read when the broker starts, "
            "set it in its config file"
        )
    return definition.parse(value)


def _nearest(name: str, names: Iterable[str]) -> str:
    # Wanted only when somebody mistyped, so a normal start does not pay for the import.
    from difflib import get_close_matches

    known = list(names)
    found = get_close_matches(name, known, n=1, cutoff=0.6) or [key for key in known if key.endswith(name)]
    return f"; did you mean {found[0]!r}?" if found else "; see docs/configuration.md for all settings"
