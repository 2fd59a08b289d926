"""Settings with Kafka's names: definitions, sources, and typed values."""

from __future__ import annotations

from forebay.config.broker import BrokerConfig, broker_config
from forebay.config.describe import (
    ConfigEntry,
    describe_all_brokers,
    describe_broker,
    describe_group,
    describe_topic,
    describe_unknown,
)
from forebay.config.group_settings import (
    DEAD_LETTER_TOPIC,
    GroupSettings,
    ShareGroupSettings,
    check_group_overrides,
)
from forebay.config.keys.cluster.controller import DRAINED, ControllerConfig
from forebay.config.keys.cluster.membership import ClusterConfig
from forebay.config.keys.cluster.replication import ReplicationConfig
from forebay.config.keys.connections import SocketConfig
from forebay.config.keys.coordinators.group import GroupsConfig
from forebay.config.keys.coordinators.share import ShareGroupsConfig
from forebay.config.keys.coordinators.share_coordinator import ShareCoordinatorConfig
from forebay.config.keys.coordinators.transaction import TransactionsConfig
from forebay.config.keys.quota import QuotaConfig
from forebay.config.keys.security.authorization import AuthorizationConfig
from forebay.config.keys.security.delegation_token import DelegationTokenConfig
from forebay.config.keys.security.oauth import OAuthConfig
from forebay.config.keys.security.sasl import SaslConfig
from forebay.config.keys.security.tls import TlsConfig
from forebay.config.keys.tiers import TierConfig
from forebay.config.keys.tracing import TracingConfig
from forebay.config.listeners import Listener
from forebay.config.lookup import (
    altered_broker_definition,
    broker_definition,
    group_definition,
    is_unknown,
    topic_key,
    validate_broker_override,
    validate_topic_override,
)
from forebay.config.offset_reset import OffsetReset
from forebay.config.per_listener import PREFIX as LISTENER_PREFIX
from forebay.config.per_listener import listener_of
from forebay.config.sources import load
from forebay.config.topic import TopicConfig, is_throttled
from forebay.config.values import ConfigType, Definition, Secret, Source, format_value

__all__ = [
    "altered_broker_definition",
    "describe_unknown",
    "is_unknown",
    "load",
    "broker_config",
    "ClusterConfig",
    "ReplicationConfig",
    "BrokerConfig",
    "SocketConfig",
    "SaslConfig",
    "LISTENER_PREFIX",
    "listener_of",
    "OAuthConfig",
    "TracingConfig",
    "DelegationTokenConfig",
    "ControllerConfig",
    "DRAINED",
    "DEAD_LETTER_TOPIC",
    "AuthorizationConfig",
    "QuotaConfig",
    "GroupsConfig",
    "ShareGroupsConfig",
    "ShareCoordinatorConfig",
    "TransactionsConfig",
    "TierConfig",
    "TlsConfig",
    "Listener",
    "TopicConfig",
    "is_throttled",
    "broker_definition",
    "group_definition",
    "GroupSettings",
    "ShareGroupSettings",
    "OffsetReset",
    "check_group_overrides",
    "topic_key",
    "validate_topic_override",
    "validate_broker_override",
    "describe_topic",
    "describe_broker",
    "describe_all_brokers",
    "describe_group",
    "ConfigEntry",
    "ConfigType",
    "Definition",
    "Secret",
    "Source",
    "format_value",
]
