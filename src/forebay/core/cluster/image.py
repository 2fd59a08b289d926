"""The cluster as one immutable value, and the changes that lead from one to the next.

Truth lives in the coordination store; an image is what the store said at one revision. Every broker applies
the same changes in the same order and so arrives at the same image. Nothing here is ever modified in place,
so an image may be kept and read at any time.

A topic's record holds its assignment, and that alone says the initial state of each partition (the first
replica leads, all replicas are in sync, epoch 0). A partition's own state is stored only from its first
change on, so a topic of ten thousand partitions appears, whole, by writing one key. Until then its
partition epoch is 0, the revision of a key that is not there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from forebay.core.acls.bindings import AclBinding
from forebay.core.cluster.acl_image import AclDeleted, AclPut, AclsDraft
from forebay.core.cluster.quota_image import QuotaDeleted, QuotaImage, QuotaPut, QuotasDraft
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.topic_folds import Folding, Stop
from forebay.core.cluster.user_image import UserDeleted, UserImage, UserPut, UsersDraft
from forebay.core.cluster.view_image import ViewDeleted, ViewImage, ViewPut, ViewsDraft

NO_LEADER = -1
NO_CONTROLLER = -1
ALL_BROKERS = "default"
"""The name that settings for every broker are stored under."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    index: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    """Empty only when no member can be trusted to have everything. Then an eligible replica may lead; without
    one, only an unclean election gives a leader."""
    replicas: tuple[int, ...]
    """While the partition moves, those that come and those that go as well."""
    partition_epoch: int = 0
    """The mod revision of the partition's key. A change of the state keeps it: that is what the store
    compares, so a state that was made from an old one is never written over a newer one."""
    adding: tuple[int, ...] = ()
    """Replicas that a reassignment brings; it ends when they are in sync."""
    removing: tuple[int, ...] = ()
    """Replicas that leave when the reassignment ends."""
    eligible: tuple[int, ...] = ()
    """Replicas that left the in-sync set when it fell below min.insync.replicas: they have all that is
    committed, and may lead when no in-sync member can (see `isr_changes.py`)."""
    synced: bool = False
    """The only in-sync replica has all that is committed on its disk: a loss of power takes nothing of it."""

    @property
    def original(self) -> tuple[int, ...]:
        """The replicas as they were before a reassignment, if there is one."""
        if not self.adding:
            return self.replicas
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas once a reassignment, if there is one, has ended."""
        if not self.removing:
            return self.replicas
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @staticmethod
    def initial(index: int, replicas: tuple[int, ...]) -> PartitionState:
        return PartitionState(
            index=index, leader=replicas[0], leader_epoch=0, isr=replicas, replicas=replicas
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """What is stored of a topic."""

    name: str
    topic_id: bytes
    assignment: tuple[tuple[int, ...], ...]
    """The replicas of each partition, as assigned when the partition was made."""
    folding: Folding | None = None
    """If partitions were folded: which, and into which others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImage:
    name: str
    topic_id: bytes
    partitions: tuple[PartitionState, ...]
    record: TopicRecord
    revision: int
    """The mod revision of the topic's key."""

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].target)

    @property
    def closed_from(self) -> int:
        """The first partition that is closed, because it is folded; how many there are if none is."""
        count, folding = len(self.partitions), self.record.folding
        return count if folding is None else folding.closed_from(count)

    def folded_into(self, index: int) -> Stop | None:
        """Which partition takes the messages for one that is closed, or was taken away; None for others."""
        return next((stop for stop in self.stops(index) if stop.generation is not None), None)

    def stops(self, index: int) -> tuple[Stop, ...]:
        """The partitions that may hold messages which clients have sent for this one; empty if unknown."""
        folding = self.record.folding
        every = (Stop(index, None),) if folding is None else folding.stops(index)
        return tuple(stop for stop in every if 0 <= stop.partition < len(self.partitions))

    def path(self, index: int) -> tuple[int, ...]:
        """The same, only their numbers."""
        return tuple(stop.partition for stop in self.stops(index))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigImage:
    overrides: Mapping[str, str]
    revision: int


