"""The order of a login: exact cases, then random requests that never get past a login by accident."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from forebay.core.security.sasl.bearer import BearerExchange
from forebay.core.security.sasl.exchange import (
    Accepted,
    Challenge,
    CheckPassword,
    CheckToken,
    Exchange,
    Rejected,
    Step,
    Verdict,
)
from forebay.core.security.sasl.login_session import (
    LoginSession,
    Phase,
)
from forebay.core.security.sasl.plain import PlainExchange
from forebay.errors import ErrorCode
from forebay.wire.api_keys import ApiKey

MECHANISMS: dict[str, Callable[[], Exchange]] = {"PLAIN": PlainExchange, "OAUTHBEARER": BearerExchange}
ADA = b"\0ada\0secret"


def session(reauthenticate_ms: int = 0) -> LoginSession:
    return LoginSession(MECHANISMS, reauthenticate_ms=reauthenticate_ms)


def ready(reauthenticate_ms: int = 0) -> LoginSession:
    one = session(reauthenticate_ms)
    assert one.handshake("PLAIN", 0) == ErrorCode.NONE
    assert one.authenticate(ADA, 0) == CheckPassword(user="ada", password="secret")
    assert isinstance(one.resolve(Accepted(user="ada"), 0), Accepted)
    assert one.phase is Phase.READY and one.user == "ada"
    return one


def test_versions_may_be_asked_once_and_only_first() -> None:
    one = session()
    assert one.may_come(ApiKey.API_VERSIONS) and one.may_come(ApiKey.SASL_HANDSHAKE)
    one.versions_told()
    assert not one.may_come(ApiKey.API_VERSIONS) and one.may_come(ApiKey.SASL_HANDSHAKE)
    one.handshake("PLAIN", 0)
    assert one.may_come(ApiKey.SASL_AUTHENTICATE)
    assert (
        not one.may_come(ApiKey.API_VERSIONS)
        and not one.may_come(ApiKey.SASL_HANDSHAKE)
        and not one.may_come(3)
    )


def test_nothing_comes_while_a_check_is_under_way() -> None:
    one = session()
    one.handshake("PLAIN", 0)
    one.authenticate(ADA, 0)
    assert not any(one.may_come(key) for key in range(100))
    assert one.handshake("PLAIN", 0) == ErrorCode.ILLEGAL_SASL_STATE
    assert one.phase is Phase.FAILED


def test_a_mechanism_that_is_not_offered_ends_it() -> None:
    one = session()
    assert one.handshake("SCRAM-SHA-256", 0) == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert isinstance(one.authenticate(ADA, 0), Rejected)
    assert one.phase is Phase.FAILED


def test_authenticating_before_the_handshake_ends_it() -> None:
    one = session()
    assert isinstance(one.authenticate(ADA, 0), Rejected)
    assert one.phase is Phase.FAILED


@pytest.mark.parametrize(
    "message", [b"", b"ada", b"\0ada", b"\0ada\0", b"\0\0x", b"bob\0ada\0x", b"\0ada\0x\0", b"\0\xff\0x"]
)
def test_a_malformed_plain_message_is_refused(message: bytes) -> None:
    one = session()
    one.handshake("PLAIN", 0)
    assert isinstance(one.authenticate(message, 0), Rejected)


def test_a_token_is_refused_in_two_steps() -> None:
    one = session()
    one.handshake("OAUTHBEARER", 0)
    step = one.authenticate(b"n,,\x01auth=Bearer a.b.c\x01\x01", 0)
    assert step == CheckToken(token="a.b.c")
    assert isinstance(one.resolve(Rejected(reason="expired"), 0), Challenge)
    assert one.authenticate(b"\x01", 0) == Rejected(reason="expired")
    assert one.phase is Phase.FAILED


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"\xff",
        b"y,,\x01auth=Bearer a\x01\x01",
    ],
)
def test_a_malformed_bearer_message_is_refused(message: bytes) -> None:
    one = session()
    one.handshake("OAUTHBEARER", 0)
    assert isinstance(one.authenticate(message, 0), Rejected)


def test_a_token_speaks_for_its_own_subject_only() -> None:
    one = session()
    one.handshake("OAUTHBEARER", 0)
    one.authenticate(b"n,a=bob,\x01auth=Bearer a\x01\x01", 0)
    assert isinstance(one.resolve(Accepted(user="ada"), 0), Challenge)
    assert isinstance(one.authenticate(b"\x01", 0), Rejected)


@pytest.mark.parametrize(
    ("reauthenticate_ms", "expires_ms", "lifetime_ms"),
    [(0, None, 0), (5000, None, 5000), (5000, 1000 + 60_000, 5000), (5000, 1000 + 7, 7), (0, 1000 + 9, 9)],
)
def test_a_session_lives_as_long_as_the_shorter_of_both(
    reauthenticate_ms: int, expires_ms: int | None, lifetime_ms: int
) -> None:
    one = session(reauthenticate_ms)
    one.handshake("PLAIN", 1000)
    one.authenticate(ADA, 1000)
    one.resolve(Accepted(user="ada", expires_ms=expires_ms), 1000)
    assert one.lifetime_ms == lifetime_ms


def test_what_expired_while_it_was_checked_is_refused() -> None:
    one = session()
    one.handshake("PLAIN", 0)
    one.authenticate(ADA, 0)
    assert isinstance(one.resolve(Accepted(user="ada", expires_ms=10), 10), Rejected)


def test_reauthentication_needs_an_end_of_the_session_and_a_second() -> None:
    assert ready().handshake("PLAIN", 5000) == ErrorCode.ILLEGAL_SASL_STATE
    one = ready(60_000)
    assert one.handshake("PLAIN", 999) == ErrorCode.ILLEGAL_SASL_STATE
    assert one.phase is Phase.READY
    assert one.handshake("PLAIN", 70_000) == ErrorCode.NONE
    one.authenticate(ADA, 70_000)
    assert one.user == "ada"
    assert isinstance(one.resolve(Accepted(user="ada"), 70_000), Accepted)


def test_reauthentication_is_as_the_same_user_by_the_same_mechanism() -> None:
    one = ready(60_000)
    one.handshake("PLAIN", 5000)
    one.authenticate(b"\0bob\0x", 5000)
    assert isinstance(one.resolve(Accepted(user="bob"), 5000), Rejected)
    assert (one.phase, one.user) == (Phase.FAILED, "ada")
    other = ready(60_000)
    assert other.handshake("OAUTHBEARER", 5000) == ErrorCode.NONE
    assert isinstance(other.authenticate(b"n,,\x01auth=Bearer a\x01\x01", 5000), Rejected)


class Told:
    """A mechanism whose steps are chosen by the test."""

    def __init__(self, choose: random.Random) -> None:
        self._choose = choose

    def step(self, _data: bytes) -> Step:
        return self._choose.choice(
            (
                Challenge(data=b"c"),
                CheckToken(token="t"),
                Rejected(reason="r"),
                Accepted(user="ada"),
                Accepted(user="bob"),
            )
        )

    def resolve(self, verdict: Verdict) -> Step:
        return self._choose.choice((verdict, Challenge(data=b"c")))


@pytest.mark.parametrize("seed", range(300))
def test_random_requests_never_pass_without_a_login(seed: int) -> None:
    choose = random.Random(seed)

    def told() -> Exchange:
        return Told(choose)

    one = LoginSession({"TOLD": told}, reauthenticate_ms=choose.choice((0, 2000)))
    now_ms, user = 0, None
    for _ in range(60):
        before = one.phase
        now_ms += choose.choice((0, 10, 1500))
        accepted = False
        match choose.randrange(4):
            case 0:
                one.versions_told()
            case 1:
                code = one.handshake(choose.choice(("TOLD", "TOLD", "TOLD", "OTHER")), now_ms)
                assert (code == ErrorCode.NONE) == (one.phase is Phase.CHOSEN)
            case 2 if before is not Phase.READY:
                accepted = isinstance(one.authenticate(b"x", now_ms), Accepted)
            case 3 if before is Phase.CHECKING:
                verdict = choose.choice((Accepted(user="ada"), Rejected(reason="no")))
                accepted = isinstance(one.resolve(verdict, now_ms), Accepted)
        assert one.phase is Phase.FAILED or before is not Phase.FAILED, "there is no way back"
        assert (one.phase is Phase.READY) == (
            accepted or (before is Phase.READY and one.phase is Phase.READY)
        )
        if accepted:
            assert before in (Phase.CHOSEN, Phase.CHECKING)
            assert user in (None, one.user), "a connection keeps its user"
            user = one.user
        assert one.user == user


def test_a_clock_that_was_set_back_does_not_make_it_too_soon() -> None:
    one = session(60_000)
    one.handshake("PLAIN", 3_600_000)
    one.authenticate(ADA, 3_600_000)
    assert isinstance(one.resolve(Accepted(user="ada"), 3_600_000), Accepted)
    assert one.handshake("PLAIN", 50_000) == ErrorCode.NONE
