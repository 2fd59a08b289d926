"""Random brokers against a share coordinator that crashes at any step.

Leaders of old and new epochs read and write, groups are initialized, deleted and made again, topics come and
go, records are deleted from the log; the coordinator is killed between any two steps, and loses what was not
committed. A model with one entry per offset says what the answer has to be and what the state is. After every
step the runtime compares the machine with one that is made from what the log still holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from forebay.config import ShareCoordinatorConfig
from forebay.core.shares.coordinator.persisted_state import (
    ShareKey,
    ShareState,
    read_key,
    replayed,
    rewritten,
    snapshot_record,
)
from forebay.core.step import StateRecord
from forebay.errors import ErrorCode
from support.machines.share_coordinator import (
    ORDERS,
    PAYMENTS,
    TOPICS,
    Piece,
    ShareCoordinator,
    delete_request,
    initialize_request,
    read_request,
    write_request,
)

KEYS = [
    ShareKey("g", ORDERS, 0),
    ShareKey("g", ORDERS, 1),
    ShareKey("h", ORDERS, 0),
    ShareKey("g", PAYMENTS, 0),
]
STEPS = 150


@dataclass
class Told:
    """What must be known of one share partition."""

    state_epoch: int
    start: int
    complete: int
    leader: int = -1
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The (delivery count, state) of each."""

    def advance(self, start: int, complete: int, pieces: Iterable[Piece]) -> None:
        if start > self.start:
            self.start, self.complete = start, complete
        elif start in (-1, self.start):
            self.complete = max(self.complete, complete)
        for first, last, state, count in pieces:
            for offset in range(first, last + 1):
                self.offsets[offset] = max(self.offsets.get(offset, (-1, -1)), (count, state))
        self.offsets = {offset: rank for offset, rank in self.offsets.items() if offset >= self.start}


Model = dict[ShareKey, Told]


def told_by(state: ShareState) -> Told:
    offsets = {
        offset: (each.delivery_count, int(each.state))
        for each in state.ranges
        for offset in range(each.first, each.last + 1)
    }
    return Told(state.state_epoch, state.start_offset, state.complete_count, state.leader_epoch, offsets)


