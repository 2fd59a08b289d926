"""SCRAM on both sides: every wrong proof, and nothing that tells who exists."""

from __future__ import annotations

import random
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.cluster.images.user_image import UserImage
from forebay.core.security.sasl.exchange import Accepted, Challenge, Rejected, Step
from forebay.core.security.sasl.made_up_credentials import MadeUpCredentials
from forebay.core.security.sasl.scram_exchange import Identity, ScramExchange
from forebay.core.security.users import new_credential
from forebay.errors import KafkaError, ProtocolError
from forebay.wire.sasl import scram
from forebay.wire.sasl.client import ScramLogin, new_login
from forebay.wire.sasl.scram import ScramMechanism

NAMES = ("ada", "a,b=c", "ü", "=2C")
USERS = {
    (mechanism, name): new_credential(mechanism, f"password of {name}", name.encode() + b" salt", 4096)
    for mechanism in ScramMechanism
    for name in NAMES
}
TOKENS = {
    (mechanism, "t0ken"): Identity(
        "ada", new_credential(mechanism, "secret", b"salt", 4096), expires_ms=17, token_id="t0ken"
    )
    for mechanism in ScramMechanism
}
ENTROPY = random.Random(7).randbytes


def server(mechanism: ScramMechanism = ScramMechanism.SHA_256, secret: bytes = b"secret") -> ScramExchange:
    def find(name: str, is_token: bool) -> Identity | None:
        if is_token:
            return TOKENS.get((mechanism, name))
        credential = USERS.get((mechanism, name))
        return None if credential is None else Identity(name, credential)

    made_up = MadeUpCredentials(secret)
    users = {
        name: UserImage(name=name, credentials={mechanism: USERS[mechanism, name]})
        for mechanism, name in USERS
    }
    return ScramExchange(
        mechanism, find, made_up=lambda name: made_up.credential(mechanism, name, users), entropy=ENTROPY
    )


def log_in(exchange: ScramExchange, login: ScramLogin) -> Step:
    challenge = exchange.step(login.first())
    if not isinstance(challenge, Challenge):
        return challenge
    final = login.step(challenge.data)
    assert final is not None
    done = exchange.step(final)
    if isinstance(done, Accepted):
        assert login.step(done.data) is None
    return done


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize("name", NAMES)
def test_a_user_logs_in_by_its_password_and_no_other(mechanism: ScramMechanism, name: str) -> None:
    right = ScramLogin(mechanism, name, f"password of {name}", ENTROPY)
    step = log_in(server(mechanism), right)
    assert isinstance(step, Accepted) and step.user == name
    wrong = log_in(server(mechanism), ScramLogin(mechanism, name, "password", ENTROPY))
    assert wrong == Rejected(reason="wrong password", user=name)


def test_a_user_that_does_not_exist_looks_like_one_that_does() -> None:
    def challenge(name: str, secret: bytes = b"secret") -> scram.ServerFirst:
        step = server(secret=secret).step(f"n,,n={name},r=nonce".encode())
        assert isinstance(step, Challenge)
        return scram.parse_server_first(step.data)

    known, unknown = challenge("ada"), challenge("nobody")
    assert (known.iterations, len(known.nonce)) == (unknown.iterations, len(unknown.nonce))
    assert unknown.salt == challenge("nobody").salt  # another broker says the same
    assert unknown.salt not in (challenge("nobody else").salt, challenge("nobody", b"other").salt)
    rejected = log_in(server(), ScramLogin(ScramMechanism.SHA_256, "nobody", "x", ENTROPY))
    assert rejected == Rejected(reason="no such user", user="nobody")


def test_a_message_of_another_login_is_refused() -> None:
    login = ScramLogin(ScramMechanism.SHA_256, "ada", "password of ada", ENTROPY)
    one, other = server(), server()
    challenge = one.step(login.first())
    other.step(login.first())
    assert isinstance(challenge, Challenge)
    final = login.step(challenge.data)
    assert final is not None
    assert other.step(final) == Rejected(reason="the final message belongs to another login", user="ada")
    assert isinstance(one.step(final), Accepted)


@given(at=st.integers(min_value=0, max_value=200), flip=st.integers(min_value=1, max_value=255))
def test_no_altered_byte_of_a_proof_logs_in(at: int, flip: int) -> None:
    exchange, login = server(), ScramLogin(ScramMechanism.SHA_256, "ada", "password of ada", ENTROPY)
    challenge = exchange.step(login.first())
    assert isinstance(challenge, Challenge)
    final = bytearray(login.step(challenge.data) or b"")
    before = scram.parse_client_final(bytes(final))
    final[at % len(final)] ^= flip
    try:
        same = scram.parse_client_final(bytes(final)) == before  # spare bits of base64
    except ProtocolError:
        same = False
    assert same or isinstance(exchange.step(bytes(final)), Rejected)


@given(first=st.binary(max_size=80), second=st.binary(max_size=80))
def test_garbage_is_refused_and_never_breaks(first: bytes, second: bytes) -> None:
    exchange = server()
    if isinstance(exchange.step(first), Challenge):
        assert isinstance(exchange.step(second), Rejected)


