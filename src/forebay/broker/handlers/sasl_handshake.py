"""SaslHandshake: the client names the mechanism that it logs in by.

After version 0 the messages of the login come without headers, which only clients from before 2018 do. It is
served in name, because librdkafka up to 2.0 takes a broker without it for one that has no SASL, and refused.
"""

from __future__ import annotations

from forebay.broker.authentication.logins import Logins
from forebay.broker.net.request_context import RequestContext
from forebay.errors import ErrorCode
from forebay.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(logins: Logins, context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    login = logins.of(context.connection)
    if login is None:  # a listener without logins
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    if context.api_version == 0:
        logins.refuse_handshake(login, "the client is too old: it sends logins without headers")
        return SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    code = logins.handshake(login, request.mechanism)
    return SaslHandshakeResponse(error_code=code, mechanisms=list(login.config.mechanisms))
