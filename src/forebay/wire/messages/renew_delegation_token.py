"""RenewDelegationToken: extend a token, up to its maximum lifetime."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, binary, int16, int32, int64


class RenewDelegationTokenRequest(
    Request, api_key=ApiKey.RENEW_DELEGATION_TOKEN, versions=(1, 2), flexible=2
):
    hmac: bytes = binary()
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(
    Response, api_key=ApiKey.RENEW_DELEGATION_TOKEN, versions=(1, 2), flexible=2
):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
