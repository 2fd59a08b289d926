"""ExpireDelegationToken: let a token end sooner, or at once."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, binary, int16, int32, int64


class ExpireDelegationTokenRequest(
    Request, api_key=ApiKey.EXPIRE_DELEGATION_TOKEN, versions=(1, 2), flexible=2
):
    hmac: bytes = binary()
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(
    Response, api_key=ApiKey.EXPIRE_DELEGATION_TOKEN, versions=(1, 2), flexible=2
):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