_NO_CONFIG = ConfigImage(overrides={}, revision=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPut:
    record: TopicRecord
    revision: int = 0
    """Where the change was read from; 0 while it is only planned. The same in all changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeleted:
    name: str
    topic_id: bytes | None = None
    """Known where the deletion is planned, not from the watch: a deleted key has no value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPut:
    topic_id: bytes
    state: PartitionState


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDeleted:
    """What is stored of a partition goes. The topic's record, in the same transaction, has it no more."""

    topic_id: bytes
    state: PartitionState
    """As it was: if it has changed since, nothing is written."""


class ConfigOwner(Enum):
    """What can have settings of its own."""

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


Change = (
    TopicPut
    | TopicDeleted
    | PartitionPut
    | PartitionDeleted
    | ConfigPut
    | BrokerPut
    | BrokerDeleted
    | ControllerPut
    | ViewPut
    | ViewDeleted
    | UserPut
    | UserDeleted
    | AclPut
    | AclDeleted
    | QuotaPut
    | QuotaDeleted
)


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
    """View id to name, of both."""
    users: Mapping[str, UserImage] = field(default_factory=dict)
    """Those who may log in, by name."""
    acls: Mapping[str, AclBinding] = field(default_factory=dict)
    """By their ids (`core/acls/text.py`)."""
    quotas: Mapping[str, QuotaImage] = field(default_factory=dict)
    """By their ids (`core/quotas/text.py`)."""
    controller: int = NO_CONTROLLER

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, index: int) -> PartitionState | None:
        image = self.topics.get(topic)
        if image is None or not 0 <= index < len(image.partitions):
            return None
        return image.partitions[index]

    def path(self, topic: str, index: int) -> tuple[int, ...]:
        """The partitions of a topic that may hold messages sent for one of them; empty if there are none."""
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
        self._views = ViewsDraft(image.views, image.fills, image.view_names)
        self._users = UsersDraft(image.users)
        self._brokers: dict[int, BrokerRegistration] | None = None
        self._topics: dict[str, TopicImage] | None = None
        self._names: dict[bytes, str] | None = None
        self._configs: dict[ConfigOwner, dict[str, ConfigImage]] = {}
        self._acls = AclsDraft(image.acls)
        self._quotas = QuotasDraft(image.quotas)
        self._partitions: dict[str, list[PartitionState]] = {}

    def apply(self, change: Change) -> None:
        match change:
            case PartitionPut():
                self._put_partition(change)
            case TopicPut():
                self._put_topic(change)
            case TopicDeleted(name=name):
                self._delete_topic(name)
            case PartitionDeleted():
                pass  # the record of its topic says that it is gone
            case ConfigPut():
                self._put_config(change)
            case BrokerPut(registration=registration):
                self._broker_map()[registration.id] = registration
            case BrokerDeleted(id=broker_id):
                self._broker_map().pop(broker_id, None)
            case ControllerPut(id=broker_id):
                self._controller = broker_id
            case ViewPut() | ViewDeleted():
                self._views.apply(change)
            case UserPut() | UserDeleted():
                self._users.apply(change)
            case AclPut() | AclDeleted():
                self._acls.apply(change)
            case QuotaPut() | QuotaDeleted():
                self._quotas.apply(change)

    def finish(self, revision: int) -> ClusterImage:
        for name, states in self._partitions.items():
            topics = self._topic_map()
            topics[name] = replace(topics[name], partitions=tuple(states))
        image = self._image
        return ClusterImage(
            cluster_id=image.cluster_id,
            revision=revision,
            brokers=image.brokers if self._brokers is None else self._brokers,
            topics=image.topics if self._topics is None else self._topics,
            topic_names=image.topic_names if self._names is None else self._names,
            topic_configs=self._configs.get(ConfigOwner.TOPIC, image.topic_configs),
            broker_configs=self._configs.get(ConfigOwner.BROKER, image.broker_configs),
            group_configs=self._configs.get(ConfigOwner.GROUP, image.group_configs),
            views=self._views.views,
            fills=self._views.fills,
            view_names=self._views.names,
            users=self._users.users,
            acls=self._acls.acls,
            quotas=self._quotas.quotas,
            controller=self._controller,
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
            # What is left of a deleted topic. It says nothing about the cluster any more.
            return
        states = self._states(self._topic_map()[name])
        if change.state.index < len(states):
            states[change.state.index] = change.state

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
            PartitionState.initial(index, record.assignment[index])
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

    def _delete_topic(self, name: str) -> None:
        self._partitions.pop(name, None)
        topic = self._topic_map().pop(name, None)
        if topic is not None:
            self._name_map().pop(topic.topic_id, None)

    def _put_config(self, change: ConfigPut) -> None:
        owner = change.owner
        if owner not in self._configs:
            self._configs[owner] = dict(self._image.configs(owner))
        if change.overrides:
            config = ConfigImage(overrides=change.overrides, revision=change.revision)
            self._configs[owner][change.name] = config
        else:
            self._configs[owner].pop(change.name, None)
