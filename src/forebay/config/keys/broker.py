"""Every setting of a broker, with Kafka's name and meaning; `ignored.py` has those without effect.

Defaults are Kafka's except where its own are unsafe or useless for a single process: retention is two
weeks, the listener is loopback only, and replication factor and minimum in-sync replicas follow the
size of the cluster instead of being 1.
"""

from __future__ import annotations

from forebay.config.declared_settings import definitions_of
from forebay.config.keys.cleaner import COMPACTION_KEYS, CleanerConfig
from forebay.config.keys.cluster.controller import DRAINED_KEY, ControllerConfig
from forebay.config.keys.cluster.membership import CLUSTER_KEYS
from forebay.config.keys.cluster.replication import ReplicationConfig
from forebay.config.keys.cluster.workers import WorkersConfig
from forebay.config.keys.connections import SocketConfig
from forebay.config.keys.coordinators.group import GroupsConfig
from forebay.config.keys.coordinators.share_coordinator import ShareCoordinatorConfig
from forebay.config.keys.coordinators.transaction import TransactionsConfig
from forebay.config.keys.fetch import FetchConfig
from forebay.config.keys.ignored import IGNORED_BROKER_KEYS
from forebay.config.keys.node import NODE_KEYS
from forebay.config.keys.quota import QuotaConfig
from forebay.config.keys.security.authorization import AuthorizationConfig
from forebay.config.keys.security.delegation_token import DelegationTokenConfig
from forebay.config.keys.security.oauth import OAuthConfig
from forebay.config.keys.security.sasl import SaslConfig
from forebay.config.keys.security.tls import TlsConfig
from forebay.config.keys.storage import StorageConfig
from forebay.config.keys.tiers import TierConfig
from forebay.config.keys.topic_defaults import TOPIC_DEFAULT_KEYS, TopicDefaults
from forebay.config.keys.tracing import TracingConfig
from forebay.config.values import (
    Definition,
)

BROKER_KEYS: dict[str, Definition] = {
    definition.name: definition
    for definition in (
        *NODE_KEYS,
        *definitions_of(TlsConfig),
        *CLUSTER_KEYS,
        *definitions_of(WorkersConfig),
        *definitions_of(SocketConfig),
        *definitions_of(SaslConfig),
        *definitions_of(OAuthConfig),
        *definitions_of(DelegationTokenConfig),
        *definitions_of(FetchConfig),
        *definitions_of(TopicDefaults),
        *TOPIC_DEFAULT_KEYS,
        *definitions_of(StorageConfig),
        *definitions_of(TierConfig),
        *definitions_of(CleanerConfig),
        *definitions_of(TracingConfig),
        *COMPACTION_KEYS,
        *definitions_of(GroupsConfig),
        *definitions_of(TransactionsConfig),
        *definitions_of(ShareCoordinatorConfig),
        *definitions_of(ReplicationConfig),
        DRAINED_KEY,
        *definitions_of(ControllerConfig),
        *definitions_of(AuthorizationConfig),
        *definitions_of(QuotaConfig),
        *IGNORED_BROKER_KEYS,
    )
}

ALIASES = {
    "broker.id": "node.id",
    "log.dir": "log.dirs",
    "delegation.token.master.key": "delegation.token.secret.key",
}
"""Other names that Kafka's users write for the same key."""
