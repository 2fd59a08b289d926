"""A runtime for the transaction coordinator without a broker: a log in memory that can lose its tail.

It does what the runtime owes a state machine (see forebay.core.step) and nothing else, and it checks after
each step that replaying the log gives the state that the machine has.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from forebay.config import TransactionsConfig
from forebay.core.step import Now, RequestInfo, StateRecord, Step
from forebay.core.topic_partition import TopicPartition
from forebay.core.transactions.shard import TransactionShard, WriteMarkers
from forebay.core.transactions.state import Identity, Transaction
from forebay.wire.fields import Response
from forebay.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from forebay.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from forebay.wire.messages.end_txn import EndTxnRequest, FurtherTxn
from forebay.wire.messages.init_producer_id import InitProducerIdRequest
from support.machines.times import WALL_AHEAD_MS, at

NOBODY: Identity = (-1, -1)


@dataclass(slots=True, kw_only=True)
class Parked:
    position: int
    """How many batches must be committed first."""
    step: Step


@dataclass(kw_only=True)
class Coordinator:
    config: TransactionsConfig = field(default_factory=TransactionsConfig)
    commits_at_once: bool = True
    writes_markers: bool = True
    checks_replay: bool = True
    now_ms: int = 1_000_000
    wall_ahead_ms: int = WALL_AHEAD_MS
    doubted_ms: int = 0
    log: list[list[StateRecord]] = field(default_factory=list)
    committed: int = 0
    answers: dict[Any, Any] = field(default_factory=dict)
    markers: deque[WriteMarkers] = field(default_factory=deque)
    """Effects that may be done now."""
    sent: list[WriteMarkers] = field(default_factory=list)
    """All that were ever allowed."""
    deadline_ms: int | None = None
    unanswered: set[Any] = field(default_factory=set)
    _parked: deque[Parked] = field(default_factory=deque)
    _writing: bool = False
    _tickets: Callable[[], int] = field(default_factory=lambda: count(1).__next__)
    _producer_ids: Callable[[], int] = field(default_factory=lambda: count(100).__next__)

    def __post_init__(self) -> None:
        self.shard = TransactionShard(self.config)

    @property
    def now(self) -> Now:
        return at(self.now_ms, self.wall_ahead_ms, self.doubted_ms)

    # -- the runtime ------------------------------------------------------------------------------------

    def run(self, step: Step) -> None:
        if step.records:
            self.log.append(step.records)
            for record in step.records:
                self.shard.replay(record)
        if self.checks_replay:
            assert replayed(self.log) == dict(self.shard.transactions)
        self.deadline_ms = step.deadline_ms
        self._parked.append(Parked(position=len(self.log), step=step))
        if self.commits_at_once:
            self.commit(len(self.log))
        if self.writes_markers and not self._writing:
            self._writing = True
            while self.markers:
                self.write_markers()
            self._writing = False

    def commit(self, position: int) -> None:
        self.committed = max(self.committed, position)
        while self._parked and self._parked[0].position <= self.committed:
            step = self._parked.popleft().step
            for ticket, response in step.replies:
                assert ticket in self.unanswered, "answered twice"
                self.unanswered.remove(ticket)
                self.answers[ticket] = response
            for effect in step.effects:
                assert isinstance(effect, WriteMarkers)
                self.markers.append(effect)
                self.sent.append(effect)

    def write_markers(self) -> WriteMarkers:
        """Every partition of the effect that is first in line gets its marker."""
        markers = self.markers.popleft()
        self.marked(markers, markers.partitions)
        return markers

    def marked(self, markers: WriteMarkers, partitions: Iterable[TopicPartition]) -> None:
        self.run(self.shard.markers_written(markers, partitions, self.now))

    def crash(self, kept: int) -> None:
        """Start anew from a log of which so many batches are left."""
        assert self.committed <= kept <= len(self.log)
        del self.log[kept:]
        self._parked.clear()
        self.markers.clear()
        self.unanswered.clear()
        self.committed = kept
        self.shard = TransactionShard(self.config)
        for batch in self.log:
            for record in batch:
                self.shard.replay(record)
        self.run(self.shard.loaded(self.now))

    def pass_time(self, ms: int) -> None:
        """Let time pass; tick whenever the machine has asked for it."""
        end_ms = self.now_ms + ms
        while self.deadline_ms is not None and self.deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.deadline_ms)
            self.run(self.shard.tick(self.now))
        self.now_ms = end_ms

    # -- requests: each returns its ticket --------------------------------------------------------------

    def ask_init(
        self, name: str, expected: Identity = NOBODY, *, timeout_ms: int = 60_000, version: int = 5
    ) -> int:
        ticket, fresh = self.ticket(), self._fresh(name)
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
        )
        self.run(self.shard.init_producer_id(ticket, request, fresh, RequestInfo(version), self.now))
        return ticket

    def ask_add(
        self,
        name: str,
        who: Identity,
        *partitions: TopicPartition,
        version: int = 3,
        renew: Sequence[str] = (),
    ) -> int:
        ticket, request = self.ticket(), add_request(name, who, *partitions, version=version)
        request.renew = list(renew)
        self.run(self.shard.add_partitions_to_txn(ticket, request, RequestInfo(version), self.now))
        return ticket

    def look_after(self, *, renew: Sequence[str] = (), forget: Sequence[str] = ()) -> int:
        """Renew or forget families; how many ids of them there are."""
        ticket = self.ticket()
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="anybody", renew=list(renew), forget=list(forget)
        )
        self.run(self.shard.add_partitions_to_txn(ticket, request, RequestInfo(3), self.now))
        response: Any = self.take(ticket)
        return int(response.affected)

    def ask_add_offsets(self, name: str, who: Identity, partition: int = 0, *, version: int = 3) -> int:
        ticket = self.ticket()
        request = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=who[0], producer_epoch=who[1], group_id="g"
        )
        info = RequestInfo(version)
        self.run(self.shard.add_offsets_to_txn(ticket, request, partition, info, self.now))
        return ticket

    def ask_end(self, name: str, who: Identity, *, commit: bool, version: int = 3) -> int:
        ticket = self.ticket()
        request = EndTxnRequest(
            transactional_id=name, producer_id=who[0], producer_epoch=who[1], committed=commit
        )
        info = RequestInfo(version)
        self.run(self.shard.end_txn(ticket, request, self._fresh(name), info, self.now))
        return ticket

    def ask_end_together(self, *members: tuple[str, Identity], commit: bool) -> int:
        ticket = self.ticket()
        (name, who), *others = members
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=who[0],
            producer_epoch=who[1],
            committed=commit,
            further=[
                FurtherTxn(transactional_id=other, producer_id=producer_id, producer_epoch=epoch)
                for other, (producer_id, epoch) in others
            ],
        )
        self.run(self.shard.end_txn(ticket, request, -1, RequestInfo(4), self.now))
        return ticket

    def ticket(self) -> int:
        ticket = self._tickets()
        self.unanswered.add(ticket)
        return ticket

    def _fresh(self, name: str) -> int:
        return self._producer_ids() if self.shard.wants_producer_id(name) else -1

    def take(self, ticket: int) -> Response | None:
        answer: Response | None = self.answers.pop(ticket, None)
        return answer


def add_request(
    name: str, who: Identity, *partitions: TopicPartition, version: int = 3, verify_only: bool = False
) -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in partitions]
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=who[0],
            v3_and_below_producer_epoch=who[1],
            v3_and_below_topics=topics,
        )
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=who[0],
        producer_epoch=who[1],
        verify_only=verify_only,
        topics=topics,
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def replayed(log: Iterable[list[StateRecord]]) -> dict[str, Transaction]:
    shard = TransactionShard(TransactionsConfig())
    for batch in log:
        for record in batch:
            shard.replay(record)
    return dict(shard.transactions)
