"""Delegation tokens: created, renewed, ended and described by clients, and kept in the store.

`core/security/delegation_tokens.py` decides. What a client may do depends on how it has logged in and on each
token, so it is checked here and not by a guard.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from forebay.broker.authentication.logins import OAUTHBEARER, Logins
from forebay.broker.authorization.authorization import Authorization
from forebay.broker.broker_time import BrokerTime
from forebay.broker.live_config import LiveConfig
from forebay.broker.net.connection import ANONYMOUS, Connection
from forebay.broker.net.request_context import RequestContext
from forebay.broker.tokens.change_turns import ChangeTurns
from forebay.broker.worker_threads import LazyThreads
from forebay.config import DelegationTokenConfig
from forebay.coordination.metadata import Metadata
from forebay.core.acls.bindings import CLUSTER_NAME, Operation, ResourceType
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change
from forebay.core.cluster.images.delegation_token import DelegationToken
from forebay.core.cluster.images.token_image import TokenPut
from forebay.core.security import delegation_tokens as rules
from forebay.errors import ErrorCode, KafkaError
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
from forebay.wire.sasl.scram import BY_NAME

log = logging.getLogger(__name__)

_CHARS_LOGGED = 300
_TOKEN, _USER = ResourceType.DELEGATION_TOKEN, ResourceType.USER


class DelegationTokens:
    def __init__(
        self,
        *,
        settings: LiveConfig,
        metadata: Metadata,
        logins: Logins,
        authorization: Authorization | None,
        threads: LazyThreads,
        time: BrokerTime,
        loop: asyncio.AbstractEventLoop,
        entropy: Callable[[int], bytes],
    ) -> None:
        self._settings = settings
        self._metadata = metadata
        self._logins = logins
        self._authorization = authorization
        self._threads = threads
        self._time = time
        self._entropy = entropy
        self._index = rules.TokenIndex()
        self._turns = ChangeTurns(loop.time, settings.current.tokens.changes_per_second_max)

    # -- creating --------------------------------------------------------------------------------------

    async def create(
        self, context: RequestContext, request: creation.CreateDelegationTokenRequest
    ) -> creation.CreateDelegationTokenResponse:
        requester = context.connection.principal
        owner = _owner(request) or requester
        about = _owner_fields(owner, requester)
        context.concerns(f"token of {owner}")
        try:
            self._check_allowed(context.connection)
            async with self._turns.of(requester):
                token, secret = await self._create(context, request, owner)
        except KafkaError as error:
            _log_refusal("a delegation token was not created", context, error, owner=owner[:_CHARS_LOGGED])
            return creation.CreateDelegationTokenResponse(error_code=error.code, **about)
        context.concerns(token.id)
        facts = {"token": token.id, "owner": owner, "by": requester, "renewers": len(token.renewers)}
        log.info("a delegation token was created", extra=facts)
        return creation.CreateDelegationTokenResponse(
            issue_timestamp_ms=token.issued_ms,
            expiry_timestamp_ms=token.expires_ms,
            max_timestamp_ms=token.max_ms,
            token_id=token.id,
            hmac=secret,
            **about,
        )

    async def _create(
        self, context: RequestContext, request: creation.CreateDelegationTokenRequest, owner: str
    ) -> tuple[DelegationToken, bytes]:
        connection = context.connection
        if owner != connection.principal:
            self._check_may_create_for(context, owner)
        config = self._enabled()
        wanted = rules.Wanted(
            owner=owner,
            requester=connection.principal,
            requester_is_stored=self._is_stored(connection),
            renewers=[_principal(each) for each in request.renewers],
            lifetime_ms=request.max_lifetime_ms,
        )
        rules.check_wanted(self._metadata.image, wanted, config)  # before the work of deriving keys
        token_id = rules.new_id(self._entropy)
        secret = self._secret(config, token_id) or self._entropy(rules.SECRET_BYTES)
        new = await self._threads.run(lambda: rules.new_token(token_id, secret, self._entropy))
        token = rules.created(wanted, new, config, self._time.now_ms())

        def plan(image: ClusterImage) -> list[Change]:
            rules.check_wanted(image, wanted, config)
            return [TokenPut(token=token)]

        await self._metadata.change(plan)
        return token, secret

    # -- renewing and ending ---------------------------------------------------------------------------

    async def renew(
        self, context: RequestContext, request: RenewDelegationTokenRequest
    ) -> RenewDelegationTokenResponse:
        given, now_ms = bytes(request.hmac), self._time.now_ms()
        principal = context.connection.principal
        renewed: list[DelegationToken] = []

        def plan(image: ClusterImage) -> list[Change]:
            token = self._found(context, image, given)
            if self._is_stored(context.connection):
                rules.check_not_deleted(image, principal)
            renewed[:] = [rules.renewed(token, principal, request.renew_period_ms, config, now_ms)]
            return [TokenPut(token=each) for each in renewed]

        try:
            self._check_allowed(context.connection)
            config = self._enabled()
            async with self._turns.of(principal):
                await self._metadata.change(plan)
        except KafkaError as error:
            _log_refusal("a delegation token was not renewed", context, error)
            return RenewDelegationTokenResponse(error_code=error.code)
        (token,) = renewed
        log.info("a delegation token was renewed", extra={"token": token.id, "by": principal})
        return RenewDelegationTokenResponse(expiry_timestamp_ms=token.expires_ms)

    async def expire(
        self, context: RequestContext, request: ExpireDelegationTokenRequest
    ) -> ExpireDelegationTokenResponse:
        given, now_ms = bytes(request.hmac), self._time.now_ms()
        principal = context.connection.principal
        ended: list[tuple[DelegationToken, int]] = []

        def plan(image: ClusterImage) -> list[Change]:
            token, period_ms = self._found(context, image, given), request.expiry_time_period_ms
            found = rules.ended(token, principal, period_ms, now_ms, may_end_any=self._may_end_any(context))
            assert token is not None
            ended[:] = [(token, found[0])]
            return [found[1]]

        try:
            self._check_allowed(context.connection)
            self._enabled()
            async with self._turns.of(principal):
                await self._metadata.change(plan)
        except KafkaError as error:
            _log_refusal("a delegation token was not ended", context, error)
            return ExpireDelegationTokenResponse(error_code=error.code)
        ((token, expires_ms),) = ended
        facts = {"token": token.id, "owner": token.owner, "by": principal, "at": expires_ms}
        log.info("a delegation token was ended", extra=facts)
        return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_ms)

    def _found(self, context: RequestContext, image: ClusterImage, given: bytes) -> DelegationToken | None:
        token = self._index.find(image.tokens, given)
        if token is not None:
            context.concerns(f"token of {token.owner}")
            context.concerns(token.id)
        return token

    # -- describing ------------------------------------------------------------------------------------

    def describe(
        self, context: RequestContext, request: description.DescribeDelegationTokenRequest
    ) -> description.DescribeDelegationTokenResponse:
        principal = context.connection.principal
        try:
            self._check_allowed(context.connection)
            config = self._enabled()
        except KafkaError as error:
            return description.DescribeDelegationTokenResponse(error_code=error.code)
        owners = None if request.owners is None else {_principal(each) for each in request.owners}
        tokens = self._metadata.image.tokens.values()
        return description.DescribeDelegationTokenResponse(
            tokens=[
                self._described(token, principal, config)
                for token in rules.visible(tokens, principal, owners, self._may_see(context))
            ]
        )

    def _described(
        self, token: DelegationToken, principal: str, config: DelegationTokenConfig
    ) -> description.DescribedDelegationToken:
        return description.DescribedDelegationToken(
            issue_timestamp=token.issued_ms,
            expiry_timestamp=token.expires_ms,
            max_timestamp=token.max_ms,
            token_id=token.id,
            hmac=self._shown_secret(token, principal, config),
            renewers=[
                description.DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
                for kind, name in map(_parts, token.renewers)
            ],
            **_owner_fields(token.owner, token.requester),
        )

    def _shown_secret(self, token: DelegationToken, principal: str, config: DelegationTokenConfig) -> bytes:
        """The secret, if it can be derived and is the client's to know; else the id, which renews and ends
        the token as well but is no login."""
        if principal in (token.owner, token.requester):
            secret = self._secret(config, token.id)
            if secret is not None and rules.digest_of(secret) == token.digest:
                return secret
        return token.id.encode()

    # -- what is allowed -------------------------------------------------------------------------------

    def _enabled(self) -> DelegationTokenConfig:
        """The settings. Raises KafkaError where nobody could log in with a token."""
        current = self._settings.current
        has_scram = any(
            listener.protocol.is_sasl
            and not BY_NAME.keys().isdisjoint(current.sasl_of(listener.name).mechanisms)
            for listener in current.node.listeners.all
        )
        if not current.tokens.is_enabled or not has_scram:
            raise KafkaError(
                ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
                "set forebay.delegation.tokens.enable=true, and have a listener with SASL and SCRAM",
            )
        return current.tokens

    def _check_allowed(self, connection: Connection) -> None:
        """A client must have shown who it is, and not by a token."""
        login, protocol = self._logins.of(connection), connection.listener.protocol
        unknown = not protocol.is_sasl and (not protocol.is_tls or connection.principal == ANONYMOUS)
        if unknown or (login is not None and login.token_id):
            raise KafkaError(
                ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
                "a client has to log in for it, by other means than a token",
            )

    def _is_stored(self, connection: Connection) -> bool:
        login = self._logins.of(connection)
        return login is not None and login.session.mechanism != OAUTHBEARER

    def _check_may_create_for(self, context: RequestContext, owner: str) -> None:
        if self._authorization is None:
            return
        access = self._authorization.access(context)
        if access.refuses(Operation.CREATE_TOKENS, _USER, owner):
            self._authorization.refused(context, access.refused)
            raise KafkaError(
                ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, "it may not create tokens of that user"
            )

    def _may_end_any(self, context: RequestContext) -> bool:
        """Whoever may alter the cluster may also end tokens that are not its own."""
        if self._authorization is None:
            return False
        return self._authorization.access(context).may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)

    def _may_see(self, context: RequestContext) -> Callable[[DelegationToken], bool]:
        """A function that is True for tokens of others that a client may see. Most may see none: asked
        once."""
        if self._authorization is None:
            return lambda _: True
        access = self._authorization.access(context)
        sees_tokens = access.may_some(Operation.DESCRIBE, _TOKEN)
        sees_owners = access.may_some(Operation.DESCRIBE_TOKENS, _USER)

        def may_see(token: DelegationToken) -> bool:
            return (sees_owners and access.may(Operation.DESCRIBE_TOKENS, _USER, token.owner)) or (
                sees_tokens and access.may(Operation.DESCRIBE, _TOKEN, token.id)
            )

        return may_see

    def _secret(self, config: DelegationTokenConfig, token_id: str) -> bytes | None:
        key = config.key
        return rules.derived_secret(key.reveal(), token_id) if key else None


def _owner(request: creation.CreateDelegationTokenRequest) -> str | None:
    """The owner that a request names, if it does."""
    name = request.owner_principal_name
    return f"{request.owner_principal_type or rules.USER}:{name}" if name else None


def _principal(named: creation.CreatableRenewers | description.DescribeDelegationTokenOwner) -> str:
    return f"{named.principal_type}:{named.principal_name}"


def _parts(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name


def _owner_fields(owner: str, requester: str) -> dict[str, Any]:
    owner_type, owner_name = _parts(owner)
    requester_type, requester_name = _parts(requester)
    return {
        "principal_type": owner_type,
        "principal_name": owner_name,
        "token_requester_principal_type": requester_type,
        "token_requester_principal_name": requester_name,
    }


def _log_refusal(what: str, context: RequestContext, error: KafkaError, **more: str) -> None:
    connection = context.connection
    client = f"{connection.peer[0]}:{connection.peer[1]}"
    facts = {"principal": connection.principal, "client": client, "reason": error.message}
    log.warning(what, extra=facts | more)
