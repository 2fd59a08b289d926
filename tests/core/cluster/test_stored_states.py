"""States of partitions as they are stored: thousands with the same few values are read and kept once."""

from __future__ import annotations

import pytest

from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.stored.image_text import decode_partition, encode_partition
from forebay.errors import ProtocolError

STATE = PartitionState(
    index=3,
    leader=2,
    leader_epoch=5,
    isr=(2, 3),
    replicas=(1, 2, 3),
    partition_epoch=99,
    adding=(3,),
    removing=(1,),
    eligible=(1,),
    synced=True,
    restored=2,
    doubted=True,
)


def test_a_state_is_read_as_it_was_written_wherever_it_is() -> None:
    value = encode_partition(STATE)
    assert decode_partition(3, value, 99) == STATE
    other = decode_partition(4, value, 100)
    assert (other.index, other.partition_epoch) == (4, 100)
    assert other.at(3, 99) == STATE


def test_partitions_with_the_same_state_share_what_it_is_made_of() -> None:
    value = encode_partition(STATE)
    first, second = decode_partition(1, value, 7), decode_partition(2, bytes(bytearray(value)), 8)
    assert first.replicas is second.replicas
    assert first.isr is second.isr


def test_what_differs_is_written_differently() -> None:
    plain = PartitionState(index=0, leader=1, leader_epoch=1, isr=(1,), replicas=(1, 2))
    others = [
        PartitionState(index=0, leader=1, leader_epoch=1, isr=(1,), replicas=(1, 2), synced=True),
        PartitionState(index=0, leader=1, leader_epoch=1, isr=(1,), replicas=(1, 2), eligible=(2,)),
        PartitionState(index=0, leader=1, leader_epoch=1, isr=(1,), replicas=(1, 2), restored=1),
        PartitionState(index=0, leader=1, leader_epoch=1, isr=(1,), replicas=(1, 2), doubted=True),
        PartitionState(index=0, leader=1, leader_epoch=2, isr=(1,), replicas=(1, 2)),
    ]
    assert len({encode_partition(each) for each in [plain, *others]}) == 6


def test_a_value_that_cannot_be_read_names_its_partition_each_time() -> None:
    for index in (5, 6):
        with pytest.raises(ProtocolError, match=f"state of partition {index} "):
            decode_partition(index, b'{"leader":1}', 9)
