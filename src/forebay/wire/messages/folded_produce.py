"""FoldedProduce: a batch that was sent for a folded partition, for the leader of the one that takes it.

Between brokers; not in Kafka. The batch is as it will be stored, under the alias of its producer
(`core/partition/folds/aliases.py`).
"""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import (
    Request,
    Response,
    array,
    int16,
    int32,
    int64,
    records,
    string,
    uuid,
)
from forebay.wire.messages.produce import BatchIndexAndErrorMessage

NOTHING_KNOWN = -1


class FoldedProduceRequest(Request, api_key=ApiKey.FOLDED_PRODUCE, flexible=0):
    transactional_id: str | None = string(nullable="0+", default=None)
    produce_version: int = int16()
    """The version of the client's Produce request: that says which errors it understands."""
    acks: int = int16()
    timeout_ms: int = int32()
    topic_id: bytes = uuid()
    index: int = int32()
    """The partition that takes it."""
    before_epoch: int = int16(default=NOTHING_KNOWN)
    """If the closed partition knows the producer: its epoch there, and the next sequence."""
    before_next_sequence: int = int32(default=NOTHING_KNOWN)
    records: memoryview | None = records(nullable="0+")


class FoldedProduceResponse(Response, api_key=ApiKey.FOLDED_PRODUCE, flexible=0):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    base_offset: int = int64(default=-1)
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64(default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage)
