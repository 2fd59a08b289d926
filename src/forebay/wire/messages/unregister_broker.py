"""UnregisterBroker: forget a broker that will not come back."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, int16, int32, string


class UnregisterBrokerRequest(Request, api_key=ApiKey.UNREGISTER_BROKER, versions=(0, 0), flexible=0):
    broker_id: int = int32()


class UnregisterBrokerResponse(Response, api_key=ApiKey.UNREGISTER_BROKER, versions=(0, 0), flexible=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
