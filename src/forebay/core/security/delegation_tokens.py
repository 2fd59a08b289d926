"""Delegation tokens (KIP-48, KIP-373): who may create, renew, end and see them, and for how long they last.

A token is a login for a while: an id, which is the name, and a secret, which is the password of a SCRAM
exchange. A client that logs in with it has the principal of the token's owner, and may not create further
tokens.

Kafka calls the secret an HMAC, because it derives it from the id with a key that all brokers share. Here the
key is optional: without it the secret is random. Either way the store has only the keys that verify a login,
and a digest by which the token is found. Renewing and ending a token take its secret, as in Kafka, or its id:
the requester's principal decides.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Protocol

from forebay.config.names import WHITE_SPACE, is_trimmed
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.images.delegation_token import DelegationToken
from forebay.core.cluster.images.token_image import TokenDeleted, TokenPut
from forebay.core.cluster.images.user_image import ScramCredential
from forebay.core.security.users import NAME_CHARS_MAX, new_credential
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass
from forebay.wire.sasl.scram import ITERATIONS_MIN, ScramMechanism

USER = "User"
SECRET_BYTES = 64
_ID_BYTES = 16
_SALT_BYTES = 24
_REMOVED_AT_ONCE = 1_000
_TIME_MAX_MS = 2**62
"""Far beyond any date, and far below the limit of a field in a message."""


class Limits(Protocol):
    """`DelegationTokenConfig`."""

    @property
    def lifetime_ms_max(self) -> int: ...
    @property
    def expiry_ms(self) -> int: ...
    @property
    def count_max(self) -> int: ...
    @property
    def count_of_owner_max(self) -> int: ...
    @property
    def renewers_max(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A request for a token."""

    owner: str
    requester: str
    requester_is_stored: bool
    """True if the requester has logged in with the password of a user in the store."""
    renewers: Sequence[str]
    lifetime_ms: int
    """0 or less: as long as allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewToken:
    """The generated and derived parts of a token before it is stored."""

    id: str
    secret: bytes = field(repr=False)
    credentials: Mapping[ScramMechanism, ScramCredential]


def new_id(entropy: Callable[[int], bytes]) -> str:
    """An id like Kafka's: never with a leading dash, which tools would take for an option."""
    while (text := urlsafe_b64encode(entropy(_ID_BYTES)).rstrip(b"=").decode()).startswith("-"):
        pass
    return text


def derived_secret(key: str, token_id: str) -> bytes:
    """Kafka's HMAC."""
    return hmac.digest(key.encode(), token_id.encode(), "sha512")


def password_of(secret: bytes) -> str:
    return b64encode(secret).decode()


def digest_of(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


def new_token(token_id: str, secret: bytes, salt: Callable[[int], bytes]) -> NewToken:
    """Derives the SCRAM keys. Takes some milliseconds."""
    password = password_of(secret)
    credentials = {
        each: new_credential(each, password, salt(_SALT_BYTES), ITERATIONS_MIN) for each in ScramMechanism
    }
    return NewToken(id=token_id, secret=secret, credentials=credentials)


# -- what is allowed ---------------------------------------------------------------------------------------


def check_wanted(image: ClusterImage, wanted: Wanted, limits: Limits) -> None:
    """Raises KafkaError for an invalid token."""
    for principal in (wanted.owner, *wanted.renewers):
        kind, _, name = principal.partition(":")
        if kind != USER:
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE, f"{principal!r} is no user")
        if not name or len(name) > NAME_CHARS_MAX or not name.isprintable():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{principal[:NAME_CHARS_MAX]!r} is no user's name")
        if principal != wanted.requester and not is_trimmed(name):
            # No rule for the intended user would apply to this one.
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{principal!r} has {WHITE_SPACE.format(what='user')}"
            )
    if wanted.requester_is_stored:
        check_not_deleted(image, wanted.requester)
    if len(wanted.renewers) > limits.renewers_max:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{len(wanted.renewers)} renewers: forebay.delegation.token.renewers.max={limits.renewers_max}",
        )
    if len(image.tokens) >= limits.count_max:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"there are {len(image.tokens)} tokens: forebay.delegation.tokens.max={limits.count_max}",
        )
    owned = sum(token.owner == wanted.owner for token in image.tokens.values())
    if owned >= limits.count_of_owner_max:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{wanted.owner} has {owned} tokens: let some expire, or raise"
            f" forebay.delegation.tokens.per.owner.max={limits.count_of_owner_max}",
        )


