"""SaslHandshake: agree on a SASL mechanism."""

from __future__ import annotations

from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Request, Response, array, int16, string


class SaslHandshakeRequest(Request, api_key=ApiKey.SASL_HANDSHAKE, versions=(0, 1)):
    mechanism: str = string()


class SaslHandshakeResponse(Response, api_key=ApiKey.SASL_HANDSHAKE, versions=(0, 1)):
    error_code: int = int16()
    mechanisms: list[str] = array(string)
