"""The cluster as one immutable value, and the changes that lead from one to the next.

Truth lives in the coordination store; an image is what the store said at one revision. Every broker applies
the same changes in the same order and so arrives at the same image. Nothing here is ever modified in place,
so an image may be kept and read at any time.

A topic's record holds its assignment, which alone determines the initial state of each partition (the first
replica leads, all replicas are in sync, epoch 0). A partition's own state is stored only from its first
change on, so a single write creates a topic of ten thousand partitions. Until then its partition epoch is 0,
the revision of a key that is not there.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from forebay.core.acls.bindings import AclBinding
from forebay.core.cluster.image_changes import (
    BrokerDeleted,
    BrokerPut,
    Change,
    ConfigOwner,
    ConfigPut,
    ControllerPut,
    EvidencePut,
    PartitionDeleted,
    PartitionDoubted,
    PartitionPut,
    ProducerIdsPut,
    TopicDeleted,
    TopicPut,
)
from forebay.core.cluster.images.acl_image import AclDeleted, AclPut, AclsDraft
from forebay.core.cluster.images.deleted_topics import (
    DeletedTopic,
    TombstoneDeleted,
    TombstonePut,
    TombstonesDraft,
)
from forebay.core.cluster.images.quota_image import QuotaDeleted, QuotaImage, QuotaPut, QuotasDraft
from forebay.core.cluster.images.token_image import TokenDeleted, TokenPut, TokensDraft
from forebay.core.cluster.images.topic_image import TopicImage
from forebay.core.cluster.images.unreadable import NONE_UNREADABLE, Unreadable, UnreadableKeys, UnreadablePut
from forebay.core.cluster.images.user_image import UserDeleted, UserImage, UserPut, UsersDraft
from forebay.core.cluster.images.view_image import ViewDeleted, ViewImage, ViewPut, ViewsDraft
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.restore_image import (
    ClaimKey,
    ClaimsDeleted,
    ClaimsDraft,
    ClaimsPart,
    ClaimsPut,
    NodePut,
    Restore,
    RestorePut,
)
from forebay.lazy import dataclass

if TYPE_CHECKING:
    from forebay.core.cluster.images.delegation_token import DelegationToken

NO_CONTROLLER = -1
ALL_BROKERS = "default"
"""The name that settings for every broker are stored under."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigImage:
    overrides: Mapping[str, str]
    revision: int


_NO_CONFIG = ConfigImage(overrides={}, revision=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    cluster_id: str
    revision: int = 0
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[bytes, str] = field(default_factory=dict)
    """Topic id to name."""
    topic_configs: Mapping[str, ConfigImage] = field(default_factory=dict)
    broker_configs: Mapping[str, ConfigImage] = field(default_factory=dict)
    group_configs: Mapping[str, ConfigImage] = field(default_factory=dict)
    views: Mapping[str, ViewImage] = field(default_factory=dict)
    fills: Mapping[str, ViewImage] = field(default_factory=dict)
    """Materialized views: topics that brokers fill, by name."""
    view_names: Mapping[bytes, str] = field(default_factory=dict)
    """View id to name, for both kinds of views."""
    users: Mapping[str, UserImage] = field(default_factory=dict)
    """Users that may log in, by name."""
    tokens: Mapping[str, DelegationToken] = field(default_factory=dict)
    """Delegation tokens, by id; also those that have expired, until they are removed."""
    acls: Mapping[str, AclBinding] = field(default_factory=dict)
    """By their ids (`core/acls/text.py`)."""
    quotas: Mapping[str, QuotaImage] = field(default_factory=dict)
    """By their ids (`core/quotas/text.py`)."""
    deleted: Mapping[bytes, DeletedTopic] = field(default_factory=dict)
    """Topics that were deleted, by id, until their tombstones are removed; views whose deletion was seen."""
    controller: int = NO_CONTROLLER
    producer_ids_revision: int = 0
    """The revision of the last change of the producer id counter; 0 if there is none."""
    evidence: Mapping[int, int] = field(default_factory=dict)
    """The revision at which each broker has last written what it recognises this store by."""
    nodes: frozenset[int] = frozenset()
    """The ids of all brokers that have ever joined."""
    restore: Restore = field(default_factory=Restore)
    """The last restore of the store."""
    claims: Mapping[ClaimKey, ClaimsPart] = field(default_factory=dict)
    """Reports of the logs that brokers hold of unsettled partitions, by broker and index of the key."""
    unreadable: UnreadableKeys = NONE_UNREADABLE
    unsettled: frozenset[str] = frozenset()
    """Topics with unsettled partitions."""

    def may_have(self, topic_id: bytes) -> bool:
        """False if no topic can have this id. True for every id while a topic's record cannot be read."""
        return topic_id in self.topic_names or self.unreadable.has_topics

    @property
    def registered(self) -> Container[int]:
        """The brokers that must not be counted as dead, including those whose registration cannot be read."""
        doubted = self.unreadable.brokers
        return {*self.brokers, *doubted} if doubted else self.brokers

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, index: int) -> PartitionState | None:
        image = self.topics.get(topic)
        if image is None or not 0 <= index < len(image.partitions):
            return None
        return image.partitions[index]

    def path(self, topic: str, index: int) -> tuple[int, ...]:
        """The partitions of a topic that may hold messages sent for this one; empty if there are none."""
        image = self.topics.get(topic)
        return () if image is None else image.path(index)

    def topic_config(self, name: str) -> ConfigImage:
        return self.topic_configs.get(name, _NO_CONFIG)

    def broker_config(self, name: str) -> ConfigImage:
        return self.broker_configs.get(name, _NO_CONFIG)

    def configs(self, owner: ConfigOwner) -> Mapping[str, ConfigImage]:
        match owner:
            case ConfigOwner.TOPIC:
                return self.topic_configs
            case ConfigOwner.BROKER:
                return self.broker_configs
            case ConfigOwner.GROUP:
                return self.group_configs

    def config(self, owner: ConfigOwner, name: str) -> ConfigImage:
        return self.configs(owner).get(name, _NO_CONFIG)

    def apply(self, changes: Iterable[Change], revision: int | None = None) -> ClusterImage:
        """The image after these changes. Parts that did not change stay the same objects."""
        draft = _Draft(self)
        for change in changes:
            draft.apply(change)
        return draft.finish(self.revision if revision is None else revision)