def check_not_deleted(image: ClusterImage, principal: str) -> None:
    """Raises KafkaError if the requesting user has been deleted since its login."""
    if principal.partition(":")[2] not in image.users:
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, "the user who asks was deleted meanwhile"
        )


def created(wanted: Wanted, new: NewToken, limits: Limits, now_ms: int) -> DelegationToken:
    lifetime_ms = limits.lifetime_ms_max
    if wanted.lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, wanted.lifetime_ms)
    max_ms = min(now_ms + lifetime_ms, _TIME_MAX_MS)
    return DelegationToken(
        id=new.id,
        owner=wanted.owner,
        requester=wanted.requester,
        renewers=tuple(dict.fromkeys(wanted.renewers)),
        issued_ms=now_ms,
        expires_ms=min(max_ms, now_ms + limits.expiry_ms),
        max_ms=max_ms,
        digest=digest_of(new.secret),
        credentials=new.credentials,
    )


def renewed(
    token: DelegationToken | None, principal: str, period_ms: int, limits: Limits, now_ms: int
) -> DelegationToken:
    """The token after a renewal. Raises KafkaError."""
    token = _found(token)
    _check_valid(token, now_ms)
    if not token.belongs_to(principal):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "it is the token of somebody else")
    expiry_ms = min(period_ms, limits.expiry_ms) if period_ms > 0 else limits.expiry_ms
    return replace(token, expires_ms=min(token.max_ms, now_ms + expiry_ms))


def ended(
    token: DelegationToken | None, principal: str, period_ms: int, now_ms: int, *, may_end_any: bool
) -> tuple[int, TokenPut | TokenDeleted]:
    """When a token ends, and the change. Raises KafkaError. A period below 0 means at once."""
    token = _found(token)
    if not (may_end_any or token.belongs_to(principal)):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, "it is the token of somebody else")
    if period_ms < 0:
        return now_ms, TokenDeleted(id=token.id)
    _check_valid(token, now_ms)
    expires_ms = min(token.max_ms, now_ms + min(period_ms, _TIME_MAX_MS - now_ms))
    return expires_ms, TokenPut(token=replace(token, expires_ms=expires_ms))


def _found(token: DelegationToken | None) -> DelegationToken:
    if token is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "there is no such token")
    return token


def _check_valid(token: DelegationToken, now_ms: int) -> None:
    if min(token.expires_ms, token.max_ms) <= now_ms:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED, "the token has expired")


# -- which tokens ------------------------------------------------------------------------------------------


class TokenIndex:
    """Finds tokens by their secrets. Built anew when the tokens have changed."""

    def __init__(self) -> None:
        self._tokens: Mapping[str, DelegationToken] = {}
        self._ids: dict[bytes, str] = {}

    def find(self, tokens: Mapping[str, DelegationToken], given: bytes) -> DelegationToken | None:
        """`given`: the secret of a token, or its id."""
        if tokens is not self._tokens:
            self._tokens = tokens
            self._ids = {token.digest: token.id for token in tokens.values()}
        token_id = self._ids.get(digest_of(given))
        return tokens.get(given.decode(errors="replace") if token_id is None else token_id)


def visible(
    tokens: Iterable[DelegationToken],
    principal: str,
    owners: Collection[str] | None,
    may_see: Callable[[DelegationToken], bool],
) -> Iterator[DelegationToken]:
    """The tokens that a client may see; `owners`: only those that belong to one of these."""
    for token in tokens:
        if owners is not None and not any(
            each in owners for each in (token.owner, token.requester, *token.renewers)
        ):
            continue
        if token.belongs_to(principal) or may_see(token):
            yield token


def outlived(tokens: Mapping[str, DelegationToken], now_ms: int) -> list[TokenDeleted]:
    """The tokens to remove from the store."""
    over = (token.id for token in tokens.values() if min(token.expires_ms, token.max_ms) <= now_ms)
    return [TokenDeleted(id=token_id) for token_id, _ in zip(over, range(_REMOVED_AT_ONCE), strict=False)]
