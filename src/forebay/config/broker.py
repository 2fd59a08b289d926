"""A broker's settings: layers of text resolved once into typed, immutable groups.

A change at run time makes a new BrokerConfig (`with_dynamic`), so whoever holds one sees a consistent
set, and comparing two objects tells whether anything moved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay.config.keys.broker import (
    ALIASES,
    BROKER_KEYS,
    FetchConfig,
    SocketConfig,
    StorageConfig,
    TopicDefaults,
)
from forebay.config.keys.cleaner import CleanerConfig
from forebay.config.keys.cluster import ClusterConfig, cluster_config
from forebay.config.keys.controller import ControllerConfig
from forebay.config.keys.group import GroupsConfig
from forebay.config.keys.replication import ReplicationConfig, replication_config
from forebay.config.keys.share_coordinator import ShareCoordinatorConfig
from forebay.config.keys.transaction import TransactionsConfig
from forebay.config.listeners import ListenersConfig, listeners_config, parse_address
from forebay.config.lookup import broker_definition
from forebay.config.settings_group import read_group
from forebay.config.values import Source, Value
from forebay.errors import ConfigError

Overrides = Mapping[str, str]

_LAYERS = (
    Source.DYNAMIC_BROKER_CONFIG,
    Source.DYNAMIC_DEFAULT_BROKER_CONFIG,
    Source.STATIC_BROKER_CONFIG,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    node_id: int | None
    """None in a cluster where none was given: then the broker is assigned one."""
    rack: str | None
    data_dir: Path
    listeners: ListenersConfig
    log_format: str
    metrics: tuple[str, int] | None
    """Where metrics are served."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    layers: Mapping[Source, Overrides]
    """The text given by each source, by canonical key."""
    values: Mapping[str, Value]
    """Every broker key with its effective value."""
    node: NodeConfig
    cluster: ClusterConfig
    socket: SocketConfig
    fetch: FetchConfig
    topics: TopicDefaults
    storage: StorageConfig
    cleaner: CleanerConfig
    controller: ControllerConfig
    groups: GroupsConfig
    transactions: TransactionsConfig
    share_coordinator: ShareCoordinatorConfig
    replication: ReplicationConfig

    def get(self, name: str) -> Value:
        return self.values[broker_definition(name).name]

    def given(self, name: str) -> list[tuple[Source, str]]:
        """Every layer that sets this key, the strongest first."""
        return [(source, self.layers[source][name]) for source in _LAYERS if name in self.layers[source]]

    @property
    def without_effect(self) -> list[str]:
        """Settings of Kafka that the broker was started with though they mean nothing here."""
        return sorted(name for name in self.layers[Source.STATIC_BROKER_CONFIG] if BROKER_KEYS[name].ignored)

    def with_node_id(self, node_id: int) -> BrokerConfig:
        """This config with the number that the broker was assigned, as if it had been started with it."""
        static = {**self.layers[Source.STATIC_BROKER_CONFIG], "node.id": str(node_id)}
        return build({**self.layers, Source.STATIC_BROKER_CONFIG: static})

    def with_dynamic(self, *, own: Overrides, default: Overrides) -> BrokerConfig:
        """This config with what admin clients have set for this broker, and for all brokers.

        Keys that this version does not take at run time are left out: another version stored them.
        """
        return build(
            {
                Source.DYNAMIC_BROKER_CONFIG: _only_dynamic(own),
                Source.DYNAMIC_DEFAULT_BROKER_CONFIG: _only_dynamic(default),
                Source.STATIC_BROKER_CONFIG: self.layers[Source.STATIC_BROKER_CONFIG],
            }
        )


def broker_config(static: Overrides | None = None) -> BrokerConfig:
    """A config of defaults and the given texts, such as {"log.dirs": "/var/lib/forebay"}."""
    return build({Source.STATIC_BROKER_CONFIG: canonical(static or {})})


def canonical(settings: Overrides) -> dict[str, str]:
    """The same settings by their main names; a key given under two names is an error."""
    result: dict[str, str] = {}
    for name, text in settings.items():
        key = broker_definition(name).name
        if key in result:
            others = [alias for alias, target in ALIASES.items() if target == key]
            raise ConfigError(f"{key} is given twice, also as {', '.join(others)}")
        result[key] = text
    return result


def _only_dynamic(overrides: Overrides) -> dict[str, str]:
    known = ((name, text, BROKER_KEYS.get(name)) for name, text in overrides.items())
    return {name: text for name, text, definition in known if definition is not None and definition.dynamic}


def build(layers: Mapping[Source, Overrides]) -> BrokerConfig:
    whole = {source: dict(layers.get(source, {})) for source in _LAYERS}
    values: dict[str, Any] = {name: definition.default for name, definition in BROKER_KEYS.items()}
    for source in reversed(_LAYERS):
        for name, text in whole[source].items():
            values[name] = broker_definition(name).parse(text)
    return BrokerConfig(
        layers=whole,
        values=values,
        node=_node(values, assigned="node.id" in whole[Source.STATIC_BROKER_CONFIG]),
        cluster=cluster_config(values),
        socket=read_group(SocketConfig, values),
        fetch=read_group(FetchConfig, values),
        topics=read_group(TopicDefaults, values),
        storage=read_group(StorageConfig, values),
        cleaner=read_group(CleanerConfig, values),
        controller=read_group(ControllerConfig, values),
        groups=read_group(GroupsConfig, values),
        transactions=read_group(TransactionsConfig, values),
        share_coordinator=read_group(ShareCoordinatorConfig, values),
        replication=replication_config(values),
    )


def _node(values: Mapping[str, Any], *, assigned: bool) -> NodeConfig:
    return NodeConfig(
        node_id=values["node.id"] if assigned or not values["forebay.cluster"] else None,
        rack=values["broker.rack"] or None,
        data_dir=Path(values["log.dirs"][0]),
        listeners=listeners_config(values),
        log_format=values["forebay.log.format"],
        metrics=parse_address(values["forebay.metrics.listener"])
        if values["forebay.metrics.listener"]
        else None,
    )
