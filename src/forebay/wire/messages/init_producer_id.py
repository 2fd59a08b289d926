"""InitProducerId: a producer id and epoch for idempotent and transactional producers."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, int16, int32, int64, string


class InitProducerIdRequest(Request, api_key=ApiKey.INIT_PRODUCER_ID, versions=(0, 5), flexible=2):
    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


class InitProducerIdResponse(Response, api_key=ApiKey.INIT_PRODUCER_ID, versions=(0, 5), flexible=2):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
