"""A share group: members that take records of the same partitions, and the partitions assigned to each.

    Empty    nobody is a member; how far the group has come may still be kept
    Stable   there are members
    Dead     it is deleted: nobody sees it in this state

The group's epoch is raised when members or topics change; the target is made for an epoch; a member takes its
part of the target with its next heartbeat. Nothing has to be given up first: two members may have the same
partition, and its leader keeps them apart record by record. So there is no reconciliation, and a group with
members is always Stable.

Only partitions whose state is initialized at a share coordinator are assigned (`partition_states`). This file
has the state, the target, and the interface to the shard; `heartbeat` handles the members' requests,
`offsets` those of administrators.
"""

from __future__ import annotations

from typing import Any

from forebay.core.groups.assigned_partitions import Partitions, write_named
from forebay.core.groups.classic.group import SESSION
from forebay.core.groups.consumer.assignors import Subscriber
from forebay.core.groups.consumer.subscriptions import topics_hash
from forebay.core.groups.group import Claim, Context, Group, TimerKey, TopicsView
from forebay.core.groups.share.assignor import NAME, Available, is_covered, simple_assignor
from forebay.core.groups.share.members import ShareMember
from forebay.core.groups.share.state import Draft, ShareState, epoch_floor_record
from forebay.core.groups.target_pace import TargetPace
from forebay.core.step import Now, StateRecord
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.fields import Message
from forebay.wire.messages.share_group_describe import Assignment, DescribedGroup, Member, TopicPartitions
from forebay.wire.state.share_group import ShareGroupMetadataKey


