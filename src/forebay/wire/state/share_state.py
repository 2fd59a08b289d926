"""The records of __share_group_state: the delivery state of each share partition.

A snapshot is complete; the updates after it are changes. A snapshot without a value deletes both. The version
of a key says which of the two it is.
"""

from __future__ import annotations

from forebay.wire.fields import Message, Struct, array, int8, int16, int32, int64, string, uuid


class StateBatch(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class ShareSnapshotKey(Message, versions=(0, 0)):
    group_id: str = string()
    topic_id: bytes = uuid()
    partition: int = int32()


class ShareSnapshotValue(Message, versions=(0, 0), flexible=0):
    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    create_timestamp_ms: int = int64()
    write_timestamp_ms: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)
    written_epoch: int = int32(default=-1, tag=1000)
    """The epoch of the last leader that wrote any of it. Forebay's: Kafka's readers skip it."""


class ShareUpdateKey(Message, versions=(1, 1)):
    group_id: str = string()
    topic_id: bytes = uuid()
    partition: int = int32()


class ShareUpdateValue(Message, versions=(0, 0), flexible=0):
    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    """-1: it stays as it was."""
    delivery_complete_count: int = int32(default=-1, tag=0)
    state_batches: list[StateBatch] = array(StateBatch)
