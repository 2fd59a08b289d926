"""A broker's settings: layers of text resolved once into typed, immutable groups.

A change at run time makes a new BrokerConfig (`with_dynamic`), so every holder of one sees a consistent set,
and comparing two objects shows if anything has changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from forebay.config.declared_settings import read_group
from forebay.config.keys.broker import ALIASES, BROKER_KEYS
from forebay.config.keys.cleaner import CleanerConfig
from forebay.config.keys.cluster.controller import ControllerConfig
from forebay.config.keys.cluster.membership import ClusterConfig, cluster_config
from forebay.config.keys.cluster.replication import ReplicationConfig, replication_config
from forebay.config.keys.cluster.workers import WorkersConfig
from forebay.config.keys.connections import SocketConfig
from forebay.config.keys.coordinators.group import GroupsConfig
from forebay.config.keys.coordinators.share_coordinator import ShareCoordinatorConfig
from forebay.config.keys.coordinators.transaction import TransactionsConfig
from forebay.config.keys.fetch import FetchConfig
from forebay.config.keys.quota import QuotaConfig
from forebay.config.keys.security.authorization import AuthorizationConfig
from forebay.config.keys.security.delegation_token import DelegationTokenConfig
from forebay.config.keys.security.oauth import MECHANISM as OAUTHBEARER
from forebay.config.keys.security.oauth import OAuthConfig, check_oauth
from forebay.config.keys.security.sasl import SaslConfig
from forebay.config.keys.security.tls import TlsConfig, check_tls
from forebay.config.keys.storage import StorageConfig
from forebay.config.keys.tiers import TierConfig
from forebay.config.keys.topic_defaults import TopicDefaults
from forebay.config.keys.tracing import TracingConfig
from forebay.config.listeners import (
    Listener,
    ListenersConfig,
    SecurityProtocol,
    listeners_config,
    parse_address,
)
from forebay.config.lookup import broker_definition, is_dynamic_of_listener
from forebay.config.per_listener import PREFIX, ListenerValues, check_listeners_exist, listener_of
from forebay.config.values import Source, Value
from forebay.errors import ConfigError
from forebay.lazy import dataclass

Overrides = Mapping[str, str]

_LAYERS = (
    Source.DYNAMIC_BROKER_CONFIG,
    Source.DYNAMIC_DEFAULT_BROKER_CONFIG,
    Source.STATIC_BROKER_CONFIG,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    node_id: int | None
    """None if none was given: then the cluster assigns one to the broker."""
    rack: str | None
    data_dir: Path
    listeners: ListenersConfig
    log_format: str
    metrics: tuple[str, int] | None
    """The address at which metrics are served."""
    metrics_series_max: int
    metrics_lag_ages_max: int
    events_kept_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    layers: Mapping[Source, Overrides] = field(repr=False)
    """The text given by each source, by canonical key."""
    values: Mapping[str, Value] = field(repr=False)
    """Every broker key with its effective value."""
    node: NodeConfig
    tls: Mapping[str, TlsConfig]
    """The TLS settings of each listener that speaks TLS, by name."""
    cluster: ClusterConfig
    workers: WorkersConfig
    socket: SocketConfig
    sasl: SaslConfig
    oauth: OAuthConfig
    tokens: DelegationTokenConfig
    fetch: FetchConfig
    topics: TopicDefaults
    storage: StorageConfig
    tiers: TierConfig
    cleaner: CleanerConfig
    tracing: TracingConfig
    controller: ControllerConfig
    groups: GroupsConfig
    transactions: TransactionsConfig
    share_coordinator: ShareCoordinatorConfig
    replication: ReplicationConfig
    authorization: AuthorizationConfig
    quotas: QuotaConfig

    def get(self, name: str) -> Value:
        return self.values[broker_definition(name).name]

    def sasl_of(self, listener: str) -> SaslConfig:
        """The login settings of one listener: its own before the general ones."""
        return read_group(SaslConfig, ListenerValues(listener, self.values))

    def given(self, name: str) -> list[tuple[Source, str]]:
        """Every layer that sets this key, the strongest first."""
        return [(source, self.layers[source][name]) for source in _LAYERS if name in self.layers[source]]

    @property
    def without_effect(self) -> list[str]:
        """Kafka's settings that were given at the start and have no effect here."""
        return sorted(
            name for name in self.layers[Source.STATIC_BROKER_CONFIG] if broker_definition(name).ignored
        )

    def with_node_id(self, node_id: int) -> BrokerConfig:
        """This config with the assigned node id, as if the broker had been started with it."""
        static = {**self.layers[Source.STATIC_BROKER_CONFIG], "node.id": str(node_id)}
        return build({**self.layers, Source.STATIC_BROKER_CONFIG: static})

    def with_dynamic(self, *, own: Overrides, default: Overrides) -> BrokerConfig:
        """This config with the dynamic settings of this broker, and of all brokers.

        Keys that this version does not take at run time are left out: another version stored them. So are
        those of listeners that this broker does not have (any more).
        """
        listeners = {listener.name.lower() for listener in self.node.listeners.all}
        return build(
            {
                Source.DYNAMIC_BROKER_CONFIG: _only_dynamic(own, listeners),
                Source.DYNAMIC_DEFAULT_BROKER_CONFIG: _only_dynamic(default, set()),
                Source.STATIC_BROKER_CONFIG: self.layers[Source.STATIC_BROKER_CONFIG],
            }
        )


