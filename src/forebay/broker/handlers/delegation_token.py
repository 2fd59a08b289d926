"""CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken and DescribeDelegationToken.

Few clusters use them, so what does the work is imported and made with the first of these requests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from forebay.broker.net.request_context import RequestContext

if TYPE_CHECKING:
    from forebay.broker.tokens.delegation_tokens import DelegationTokens
    from forebay.wire.messages.create_delegation_token import (
        CreateDelegationTokenRequest,
        CreateDelegationTokenResponse,
    )
    from forebay.wire.messages.describe_delegation_token import (
        DescribeDelegationTokenRequest,
        DescribeDelegationTokenResponse,
    )
    from forebay.wire.messages.expire_delegation_token import (
        ExpireDelegationTokenRequest,
        ExpireDelegationTokenResponse,
    )
    from forebay.wire.messages.renew_delegation_token import (
        RenewDelegationTokenRequest,
        RenewDelegationTokenResponse,
    )

TokenService = Callable[[], "DelegationTokens"]


def create(
    tokens: TokenService, context: RequestContext, request: CreateDelegationTokenRequest
) -> Awaitable[CreateDelegationTokenResponse]:
    return tokens().create(context, request)


def renew(
    tokens: TokenService, context: RequestContext, request: RenewDelegationTokenRequest
) -> Awaitable[RenewDelegationTokenResponse]:
    return tokens().renew(context, request)


def expire(
    tokens: TokenService, context: RequestContext, request: ExpireDelegationTokenRequest
) -> Awaitable[ExpireDelegationTokenResponse]:
    return tokens().expire(context, request)


def describe(
    tokens: TokenService, context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    return tokens().describe(context, request)
