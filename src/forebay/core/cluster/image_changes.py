"""The changes that lead from one image of the cluster to the next: planned here, or read from the store."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from forebay.core.cluster.images.acl_image import AclDeleted, AclPut
from forebay.core.cluster.images.deleted_topics import TombstoneDeleted, TombstonePut
from forebay.core.cluster.images.quota_image import QuotaDeleted, QuotaPut
from forebay.core.cluster.images.token_image import TokenDeleted, TokenPut
from forebay.core.cluster.images.topic_image import TopicRecord
from forebay.core.cluster.images.unreadable import UnreadablePut
from forebay.core.cluster.images.user_image import UserDeleted, UserPut
from forebay.core.cluster.images.view_image import ViewDeleted, ViewPut
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.restore_image import (
    ClaimsDeleted,
    ClaimsPut,
    NodePut,
    RestorePut,
)
from forebay.lazy import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPut:
    record: TopicRecord
    revision: int = 0
    """The revision at which the change was read; 0 while it is only planned. The same in all changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeleted:
    name: str
    topic_id: bytes | None = None
    """Known where the deletion is planned, not from the watch: a deleted key has no value."""
    deleted_ms: int = 0
    """Likewise: the wall time for the tombstone that is written with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPut:
    topic_id: bytes
    state: PartitionState


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDoubted:
    """The stored state of a partition cannot be read."""

    topic_id: bytes
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDeleted:
    """The stored state of a partition is deleted. The topic's record drops it in the same transaction."""

    topic_id: bytes
    state: PartitionState
    """The state before: if it has changed since, nothing is written."""


class ConfigOwner(Enum):
    """The kinds of resources that can have settings."""

    TOPIC = "topics"
    BROKER = "brokers"
    """Named by its id in digits; ALL_BROKERS names all of them."""
    GROUP = "groups"
    """Named by its id. The group need not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigPut:
    owner: ConfigOwner
    name: str
    overrides: Mapping[str, str]
    """Empty means that the owner has no settings of its own any more."""
    revision: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPut:
    registration: BrokerRegistration


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDeleted:
    id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerPut:
    id: int
    """The broker that was elected, or NO_CONTROLLER."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsPut:
    """A block of producer ids was taken, or the counter was set."""

    revision: int
    """0 if the counter was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidencePut:
    """A broker has written what it recognises this store by."""

    node: int
    revision: int


Change = (
    TopicPut
    | TopicDeleted
    | PartitionPut
    | PartitionDeleted
    | PartitionDoubted
    | UnreadablePut
    | ConfigPut
    | BrokerPut
    | BrokerDeleted
    | ControllerPut
    | ProducerIdsPut
    | EvidencePut
    | ViewPut
    | ViewDeleted
    | UserPut
    | UserDeleted
    | TokenPut
    | TokenDeleted
    | AclPut
    | AclDeleted
    | QuotaPut
    | QuotaDeleted
    | TombstonePut
    | TombstoneDeleted
    | NodePut
    | RestorePut
    | ClaimsPut
    | ClaimsDeleted
)
