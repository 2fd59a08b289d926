"""Leaders of a share partition and its coordinator together: what one writes is what the next one reads.

The leaders are real share partitions, one after the other; members take records and acknowledge them at
random. Each write goes to the coordinator, some of them twice, some once more when they are long out of date;
it is compared with a store that has one entry per offset. A leader that was replaced can write no more.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from forebay.config import ShareCoordinatorConfig
from forebay.core.shares.partition.share_partition import SharePartition
from forebay.core.shares.partition.state_transitions import RecordState
from forebay.core.shares.partition.writes import StateRange, StateWrite
from forebay.errors import ErrorCode
from support.machines.share_coordinator import ShareCoordinator
from support.machines.share_leader import ACCEPT, GAP, REJECT, RELEASE, SETTINGS, ShareLeader


class Leaders:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.coordinator = ShareCoordinator(config=ShareCoordinatorConfig(updates_per_snapshot=7))
        assert self.coordinator.initialize(start=0) == ErrorCode.NONE
        self.leader = ShareLeader(replace(SETTINGS, has_dead_letters=seed % 2 == 0))
        self.epoch = 0
        self.old_writes: list[StateWrite] = []
        self.load()

    def load(self) -> None:
        """A new leader reads what there is, and fences the one before it."""
        self.epoch += 1
        read = self.coordinator.read(leader=self.epoch)
        assert (read.error_code, read.state_epoch) == (ErrorCode.NONE, 1)
        self.leader.shares = SharePartition(
            self.leader.settings,
            start_offset=read.start_offset,
            ranges=[
                StateRange(
                    each.first_offset,
                    each.last_offset,
                    RecordState(each.delivery_state),
                    each.delivery_count,
                )
                for each in read.state_batches
            ],
            leader_epoch=self.epoch,
            state_epoch=read.state_epoch,
        )
        if self.old_writes:
            assert self.write(self.old_writes[-1], self.epoch - 1) == ErrorCode.FENCED_LEADER_EPOCH

    def write(self, write: StateWrite, epoch: int) -> int:
        return self.coordinator.write(
            *write.ranges, leader=epoch, start=write.start_offset, complete=write.delivery_complete_count
        )

    def save(self) -> None:
        for write in self.leader.save():
            late = self.random.choice(self.old_writes) if self.old_writes else write
            for each in (write, *self.random.choices((write, late), k=self.random.randrange(3))):
                assert self.write(each, self.epoch) == ErrorCode.NONE
            self.old_writes.append(write)

    def act(self) -> None:
        random, leader = self.random, self.leader
        match random.randrange(10):
            case 0 | 1 | 2:
                leader.take(
                    random.choice("mn"), random.randrange(1, 30), is_record_limit=random.random() < 0.3
                )
            case 3 | 4 | 5 | 6:
                span = random.choice(leader.shares.window.spans or [None])
                if span is not None:
                    first = random.randint(span.first, span.last)
                    last = random.randint(first, span.last)
                    kind = random.choice((GAP, ACCEPT, ACCEPT, RELEASE, REJECT))
                    leader.acknowledge(first, last, kind, member=random.choice("mn"))
            case 7:
                leader.advance(random.choice((10, 2_000)))
            case 8:
                for letters in leader.shares.dead_letters():
                    leader.shares.dead_lettered([(letters.first, letters.last)])
            case _:
                self.load()
        if random.random() < 0.7:
            self.save()

    def check(self) -> None:
        state, stored = self.coordinator.state(), self.leader.stored
        assert state.start_offset == stored.start_offset
        offsets = {
            offset: (each.delivery_count, each.state)
            for each in state.ranges
            for offset in range(each.first, each.last + 1)
        }
        assert offsets == stored.states


@pytest.mark.parametrize("seed", range(10))
def test_each_leader_reads_what_the_ones_before_it_have_written(seed: int) -> None:
    leaders = Leaders(seed)
    for _ in range(150):
        leaders.act()
        leaders.check()
    assert leaders.coordinator.state().start_offset > 0
    assert leaders.epoch > 1
