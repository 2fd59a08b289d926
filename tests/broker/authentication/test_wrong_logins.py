"""Wrong logins, over sockets: one address takes no login from others, and whoever guesses has to wait."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from forebay.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from forebay.wire.messages.sasl_handshake import SaslHandshakeRequest
from support.brokers.local_broker import LocalBroker
from support.brokers.sasl_broker import PASSWORDS, log_in, sasl_broker
from support.brokers.settable_clock import StoppedClock
from support.clients.wire_client import WireClient
from support.faults.held_threads import HeldThreads
from support.waiting import Patience

GUESSER, GOOD, OTHER = "127.0.0.2", "127.0.0.3", "127.0.0.4"
"""Addresses of this machine, to the broker those of three machines."""
LOGINS = "forebay.broker.authentication.logins"
SETTINGS = {"connection.failed.authentication.delay.ms": "1"}
MECHANISMS = ("SCRAM-SHA-256", "PLAIN")
FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
def broker(tmp_path: Path, clock: StoppedClock) -> Iterator[LocalBroker]:
    with sasl_broker(tmp_path / "data", SETTINGS, clock=clock) as broker:
        yield broker


def post_plain(client: WireClient, user: str, password: str) -> None:
    """A login by PLAIN whose answer is not waited for."""
    client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    client.post(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()), 2)


def checks_before_the_good_one(caplog: pytest.LogCaptureFixture) -> int:
    messages = [record.msg for record in caplog.records if record.name in (LOGINS, "forebay.audit")]
    return messages[: messages.index("a client has logged in")].count("a login failed")


@pytest.mark.parametrize("source", [GOOD, GUESSER])
def test_a_good_login_waits_for_one_check_of_each_address_and_of_each_user(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, source: str
) -> None:
    """Passwords that are sent take long to check. Those of one address used to be checked one after the other
    before anybody else's."""
    caplog.set_level(logging.DEBUG, LOGINS)
    threads = HeldThreads("forebay-login")
    settings = {**SETTINGS, "forebay.login.wait.max.ms": "0", "forebay.audit.refusals.burst": "1000"}
    with sasl_broker(tmp_path / "data", settings, threads=threads) as broker, contextlib.ExitStack() as stack:
        with threads.held():
            for _ in range(100):
                guesser = stack.enter_context(WireClient(broker.bootstrap, source=GUESSER))
                post_plain(guesser, "bob", "a guess")
            good = stack.enter_context(WireClient(broker.bootstrap, source=source))
            post_plain(good, "ada", PASSWORDS["ada"])
            broker.on_loop(lambda node: None)
        assert good.read().error_code == ErrorCode.NONE
    assert checks_before_the_good_one(caplog) <= 3


def guess(broker: LocalBroker, mechanism: str, user: str, source: str = GUESSER, times: int = 1) -> None:
    for _ in range(times):
        with WireClient(broker.bootstrap, source=source) as client:
            assert log_in(client, mechanism, user, "a guess").error_code == FAILED


