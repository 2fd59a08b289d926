"""Connections of a SASL listener, by their bytes: nothing goes past the login."""

from __future__ import annotations

import contextlib
import os
import random
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.broker.telemetry.metrics import Metrics
from forebay.errors import ErrorCode
from forebay.wire.fields import Request
from forebay.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from forebay.wire.messages.api_versions import ApiVersionsRequest
from forebay.wire.messages.metadata import MetadataRequest
from forebay.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from forebay.wire.messages.sasl_handshake import SaslHandshakeRequest
from forebay.wire.sasl.client import PlainLogin, ScramLogin
from forebay.wire.sasl.scram import ScramMechanism
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.sasl_broker import PASSWORDS, authenticate, log_in, sasl_broker
from support.clients.wire_client import FETCH, WireClient, batch, create_topic, fetch, produce
from support.waiting import Patience

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")
METADATA = MetadataRequest(topics=None)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with sasl_broker(tmp_path / "data", {"connection.failed.authentication.delay.ms": "1"}) as broker:
        yield broker


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


def metrics(broker: LocalBroker) -> Metrics:
    return broker.on_loop(lambda node: node.metrics)


def let_pass(broker: LocalBroker, seconds: float) -> None:
    """Until the broker has acted on all its timers of this time."""
    time.sleep(seconds)
    for _ in range(2):
        broker.on_loop(lambda node: None)


def ended_without_service(client: WireClient) -> bool:
    """Whatever was answered was an answer to a step of the login; then the connection was closed."""
    client.read_to_end()
    return True


def handshake(client: WireClient, mechanism: str = "SCRAM-SHA-256") -> int:
    code: int = client.call(SaslHandshakeRequest(mechanism=mechanism), 1).error_code
    return code


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", PASSWORDS)
@pytest.mark.parametrize("asks_versions", [True, False])
def test_a_user_who_has_logged_in_is_served(
    broker: LocalBroker, client: WireClient, mechanism: str, user: str, asks_versions: bool
) -> None:
    if asks_versions:
        served = {each.api_key for each in client.call(ApiVersionsRequest(), 3).api_keys}
        assert {17, 36} <= served
    answer = log_in(client, mechanism, user)
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    assert client.call(METADATA, 12).brokers
    assert metrics(broker).logins == 1
    principals = broker.on_loop(lambda node: [each.principal for each in node.server.connections])
    assert f"User:{user}" in principals


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["ada", "nobody"])
def test_a_wrong_password_and_an_unknown_user_look_alike(
    broker: LocalBroker, client: WireClient, mechanism: str, user: str
) -> None:
    answer = log_in(client, mechanism, user, "wrong")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message.endswith(f"invalid credentials with SASL mechanism {mechanism}")
    assert client.is_closed()
    assert metrics(broker).logins_failed == 1
    assert metrics(broker).logins == 0


def test_a_mechanism_that_is_not_offered_is_answered_and_ends_it(client: WireClient) -> None:
    answer = client.call(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert answer.mechanisms == list(MECHANISMS)
    assert client.is_closed()


def test_a_downgrade_is_not_offered(tmp_path: Path) -> None:
    only = {"listener.name.sasl_plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-512"}
    with sasl_broker(tmp_path / "data", only) as broker, WireClient(broker.bootstrap) as client:
        answer = client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert (answer.error_code, answer.mechanisms) == (33, ["SCRAM-SHA-512"])


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (METADATA, 12),
        (produce("t", batch(b"x")), 9),
        (create_topic("t", 1), 7),
        (SaslAuthenticateRequest(auth_bytes=PlainLogin("ada", PASSWORDS["ada"]).first()), 2),
    ],
    ids=["Metadata", "Produce", "CreateTopics", "SaslAuthenticate"],
)
@pytest.mark.parametrize("first", [None, ApiVersionsRequest()], ids=["at once", "after ApiVersions"])
def test_nothing_else_is_served_before_the_login(
    broker: LocalBroker, client: WireClient, request_: Request, version: int, first: Request | None
) -> None:
    if first is not None:
        client.call(first, 3)
    client.post(request_, version)
    assert client.is_closed()
    assert "t" not in broker.on_loop(lambda node: node.image.topics)


