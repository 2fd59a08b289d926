"""Which states are held against the log: those that were not loaded in this term."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.broker.shares.persistence import state_reads
from forebay.broker.shares.persistence.state_reads import StateReads
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.partition.leadership import Leadership
from forebay.core.shares.coordinator.persisted_state import ShareKey
from forebay.wire.messages.read_share_group_state import PartitionResult

EPOCH = 4
END_BEFORE = 10


class LedPartition:
    """What the reads look at of a partition."""

    def __init__(self) -> None:
        state = PartitionState(index=0, leader=1, leader_epoch=EPOCH, replicas=(1,), isr=(1,))
        self.leadership = Leadership(me=1, state=state, end_offset=END_BEFORE, now_ms=0)

    def end_of_epoch(self, epoch: int, end_offset: int) -> tuple[int, int]:
        return epoch, end_offset


def key(number: int) -> ShareKey:
    return ShareKey(f"group-{number}", bytes(16), 0)


def written_in(epoch: int) -> PartitionResult:
    return PartitionResult(start_offset=END_BEFORE + 5, written_epoch=epoch, previous_leader_epoch=epoch)


def test_names_of_groups_are_not_kept_without_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_reads, "GROUPS_MAX", 100)
    reads = StateReads(None, lambda _: None)  # type: ignore[arg-type]
    partition: Any = LedPartition()
    assert reads._lost_from(partition, "group-0", written_in(EPOCH)) == END_BEFORE, "nothing was loaded yet"
    for number in range(1_000):
        reads.loaded(key(number), partition)
    (known,) = reads._loaded.values()
    assert len(known.groups) == 100
    for number in (0, 950, 999):
        assert reads._lost_from(partition, f"group-{number}", written_in(EPOCH)) is None
    assert reads._lost_from(partition, "group-0", written_in(EPOCH - 1)) == END_BEFORE
    assert reads._lost_from(partition, "group-999", written_in(EPOCH - 1)) is None
