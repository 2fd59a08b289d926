"""A KIP-848 group: the broker assigns the partitions, and each member learns its own from heartbeats.

    Empty         no members; offsets may still be there
    Assigning     something has changed since the target was made; the next heartbeat makes a new one
    Reconciling   members are on their way to the target: giving up, waiting for others to give up
    Stable        every member has what the target says

There is no state that the members pass through together. The group's epoch is raised when members or topics
change; the target is made for an epoch; each member moves towards it on its own (`reconciliation`), and the
member's epoch tells how far it is. All of that is in the log, except timers and caches.

This file holds the state and the questions about it, `heartbeat` handles the members of the consumer
protocol, and `classic_members` those that still speak the classic one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from forebay.core.groups.assigned_partitions import NOTHING, Partitions, write_named
from forebay.core.groups.classic.group import JOIN, SESSION, SYNC
from forebay.core.groups.consumer.assignors import ASSIGNORS, Subscriber
from forebay.core.groups.consumer.members import STATIC_LEAVE_EPOCH, ConsumerMember, MemberState
from forebay.core.groups.consumer.reconciliation import reconcile
from forebay.core.groups.consumer.state import ConsumerState, Draft
from forebay.core.groups.consumer.subscriptions import Subscriptions
from forebay.core.groups.group import Claim, Context, Group, TimerKey, TopicsView
from forebay.core.groups.target_pace import TargetPace
from forebay.core.step import Now, StateRecord, Step
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.fields import Message
from forebay.wire.messages.consumer_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from forebay.wire.state.consumer_group import ConsumerGroupMetadataKey
from forebay.wire.state.consumer_protocol import PROTOCOL_TYPE

REVOKE = "revoke"
"""The timer of a member that has to give up partitions. The other timers are those of classic groups."""

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1
_MEMBER_EPOCH_FROM = 9
"""The first version of OffsetCommit in which a client may give a member epoch."""


class ConsumerBase(Group):
    type_name = "consumer"

    def __init__(self, group_id: str, context: Context, state: ConsumerState | None = None) -> None:
        super().__init__(group_id, context)
        self.state = ConsumerState() if state is None else state
        self.subscriptions = Subscriptions(context)
        self._seen: tuple[TopicsView, int] | None = None
        """The topics, and the visibility rules, with which the metadata hash was last compared."""
        self.left_ms: int | None = None
        """When the first member left since the target was made, as long as nothing else has changed."""
        self.pace = TargetPace()

    def replay(self, key: Message, value: Any) -> None:
        self.state.apply(key, value)
        self.persisted = value is not None or not isinstance(key, ConsumerGroupMetadataKey)

    # -- moving on -----------------------------------------------------------------------------------

    def take_over(
        self, draft: Draft, member: ConsumerMember, owned: Partitions | None, now: Now
    ) -> ConsumerMember:
        """Replace a member's state in the group and advance the member; returns the result."""
        known = draft.state.members.get(member.member_id)
        if known != member:
            draft.set_member(member)
        self._refresh(
            draft,
            changed=known is None or not member.subscribes_as(known),
            sees_others=known is not None and not member.sees_as(known),
        )
        if member.classic is not None:
            self.left_ms = None  # it joins again and again until it has the newest epoch
            self.pace.skip()
        self._assign(draft, now)
        moved = reconcile(
            member,
            target=draft.state.target(member.member_id),
            target_epoch=draft.state.assignment_epoch,
            owned=owned,
            owners=draft.state.owners,
        )
        if not moved.has_same_current(member):
            draft.set_current(moved)
        return moved

    def _refresh(self, draft: Draft, *, changed: bool, sees_others: bool) -> None:
        """Raise the epoch if subscriptions have changed, or their topics. `sees_others`: a member has another
        principal now, which may see other topics."""
        topics, revision = self.context.topics, self.context.visibility.revision
        is_seen = self._seen is not None and self._seen[0] is topics and self._seen[1] == revision
        if changed or sees_others or not is_seen:
            digest = self.subscriptions.metadata_hash(draft.state.subscriptions)
            if changed or digest != draft.state.metadata_hash:
                draft.set_epoch(draft.state.epoch + 1, digest)
                self.left_ms = None
            self._seen = (topics, revision)

    def wait_ms(self, now: Now) -> int:
        """How long to wait before making a new target: members that leave seldom leave alone, and many that
        join a large group get one together."""
        wait_ms = self.pace.wait_ms(now.ms)
        if self.left_ms is None:
            return wait_ms
        interval_ms = self.context.settings_of(self.group_id).assignment_interval_ms
        return max(self.left_ms + interval_ms - now.ms, wait_ms)

    def _assign(self, draft: Draft, now: Now) -> None:
        state = draft.state
        if state.epoch <= state.assignment_epoch or self.wait_ms(now):
            return
        self.left_ms = None
        topics = self.context.topics
        subscribers = {
            member_id: Subscriber(
                topics=frozenset(topics[name].topic_id for name in self.subscriptions.topics_of(member)),
                instance_id=member.instance_id,
                assigned=state.target(member_id),
            )
            for member_id, member in state.members.items()
        }
        counts = {info.topic_id: info.partitions for info in topics.values()}
        shares = ASSIGNORS[self._assignor(state)](subscribers, counts)
        for member_id, share in shares.items():
            if share != state.targets.get(member_id):
                draft.set_target(member_id, share)
        draft.set_assignment_epoch(draft.state.epoch)
        self.pace.made(len(subscribers), sum(map(len, shares.values())), now.ms)

    def _assignor(self, state: ConsumerState) -> str:
        """The assignor that most members ask for, of those that this broker offers."""
        offered = self.context.config.consumer_assignors
        votes = Counter(member.assignor for member in state.members.values() if member.assignor in offered)
        return max(offered, key=lambda name: (votes[name], -offered.index(name)))

    def let_go(self, draft: Draft, *member_ids: str) -> None:
        """Remove members; their partitions are free."""
        for member_id in member_ids:
            draft.remove_member(member_id)
            self.cancel_timers(member_id)

    def raise_epoch(self, draft: Draft) -> None:
        digest = self.subscriptions.metadata_hash(draft.state.subscriptions)
        draft.set_epoch(draft.state.epoch + 1, digest)

    def replace(self, draft: Draft, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Take back a static member under a new id: it keeps its partitions, and the old id is fenced."""
        new = replace(
            old, member_id=member_id, epoch=0, previous_epoch=0, state=MemberState.STABLE, revoking=NOTHING
        )
        draft.replace_member(old, new)
        self.cancel_timers(old.member_id)
        return new

    def find(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        if instance_id is not None:
            current = self.state.static.get(instance_id)
            if current is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"instance id {instance_id} is not a member")
            if current != member_id:
                raise KafkaError(
                    ErrorCode.FENCED_INSTANCE_ID, f"instance id {instance_id} is member {current} now"
                )
        member = self.state.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id} is not in the group")
        return member

    def check_room(self, member_id: str) -> None:
        limit = self.context.config.consumer_max_size
        if len(self.state.members) >= limit and member_id not in self.state.members:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {limit} members already")

    # -- timers --------------------------------------------------------------------------------------

    def schedule(self, kind: str, deadline_ms: int, member_id: str) -> None:
        self.context.timers.set(TimerKey(self.group_id, kind, member_id), deadline_ms)

    def cancel(self, kind: str, member_id: str) -> None:
        self.context.timers.cancel(TimerKey(self.group_id, kind, member_id))

    def cancel_timers(self, member_id: str) -> None:
        for kind in (SESSION, REVOKE, JOIN, SYNC):
            self.cancel(kind, member_id)

    def keep_alive(self, member: ConsumerMember, now: Now) -> None:
        if member.classic is not None:
            timeout_ms = member.classic.session_timeout_ms
        else:
            timeout_ms = self.context.settings_of(self.group_id).session_timeout_ms
        self.schedule(SESSION, now.ms + timeout_ms, member.member_id)

    def watch_revocation(self, member: ConsumerMember, now: Now, *, restart: bool) -> None:
        """Start the timer of a member that has to give up partitions: its rebalance timeout."""
        key = TimerKey(self.group_id, REVOKE, member.member_id)
        if member.state is not MemberState.UNREVOKED or member.classic is not None:
            self.context.timers.cancel(key)
        elif restart or key not in self.context.timers:
            self.context.timers.set(key, now.ms + member.rebalance_timeout_ms)

    def loaded(self, now: Now) -> Step:
        for member in self.state.members.values():
            self.keep_alive(member, now)
            self.watch_revocation(member, now, restart=True)
        return Step()

    def committed(self, member_id: str, now: Now) -> None:
        """Do nothing: only in the classic protocol is a commit a sign of life."""
        member = self.state.members.get(member_id)
        if member is not None and member.classic is not None:
            self.keep_alive(member, now)

    # -- what the shard asks -------------------------------------------------------------------------

    @property
    def state_name(self) -> str:
        state = self.state
        if not state.members:
            return "Empty"
        if state.epoch > state.assignment_epoch:
            return "Assigning"
        is_stable = all(each.is_reconciled_to(state.assignment_epoch) for each in state.members.values())
        return "Stable" if is_stable else "Reconciling"

    @property
    def protocol_type_name(self) -> str:
        return PROTOCOL_TYPE

    @property
    def member_count(self) -> int:
        return len(self.state.members)

    @property
    def is_empty(self) -> bool:
        return not self.state.members

    @property
    def is_idle(self) -> bool:
        return self.is_empty

    def check_commit(self, claim: Claim, /) -> ErrorCode:
        if claim.epoch < 0 and self.is_empty:
            return ErrorCode.NONE
        if claim.transactional and claim.names_no_member:
            return (
                ErrorCode.NONE
            )  # older producers know the group by its id alone; the transaction fences them
        member = self.state.members.get(claim.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.classic is None and not claim.transactional and claim.api_version < _MEMBER_EPOCH_FROM:
            return ErrorCode.UNSUPPORTED_VERSION
        return _check_epoch(member, claim.epoch)

    def is_late_commit(self, claim: Claim, partitions: Partitions) -> bool:
        """True if a stale commit, sent before its member got a new epoch, is for partitions that it kept.

        A partition that the member gave up on the way to its epoch may belong to another member now, so the
        member must not commit it.
        """
        member = self.state.members.get(claim.member_id)
        if member is None or member.classic is not None or claim.epoch <= 0:
            return False
        return claim.epoch == member.previous_epoch and partitions <= member.assigned

    def check_fetch(self, claim: Claim, /) -> ErrorCode:
        if not claim.member_id and claim.epoch < 0:
            return ErrorCode.NONE  # from outside the group
        member = self.state.members.get(claim.member_id)
        return ErrorCode.UNKNOWN_MEMBER_ID if member is None else _check_epoch(member, claim.epoch)

    def check_offset_delete(self) -> ErrorCode:
        return ErrorCode.NONE

    def is_subscribed(self, topic: str) -> bool:
        return any(self.subscriptions.means(member, topic) for member in self.state.members.values())

    def expires_from(self, commit_timestamp: int) -> int | None:
        return commit_timestamp

    def tombstones(self) -> list[StateRecord]:
        draft = Draft(self.group_id, self.state)
        if self.persisted:
            draft.delete()
        return draft.records

    def described(self, allowed: int) -> DescribedGroup:
        """`allowed`: the operations to report, see `core.access`."""
        state = self.state
        return DescribedGroup(
            group_id=self.group_id,
            group_state=self.state_name,
            group_epoch=state.epoch,
            assignment_epoch=state.assignment_epoch,
            assignor_name=self._assignor(state),
            members=[self._described(member) for member in state.members.values()],
            authorized_operations=allowed,
        )

    def _described(self, member: ConsumerMember) -> Member:
        return Member(
            member_id=member.member_id,
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topic_names),
            subscribed_topic_regex=member.topic_regex,
            assignment=self._named(member.assigned),
            target_assignment=self._named(self.state.target(member.member_id)),
            member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
        )

    def _named(self, partitions: Partitions) -> Assignment:
        return Assignment(topic_partitions=write_named(TopicPartitions, partitions, self.context.names))


def _check_epoch(member: ConsumerMember, epoch: int) -> ErrorCode:
    if epoch == member.epoch and epoch != STATIC_LEAVE_EPOCH:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