class ShareBase(Group):
    type_name = "share"

    def __init__(self, group_id: str, context: Context) -> None:
        super().__init__(group_id, context)
        self.state = ShareState(epoch=context.share_epoch_floor)
        self._seen: TopicsView | None = None
        """The topics with which the group's metadata hash was last compared."""
        self.pace = TargetPace()
        self._covered: tuple[int, Available] | None = None
        """The epoch and the partitions for which the target was found to be complete."""

    def replay(self, key: Message, value: Any) -> None:
        self.state.apply(key, value)
        self.persisted = value is not None or not isinstance(key, ShareGroupMetadataKey)

    # -- epochs and the target -----------------------------------------------------------------------

    def refresh(self, draft: Draft, *, changed: bool) -> None:
        """Raise the epoch if subscriptions have changed, or their topics."""
        topics = self.context.logs
        if changed or self._seen is not topics:
            if changed or self._digest(draft.state) != draft.state.metadata_hash:
                self.raise_epoch(draft)
            self._seen = topics

    def raise_epoch(self, draft: Draft, by: int = 1) -> None:
        draft.set_epoch(draft.state.epoch + by, self._digest(draft.state))

    def _digest(self, state: ShareState) -> int:
        return topics_hash(state.subscribed(), self.context.logs)

    def assign(self, draft: Draft, now: Now) -> None:
        """Make a new target if the epoch was raised, or if the assignable partitions have changed."""
        state = draft.state
        if state.epoch <= state.assignment_epoch:
            if self._is_covered(state):
                return
            self.raise_epoch(draft)
        if self._is_too_soon(state, now) or self.pace.wait_ms(now.ms):
            return
        shares = simple_assignor(self._subscribers(state), self.available(state))
        for member_id, share in shares.items():
            if share != state.targets.get(member_id):
                draft.set_target(member_id, share)
        draft.set_assignment_epoch(draft.state.epoch, now.wall_ms)
        self.pace.made(len(shares), sum(map(len, shares.values())), now.ms)

    def _is_covered(self, state: ShareState) -> bool:
        """True if the target has all partitions. Subscriptions are those that it was made for."""
        wanted = (state.epoch, self.available(state))
        if wanted != self._covered:
            if not is_covered(self._subscribers(state), wanted[1]):
                return False
            self._covered = wanted
        return True

    def _is_too_soon(self, state: ShareState, now: Now) -> bool:
        interval_ms = self.context.settings_of(self.group_id).share.assignment_interval_ms
        return 0 <= now.trusted_ms - state.assigned_at_ms < interval_ms

    def available(self, state: ShareState) -> Available:
        """The initialized and existing partitions of the topics that somebody subscribes to.

        The state of partitions that were folded and removed stays until the topic is deleted.
        """
        found: dict[bytes, frozenset[int]] = {}
        for name in state.subscribed():
            info = self.context.logs.get(name)
            topic = state.topics.get(info.topic_id) if info is not None else None
            if info is not None and topic is not None and topic.initialized and not topic.deleting:
                lost = range(info.partitions, info.named_end)
                found[info.topic_id] = topic.initialized.difference(lost) if lost else topic.initialized
        return found

    def _subscribers(self, state: ShareState) -> dict[str, Subscriber]:
        return {
            member_id: Subscriber(topics=self.topic_ids(member), assigned=state.target(member_id))
            for member_id, member in state.members.items()
        }

    def topic_ids(self, member: ShareMember) -> frozenset[bytes]:
        """The ids of the existing topics that a member subscribes to."""
        topics = self.context.logs
        return frozenset(topics[name].topic_id for name in member.topic_names if name in topics)

    def move(self, draft: Draft, member_id: str) -> ShareMember:
        """Give a member its part of the target; returns the new member."""
        member = draft.state.members[member_id]
        topic_ids = self.topic_ids(member)
        target = frozenset(each for each in draft.state.target(member_id) if each[0] in topic_ids)
        if (member.epoch, member.assigned) == (draft.state.assignment_epoch, target):
            return member
        moved = member.moved_to(draft.state.assignment_epoch, target)
        draft.set_current(moved)
        return moved

    # -- members -------------------------------------------------------------------------------------

    def find(self, member_id: str) -> ShareMember:
        member = self.state.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id} is not in the group")
        return member

    def check_room(self, member_id: str) -> None:
        limit = self.context.config.share.max_size
        if len(self.state.members) >= limit and member_id not in self.state.members:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {limit} members already")

    def keep_alive(self, member_id: str, now: Now) -> None:
        timeout_ms = self.context.settings_of(self.group_id).share.session_timeout_ms
        self.context.timers.set(TimerKey(self.group_id, SESSION, member_id), now.ms + timeout_ms)

    # -- what the shard asks -------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        return "Stable" if self.state.members else "Empty"

    @property
    def protocol_type_name(self) -> str:
        return "share"

    @property
    def member_count(self) -> int:
        return len(self.state.members)

    @property
    def is_empty(self) -> bool:
        return not self.state.members

    @property
    def is_idle(self) -> bool:
        """False once it is persisted: its progress is kept elsewhere, and only a request deletes that."""
        return self.is_empty and not self.persisted

    def check_commit(self, _: Claim, /) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND  # a share group has no committed offsets

    def check_fetch(self, _: Claim, /) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.state.subscribed()

    def expires_from(self, _: int) -> int | None:
        return None

    def committed(self, member_id: str, now: Now) -> None:
        """Nothing to do: no member of such a group commits offsets."""

    def delete(self, draft: Draft) -> None:
        """Delete the group, except the epoch above which the next one of its name begins."""
        context = self.context
        # At once, not only by the replay: one step may delete several groups.
        context.share_epoch_floor = max(context.share_epoch_floor, draft.state.epoch)
        draft.delete()
        draft.records.append(epoch_floor_record(context.share_epoch_floor))

    def tombstones(self) -> list[StateRecord]:
        draft = Draft(self.group_id, self.state)
        if self.persisted:
            self.delete(draft)
        return draft.records

    def described(self, allowed: int) -> DescribedGroup:
        """`allowed`: the operations to report, see `core.acls.operations`."""
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state_name,
            group_epoch=self.state.epoch,
            assignment_epoch=self.state.assignment_epoch,
            assignor_name=NAME,
            members=[self._described(member) for member in self.state.members.values()],
            authorized_operations=allowed,
        )

    def _described(self, member: ShareMember) -> Member:
        return Member(
            member_id=member.member_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topic_names),
            assignment=self._named(member.assigned),
        )

    def _named(self, partitions: Partitions) -> Assignment:
        return Assignment(topic_partitions=write_named(TopicPartitions, partitions, self.context.names))
