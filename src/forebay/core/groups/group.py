"""The interface of every kind of group to its shard, and the context that all groups of a shard share.

Committed offsets belong to the shard and not to the group, so a group may change its kind and keep them; the
group only says which members may read and commit them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping
from typing import NamedTuple, Protocol

from forebay.config import GroupsConfig, GroupSettings
from forebay.core.deadline_heap import DeadlineHeap
from forebay.core.step import Now, StateRecord, Step
from forebay.errors import ErrorCode
from forebay.wire.fields import ZERO_UUID
from forebay.wire.messages.list_groups import ListedGroup


class TopicInfo(NamedTuple):
    topic_id: bytes
    partitions: int
    is_view: bool = False
    named_end: int = 0
    """Partitions below this number that do not exist were folded, and removed for good."""


TopicsView = Mapping[str, TopicInfo]
"""Everything that groups may read, by name: the topics of the cluster, and its views."""

SettingsOf = Callable[[str], GroupSettings]
"""The settings in force for a group, by its id. Administrators change them while groups live."""


class Visibility(Protocol):
    """The topics that a member may see. Administrators change it while groups live."""

    @property
    def revision(self) -> int:
        """Changes with each change of the rules."""

    def may_describe(self, principal: str, host: str, topic: str) -> bool: ...


class AllVisible:
    """Every topic is visible. Used where no rules are in force."""

    revision = 0

    def may_describe(self, _principal: str, _host: str, _topic: str) -> bool:
        return True


class Claim(NamedTuple):
    """The identity that a client claims when it commits or fetches offsets."""

    member_id: str = ""
    instance_id: str | None = None
    epoch: int = -1
    """The generation of a classic group, or the member epoch of others; -1 from outside the group."""
    transactional: bool = False
    api_version: int = 0

    @property
    def names_no_member(self) -> bool:
        return not self.member_id and self.instance_id is None and self.epoch < 0


class TimerKey(NamedTuple):
    """A timer of a group, or of one of its members."""

    group_id: str
    kind: str
    member_id: str = ""


class Context:
    """The context that the groups of one shard share."""

    __slots__ = (
        "config",
        "deleted",
        "logs",
        "names",
        "new_id",
        "settings_of",
        "share_epoch_floor",
        "timers",
        "topics",
        "visibility",
    )

    def __init__(
        self,
        config: GroupsConfig,
        new_id: Callable[[], str],
        topics: TopicsView,
        deleted: Container[bytes],
        settings_of: SettingsOf | None,
        visibility: Visibility | None = None,
    ) -> None:
        self.config = config
        common = GroupSettings.resolve(config, {})
        self.settings_of: SettingsOf = settings_of or (lambda _: common)
        self.visibility: Visibility = visibility or AllVisible()
        self.new_id = new_id
        self.timers = DeadlineHeap[TimerKey]()
        self.share_epoch_floor = 0
        """The highest epoch that a deleted share group of this shard had: those made later begin above it."""
        self.see(topics, deleted)

    def see(self, topics: TopicsView, deleted: Container[bytes]) -> None:
        self.topics = topics
        self.deleted = deleted
        """The ids of topics and views that were deleted. Others that are not there may come back."""
        has_views = any(info.is_view for info in topics.values())
        self.logs = {n: info for n, info in topics.items() if not info.is_view} if has_views else topics
        """The topics that are not views: share groups read no others."""
        self.names = {info.topic_id: name for name, info in topics.items()}

    def has_partition(self, topic: str, partition: int) -> bool:
        info = self.topics.get(topic)
        return info is not None and 0 <= partition < info.partitions

    def is_of_another(self, topic: str, topic_id: bytes) -> bool:
        """True if what was stored with a topic id belongs to another topic than that of this name now."""
        info = self.topics.get(topic)
        return info is not None and topic_id not in (info.topic_id, ZERO_UUID)

    def has_lost_partition(self, topic: str, partition: int) -> bool:
        """True if the topic once had this partition, and it was folded and removed."""
        info = self.topics.get(topic)
        return info is not None and info.partitions <= partition < info.named_end


class Group(ABC):
    """One group of any kind."""

    type_name: str
    """As in ListGroups."""

    def __init__(self, group_id: str, context: Context) -> None:
        self.group_id = group_id
        self.context = context
        self.persisted = False
        """True if the log has records of this group; otherwise it may be forgotten when idle."""

    @property
    @abstractmethod
    def state_name(self) -> str: ...

    @property
    @abstractmethod
    def protocol_type_name(self) -> str: ...

    @property
    @abstractmethod
    def member_count(self) -> int: ...

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """True if it has no members, so that it may be deleted or change its kind."""

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """True if it is empty and no member is about to join."""

    @abstractmethod
    def check_commit(self, claim: Claim, /) -> ErrorCode:
        """Check that a client with this identity may commit offsets."""

    @abstractmethod
    def check_fetch(self, claim: Claim, /) -> ErrorCode: ...

    @abstractmethod
    def check_offset_delete(self) -> ErrorCode: ...

    @abstractmethod
    def is_subscribed(self, topic: str) -> bool: ...

    @abstractmethod
    def expires_from(self, commit_timestamp: int) -> int | None:
        """The time from which an offset's retention counts; None while it does not run."""

    @abstractmethod
    def tombstones(self) -> list[StateRecord]:
        """The records that delete the group, without its offsets."""

    @abstractmethod
    def committed(self, member_id: str, now: Now) -> None:
        """Note that a member is alive, because it committed offsets."""

    @abstractmethod
    def expired(self, key: TimerKey, now: Now) -> Step:
        """A timer of this group has run out."""

    @abstractmethod
    def loaded(self, now: Now) -> Step: ...

    def listed(self) -> ListedGroup:
        return ListedGroup(
            group_id=self.group_id,
            protocol_type=self.protocol_type_name,
            group_state=self.state_name,
            group_type=self.type_name,
        )