def broker_config(static: Overrides | None = None) -> BrokerConfig:
    """A config of defaults and the given texts, such as {"log.dirs": "/var/lib/forebay"}."""
    return build({Source.STATIC_BROKER_CONFIG: canonical(static or {})})


def canonical(settings: Overrides) -> dict[str, str]:
    """The same settings by their main names; raises ConfigError for a key given under two names."""
    result: dict[str, str] = {}
    for name, text in settings.items():
        key = broker_definition(name).name
        if key in result:
            others = [alias for alias, target in ALIASES.items() if target == key]
            raise ConfigError(f"{key} is given twice, also as {', '.join(others)}")
        result[key] = text
    return result


def _only_dynamic(overrides: Overrides, listeners: set[str]) -> dict[str, str]:
    return {name: text for name, text in overrides.items() if _is_dynamic(name, listeners)}


def _is_dynamic(name: str, listeners: set[str]) -> bool:
    if name.startswith(PREFIX):
        return listener_of(name) in listeners and is_dynamic_of_listener(name)
    definition = BROKER_KEYS.get(name)
    return definition is not None and definition.dynamic


def build(layers: Mapping[Source, Overrides]) -> BrokerConfig:
    whole = {source: dict(layers.get(source, {})) for source in _LAYERS}
    values: dict[str, Any] = {name: definition.default for name, definition in BROKER_KEYS.items()}
    for source in reversed(_LAYERS):
        for name, text in whole[source].items():
            values[name] = broker_definition(name).parse(text)
    node = _node(values, assigned="node.id" in whole[Source.STATIC_BROKER_CONFIG])
    check_listeners_exist(values, (listener.name for listener in node.listeners.all))
    config = BrokerConfig(
        layers=whole,
        values=values,
        node=node,
        tls=_tls(values, node.listeners),
        cluster=cluster_config(values),
        workers=read_group(WorkersConfig, values),
        socket=read_group(SocketConfig, values),
        sasl=read_group(SaslConfig, values),
        oauth=read_group(OAuthConfig, values),
        tokens=read_group(DelegationTokenConfig, values),
        fetch=read_group(FetchConfig, values),
        topics=read_group(TopicDefaults, values),
        storage=read_group(StorageConfig, values),
        tiers=read_group(TierConfig, values),
        cleaner=read_group(CleanerConfig, values),
        tracing=read_group(TracingConfig, values),
        controller=read_group(ControllerConfig, values),
        groups=read_group(GroupsConfig, values),
        transactions=read_group(TransactionsConfig, values),
        share_coordinator=read_group(ShareCoordinatorConfig, values),
        replication=replication_config(values),
        authorization=read_group(AuthorizationConfig, values),
        quotas=read_group(QuotaConfig, values),
    )
    _check_logins(config)
    return config


def _check_logins(config: BrokerConfig) -> None:
    """Check that the settings of logins are consistent; raises ConfigError."""
    others, sasl = config.node.listeners.inter_broker, config.sasl
    for listener in config.node.listeners.all:
        _check_plain(config, listener)
        if listener.protocol.is_sasl and OAUTHBEARER in config.sasl_of(listener.name).mechanisms:
            check_oauth(config.oauth, allow_insecure=bool(config.values["forebay.allow.insecure"]))
    if not others.protocol.is_sasl:
        return
    if not sasl.broker_user or not sasl.broker_password:
        raise ConfigError(
            f"brokers talk to each other by {others.name}, where they have to log in: "
            "give forebay.sasl.username and forebay.sasl.password"
        )
    if sasl.broker_mechanism not in config.sasl_of(others.name).mechanisms:
        raise ConfigError(
            f"sasl.mechanism.inter.broker.protocol={sasl.broker_mechanism} is not one of the "
            f"sasl.enabled.mechanisms of {others.name}"
        )


def _check_plain(config: BrokerConfig, listener: Listener) -> None:
    exposed = listener.protocol is SecurityProtocol.SASL_PLAINTEXT and not listener.is_loopback
    readable = {"PLAIN", OAUTHBEARER} & set(config.sasl_of(listener.name).mechanisms)
    if exposed and readable and not config.values["forebay.allow.insecure"]:
        raise ConfigError(
            f"clients of {listener} would send passwords or tokens without encryption: leave "
            f"{' and '.join(sorted(readable))} out of its sasl.enabled.mechanisms, use TLS, or set "
            "forebay.allow.insecure=true"
        )


def _tls(values: Mapping[str, Any], listeners: ListenersConfig) -> dict[str, TlsConfig]:
    names = [listener.name for listener in listeners.all if listener.protocol.is_tls]
    found = {name: read_group(TlsConfig, ListenerValues(name, values)) for name in names}
    for name, config in found.items():
        check_tls(name, config)
    return found


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
        metrics_series_max=values["forebay.metrics.series.max"],
        metrics_lag_ages_max=values["forebay.metrics.lag.ages.max"],
        events_kept_max=values["forebay.events.kept.max"],
    )
