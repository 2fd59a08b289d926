"""What happens to a client's batch before a partition takes it: the form that is stored, and refusals."""

from __future__ import annotations

from forebay.core.partition.admission import VERIFY, Decision, Refused
from forebay.core.partition.batch_rules import AppendPolicy
from forebay.core.partition.record_rules import examine_at_once
from forebay.errors import ErrorCode, KafkaError, StorageError
from forebay.wire.batch import BatchHeader, patch_append_time, read_header


def as_stored(
    batch: memoryview, header: BatchHeader, policy: AppendPolicy, now_ms: int, examined: AppendPolicy | None
) -> tuple[memoryview, BatchHeader]:
    """The batch as its topic stores it: its records checked, under the topic's codec, at our time.

    `examined`: the policy under which the records were examined already, if they were.
    """
    if examined is not policy:
        batch = examine_at_once(batch, header, policy, now_ms)
    if policy.log_append_time:
        patch_append_time(batch, 0, now_ms)
    return batch, read_header(batch)


def refusal(header: BatchHeader, decision: Decision, *, asked: bool, offline: str | None) -> KafkaError:
    """The error for a batch that may not be appended.

    `asked`: the coordinator was asked about its transaction. `offline`: why the log takes nothing at present,
    or did not take the batch that the producer sent before.
    """
    if isinstance(decision, Refused):
        if decision.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and offline is not None:
            # The batch before it was refused because the disk is full, and the producer will retry both. If
            # this one were refused as out of order, the producer would begin a new epoch, and send messages
            # again that may be stored already.
            return StorageError(offline)
        return decision.error()
    assert decision is VERIFY
    reason = "ended before the batch could be appended" if asked else "does not include this partition"
    return KafkaError(
        ErrorCode.INVALID_TXN_STATE, f"the transaction of producer {header.producer_id} {reason}"
    )
