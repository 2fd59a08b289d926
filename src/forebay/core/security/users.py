"""Changes of users: the request AlterUserScramCredentials, checked and planned.

A client sends the salted password, never the password. The stored keys are derived from it here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from forebay.config.names import WHITE_SPACE, is_trimmed
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change
from forebay.core.cluster.images.token_image import TokenDeleted
from forebay.core.cluster.images.user_image import ScramCredential, UserDeleted, UserImage, UserPut
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass
from forebay.wire.sasl.scram import BY_CODE, ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism

NAME_CHARS_MAX = 256
SALT_BYTES_MAX = 256
SALTED_BYTES_MAX = 256
"""Any length up to this: administrators' tools derive it in their own ways, and it is a key of an HMAC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upsertion:
    mechanism: int
    iterations: int
    salt: bytes = field(repr=False)
    salted_password: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserAlteration:
    """Everything that one request says about one user."""

    name: str
    deletions: Sequence[int] = ()
    """Codes of mechanisms."""
    upsertions: Sequence[Upsertion] = ()


def new_credential(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """Derive a credential from a password. Slow, as it has to be."""
    salted = mechanism.salted_password(password, salt, iterations)
    return _credential(mechanism, salt, salted, iterations)


def alter_user(image: ClusterImage, alteration: UserAlteration) -> list[Change]:
    """The changes; raises KafkaError and changes nothing if any part is invalid."""
    name, user = alteration.name, image.users.get(alteration.name)
    check_name(name)
    if alteration.upsertions:
        check_new_name(name)
    codes = [*alteration.deletions, *(each.mechanism for each in alteration.upsertions)]
    if len(set(codes)) != len(codes):
        raise KafkaError(
            ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
        )
    credentials = dict(user.credentials) if user is not None else {}
    for code in alteration.deletions:
        if credentials.pop(_mechanism(code), None) is None:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
            )
    for each in alteration.upsertions:
        mechanism = _mechanism(each.mechanism)
        _check(each)
        credentials[mechanism] = _credential(mechanism, each.salt, each.salted_password, each.iterations)
    return put_or_delete(image, name, credentials)


def put_or_delete(
    image: ClusterImage, name: str, credentials: dict[ScramMechanism, ScramCredential]
) -> list[Change]:
    if credentials:
        return [UserPut(user=UserImage(name=name, credentials=credentials))]
    if name not in image.users:
        return []
    # A deleted user must not come back by a token that it has made.
    owner = f"User:{name}"
    tokens = [TokenDeleted(id=token.id) for token in image.tokens.values() if token.owner == owner]
    return [UserDeleted(name=name), *tokens]


def check_name(name: str) -> None:
    if not name:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"a user's name has at most {NAME_CHARS_MAX} characters, all of them printable",
        )


def check_new_name(name: str) -> None:
    """Raise KafkaError for an invalid name. A user of an earlier version can still be deleted."""
    check_name(name)
    if not is_trimmed(name):
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"{name!r} has {WHITE_SPACE.format(what='user')}")


def described(image: ClusterImage, name: str) -> list[tuple[int, int]]:
    """The code of each mechanism that a user may log in by, and its iterations; raises KafkaError."""
    user = image.users.get(name)
    if user is None:
        raise KafkaError(
            ErrorCode.RESOURCE_NOT_FOUND,
            f"Attempt to describe a user credential that does not exist: {name}",
        )
    return sorted((each.code, credential.iterations) for each, credential in user.credentials.items())


def _mechanism(code: int) -> ScramMechanism:
    mechanism = BY_CODE.get(code)
    if mechanism is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"Unknown SCRAM mechanism: {code}")
    return mechanism


def _check(wanted: Upsertion) -> None:
    problem = None
    if wanted.iterations < ITERATIONS_MIN:
        problem = f"Too few iterations: {wanted.iterations}, the least are {ITERATIONS_MIN}"
    elif wanted.iterations > ITERATIONS_MAX:
        problem = f"Too many iterations: {wanted.iterations}, the most are {ITERATIONS_MAX}"
    elif not 1 <= len(wanted.salt) <= SALT_BYTES_MAX:
        problem = f"the salt has {len(wanted.salt)} bytes, use 1 to {SALT_BYTES_MAX}"
    elif not 1 <= len(wanted.salted_password) <= SALTED_BYTES_MAX:
        problem = f"the salted password has {len(wanted.salted_password)} bytes, use 1 to {SALTED_BYTES_MAX}"
    if problem is not None:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, problem)


def _credential(mechanism: ScramMechanism, salt: bytes, salted: bytes, iterations: int) -> ScramCredential:
    return ScramCredential(
        salt=bytes(salt),
        stored_key=mechanism.stored_key(bytes(salted)),
        server_key=mechanism.server_key(bytes(salted)),
        iterations=iterations,
    )
