"""The records of __transaction_state: one key per transactional id, whose value is its whole state.

One field is Forebay's. Kafka forgets the epoch before the last bump when a coordinator moves, and cannot
recognise repeated requests then. Forebay writes it as a tagged field far above Kafka's own, which Kafka's
readers skip.
"""

from __future__ import annotations

from forebay.wire.fields import Message, Struct, array, int8, int16, int32, int64, string


class TransactionLogKey(Message, versions=(0, 0)):
    transactional_id: str = string()


class PartitionsSchema(Struct):
    topic: str = string()
    partition_ids: list[int] = array(int32)


class TransactionLogValue(Message, versions=(0, 1), flexible=1):
    producer_id: int = int64()
    previous_producer_id: int = int64("1+", default=-1, tag=0)
    next_producer_id: int = int64("1+", default=-1, tag=1)
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", tag=2)
    last_producer_epoch: int = int16("1+", default=-1, tag=1000)
