"""SaslAuthenticate: one step of a SASL exchange."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, binary, int16, int64, string


class SaslAuthenticateRequest(Request, api_key=ApiKey.SASL_AUTHENTICATE, versions=(0, 2), flexible=2):
    auth_bytes: bytes = binary()


class SaslAuthenticateResponse(Response, api_key=ApiKey.SASL_AUTHENTICATE, versions=(0, 2), flexible=2):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    auth_bytes: bytes = binary()
    session_lifetime_ms: int = int64("1+")
