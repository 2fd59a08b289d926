"""Delegation tokens: for how long they are valid, whose they are, and how they are found and stored."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from forebay.config import DelegationTokenConfig
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.images.delegation_token import DelegationToken
from forebay.core.cluster.images.token_image import TokenDeleted, TokenPut
from forebay.core.cluster.images.user_image import ScramCredential, UserImage, UserPut
from forebay.core.cluster.stored.token_text import decode_token, encode_token
from forebay.core.security import delegation_tokens as rules
from forebay.core.security.users import put_or_delete
from forebay.errors import ErrorCode, KafkaError, ProtocolError
from forebay.wire.sasl.scram import ScramMechanism

ADA, BOB, EVE = "User:ada", "User:bob", "User:eve"
LIMITS = DelegationTokenConfig(lifetime_ms_max=1000, expiry_ms=300, count_max=5, count_of_owner_max=3)
ENTROPY = random.Random(3).randbytes
CREDENTIAL = ScramCredential(salt=b"salt", stored_key=b"stored", server_key=b"server", iterations=4096)
NOW = 10_000


def wanted(owner: str = ADA, requester: str = ADA, *renewers: str, lifetime_ms: int = -1) -> rules.Wanted:
    return rules.Wanted(
        owner=owner,
        requester=requester,
        requester_is_stored=False,
        renewers=renewers,
        lifetime_ms=lifetime_ms,
    )


def new_token() -> rules.NewToken:
    return rules.NewToken(
        id=rules.new_id(ENTROPY),
        secret=ENTROPY(64),
        credentials={ScramMechanism.SHA_256: CREDENTIAL},
    )


def token(asked: rules.Wanted | None = None, now_ms: int = NOW) -> DelegationToken:
    return rules.created(asked or wanted(ADA, ADA, BOB), new_token(), LIMITS, now_ms)


def image(*tokens: DelegationToken) -> ClusterImage:
    return ClusterImage(cluster_id="c").apply([TokenPut(token=each) for each in tokens])


def code_of(call: object, *arguments: object, **options: object) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        call(*arguments, **options)  # type: ignore[operator]
    return refused.value.code


@pytest.mark.parametrize(("lifetime_ms", "max_ms"), [(-1, 1000), (0, 1000), (400, 400), (5000, 1000)])
def test_a_token_lives_as_long_as_was_asked_for_and_no_longer_than_allowed(
    lifetime_ms: int, max_ms: int
) -> None:
    made = token(wanted(lifetime_ms=lifetime_ms))
    assert (made.issued_ms, made.expires_ms, made.max_ms) == (NOW, NOW + 300, NOW + max_ms)


def test_a_short_token_expires_at_its_greatest_age() -> None:
    made = token(wanted(lifetime_ms=100))
    assert made.expires_ms == made.max_ms == NOW + 100


@pytest.mark.parametrize(("period_ms", "left_ms"), [(-1, 300), (0, 300), (200, 200), (10**15, 300)])
def test_a_renewal_counts_from_now(period_ms: int, left_ms: int) -> None:
    later = NOW + 250
    for principal in (ADA, BOB):
        renewed = rules.renewed(token(), principal, period_ms, LIMITS, later)
        assert renewed.expires_ms == later + left_ms


def test_no_renewal_goes_beyond_the_greatest_age() -> None:
    made = token()
    for now_ms in range(NOW, NOW + 1000, 200):
        made = rules.renewed(made, ADA, -1, LIMITS, now_ms)
    assert made.expires_ms == made.max_ms == NOW + 1000
    assert code_of(rules.renewed, made, ADA, -1, LIMITS, NOW + 1000) == ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_others_can_neither_renew_nor_end_a_token() -> None:
    mismatch, made = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, token()
    assert code_of(rules.renewed, made, EVE, -1, LIMITS, NOW) == mismatch
    for period_ms in (-1, 0, 50):
        assert code_of(rules.ended, made, EVE, period_ms, NOW, may_end_any=False) == mismatch
    assert rules.ended(made, EVE, -1, NOW, may_end_any=True) == (NOW, TokenDeleted(id=made.id))


def test_a_token_that_is_not_there_is_not_found() -> None:
    missing = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert code_of(rules.renewed, None, ADA, -1, LIMITS, NOW) == missing
    assert code_of(rules.ended, None, ADA, -1, NOW, may_end_any=True) == missing


def test_a_token_is_ended_at_once_or_later_but_never_beyond_its_greatest_age() -> None:
    made = token()
    assert rules.ended(made, BOB, -1, NOW, may_end_any=False) == (NOW, TokenDeleted(id=made.id))
    at_ms, change = rules.ended(made, BOB, 20, NOW, may_end_any=False)
    assert (at_ms, change) == (NOW + 20, TokenPut(token=replace(made, expires_ms=NOW + 20)))
    assert rules.ended(made, ADA, 2**63 - 1, NOW, may_end_any=False)[0] == made.max_ms
    expired = ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert code_of(rules.ended, made, ADA, 20, NOW + 300, may_end_any=False) == expired
    assert rules.ended(made, ADA, -1, NOW + 300, may_end_any=False)[1] == TokenDeleted(id=made.id)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (wanted("Group:x"), ErrorCode.INVALID_PRINCIPAL_TYPE),
        (wanted(ADA, ADA, "Group:x"), ErrorCode.INVALID_PRINCIPAL_TYPE),
        (wanted(ADA, ADA, "User:"), ErrorCode.INVALID_REQUEST),
        (wanted("User:a\nb"), ErrorCode.INVALID_REQUEST),
        (wanted("User:ada ", BOB), ErrorCode.INVALID_REQUEST),
        (wanted(ADA, ADA, "User: bob"), ErrorCode.INVALID_REQUEST),
        (wanted("User:" + "x" * 257), ErrorCode.INVALID_REQUEST),
        (wanted(ADA, ADA, *(f"User:{n}" for n in range(21))), ErrorCode.POLICY_VIOLATION),
    ],
)
def test_only_users_own_and_renew_tokens(asked: rules.Wanted, code: ErrorCode) -> None:
    assert code_of(rules.check_wanted, image(), asked, LIMITS) == code


def test_tokens_are_bounded_for_each_owner_and_in_all() -> None:
    held = [token() for _ in range(3)]
    assert code_of(rules.check_wanted, image(*held), wanted(), LIMITS) == ErrorCode.POLICY_VIOLATION
    rules.check_wanted(image(*held), wanted(BOB, ADA), LIMITS)
    held += [token(wanted(BOB)) for _ in range(2)]
    assert code_of(rules.check_wanted, image(*held), wanted(EVE), LIMITS) == ErrorCode.POLICY_VIOLATION


def test_a_user_who_was_deleted_creates_no_token() -> None:
    asked = replace(wanted(), requester_is_stored=True)
    assert (
        code_of(rules.check_wanted, image(), asked, LIMITS) == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    )


def test_a_token_is_found_by_its_secret_or_its_id_and_by_nothing_else() -> None:
    index, new = rules.TokenIndex(), new_token()
    made = rules.created(wanted(), new, LIMITS, NOW)
    tokens = image(made, token()).tokens
    assert index.find(tokens, new.secret) is tokens[made.id]
    assert index.find(tokens, made.id.encode()) is tokens[made.id]
    for other in (b"", made.digest, new.secret[:-1], b"\xff\xfe", made.id.encode() + b" "):
        assert index.find(tokens, other) is None
    assert index.find({}, new.secret) is None


def test_whoever_describes_tokens_sees_its_own_and_what_it_may_see() -> None:
    held = [token(), token(wanted(BOB, EVE)), token(wanted(BOB, BOB))]

    def seen(principal: str, owners: set[str] | None, *, sees_all: bool = False) -> list[int]:
        found = list(rules.visible(held, principal, owners, lambda _: sees_all))
        return [number for number, each in enumerate(held) if each in found]

    assert seen(ADA, None) == [0]
    assert seen(BOB, None) == [0, 1, 2]
    assert seen(EVE, None) == [1]
    assert seen(EVE, set()) == []
    assert seen(EVE, {BOB}) == [1]
    assert seen(EVE, {ADA}) == []
    assert seen(EVE, {ADA}, sees_all=True) == [0]
    assert seen("User:x", {BOB}, sees_all=True) == [0, 1, 2]


def test_expired_tokens_are_removed() -> None:
    held = [token(now_ms=NOW + 10 * number) for number in range(5)]
    tokens = {each.id: each for each in held}
    assert rules.outlived(tokens, NOW + 299) == []
    assert rules.outlived(tokens, NOW + 320) == [TokenDeleted(id=each.id) for each in held[:3]]


def test_the_tokens_of_a_user_are_deleted_with_the_user() -> None:
    mine, other = token(), token(wanted(BOB, ADA))
    user = UserImage(name="ada", credentials={ScramMechanism.SHA_256: CREDENTIAL})
    before = image(mine, other).apply([UserPut(user=user)])
    after = before.apply(put_or_delete(before, "ada", {}))
    assert after.users == {}
    assert list(after.tokens) == [other.id]
    both = {ScramMechanism.SHA_256: CREDENTIAL, ScramMechanism.SHA_512: CREDENTIAL}
    assert before.apply(put_or_delete(before, "ada", both)).tokens == before.tokens


def test_the_secret_of_a_key_is_that_of_kafka() -> None:
    """HmacSHA512 of the id, as Kafka 4.3 makes it (Mac.getInstance("HmacSHA512"))."""
    secret = rules.derived_secret("secret-key", "wKcGZQOqTxyc0IeDqYb1Rg")
    assert len(secret) == 64
    assert len(rules.password_of(secret)) == 88


def test_no_id_begins_with_a_dash() -> None:
    entropy = iter([b"\xfb" * 16, b"\xfb" * 16, bytes(16)])
    assert rules.new_id(lambda _: next(entropy)) == "A" * 22


def test_a_stored_token_is_read_back_and_has_no_secret() -> None:
    new = rules.new_token("an-id", ENTROPY(64), ENTROPY)
    made = rules.created(wanted(ADA, EVE, BOB), new, LIMITS, NOW)
    stored = encode_token(made)
    assert decode_token("an-id", stored, 7) == replace(made, revision=7)
    assert new.secret not in stored
    assert rules.password_of(new.secret).encode() not in stored
    assert rules.password_of(new.secret) not in repr(new)


@pytest.mark.parametrize("value", [b"", b"[]", b"null", b"{}", b'{"format":2}', b"\xff"])
def test_what_is_no_token_cannot_be_read(value: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_token("x", value, 1)


@pytest.mark.parametrize("owner", ["ada", "", "Group:ada", "User:"])
def test_a_token_without_a_user_as_its_owner_cannot_be_read(owner: str) -> None:
    stored = encode_token(replace(token(), owner=owner))
    with pytest.raises(ProtocolError):
        decode_token("x", stored, 1)


def test_to_find_a_clients_own_tokens_asks_nothing_of_those_that_are_not_wanted() -> None:
    """A client that asks for its own tokens costs a look at each token there is, and no decision."""
    held = [token(wanted(f"User:{number}", EVE)) for number in range(1000)] + [token()]
    asked: list[str] = []

    def may_see(each: DelegationToken) -> bool:
        asked.append(each.id)
        return False

    assert list(rules.visible(held, ADA, {ADA}, may_see)) == held[-1:]
    assert asked == []
