"""Settings as DescribeConfigs shows them: the value, its source, and the values that it overrides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from forebay.config.broker import BrokerConfig
from forebay.config.group_settings import GROUP_RESOURCE_KEYS, GroupKey
from forebay.config.keys.broker import BROKER_KEYS
from forebay.config.keys.topic import MIN_INSYNC_REPLICAS, TOPIC_KEYS, TopicKey
from forebay.config.lookup import altered_broker_definition, broker_definition, is_unknown
from forebay.config.per_listener import PREFIX
from forebay.config.topic import TopicConfig
from forebay.config.values import ConfigType, Definition, Source, format_value
from forebay.lazy import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    name: str
    value: str | None
    source: Source
    read_only: bool
    type: ConfigType
    documentation: str
    synonyms: tuple[Synonym, ...]
    """Every place that gives this setting a value, the one in force first."""


def describe_topic(
    broker: BrokerConfig, overrides: Mapping[str, str], replicas: int | None = None
) -> list[ConfigEntry]:
    """The settings of a topic. With `replicas`, an inherited min.insync.replicas is shown as a count. With
    `replicas`, an inherited min.insync.replicas is shown as the count in force.

    Tools that look for partitions below it compare numbers: kafka-topics knows nothing of a majority.
    """
    entries = [_topic_entry(broker, overrides, key) for key in TOPIC_KEYS.values()]
    if replicas is None or MIN_INSYNC_REPLICAS in overrides:
        return entries
    in_force = TopicConfig.resolve(broker, overrides).insync_replicas_min(replicas)
    return [
        replace(entry, value=str(in_force)) if entry.name == MIN_INSYNC_REPLICAS else entry
        for entry in entries
    ]


def describe_broker(broker: BrokerConfig) -> list[ConfigEntry]:
    layers = (Source.STATIC_BROKER_CONFIG, Source.DYNAMIC_BROKER_CONFIG)
    own = sorted({name for source in layers for name in broker.layers[source] if name.startswith(PREFIX)})
    return [
        _entry(definition, _broker_synonyms(broker, definition), not definition.dynamic)
        for definition in (*BROKER_KEYS.values(), *map(broker_definition, own))
    ]


def describe_all_brokers(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    """The settings that were given to all brokers at once, and only those."""
    given = {
        name: Synonym(name=name, value=text, source=Source.DYNAMIC_DEFAULT_BROKER_CONFIG)
        for name, text in overrides.items()
    }
    known = [
        _entry(definition, (given[name],), not definition.dynamic)
        for name, definition in BROKER_KEYS.items()
        if name in given
    ]
    return known + describe_unknown({Source.DYNAMIC_DEFAULT_BROKER_CONFIG: overrides})


def describe_unknown(layers: Mapping[Source, Mapping[str, str]]) -> list[ConfigEntry]:
    """Settings that administrators have stored though no broker knows them. `layers`: the strongest first."""
    found: dict[str, list[Source]] = {}
    for source, overrides in layers.items():
        for name in filter(is_unknown, overrides):
            found.setdefault(name, []).append(source)
    return [
        _entry(
            altered_broker_definition(name),
            tuple(Synonym(name=name, value=None, source=source) for source in sources),
            read_only=False,
        )
        for name, sources in sorted(found.items())
    ]


def describe_group(broker: BrokerConfig, overrides: Mapping[str, str]) -> list[ConfigEntry]:
    return [_group_entry(broker, overrides, key) for key in GROUP_RESOURCE_KEYS.values()]


def _group_entry(broker: BrokerConfig, overrides: Mapping[str, str], key: GroupKey) -> ConfigEntry:
    name = key.definition.name
    synonyms = []
    if name in overrides:
        synonyms.append(Synonym(name=name, value=overrides[name], source=Source.GROUP_CONFIG))
    if key.fallback is not None:
        synonyms += _broker_synonyms(broker, BROKER_KEYS[key.fallback])
    else:
        default = format_value(key.definition.default)
        synonyms.append(Synonym(name=name, value=default, source=Source.DEFAULT_CONFIG))
    return _entry(key.definition, tuple(synonyms), read_only=False)


def _topic_entry(broker: BrokerConfig, overrides: Mapping[str, str], key: TopicKey) -> ConfigEntry:
    name = key.definition.name
    synonyms = []
    given = key.given(overrides)
    if given is not None:
        synonyms.append(Synonym(name=given[0], value=given[1], source=Source.DYNAMIC_TOPIC_CONFIG))
    fallbacks = [
        (synonym, factor)
        for fallback, factor in key.fallbacks
        for synonym in _broker_synonyms(broker, BROKER_KEYS[fallback])
        if synonym.value is not None
    ]
    if not fallbacks:
        default = format_value(key.definition.default)
        synonyms.append(Synonym(name=name, value=default, source=Source.DEFAULT_CONFIG))
    entry = _entry(key.definition, (*synonyms, *(synonym for synonym, _ in fallbacks)), read_only=False)
    if synonyms:
        return entry
    first, factor = fallbacks[0]
    return replace(entry, value=_in_topic_unit(key, first, factor))


def _in_topic_unit(key: TopicKey, synonym: Synonym, factor: int) -> str | None:
    assert synonym.value is not None
    return format_value(key.from_broker(BROKER_KEYS[synonym.name].parse(synonym.value), factor))


def _broker_synonyms(broker: BrokerConfig, definition: Definition) -> tuple[Synonym, ...]:
    name = definition.name
    secret = definition.type is ConfigType.PASSWORD
    given = [
        Synonym(name=name, value=None if secret else text, source=source)
        for source, text in broker.given(name)
    ]
    default = Synonym(name=name, value=format_value(definition.default), source=Source.DEFAULT_CONFIG)
    return (*given, default)


def _entry(definition: Definition, synonyms: tuple[Synonym, ...], read_only: bool) -> ConfigEntry:
    return ConfigEntry(
        name=definition.name,
        value=synonyms[0].value,
        source=synonyms[0].source,
        read_only=read_only,
        type=definition.type,
        documentation=definition.documentation,
        synonyms=tuple(synonym for synonym in synonyms if synonym.value is not None),
    )
