"""What may be said about a user, and what is stored of it."""

from __future__ import annotations

import pytest

from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.stored.user_text import decode_user, encode_user
from forebay.core.security.users import (
    SALTED_BYTES_MAX,
    Upsertion,
    UserAlteration,
    alter_user,
    described,
    new_credential,
)
from forebay.errors import ErrorCode, KafkaError, ProtocolError
from forebay.wire.sasl.scram import BY_CODE, ScramMechanism

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
EMPTY = ClusterImage(cluster_id="c")


def upsertion(
    mechanism: ScramMechanism = SHA_256, *, iterations: int = 4096, salt: bytes = b"salt"
) -> Upsertion:
    salted = mechanism.salted_password("secret", salt, iterations)
    return Upsertion(mechanism=mechanism.code, iterations=iterations, salt=salt, salted_password=salted)


def with_user(name: str = "ada") -> ClusterImage:
    both = [upsertion(SHA_256), upsertion(SHA_512)]
    return EMPTY.apply(alter_user(EMPTY, UserAlteration(name=name, upsertions=both)))


def test_the_salted_password_of_a_client_gives_the_keys_of_its_password() -> None:
    user = with_user().users["ada"]
    for mechanism in ScramMechanism:
        assert user.credentials[mechanism] == new_credential(mechanism, "secret", b"salt", 4096)


def test_a_user_goes_with_its_last_credential() -> None:
    image = with_user()
    image = image.apply(alter_user(image, UserAlteration(name="ada", deletions=[SHA_256.code])))
    assert described(image, "ada") == [(2, 4096)]
    image = image.apply(alter_user(image, UserAlteration(name="ada", deletions=[SHA_512.code])))
    assert not image.users


@pytest.mark.parametrize(
    ("alteration", "code"),
    [
        (UserAlteration(name="", upsertions=[upsertion()]), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (UserAlteration(name="a\n", upsertions=[upsertion()]), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (
            UserAlteration(name="a", upsertions=[upsertion(iterations=4095)]),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
        ),
        (
            UserAlteration(name="a", upsertions=[upsertion(iterations=16385)]),
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
        ),
        (UserAlteration(name="a", upsertions=[upsertion(salt=b"")]), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (UserAlteration(name="a", deletions=[1]), ErrorCode.RESOURCE_NOT_FOUND),
        (UserAlteration(name="ada", deletions=[3]), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (UserAlteration(name="ada", deletions=[1], upsertions=[upsertion()]), ErrorCode.DUPLICATE_RESOURCE),
        (UserAlteration(name="a", upsertions=[upsertion(), upsertion()]), ErrorCode.DUPLICATE_RESOURCE),
    ],
)
def test_what_cannot_be_is_refused(alteration: UserAlteration, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        alter_user(with_user(), alteration)
    assert refused.value.code == code


@pytest.mark.parametrize("length", [1, 32, 64, SALTED_BYTES_MAX])
def test_a_salted_password_may_have_any_length_within_reason(length: int) -> None:
    salted = b"x" * length
    wanted = Upsertion(mechanism=2, iterations=4096, salt=b"s", salted_password=salted)
    (change,) = alter_user(EMPTY, UserAlteration(name="a", upsertions=[wanted]))
    (credential,) = EMPTY.apply([change]).users["a"].credentials.values()
    assert credential.stored_key == BY_CODE[2].stored_key(salted)


@pytest.mark.parametrize("length", [0, SALTED_BYTES_MAX + 1])
def test_a_salted_password_that_is_none_or_too_long_is_refused(length: int) -> None:
    wrong = Upsertion(mechanism=2, iterations=4096, salt=b"s", salted_password=b"x" * length)
    with pytest.raises(KafkaError, match=f"has {length} bytes"):
        alter_user(EMPTY, UserAlteration(name="a", upsertions=[wrong]))


def test_a_user_is_read_as_it_was_written_and_shows_no_key() -> None:
    user = with_user("a/ü").users["a/ü"]
    assert decode_user("a/ü", encode_user(user), 0) == user
    assert "key=" not in repr(user) and "salt=" not in repr(user)
    assert "salted_password" not in repr(upsertion())


def test_a_mechanism_of_a_later_version_is_passed_over_and_garbage_is_not_quoted() -> None:
    later = b'{"SCRAM-SHA3-512":{},' + encode_user(with_user().users["ada"])[1:]
    assert decode_user("ada", later, 0) == with_user().users["ada"]
    with pytest.raises(ProtocolError) as unreadable:
        decode_user("ada", b'{"SCRAM-SHA-256":{"salt":"c2VjcmV0!"}}', 0)
    assert "c2VjcmV0" not in str(unreadable.value)