class Walk:
    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.coordinator = ShareCoordinator(
            config=ShareCoordinatorConfig(
                updates_per_snapshot=random.choice((0, 1, 5, 500)),
                cold_interval_ms=1_000,
                prune_interval_ms=2_000,
            ),
            commits_at_once=random.random() < 0.3,
        )
        self.model: Model = {}
        self.expected: dict[int, ErrorCode] = {}
        self.boundaries: dict[int, Model] = {0: {}}
        """What must be known if the log ends at that offset."""

    def step(self) -> None:
        random, coordinator = self.random, self.coordinator
        act = random.choices(
            (self.write, self.read, self.initialize, self.delete, self.see_topics, self.wait, self.crash),
            (12, 4, 4, 1, 0.5, 2, 1),
        )[0]
        act(random.choice(KEYS))
        self.boundaries[len(coordinator.log)] = deepcopy(self.model)
        if random.random() < 0.5:
            coordinator.commit(random.choice([n for n in self.boundaries if n >= coordinator.committed]))
        self.check()

    def check(self) -> None:
        told = {key: told_by(state) for key, state in self.coordinator.shard.states.items()}
        assert told == self.model
        for ticket, response in self.coordinator.answers.items():
            ((result,),) = (topic.partitions for topic in response.results)
            assert result.error_code == self.expected[ticket], response
        for key, state in self.coordinator.shard.states.items():
            check_snapshot(key, state)

    # -- what brokers do ----------------------------------------------------------------------------------

    def send(self, operation: str, request: Any, code: ErrorCode) -> None:
        ticket = self.coordinator.send(operation, request, 0 if operation != "write" else 1)
        self.expected[ticket] = code

    def refusal(self, key: ShareKey) -> ErrorCode:
        if key.topic_id not in self.coordinator.topics:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE if key in self.model else ErrorCode.INVALID_REQUEST

    def near(self, number: int) -> int:
        """Usually the same, sometimes one that is out of date or ahead."""
        return max(0, number + self.random.choice((0, 0, 0, 0, -1, 1)))

    def initialize(self, key: ShareKey) -> None:
        told = self.model.get(key)
        epoch = self.near(told.state_epoch if told else 1)
        start = self.random.choice((-1, 0, 20, told.start if told else 0))
        code = ErrorCode.NONE
        if key.topic_id not in self.coordinator.topics:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif told and epoch < told.state_epoch:
            code = ErrorCode.FENCED_STATE_EPOCH
        elif told is None or epoch > told.state_epoch:
            self.model[key] = Told(epoch, start, -1 if start < 0 else 0)
        self.send("initialize", initialize_request(key, epoch, start), code)

    def read(self, key: ShareKey) -> None:
        code, told = self.refusal(key), self.model.get(key)
        leader = max(0, (told.leader if told else 0) + self.random.choice((-1, 0, 1, 1)))
        if code == ErrorCode.NONE and told:
            if leader < told.leader:
                code = ErrorCode.FENCED_LEADER_EPOCH
            told.leader = max(told.leader, leader)
        self.send("read", read_request(key, leader), code)

    def write(self, key: ShareKey) -> None:
        random, code, told = self.random, self.refusal(key), self.model.get(key)
        leader, epoch = self.near(told.leader if told else 0), self.near(told.state_epoch if told else 1)
        base = max(0, told.start if told else 0)
        pieces: list[Piece] = []
        for _ in range(random.randrange(4)):
            first = base + random.randrange(30)
            pieces.append(
                (first, first + random.choice((0, 3, 9)), random.choice((0, 2, 3, 4)), random.randrange(4))
            )
        start = random.choice((-1, base, base, base + random.randrange(8), max(0, base - 3)))
        complete = random.randrange(-1, 30)
        if code == ErrorCode.NONE and told:
            if leader != told.leader:
                code = ErrorCode.FENCED_LEADER_EPOCH
            elif epoch != told.state_epoch:
                code = ErrorCode.FENCED_STATE_EPOCH
            else:
                told.advance(start, complete, pieces)
        self.send("write", write_request(key, epoch, leader, start, complete, tuple(pieces)), code)

    def delete(self, key: ShareKey) -> None:
        told = self.model.get(key)
        epoch = self.random.choice((-1, self.near(told.state_epoch if told else 1)))
        if told is not None and (epoch < 0 or told.state_epoch <= epoch):
            del self.model[key]
        self.send("delete", delete_request(key, epoch), ErrorCode.NONE)

    # -- what happens to the coordinator --------------------------------------------------------------------

    def see_topics(self, _: ShareKey) -> None:
        coordinator = self.coordinator
        topics = TOPICS if PAYMENTS not in coordinator.topics else {ORDERS: TOPICS[ORDERS]}
        coordinator.see_topics(topics)
        coordinator.advance(0)
        self.forget_unknown_topics()

    def wait(self, _: ShareKey) -> None:
        self.coordinator.advance(self.random.choice((10, 1_500, 5_000)))
        # After a crash there may be states of a topic that went before it; a round forgets them.
        states, topics = self.coordinator.shard.states, self.coordinator.topics
        self.model = {
            key: told for key, told in self.model.items() if key.topic_id in topics or key in states
        }

    def forget_unknown_topics(self) -> None:
        self.model = {
            key: told for key, told in self.model.items() if key.topic_id in self.coordinator.topics
        }

    def crash(self, _: ShareKey) -> None:
        coordinator = self.coordinator
        ends = [n for n in self.boundaries if coordinator.committed <= n <= len(coordinator.log)]
        kept = self.random.choice(ends)
        self.boundaries = {n: model for n, model in self.boundaries.items() if n <= kept}
        self.model = deepcopy(self.boundaries[kept])
        coordinator.crash(kept)


def check_snapshot(key: ShareKey, state: ShareState) -> None:
    """A snapshot at any time says what the snapshot before it and the updates since have said."""
    again = replayed(None, snapshot_record(key, rewritten(state, state.written_ms)))
    assert again is not None
    assert again == state._replace(snapshot_epoch=state.snapshot_epoch + 1, updates=0)


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_the_log_tells_what_brokers_were_told(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
    answered = [walk.expected[ticket] for ticket in walk.coordinator.answers]
    assert answered.count(ErrorCode.NONE) > len(answered) / 10


@pytest.mark.parametrize("seed", range(5))
def test_a_log_that_begins_anywhere_before_the_redundant_offset_tells_the_same(seed: int) -> None:
    """Deleting less than could be deleted does no harm: what has lost its snapshot is passed over."""
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
    coordinator = walk.coordinator
    for start in range(coordinator.start_offset, coordinator.shard.redundant_before + 1):
        assert states_of(coordinator.log[start:]) == dict(coordinator.shard.states)


def states_of(log: Iterable[StateRecord]) -> dict[ShareKey, ShareState]:
    states: dict[ShareKey, ShareState | None] = {}
    for record in log:
        key = read_key(record)
        assert key is not None
        states[key] = replayed(states.get(key), record)
    return {key: state for key, state in states.items() if state is not None}
