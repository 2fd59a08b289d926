"""AlterDelays: cancel delayed messages, or deliver them now. Sent to the leader."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, Struct, array, int8, int16, int32, int64, string

CANCEL = 0
FIRE = 1
IDS_MAX = 1_000
"""The most messages of one request."""


class AlterDelaysRequest(Request, api_key=ApiKey.ALTER_DELAYS, flexible=0):
    topic: str = string()
    partition: int = int32()
    action: int = int8()
    """CANCEL or FIRE."""
    ids: list[int] = array(int64)
    """As in DelayedMessage."""
    timeout_ms: int = int32(default=30_000)


class AlteredDelay(Struct):
    id: int = int64()
    error_code: int = int16()
    """RESOURCE_NOT_FOUND: it does not wait any more, or never did. Cancelling a message that was already
    cancelled by such a request is no error."""


class AlterDelaysResponse(Response, api_key=ApiKey.ALTER_DELAYS, flexible=0):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    """The error of the request as a whole."""
    results: list[AlteredDelay] = array(AlteredDelay)
