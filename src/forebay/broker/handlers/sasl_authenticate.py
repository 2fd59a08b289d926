"""SaslAuthenticate: one step of a login.

A login that fails is answered late, at the same time whatever it failed for, and the connection ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from forebay.broker.authentication.logins import Login, Logins, response
from forebay.broker.net.request_context import RequestContext
from forebay.core.security.sasl.exchange import Rejected
from forebay.core.security.sasl.login_session import Phase
from forebay.errors import ErrorCode
from forebay.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(
    logins: Logins, context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse | Coroutine[Any, Any, SaslAuthenticateResponse]:
    login = logins.of(context.connection)
    if login is None or login.session.phase is Phase.READY:
        return SaslAuthenticateResponse(
            error_code=ErrorCode.ILLEGAL_SASL_STATE,
            error_message="SaslAuthenticate request received after successful authentication",
        )
    return _step(logins, login, bytes(request.auth_bytes))  # a copy: the buffer is filled again meanwhile


async def _step(logins: Logins, login: Login, data: bytes) -> SaslAuthenticateResponse:
    loop = asyncio.get_running_loop()
    answer_at = loop.time() + login.config.failure_delay_ms / 1000
    step = await logins.authenticate(login, data)
    if isinstance(step, Rejected):
        await asyncio.sleep(answer_at - loop.time())
        loop.call_soon(login.connection.close_when_sent)
    return response(login.session, step)
