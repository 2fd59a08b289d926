"""A runtime for the share coordinator without a broker: a log in memory, with a start and a commit point.

It does what the runtime owes a state machine (see forebay.core.step). After each step it compares the machine
with one that is made from the log alone.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from forebay.config import ShareCoordinatorConfig
from forebay.core.shares.coordinator.persisted_state import ShareKey, ShareState
from forebay.core.shares.coordinator.shard import DeleteStateRecords, ShareCoordinatorShard, Topics
from forebay.core.step import Now, RequestInfo, StateRecord, Step
from forebay.wire.codec.compiled import decode, encode
from forebay.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from forebay.wire.messages.write_share_group_state import StateBatch
from support.machines.times import WALL_AHEAD_MS, at

ORDERS, PAYMENTS = b"o" * 16, b"p" * 16
TOPICS = {ORDERS: 4, PAYMENTS: 2}
KEY = ShareKey("g", ORDERS, 0)

Piece = tuple[int, int, int, int]
"""First offset, last offset, state, delivery count."""


@dataclass(kw_only=True)
class ShareCoordinator:
    config: ShareCoordinatorConfig = field(default_factory=ShareCoordinatorConfig)
    commits_at_once: bool = True
    topics: Topics = field(default_factory=lambda: TOPICS)
    deleted: set[bytes] = field(default_factory=set)
    now_ms: int = 1_000_000
    log: list[StateRecord] = field(default_factory=list)
    """All records that were ever appended, also those that are deleted."""
    start_offset: int = 0
    committed: int = 0
    answers: dict[int, Any] = field(default_factory=dict)
    deadline_ms: int | None = None
    deletions: list[int] = field(default_factory=list)
    batch_sizes: list[int] = field(default_factory=list)
    """How many records each step has written that wrote any."""
    _parked: deque[tuple[int, Step]] = field(default_factory=deque)
    _tickets: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.shard = self.fresh()
        self.run(self.shard.loaded(self.now))

    @property
    def now(self) -> Now:
        return at(self.now_ms, WALL_AHEAD_MS)

    def fresh(self) -> ShareCoordinatorShard:
        """A machine that knows what the log tells, and no more."""
        shard = ShareCoordinatorShard(self.config, topics=self.topics, deleted=self.deleted)
        for record in self.log[self.start_offset :]:
            shard.replay(record)
        return shard

    # -- the runtime -------------------------------------------------------------------------------------

    def run(self, step: Step) -> None:
        for record in step.records:
            placed = record._replace(offset=len(self.log))
            self.shard.replay(placed)
            self.log.append(placed)
        if step.records:
            self.batch_sizes.append(len(step.records))
        self.deadline_ms = step.deadline_ms
        self._parked.append((len(self.log), step))
        if self.commits_at_once:
            self.commit(len(self.log))
        self.check()

    def check(self) -> None:
        again = self.fresh()
        assert dict(again.states) == dict(self.shard.states)
        if self.start_offset < len(self.log):
            assert again.redundant_before == self.shard.redundant_before

    def commit(self, end_offset: int) -> None:
        self.committed = max(self.committed, end_offset)
        while self._parked and self._parked[0][0] <= self.committed:
            _, step = self._parked.popleft()
            for ticket, response in step.replies:
                assert isinstance(ticket, int)
                assert ticket not in self.answers, "answered twice"
                self.answers[ticket] = response
            for effect in step.effects:
                assert isinstance(effect, DeleteStateRecords)
                self.deletions.append(effect.before_offset)
                self.start_offset = max(self.start_offset, effect.before_offset)

    def crash(self, kept: int | None = None) -> None:
        """Start anew from a log that has lost everything from offset `kept` on; it was not committed."""
        kept = len(self.log) if kept is None else kept
        assert self.committed <= kept <= len(self.log)
        del self.log[kept:]
        self._parked.clear()
        self.committed = kept
        self.shard = self.fresh()
        self.run(self.shard.loaded(self.now))

    def advance(self, ms: int) -> None:
        """Let time pass, with every deadline met on its way."""
        end_ms = self.now_ms + ms
        for _ in range(10_000):
            if self.deadline_ms is None or self.deadline_ms > end_ms:
                self.now_ms = end_ms
                return
            self.now_ms = max(self.now_ms, self.deadline_ms)
            self.run(self.shard.tick(self.now))
        raise AssertionError("the shard asks for ticks without end")

    def see_topics(self, topics: Topics, *, are_deleted: bool = True) -> None:
        """Those that are not there any more were deleted, or are merely missing."""
        if are_deleted:
            self.deleted |= self.topics.keys() - topics.keys()
        self.topics = topics
        self.run(self.shard.topics_changed(topics, self.now, deleted=self.deleted))

    def send(self, operation: str, request: Any, version: int) -> int:
        """Run an operation on the request as it arrives over the wire; the ticket tells its answer."""
        ticket = next(self._tickets)
        arrived = decode(type(request), version, encode(request, version))
        self.run(getattr(self.shard, operation)(ticket, arrived, RequestInfo(version), self.now))
        if ticket in self.answers:
            encode(self.answers[ticket], version)
        return ticket

    def _ask(self, operation: str, request: Any, version: int = 0) -> Any:
        """The result for the only share partition of a request that is answered at once."""
        ((result,),) = (
            topic.partitions for topic in self.answers[self.send(operation, request, version)].results
        )
        return result

    # -- what brokers ask ----------------------------------------------------------------------------------

    def state(self, key: ShareKey = KEY) -> ShareState:
        return self.shard.states[key]

    def initialize(self, key: ShareKey = KEY, *, epoch: int = 1, start: int = -1) -> int:
        code: int = self._ask("initialize", initialize_request(key, epoch, start)).error_code
        return code

    def read(self, key: ShareKey = KEY, *, leader: int = 0) -> Any:
        return self._ask("read", read_request(key, leader))

    def write(
        self,
        *pieces: Piece,
        key: ShareKey = KEY,
        epoch: int = 1,
        leader: int = 0,
        start: int = -1,
        complete: int = -1,
        version: int = 1,
    ) -> int:
        request = write_request(key, epoch, leader, start, complete, pieces)
        code: int = self._ask("write", request, version).error_code
        return code

    def forget_lost(self, lost_from: int, snapshot: int, *, epoch: int = 1, leader: int = 0) -> int:
        request = write_request(KEY, epoch, leader, -1, -1, ())
        (partition,) = request.topics[0].partitions
        partition.lost_from, partition.snapshot_epoch = lost_from, snapshot
        code: int = self._ask("write", request, 1).error_code
        return code

    def delete(self, key: ShareKey = KEY, *, epoch: int = -1) -> int:
        code: int = self._ask("delete", delete_request(key, epoch)).error_code
        return code

    def summary(self, key: ShareKey = KEY) -> Any:
        module = read_share_group_state_summary
        partition = module.PartitionData(partition=key.partition, leader_epoch=0)
        topic = module.ReadStateSummaryData(topic_id=key.topic_id, partitions=[partition])
        request = module.ReadShareGroupStateSummaryRequest(group_id=key.group_id, topics=[topic])
        return self._ask("read_summary", request, 1)


def initialize_request(
    key: ShareKey, epoch: int, start: int
) -> initialize_share_group_state.InitializeShareGroupStateRequest:
    module = initialize_share_group_state
    partition = module.PartitionData(partition=key.partition, state_epoch=epoch, start_offset=start)
    topic = module.InitializeStateData(topic_id=key.topic_id, partitions=[partition])
    return module.InitializeShareGroupStateRequest(group_id=key.group_id, topics=[topic])


def read_request(key: ShareKey, leader: int) -> read_share_group_state.ReadShareGroupStateRequest:
    module = read_share_group_state
    partition = module.PartitionData(partition=key.partition, leader_epoch=leader)
    topic = module.ReadStateData(topic_id=key.topic_id, partitions=[partition])
    return module.ReadShareGroupStateRequest(group_id=key.group_id, topics=[topic])


def write_partition(
    key: ShareKey, epoch: int, leader: int, start: int, complete: int, pieces: tuple[Piece, ...]
) -> write_share_group_state.PartitionData:
    return write_share_group_state.PartitionData(
        partition=key.partition,
        state_epoch=epoch,
        leader_epoch=leader,
        start_offset=start,
        delivery_complete_count=complete,
        state_batches=[
            StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
            for first, last, state, count in pieces
        ],
    )


def write_request(
    key: ShareKey, epoch: int, leader: int, start: int, complete: int, pieces: tuple[Piece, ...]
) -> write_share_group_state.WriteShareGroupStateRequest:
    module = write_share_group_state
    partition = write_partition(key, epoch, leader, start, complete, pieces)
    topic = module.WriteStateData(topic_id=key.topic_id, partitions=[partition])
    return module.WriteShareGroupStateRequest(group_id=key.group_id, topics=[topic])


def delete_request(key: ShareKey, epoch: int = -1) -> delete_share_group_state.DeleteShareGroupStateRequest:
    module = delete_share_group_state
    partition = module.PartitionData(partition=key.partition, state_epoch=epoch)
    topic = module.DeleteStateData(topic_id=key.topic_id, partitions=[partition])
    return module.DeleteShareGroupStateRequest(group_id=key.group_id, topics=[topic])