def may_log_in(broker: LocalBroker, mechanism: str, user: str, source: str) -> bool:
    with WireClient(broker.bootstrap, source=source) as client:
        answer = log_in(client, mechanism, user, PASSWORDS.get(user, "x"))
        if answer.error_code:
            assert "try again in" in answer.error_message
        return bool(answer.error_code == ErrorCode.NONE)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_after_some_wrong_logins_a_user_has_to_wait_at_that_address_and_nowhere_else(
    broker: LocalBroker, clock: StoppedClock, mechanism: str
) -> None:
    guess(broker, mechanism, "ada", times=6)
    assert not may_log_in(broker, mechanism, "ada", GUESSER)
    assert may_log_in(broker, mechanism, "ada", GOOD), "a stranger locks nobody out elsewhere"
    assert may_log_in(broker, mechanism, "bob", GUESSER), "and no other user there"
    assert broker.on_loop(lambda node: node.metrics.logins_refused) == 1
    clock.passed_ms += 1_100
    assert may_log_in(broker, mechanism, "ada", GUESSER)
    guess(broker, mechanism, "ada", times=5)
    assert may_log_in(broker, mechanism, "ada", GUESSER), "a good login wipes out the wrong ones before it"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_wait_grows_with_each_wrong_login_up_to_a_bound(
    broker: LocalBroker, clock: StoppedClock, mechanism: str
) -> None:
    guess(broker, mechanism, "ada", times=5)
    for wait_s in (1, 2, 4, 8, 16, 32, 60, 60):
        guess(broker, mechanism, "ada")
        clock.passed_ms += wait_s * 1000 - 10
        assert not may_log_in(broker, mechanism, "ada", GUESSER), wait_s
        clock.passed_ms += 20
    assert may_log_in(broker, mechanism, "ada", GUESSER)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_address_that_tries_many_users_has_to_wait_with_all_but_those_known_there(
    broker: LocalBroker, clock: StoppedClock, mechanism: str
) -> None:
    assert may_log_in(broker, mechanism, "bob", GUESSER)
    for number in range(51):
        guess(broker, mechanism, f"user-{number}")
    assert not may_log_in(broker, mechanism, "ada", GUESSER)
    assert may_log_in(broker, mechanism, "bob", GUESSER), "it has logged in from there before"
    assert may_log_in(broker, mechanism, "ada", GOOD)
    clock.passed_ms += 60_100
    assert may_log_in(broker, mechanism, "ada", GUESSER)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_users_that_do_not_exist_are_made_to_wait_as_others_are(broker: LocalBroker, mechanism: str) -> None:
    """Or a stranger could learn who exists."""
    guess(broker, mechanism, "nobody", times=6)
    assert not may_log_in(broker, mechanism, "nobody", GUESSER)


def test_nobody_has_to_wait_at_the_addresses_that_are_exempt(broker: LocalBroker) -> None:
    """By default this machine: its users share an address, brokers among them."""
    guess(broker, "PLAIN", "ada", "127.0.0.1", times=60)
    assert may_log_in(broker, "PLAIN", "ada", "127.0.0.1")


def test_guesses_that_were_sent_at_once_are_not_all_looked_at(tmp_path: Path) -> None:
    threads = HeldThreads("forebay-login")
    with (
        sasl_broker(tmp_path / "data", SETTINGS, threads=threads) as broker,
        contextlib.ExitStack() as stack,
    ):
        with threads.held():
            for _ in range(30):
                guesser = stack.enter_context(WireClient(broker.bootstrap, source=GUESSER))
                post_plain(guesser, "ada", "a guess")
        patience = Patience("all of them are answered")
        while broker.on_loop(lambda node: node.metrics.logins_failed) < 30:
            patience.check()
        refused = broker.on_loop(lambda node: node.metrics.logins_refused)
        assert refused == 24, "six were checked"


def failed_logins(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [vars(record) for record in caplog.records if record.name == "forebay.audit"]


def test_failed_logins_of_one_address_do_not_hide_those_of_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with sasl_broker(tmp_path / "data", {**SETTINGS, "forebay.audit.refusals.per.second": "0.01"}) as broker:
        guess(broker, "SCRAM-SHA-256", "ada", GUESSER, times=150)
        guess(broker, "SCRAM-SHA-256", "ada", OTHER)
    found = failed_logins(caplog)
    (line,) = [line for line in found if str(line["client"]).startswith(OTHER)]
    assert (line["user"], line["mechanism"], line["reason"]) == ("ada", "SCRAM-SHA-256", "wrong password")
    noise = [line for line in found if str(line["client"]).startswith(GUESSER)]
    assert len(noise) == 51
    assert (noise[-1]["left_out"], noise[-1]["apis"], noise[-1]["needs"]) == (100, "login 100", "as ada")
