"""Creates and deletes the state that share coordinators keep for a share group.

A heartbeat finds partitions of subscribed topics that are not initialized. It records them as initializing
and requests their state; the report records those that succeeded as initialized. A later heartbeat retries
those that failed, and those that were left initializing when a coordinator took over: the share coordinator
answers a second request for the same state like the first.

Where a group begins in a partition: in a topic that is new to it, as `share.auto.offset.reset` says; in a
partition that was added to a known topic, at the first record, so that nothing is skipped. A partition that
failed begins where it should have. There is one exception: if the coordinator changes in between and other
partitions of the topic are initialized, it counts as added. Delivering too much is better than too little.

A deletion is requested again until it is done. It does not begin at once when a topic disappears: a
coordinator that has just taken over may see an old state of the topics.

No state epoch is used twice for a partition: the group's epoch is raised when a deletion is done, and a group
begins above the epochs of deleted groups. So a leader can distinguish a state from the one before it, and a
late deletion from a valid one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from forebay.core.groups.assigned_partitions import TopicPartition
from forebay.core.groups.group import Context, TimerKey
from forebay.core.groups.share.assignor import Available
from forebay.core.groups.share.effects import (
    UNINITIALIZED_OFFSET,
    DeleteShares,
    InitializeShares,
    ShareStart,
)
from forebay.core.groups.share.group import ShareBase
from forebay.core.groups.share.members import ShareMember
from forebay.core.groups.share.state import Draft, ShareState, TopicState
from forebay.core.step import Now, Step
from forebay.errors import ErrorCode

DELETE = "share-delete"
"""The timer of a topic whose state is being deleted: the deletion is requested again."""
GONE = "share-gone"
"""The timer after which the states of deleted topics are deleted."""

_EPOCH_MAX = 2**31 - 1
WAIT_MS = 1_000
"""The maximum time that a heartbeat waits for an initialization."""
RETRY_MS = 1_000
"""The pause after a reported failure."""
_GONE_MS = 5_000

Results = Mapping[TopicPartition, ErrorCode]

DELETED = frozenset((ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
"""A share coordinator keeps no state of a topic that does not exist."""


class Attempt(NamedTuple):
    """An initialization that is under way, or has failed."""

    state_epoch: int
    start_offset: int
    awaited_until_ms: int
    """Heartbeats that need the partition wait until this time."""
    retry_at_ms: int


class ShareStates(ShareBase):
    def __init__(self, group_id: str, context: Context) -> None:
        super().__init__(group_id, context)
        self.attempts: dict[TopicPartition, Attempt] = {}
        self._deletions: dict[bytes, int] = {}
        """Topics whose state is being deleted, and the time until which heartbeats wait for that."""

    # -- initializing --------------------------------------------------------------------------------

    def initialize_missing(self, draft: Draft, step: Step, now: Now) -> None:
        """Request the state of subscribed partitions that is neither there nor requested."""
        self._forget_lost_attempts(draft.state, now)
        starts = [
            ShareStart(*partition, self._start_offset(draft.state, partition))
            for partition in self._missing(draft.state, draft.state.subscribed())
            if partition not in self.attempts or self.attempts[partition].retry_at_ms <= now.ms
        ]
        if starts:
            self.begin_initializing(draft, step, starts, now)

    def _forget_lost_attempts(self, state: ShareState, now: Now) -> None:
        """Forget attempts at partitions that are initialized all the same. Nobody would retry them."""
        for partition, attempt in list(self.attempts.items()):
            topic = state.topics.get(partition[0])
            is_there = topic is not None and partition[1] in topic.initialized
            if is_there and attempt.retry_at_ms <= now.ms:
                del self.attempts[partition]

    def begin_initializing(self, draft: Draft, step: Step, starts: list[ShareStart], now: Now) -> None:
        topics = dict(draft.state.topics)
        epoch = draft.state.epoch
        retry_at_ms = now.ms + self.context.config.share.initialize_retry_interval_ms
        for topic_id, index, offset in starts:
            topic = topics.get(topic_id) or TopicState(self.context.names[topic_id])
            if index not in topic.initialized:
                topics[topic_id] = topic._replace(initializing=topic.initializing | {index})
            self.attempts[topic_id, index] = Attempt(epoch, offset, now.ms + WAIT_MS, retry_at_ms)
        draft.set_topics(topics)
        step.effects.append(
            InitializeShares(group_id=self.group_id, state_epoch=epoch, partitions=tuple(starts))
        )

    def _missing(self, state: ShareState, names: Iterable[str]) -> list[TopicPartition]:
        """The partitions of these topics that are not initialized, and not being deleted."""
        found: list[TopicPartition] = []
        for name in sorted(names):
            info = self.context.logs.get(name)
            topic = state.topics.get(info.topic_id) if info is not None else None
            if info is None or (topic is not None and topic.deleting):
                continue
            there = frozenset[int]() if topic is None else topic.initialized
            if len(there) < info.partitions:
                found += ((info.topic_id, index) for index in range(info.partitions) if index not in there)
        return found

    def _start_offset(self, state: ShareState, partition: TopicPartition) -> int:
        tried = self.attempts.get(partition)
        if tried is not None:
            return tried.start_offset
        topic_id, index = partition
        topic = state.topics.get(topic_id)
        is_left_over = topic is not None and index in topic.initializing and not topic.initialized
        return UNINITIALIZED_OFFSET if topic is None or is_left_over else 0

    def awaited_until_ms(self, member: ShareMember, now: Now) -> int | None:
        """The time until which a member waits for states of its topics; None if it need not."""
        if not self.attempts and not self._deletions:
            return None
        topic_ids = self.topic_ids(member)
        awaited = [self._deletions.get(topic_id, 0) for topic_id in topic_ids]
        awaited += [each.awaited_until_ms for at, each in self.attempts.items() if at[0] in topic_ids]
        latest_ms = max(awaited, default=0)
        return latest_ms if latest_ms > now.ms else None

    def available(self, state: ShareState) -> Available:
        """The partitions to assign. Not those being initialized again: their leader would not notice."""
        found = super().available(state)
        if not self.attempts:
            return found
        return {topic: kept for topic in found if (kept := found[topic] - self._attempted(topic))}

    def _attempted(self, topic_id: bytes) -> set[int]:
        return {index for each, index in self.attempts if each == topic_id}

    def note_initialized(
        self, draft: Draft, step: Step, state_epoch: int, results: Results, now: Now
    ) -> None:
        topics = dict(draft.state.topics)
        useless: list[TopicPartition] = []
        for partition, code in results.items():
            topic = topics.get(partition[0])
            if code != ErrorCode.NONE:
                self._note_failed(partition, topic, state_epoch, now)
            elif topic is None or topic.deleting or partition[1] not in topic.partitions:
                useless.append(partition)
            else:
                topics[partition[0]] = topic.with_initialized(partition[1])
                if self._is_attempted(partition, state_epoch):
                    del self.attempts[partition]
        draft.set_topics(topics)
        if useless:
            step.effects.append(
                DeleteShares(group_id=self.group_id, state_epoch=state_epoch, partitions=tuple(useless))
            )
        if ErrorCode.FENCED_STATE_EPOCH in results.values() and state_epoch == draft.state.epoch:
            # This log has lost epochs that were used: an unclean election. Soon one is high enough.
            self.raise_epoch(draft, by=min(state_epoch, _EPOCH_MAX - state_epoch))

    def _is_attempted(self, partition: TopicPartition, state_epoch: int) -> bool:
        attempt = self.attempts.get(partition)
        return attempt is not None and attempt.state_epoch == state_epoch

    def _note_failed(
        self, partition: TopicPartition, topic: TopicState | None, state_epoch: int, now: Now
    ) -> None:
        if not self._is_attempted(partition, state_epoch):
            return  # the failure of an earlier attempt, or of one that was superseded
        if topic is not None and partition[1] in topic.initialized:
            del self.attempts[partition]  # the client that asked for it is told of the failure
            return
        self.attempts[partition] = self.attempts[partition]._replace(
            awaited_until_ms=now.ms, retry_at_ms=now.ms + RETRY_MS
        )

    # -- deleting ------------------------------------------------------------------------------------

    def delete_states(self, draft: Draft, step: Step, topic_ids: Iterable[bytes], now: Now) -> None:
        """Have the state of these topics deleted; until then they are neither assigned nor initialized."""
        topics = dict(draft.state.topics)
        partitions: list[TopicPartition] = []
        for topic_id in topic_ids:
            topics[topic_id] = topics[topic_id]._replace(deleting=True)
            partitions += ((topic_id, index) for index in sorted(topics[topic_id].partitions))
            self._deletions[topic_id] = now.ms + WAIT_MS
            retry_ms = self.context.config.share.initialize_retry_interval_ms
            self.context.timers.set(self._delete_timer(topic_id), now.ms + retry_ms)
        for partition in partitions:
            self.attempts.pop(partition, None)
        draft.set_topics(topics)
        if partitions:
            step.effects.append(
                DeleteShares(
                    group_id=self.group_id, state_epoch=draft.state.epoch, partitions=tuple(partitions)
                )
            )

    def note_deleted(self, draft: Draft, results: Results, now: Now) -> None:
        topics = dict(draft.state.topics)
        is_any_done = False
        for topic_id in {topic_id for topic_id, _ in results}:
            topic = topics.get(topic_id)
            if topic is None or not topic.deleting:
                continue
            codes = {index: code for (each, index), code in results.items() if each == topic_id}
            topic = topic.without(frozenset(index for index, code in codes.items() if code in DELETED))
            topics[topic_id] = topic
            if not topic.partitions:
                is_any_done = True
                self._deletions.pop(topic_id, None)
                self.context.timers.cancel(self._delete_timer(topic_id))
            elif any(code not in DELETED for code in codes.values()):
                self._deletions.pop(topic_id, None)
                self.context.timers.set(self._delete_timer(topic_id), now.ms + RETRY_MS)
        draft.set_topics(topics)
        if is_any_done:
            self.raise_epoch(draft)  # states created from now on have a higher epoch than deleted ones

    def delete_again(self, draft: Draft, step: Step, topic_id: bytes, now: Now) -> None:
        topic = draft.state.topics.get(topic_id)
        if topic is not None and topic.deleting:
            self.delete_states(draft, step, [topic_id], now)

    def _delete_timer(self, topic_id: bytes) -> TimerKey:
        return TimerKey(self.group_id, DELETE, topic_id.hex())

    # -- topics that are deleted ---------------------------------------------------------------------

    def watch_topics(self, now: Now) -> None:
        """React to topics that may have been deleted."""
        key = TimerKey(self.group_id, GONE)
        if self._gone() and key not in self.context.timers:
            self.context.timers.set(key, now.ms + _GONE_MS)

    def _gone(self) -> list[bytes]:
        deleted, names = self.context.deleted, self.context.names
        return [
            topic_id
            for topic_id, topic in self.state.topics.items()
            if not topic.deleting and topic_id in deleted and topic_id not in names
        ]

    def delete_gone(self, draft: Draft, step: Step, now: Now) -> None:
        self.delete_states(draft, step, self._gone(), now)
