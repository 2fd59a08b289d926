"""Administration of delegation tokens at a broker. The client library has no such requests."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence

from forebay.errors import ErrorCode
from forebay.operations.client import Client, CommandError
from forebay.operations.wire import WireConnection, error_text
from forebay.wire.messages import create_delegation_token as creation
from forebay.wire.messages import describe_delegation_token as description
from forebay.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from forebay.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

_SECRET_CHARS = 88
_HINTS = {
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "log in as a user for it, by a SASL listener or with a"
    " certificate, and not with a token",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "the broker has forebay.delegation.tokens.enable=false, or no"
    " listener with SASL and SCRAM",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "to create a token for another user you need the right"
    " create-tokens of that user: `forebay acl add`",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "it is the token of somebody else",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "there is no such token: see `forebay token list`",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "the token has expired: create another",
    ErrorCode.POLICY_VIOLATION: "there are too many tokens, or too many renewers: let tokens expire, or raise"
    " forebay.delegation.tokens.per.owner.max, forebay.delegation.tokens.max or"
    " forebay.delegation.token.renewers.max",
}


def user_name(text: str) -> str:
    """The name of a user that is written as ada or User:ada."""
    return text.removeprefix("User:")


class TokenAdmin:
    """Use it with `with`."""

    def __init__(self, client: Client) -> None:
        self._connection = WireConnection.open(client)

    def __enter__(self) -> TokenAdmin:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def create(
        self, owner: str | None, renewers: Sequence[str], lifetime_ms: int
    ) -> creation.CreateDelegationTokenResponse:
        request = creation.CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else "User",
            owner_principal_name=None if owner is None else user_name(owner),
            renewers=[
                creation.CreatableRenewers(principal_type="User", principal_name=user_name(each))
                for each in renewers
            ],
            max_lifetime_ms=lifetime_ms,
        )
        answer = self._connection.ask(request, creation.CreateDelegationTokenResponse)
        _check(answer.error_code)
        return answer

    def renew(self, token: str, period_ms: int) -> int:
        """Renew a token; returns its new expiry time."""
        request = RenewDelegationTokenRequest(hmac=_given(token), renew_period_ms=period_ms)
        answer = self._connection.ask(request, RenewDelegationTokenResponse)
        _check(answer.error_code)
        return answer.expiry_timestamp_ms

    def expire(self, token: str, period_ms: int) -> int:
        request = ExpireDelegationTokenRequest(hmac=_given(token), expiry_time_period_ms=period_ms)
        answer = self._connection.ask(request, ExpireDelegationTokenResponse)
        _check(answer.error_code)
        return answer.expiry_timestamp_ms

    def describe(self, owners: Sequence[str]) -> list[description.DescribedDelegationToken]:
        """All visible tokens, or those that belong to one of these."""
        asked = [
            description.DescribeDelegationTokenOwner(principal_type="User", principal_name=user_name(each))
            for each in owners
        ]
        request = description.DescribeDelegationTokenRequest(owners=asked or None)
        answer = self._connection.ask(request, description.DescribeDelegationTokenResponse)
        _check(answer.error_code)
        return sorted(answer.tokens, key=lambda token: (token.principal_name, token.issue_timestamp))


def _given(token: str) -> bytes:
    """A secret is distinguished from an id by its length."""
    if len(token) == _SECRET_CHARS:
        try:
            return b64decode(token, validate=True)
        except ValueError:
            pass
    return token.encode()


def _check(error_code: int) -> None:
    if error_code:
        hint = _HINTS.get(ErrorCode(error_code)) if error_code in set(ErrorCode) else None
        raise CommandError(error_text(error_code, hint))
