"""Finds a definition by name, and suggests a name if there is none."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from forebay.config.group_settings import GROUP_RESOURCE_KEYS
from forebay.config.keys.broker import ALIASES, BROKER_KEYS
from forebay.config.keys.not_altered import KAFKA_READ_ONLY, PROMISES_PROTECTION
from forebay.config.keys.security.tls import CHANGED_WHILE_RUNNING, SECRETS
from forebay.config.keys.topic import TOPIC_KEYS, TopicKey
from forebay.config.per_listener import PER_LISTENER_KEYS
from forebay.config.values import Definition, Value, password_key
from forebay.errors import ConfigError

_OURS = "forebay."
_PLUGIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
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
    return replace(BROKER_KEYS[key], name=name, dynamic=key in CHANGED_WHILE_RUNNING)


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
    """The typed value; raises ConfigError with the allowed values."""
    return topic_key(name).definition.parse(value)


def validate_broker_override(name: str, value: str) -> Value:
    """Like `validate_topic_override`, for a running broker: keys read only at start are refused."""
    definition = altered_broker_definition(name)
    if not definition.dynamic:
        _refuse_tls(definition.name)
        raise ConfigError(
            f"Cannot update these configs dynamically: {definition.name} is read when the broker starts, "
            "set it in its config file"
        )
    return definition.parse(value)


def is_dynamic_of_listener(name: str) -> bool:
    """True for a setting of one listener that can be changed at run time."""
    of_listener = _OF_LISTENER.fullmatch(name)
    return of_listener is not None and of_listener["key"] in CHANGED_WHILE_RUNNING


def _refuse_tls(name: str) -> None:
    """Raise ConfigError for a TLS setting that can be changed at run time in another form only."""
    of_listener = _OF_LISTENER.fullmatch(name)
    key = name if of_listener is None else of_listener["key"]
    if key in SECRETS:
        raise ConfigError(
            f"Cannot update these configs dynamically: {name} would be in the store for all to read. Put"
            " certificate and key into files, and set listener.name.<listener>.ssl.keystore.location"
        )
    if key in CHANGED_WHILE_RUNNING:
        raise ConfigError(
            "These security configs can be dynamically updated only per-listener using the listener prefix:"
            f" write listener.name.<listener>.{name}"
        )


def altered_broker_definition(name: str) -> Definition:
    """Like `broker_definition`, for administrators' changes: Kafka keeps names that it does not know, for
    plugins. A broker that starts with such a name refuses it, because it may be a mistake."""
    if name in KAFKA_READ_ONLY:
        raise ConfigError(f"Cannot update these configs dynamically: {name}, which does not exist here")
    if name in PROMISES_PROTECTION:
        raise ConfigError(f"{name} does not exist here: nothing would be protected by it")
    if is_unknown(name):
        return _unknown_definition(name)
    return broker_definition(name)


def is_unknown(name: str) -> bool:
    """True for a name that only Kafka's plugins could know: neither Forebay's nor a setting of topics."""
    if _OF_LISTENER.fullmatch(name) or name.startswith(_OURS) or not _PLUGIN_NAME.fullmatch(name):
        return False
    return ALIASES.get(name, name) not in BROKER_KEYS and name not in TOPIC_KEYS


def _unknown_definition(name: str) -> Definition:
    """A definition for an unknown name. As in Kafka, the value is not shown: it may be a secret."""
    nearest = _nearest(name, (*BROKER_KEYS, *ALIASES))
    doc = f"there is no broker setting of this name{nearest}"
    definition: Definition = password_key(name, None, doc, dynamic=True, ignored=True)
    return definition


def _nearest(name: str, names: Iterable[str]) -> str:
    # Needed only after a typo, so a normal start does not pay for the import.
    from difflib import get_close_matches

    known = list(names)
    found = get_close_matches(name, known, n=1, cutoff=0.6) or [key for key in known if key.endswith(name)]
    return f"; did you mean {found[0]!r}?" if found else "; see docs/configuration.md for all settings"
