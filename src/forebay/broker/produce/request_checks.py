"""What a Produce request must not ask for, whatever becomes of its batches."""

from __future__ import annotations

from forebay.broker.produce.write_cycle import ACKS_ALL
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import HEADER_SIZE, is_transactional, read_header
from forebay.wire.compression import Codec
from forebay.wire.messages.produce import ProduceRequest

FORMAT_V2_FROM = 3
ZSTD_FROM = 7
_ACKS = (ACKS_ALL, 0, 1)


def check_request(version: int, request: ProduceRequest, records: memoryview | None) -> None:
    """Raise KafkaError for what is wrong with a request before its batch is looked at."""
    if version < FORMAT_V2_FROM:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "only message format 2 is stored; use a client of Kafka 0.11 or later",
        )
    if request.acks not in _ACKS:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be all, 0 or 1, not {request.acks}")
    if request.transactional_id is not None and request.acks == 0:
        raise KafkaError(
            ErrorCode.INVALID_REQUIRED_ACKS, "a transaction needs acknowledgements: set acks=all"
        )
    if request.transactional_id is None and is_transactional(records):
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a transactional batch needs the transactional id of its producer in the request",
        )
    if version < ZSTD_FROM and records is not None and _codec(records) == Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce {ZSTD_FROM} or later, not {version}"
        )


def _codec(records: memoryview) -> int:
    return read_header(records).codec if len(records) >= HEADER_SIZE else Codec.NONE
