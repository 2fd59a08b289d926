"""Why a partition refuses a client's batch, and the form in which it stores one that it takes."""

from __future__ import annotations

from forebay.core.partition.batch_rules import AppendPolicy
from forebay.core.partition.delayed_on_append import Delayed
from forebay.core.partition.producers.producer_admission import VERIFY, Decision, Refused
from forebay.core.partition.producers.producer_table import ProducerTable
from forebay.core.partition.record_rules import UNEXAMINED, Examined, Unexamined, examine_at_once
from forebay.errors import ErrorCode, KafkaError, StorageError
from forebay.storage.log.log import Log
from forebay.wire.batch import HEADER_SIZE, BatchHeader, patch_append_time, read_header


def as_stored(
    batch: memoryview, header: BatchHeader, policy: AppendPolicy, now_ms: int, examined: Examined | None
) -> tuple[memoryview, BatchHeader, Delayed | None] | Unexamined:
    """The batch as its topic stores it: its records checked, under the topic's codec, at our time; and what
    was taken out of it, to be delivered later.

    `examined`: what came of it in a thread, if it was examined there.
    """
    if examined is None or examined.policy is not policy:
        found = examine_at_once(batch, header, policy, now_ms)
        if found is UNEXAMINED:
            return UNEXAMINED
        examined = found
    stored = examined.batch
    if policy.log_append_time:
        patch_append_time(stored, 0, now_ms)
    return stored, read_header(stored), examined.delayed


def require_known_producers(log: Log) -> None:
    """Raise StorageError if the producers of a log may be known only as they were before it was truncated.

    Batches that were cut off would be acknowledged as repeats.
    """
    if log.offline_for_good:
        raise StorageError(log.offline or "the log is offline")


def refusal(header: BatchHeader, decision: Decision, *, asked: bool, offline: str | None) -> KafkaError:
    """The error for a batch that may not be appended.

    `asked`: the coordinator was asked about its transaction. `offline`: why the log takes nothing at present.
    """
    if isinstance(decision, Refused):
        if decision.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and offline is not None:
            # The batch before it could not be written, and the producer will send both again
            # (`refused_batches.py` says why it must not be told that this one is out of order).
            return StorageError(offline)
        return decision.error()
    assert decision is VERIFY
    reason = "ended before the batch could be appended" if asked else "does not include this partition"
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE, f"the transaction of producer {header.producer_id} {reason}"
    )


def not_enough_replicas(partition: str, producers: ProducerTable, batch: memoryview | None) -> KafkaError:
    """The error for a batch that asks for more replicas than are in sync."""
    if batch is not None and len(batch) >= HEADER_SIZE:
        # It may repeat a batch from before they went away, and is to be found as a repeat once they are back.
        producers.heard(read_header(batch).producer_id)
    return KafkaError(
        ErrorCode.NOT_ENOUGH_REPLICAS,
        f"fewer replicas of {partition} are in sync than min.insync.replicas asks for",
    )


def filled_by_view(topic: str) -> KafkaError:
    """The error for a client that writes to what brokers fill."""
    return KafkaError(
        ErrorCode.POLICY_VIOLATION, f"{topic!r} is a materialized view: write to the topic that it is made of"
    )