def test_a_request_behind_the_first_step_is_not_served(broker: LocalBroker, client: WireClient) -> None:
    """All in one piece: what lies behind the handshake is looked at by the same rules."""
    client.socket.sendall(
        client.frame(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
        + client.frame(create_topic("t", 1), 7)
    )
    assert ended_without_service(client)
    assert "t" not in broker.on_loop(lambda node: node.image.topics)


def test_the_oldest_handshake_is_refused(client: WireClient) -> None:
    answer = client.call(SaslHandshakeRequest(mechanism="PLAIN"), 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert client.is_closed()


def test_versions_are_told_once(client: WireClient) -> None:
    client.call(ApiVersionsRequest(), 3)
    client.post(ApiVersionsRequest(), 3)
    assert client.is_closed()


def test_a_proof_is_good_for_one_login_only(broker: LocalBroker) -> None:
    login = ScramLogin(ScramMechanism.SHA_256, "ada", PASSWORDS["ada"], os.urandom)
    messages: list[bytes] = []

    class Recorded:
        mechanism = login.mechanism

        def first(self) -> bytes:
            messages.append(login.first())
            return messages[-1]

        def step(self, answer: bytes) -> bytes | None:
            message = login.step(answer)
            if message is not None:
                messages.append(message)
            return message

    with WireClient(broker.bootstrap) as client:
        handshake(client)
        assert authenticate(client, Recorded()).error_code == 0
    with WireClient(broker.bootstrap) as replaying:
        handshake(replaying)
        answers = [replaying.call(SaslAuthenticateRequest(auth_bytes=each), 2) for each in messages]
        assert [each.error_code for each in answers] == [0, ErrorCode.SASL_AUTHENTICATION_FAILED]
        assert replaying.is_closed()


def test_a_second_handshake_on_a_ready_connection_changes_nothing(client: WireClient) -> None:
    log_in(client)
    assert handshake(client) == ErrorCode.ILLEGAL_SASL_STATE
    again = client.call(SaslAuthenticateRequest(auth_bytes=b"x"), 2)
    assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.call(METADATA, 12).brokers


def test_a_listener_without_logins_says_so(tmp_path: Path) -> None:
    with local_broker(tmp_path / "data") as broker, WireClient(broker.bootstrap) as client:
        assert handshake(client) == ErrorCode.ILLEGAL_SASL_STATE
        assert client.call(METADATA, 12).brokers


@pytest.mark.parametrize("seed", range(20))
def test_garbage_before_and_during_a_login_costs_one_connection(broker: LocalBroker, seed: int) -> None:
    choose = random.Random(seed)
    with WireClient(broker.bootstrap) as client:
        if choose.random() < 0.7:
            handshake(client, choose.choice(MECHANISMS))
        frame = bytearray(client.frame(SaslAuthenticateRequest(auth_bytes=choose.randbytes(40)), 2))
        for _ in range(choose.randrange(4)):
            frame[choose.randrange(len(frame))] = choose.randrange(256)
        size = struct.unpack_from(">i", frame)[0]
        client.socket.sendall(frame + bytes(max(0, min(size, 1 << 20) - len(frame) + 4)))
        assert ended_without_service(client)
    with WireClient(broker.bootstrap) as other:
        assert log_in(other).error_code == 0


def test_frames_before_the_login_are_small(broker: LocalBroker, client: WireClient) -> None:
    client.socket.sendall(struct.pack(">i", 65_537))
    assert client.is_closed()
    with WireClient(broker.bootstrap) as other:
        log_in(other)
        other.call(create_topic("t", 1), 7)
        answer = other.call(produce("t", batch(b"x" * 600_000)), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize("version", [0, 99])
def test_a_login_has_a_few_requests_and_no_more(
    broker: LocalBroker, client: WireClient, version: int
) -> None:
    """ApiVersions of a version that is not served was answered without end."""
    asked = struct.pack(">ihhih", 14, 18, version, 1, 4) + b"ever" + (b"\0" if version else b"")
    asked = struct.pack(">i", len(asked) - 4) + asked[4:]
    client.socket.sendall(asked * 100)
    answered = client.read_to_end()
    frames = 0
    while answered:
        size = int.from_bytes(answered[:4], "big")
        frames, answered = frames + 1, answered[4 + size :]
    assert frames <= 16
    assert log_in_elsewhere(broker)


def test_a_login_may_take_as_many_requests_as_the_setting_says(tmp_path: Path) -> None:
    settings = {"forebay.authentication.max.requests": "4"}
    with sasl_broker(tmp_path / "data", settings) as broker:
        with WireClient(broker.bootstrap) as client:
            client.call(ApiVersionsRequest(), 3)
            assert log_in(client).error_code == 0  # three more
            for _ in range(10):
                assert client.call(METADATA, 12).brokers
        with WireClient(broker.bootstrap) as client:
            unserved = client.frame(ApiVersionsRequest(), 4).replace(b"\0\x12\0\x04", b"\0\x12\0\x63", 1)
            client.socket.sendall(unserved * 5)
            client.read_to_end()
        assert metrics(broker).requests_malformed == 1


def test_a_token_of_48_KiB_is_still_a_step_of_a_login(broker: LocalBroker, client: WireClient) -> None:
    assert handshake(client, "PLAIN") == ErrorCode.NONE
    answer = client.call(SaslAuthenticateRequest(auth_bytes=b"\0ada\0" + b"x" * 48 * 1024), 2)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def log_in_elsewhere(broker: LocalBroker) -> bool:
    with WireClient(broker.bootstrap) as other:
        return bool(log_in(other).error_code == 0)


def test_a_client_that_says_nothing_is_disconnected(tmp_path: Path) -> None:
    with sasl_broker(tmp_path / "data", {"forebay.authentication.timeout.ms": "100"}) as broker:
        with WireClient(broker.bootstrap) as silent, WireClient(broker.bootstrap) as halfway:
            handshake(halfway)
            assert silent.is_closed() and halfway.is_closed()
        assert metrics(broker).logins_timed_out == 2
        assert broker.on_loop(lambda node: node.logins.unfinished) == 0


def test_many_that_say_nothing_are_disconnected_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They came at once, and each takes a while to close: others have their turn in between."""
    settings = {"forebay.authentication.timeout.ms": "1000"}
    with sasl_broker(tmp_path / "data", settings) as broker, contextlib.ExitStack() as stack:
        gate, ended = broker.node.login_gate, list[int]()
        end_late = gate._end_late

        def count() -> None:
            before = len(gate._late)
            end_late()
            ended.append(before - len(gate._late))

        monkeypatch.setattr(gate, "_end_late", count)
        sources = [f"127.0.1.{number}" for number in range(1, 101)]
        clients = [stack.enter_context(WireClient(broker.bootstrap, source=source)) for source in sources]
        assert all(client.is_closed() for client in clients)
    assert sum(ended) == len(clients) and max(ended) <= 16


def test_one_address_does_not_keep_others_from_logging_in(tmp_path: Path) -> None:
    with (
        sasl_broker(tmp_path / "data", {"forebay.max.unauthenticated.connections": "20"}) as broker,
        contextlib.ExitStack() as stack,
    ):
        ready = stack.enter_context(WireClient(broker.bootstrap))
        log_in(ready)
        silent = [stack.enter_context(WireClient(broker.bootstrap)) for _ in range(60)]
        assert silent[0].is_closed() and silent[39].is_closed()
        with WireClient(broker.bootstrap) as client:
            assert log_in(client).error_code == 0
        assert ready.call(METADATA, 12).brokers
        assert broker.on_loop(lambda node: node.logins.unfinished) <= 20
        assert metrics(broker).logins_evicted >= 40


def test_a_session_that_is_over_ends_at_the_next_request(tmp_path: Path) -> None:
    with sasl_broker(tmp_path / "data", {"connections.max.reauth.ms": "50"}) as broker:
        with WireClient(broker.bootstrap) as client:
            assert log_in(client).session_lifetime_ms == 50
            let_pass(broker, 0.2)
            client.post(METADATA, 12)
            assert client.is_closed()
        assert metrics(broker).sessions_expired == 1


def test_a_long_poll_of_a_session_that_ends_meanwhile_is_answered(tmp_path: Path) -> None:
    """As in Kafka, where a session's end is looked at when a request comes, and not when it is answered."""
    with (
        sasl_broker(tmp_path / "data", {"connections.max.reauth.ms": "1500"}) as broker,
        WireClient(broker.bootstrap) as admin,
        WireClient(broker.bootstrap) as client,
    ):
        log_in(admin)
        admin.call(create_topic("t", 1), 7)
        log_in(client)
        client.post(fetch("t", max_wait_ms=60_000), FETCH)
        let_pass(broker, 1.8)
        log_in(admin)
        assert admin.call(produce("t", batch(b"late")), 9).responses[0].partition_responses[0].error_code == 0
        assert client.read().responses[0].partitions[0].high_watermark == 1
        client.post(METADATA, 12)
        assert client.is_closed()
        assert metrics(broker).sessions_expired == 1


def test_a_client_logs_in_again_before_and_after_its_session_is_over(tmp_path: Path) -> None:
    with sasl_broker(tmp_path / "data", {"connections.max.reauth.ms": "1200"}) as broker:
        with WireClient(broker.bootstrap) as client:
            log_in(client)
            for _ in range(2):
                let_pass(broker, 1.1)
                assert log_in(client).session_lifetime_ms == 1200
                assert client.call(METADATA, 12).brokers
        assert metrics(broker).sessions_expired == 0


@pytest.mark.parametrize(
    ("mechanism", "user"), [("SCRAM-SHA-256", "bob"), ("SCRAM-SHA-512", "ada"), ("PLAIN", "ada")]
)
def test_nobody_becomes_another_by_logging_in_again(tmp_path: Path, mechanism: str, user: str) -> None:
    settings = {"connections.max.reauth.ms": "60000"}
    with sasl_broker(tmp_path / "data", settings) as broker, WireClient(broker.bootstrap) as client:
        log_in(client)
        let_pass(broker, 1.1)
        answer = log_in(client, mechanism, user)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()


def test_who_begins_to_log_in_again_has_to_finish(tmp_path: Path) -> None:
    settings = {"connections.max.reauth.ms": "60000"}
    with sasl_broker(tmp_path / "data", settings) as broker, WireClient(broker.bootstrap) as client:
        log_in(client)
        let_pass(broker, 1.1)
        assert handshake(client) == ErrorCode.NONE
        client.post(METADATA, 12)
        assert client.is_closed()


def test_a_deleted_user_does_not_log_in_again(broker: LocalBroker) -> None:
    with WireClient(broker.bootstrap) as client:
        log_in(client)
        deletions = [ScramCredentialDeletion(name="bob", mechanism=code) for code in (1, 2)]
        answer = client.call(AlterUserScramCredentialsRequest(deletions=deletions), 0)
        assert [each.error_code for each in answer.results] == [0]
    for mechanism in MECHANISMS:
        with WireClient(broker.bootstrap) as client:
            assert log_in(client, mechanism, "bob").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_client_that_goes_during_a_check_leaves_nothing(broker: LocalBroker) -> None:
    with WireClient(broker.bootstrap) as client:
        handshake(client, "PLAIN")
        client.post(SaslAuthenticateRequest(auth_bytes=b"\0ada\0x"), 2)
    patience = Patience("the login is forgotten")
    while broker.on_loop(lambda node: node.logins.unfinished):
        patience.check()