@pytest.mark.parametrize(
    "first",
    [
        b"y,,n=ada,r=x",  # may be a downgrade of channel binding
        b"p=tls-unique,,n=ada,r=x",
        b"n,a=bob,n=ada,r=x",
        b"n,,n=,r=x",
        b"n,,n=ada=,r=x",
        b"n,,n=ada,r=" + b"x" * 300,
        b"n,,m=ext,n=ada,r=x",
    ],
)
def test_what_is_not_offered_is_refused(first: bytes) -> None:
    assert isinstance(server().step(first), Rejected)


def test_the_nonce_of_old_librdkafka_is_taken() -> None:
    """It repeats its own nonce in the final message, and signs that."""
    exchange, mechanism = server(), ScramMechanism.SHA_256
    challenge = exchange.step(b"n,,n=ada,r=nonce")
    assert isinstance(challenge, Challenge)
    first = scram.parse_server_first(challenge.data)
    bare = f"c=biws,r=nonce{first.nonce}"
    salted = mechanism.salted_password("password of ada", first.salt, first.iterations)
    client_key = mechanism.mac(salted, b"Client Key")
    signed = f"n=ada,r=nonce,{challenge.data.decode()},{bare}".encode()
    proof = scram.xor(client_key, mechanism.mac(mechanism.digest(client_key), signed))
    assert isinstance(exchange.step(f"{bare},p={scram.encoded(proof)}".encode()), Accepted)


def test_the_final_header_must_be_the_first() -> None:
    exchange, login = server(), ScramLogin(ScramMechanism.SHA_256, "ada", "password of ada", ENTROPY)
    challenge = exchange.step(login.first())
    assert isinstance(challenge, Challenge)
    final = login.step(challenge.data)
    assert final is not None
    assert isinstance(exchange.step(final.replace(b"c=biws", b"c=eSws")), Rejected)


def test_a_client_trusts_no_server_that_does_not_know_the_password() -> None:
    def answered(final: bytes) -> None:
        login = ScramLogin(ScramMechanism.SHA_256, "ada", "secret", ENTROPY)
        nonce = login.first().partition(b"r=")[2]
        login.step(b"r=" + nonce + b"more,s=c2FsdA==,i=4096")
        login.step(final)

    for final in (b"v=" + b"A" * 43 + b"=", b"e=other-error", b"", b"\xff"):
        with pytest.raises(KafkaError):
            answered(final)


@pytest.mark.parametrize(
    "first", [b"r=other,s=c2FsdA==,i=4096", b"r={},s=c2FsdA==,i=4096", b"r={}x,s=c2FsdA==,i=1"]
)
def test_a_client_refuses_a_replay_and_a_weak_challenge(first: bytes) -> None:
    login = ScramLogin(ScramMechanism.SHA_256, "ada", "secret", ENTROPY)
    nonce = login.first().partition(b"r=")[2]
    with pytest.raises(KafkaError):
        login.step(first.replace(b"{}", nonce))


def test_nonces_differ() -> None:
    numbers = count()
    login = [
        ScramLogin(ScramMechanism.SHA_256, "ada", "x", lambda n: next(numbers).to_bytes(n, "big")).first()
        for _ in range(2)
    ]
    assert login[0] != login[1]
    assert new_login("PLAIN", "ada", "x", ENTROPY).first() == b"\0ada\0x"


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_delegation_token_logs_in_as_its_owner(mechanism: ScramMechanism) -> None:
    done = log_in(server(mechanism), ScramLogin(mechanism, "t0ken", "secret", ENTROPY, is_token=True))
    assert isinstance(done, Accepted)
    assert (done.user, done.expires_ms, done.token_id) == ("ada", 17, "t0ken")


def test_names_of_users_and_of_tokens_are_not_mixed_up() -> None:
    mechanism = ScramMechanism.SHA_256
    as_user = ScramLogin(mechanism, "t0ken", "secret", ENTROPY)
    as_token = ScramLogin(mechanism, "ada", "password of ada", ENTROPY, is_token=True)
    assert isinstance(log_in(server(mechanism), as_user), Rejected)
    assert isinstance(log_in(server(mechanism), as_token), Rejected)


@pytest.mark.parametrize(
    ("extensions", "is_token"),
    [
        ("", False),
        (",tokenauth=true", True),
        (",x=1,tokenauth=TRUE", True),
        (",tokenauth=false", False),
        (",tokenauth", False),
        (",xtokenauth=true", False),
    ],
)
def test_the_extension_says_that_a_name_is_a_token(extensions: str, is_token: bool) -> None:
    assert scram.parse_client_first(f"n,,n=ada,r=abc{extensions}".encode()).is_token is is_token


def test_who_was_deleted_during_a_login_is_refused() -> None:
    mechanism, found = ScramMechanism.SHA_256, dict(TOKENS)
    exchange = ScramExchange(
        mechanism,
        lambda name, _: found.get((mechanism, name)),
        made_up=lambda name: USERS[mechanism, "ada"],
        entropy=ENTROPY,
    )
    login = ScramLogin(mechanism, "t0ken", "secret", ENTROPY, is_token=True)
    challenge = exchange.step(login.first())
    assert isinstance(challenge, Challenge)
    found.clear()
    final = login.step(challenge.data)
    assert final is not None
    assert isinstance(exchange.step(final), Rejected)