class _Draft:
    """An image in the making: a map is copied when it is first written to."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._controller = image.controller
        self._producer_ids_revision = image.producer_ids_revision
        self._evidence = image.evidence
        self._views = ViewsDraft(image.views, image.fills, image.view_names)
        self._users = UsersDraft(image.users)
        self._tokens = TokensDraft(image.tokens)
        self._brokers: dict[int, BrokerRegistration] | None = None
        self._topics: dict[str, TopicImage] | None = None
        self._names: dict[bytes, str] | None = None
        self._configs: dict[ConfigOwner, dict[str, ConfigImage]] = {}
        self._acls = AclsDraft(image.acls)
        self._quotas = QuotasDraft(image.quotas)
        self._tombstones = TombstonesDraft(image.deleted)
        self._nodes = image.nodes
        self._restore = image.restore
        self._claims = ClaimsDraft(image.claims)
        self._partitions: dict[str, list[PartitionState]] = {}
        self._unreadable: dict[str, Unreadable] | None = None
        self._became_unsettled: set[str] = set()
        """Topics with a partition that has become unsettled."""

    def apply(self, change: Change) -> None:
        match change:
            case PartitionPut():
                self._put_partition(change)
            case TopicPut():
                self._put_topic(change)
            case TopicDeleted(name=name):
                self._delete_topic(name, seen=True)
            case PartitionDoubted():
                self._doubt_partition(change)
            case UnreadablePut(value=value):
                if self._unreadable is None:
                    self._unreadable = dict(self._image.unreadable.by_key)
                self._unreadable[value.key] = value
            case PartitionDeleted():
                pass  # the record of its topic says that it was removed
            case ConfigPut():
                self._put_config(change)
            case BrokerPut(registration=registration):
                self._broker_map()[registration.id] = registration
            case BrokerDeleted(id=broker_id):
                self._broker_map().pop(broker_id, None)
            case ControllerPut(id=broker_id):
                self._controller = broker_id
            case ProducerIdsPut(revision=revision):
                self._producer_ids_revision = revision
            case EvidencePut(node=node, revision=revision):
                self._evidence = {**self._evidence, node: revision}
            case ViewPut():
                self._views.apply(change)
            case ViewDeleted(name=name):
                if (view := self._views.views.get(name)) is not None:
                    self._tombstones.note(view.view_id, name)
                self._views.apply(change)
            case UserPut() | UserDeleted():
                self._users.apply(change)
            case TokenPut() | TokenDeleted():
                self._tokens.apply(change)
            case AclPut() | AclDeleted():
                self._acls.apply(change)
            case QuotaPut() | QuotaDeleted():
                self._quotas.apply(change)
            case TombstonePut() | TombstoneDeleted():
                self._tombstones.apply(change)
            case NodePut(id=node):
                self._nodes |= {node}
            case RestorePut(restore=restore):
                self._put_restore(restore)
            case ClaimsPut() | ClaimsDeleted():
                self._claims.apply(change)

    def finish(self, revision: int) -> ClusterImage:
        image = self._image
        for name, states in self._partitions.items():
            touched = self._topic_map()
            touched[name] = replace(touched[name], partitions=tuple(states))
        topics = image.topics if self._topics is None else self._topics
        return ClusterImage(
            cluster_id=image.cluster_id,
            revision=revision,
            brokers=image.brokers if self._brokers is None else self._brokers,
            topics=topics,
            topic_names=image.topic_names if self._names is None else self._names,
            topic_configs=self._configs.get(ConfigOwner.TOPIC, image.topic_configs),
            broker_configs=self._configs.get(ConfigOwner.BROKER, image.broker_configs),
            group_configs=self._configs.get(ConfigOwner.GROUP, image.group_configs),
            views=self._views.views,
            fills=self._views.fills,
            view_names=self._views.names,
            users=self._users.users,
            tokens=self._tokens.tokens,
            acls=self._acls.acls,
            quotas=self._quotas.quotas,
            deleted=self._tombstones.deleted,
            controller=self._controller,
            producer_ids_revision=self._producer_ids_revision,
            evidence=self._evidence,
            nodes=self._nodes,
            restore=self._restore,
            claims=self._claims.claims,
            unreadable=image.unreadable if self._unreadable is None else UnreadableKeys(self._unreadable),
            unsettled=self._unsettled(topics),
        )

    def _unsettled(self, topics: Mapping[str, TopicImage]) -> frozenset[str]:
        before = self._image.unsettled
        if topics is self._image.topics or not (before or self._became_unsettled):
            return before
        return frozenset(
            name
            for name in before | self._became_unsettled
            if (topic := topics.get(name)) is not None and any(state.unsettled for state in topic.partitions)
        )

    def _broker_map(self) -> dict[int, BrokerRegistration]:
        if self._brokers is None:
            self._brokers = dict(self._image.brokers)
        return self._brokers

    def _topic_map(self) -> dict[str, TopicImage]:
        if self._topics is None:
            self._topics = dict(self._image.topics)
        return self._topics

    def _name_map(self) -> dict[bytes, str]:
        if self._names is None:
            self._names = dict(self._image.topic_names)
        return self._names

    def _states(self, topic: TopicImage) -> list[PartitionState]:
        # A list per touched topic, so that a thousand changes of one topic copy its partitions once.
        states = self._partitions.get(topic.name)
        if states is None:
            states = self._partitions[topic.name] = list(topic.partitions)
        return states

    def _put_partition(self, change: PartitionPut) -> None:
        name = (self._names if self._names is not None else self._image.topic_names).get(change.topic_id)
        if name is None:
            # The rest of a deleted topic. It says nothing about the cluster any more.
            return
        states = self._states(self._topic_map()[name])
        if change.state.index < len(states):
            states[change.state.index] = state = change.state.as_of(self._restore)
            if state.unsettled:
                self._became_unsettled.add(name)

    def _put_restore(self, restore: Restore) -> None:
        """Take over a restore: earlier decisions are no longer trusted."""
        self._restore = restore
        for topic in list(self._topic_map().values()):
            states = self._states(topic)
            states[:] = [state.as_of(restore) for state in states]
        self._became_unsettled.update(self._topic_map())

    def _doubt_partition(self, change: PartitionDoubted) -> None:
        name = (self._names if self._names is not None else self._image.topic_names).get(change.topic_id)
        if name is not None:
            topic = self._topic_map()[name]
            states = self._states(topic)
            if change.index < len(states):
                replicas = topic.record.assignment[change.index]
                states[change.index] = PartitionState.in_doubt(change.index, replicas=replicas)

    def _put_topic(self, change: TopicPut) -> None:
        record = change.record
        topics = self._topic_map()
        before = topics.get(record.name)
        kept: list[PartitionState] = []
        if before is not None and before.topic_id == record.topic_id:
            kept = self._states(before)[: len(record.assignment)]
        elif before is not None:
            self._delete_topic(record.name)
        self._partitions.pop(record.name, None)
        added = [
            record.initial_state(index).as_of(self._restore)
            for index in range(len(kept), len(record.assignment))
        ]
        topics[record.name] = TopicImage(
            name=record.name,
            topic_id=record.topic_id,
            partitions=(*kept, *added),
            record=record,
            revision=change.revision,
        )
        self._name_map()[record.topic_id] = record.name
        if any(state.unsettled for state in added):
            self._became_unsettled.add(record.name)

    def _delete_topic(self, name: str, *, seen: bool = False) -> None:
        self._partitions.pop(name, None)
        topic = self._topic_map().pop(name, None)
        if topic is not None:
            self._name_map().pop(topic.topic_id, None)
            if seen:
                self._tombstones.note(topic.topic_id, name)

    def _put_config(self, change: ConfigPut) -> None:
        owner = change.owner
        if owner not in self._configs:
            self._configs[owner] = dict(self._image.configs(owner))
        if change.overrides:
            config = ConfigImage(overrides=change.overrides, revision=change.revision)
            self._configs[owner][change.name] = config
        else:
            self._configs[owner].pop(change.name, None)
