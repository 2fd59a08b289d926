"""Who has to wait after wrong logins, decided without a clock; and whose turn it is."""

from __future__ import annotations

import random

from forebay.core.security.sasl.fair_line import FairLine
from forebay.core.security.sasl.wrong_logins import LoginLimits, WrongLogins

LIMITS = LoginLimits(
    failures_max=3,
    address_failures_max=10,
    wait_ms=1_000,
    wait_ms_max=60_000,
    exempt=("127.0.0.1", "10.1.0.0/16"),
    remembered_max=100,
)
HERE, THERE = "192.0.2.1", "192.0.2.2"


def wrong(logins: WrongLogins, user: str, host: str, times: int = 1, now_ms: int = 0) -> None:
    for _ in range(times):
        logins.failed(user, host, LIMITS, now_ms)


def test_a_few_wrong_logins_are_free_and_each_further_one_doubles_the_wait() -> None:
    logins, now_ms = WrongLogins(), 0
    wrong(logins, "ada", HERE, 3)
    assert logins.wait_ms("ada", HERE, LIMITS, 0) == 0
    waits = []
    for _ in range(9):
        wrong(logins, "ada", HERE, now_ms=now_ms)
        waits.append(logins.wait_ms("ada", HERE, LIMITS, now_ms))
        now_ms += waits[-1]
        assert logins.wait_ms("ada", HERE, LIMITS, now_ms) == 0
    assert waits == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]


def test_whoever_keeps_quiet_is_forgiven() -> None:
    logins = WrongLogins()
    wrong(logins, "ada", HERE, 3)
    wrong(logins, "ada", HERE, now_ms=5 * 60_000)
    assert logins.wait_ms("ada", HERE, LIMITS, 5 * 60_000) == 0
    wrong(logins, "ada", HERE, 2, now_ms=5 * 60_000)
    assert logins.wait_ms("ada", HERE, LIMITS, 5 * 60_000) == 0
    wrong(logins, "ada", HERE, now_ms=5 * 60_000)
    assert logins.wait_ms("ada", HERE, LIMITS, 5 * 60_000) == 1_000


def test_ipv6_addresses_of_one_network_count_together_and_others_do_not() -> None:
    logins = WrongLogins()
    for number in range(4):
        wrong(logins, "ada", f"2001:db8:0:1::{number:x}")
    assert logins.wait_ms("ada", "2001:db8:0:1:ffff::1", LIMITS, 0) == 1_000
    assert logins.wait_ms("ada", "2001:db8:0:2::1", LIMITS, 0) == 0


def test_an_address_waits_as_a_whole_and_known_users_do_not_wait_with_it() -> None:
    logins = WrongLogins()
    logins.succeeded("bob", HERE, LIMITS)
    for number in range(11):
        wrong(logins, f"user-{number}", HERE)
    assert logins.wait_ms("ada", HERE, LIMITS, 0) == 1_000
    assert logins.wait_ms("ada", HERE, LIMITS, 0, is_known=True) == 0
    assert logins.wait_ms("ada", THERE, LIMITS, 0) == logins.wait_ms("bob", HERE, LIMITS, 0) == 0
    wrong(logins, "bob", HERE, 4)
    assert logins.wait_ms("bob", HERE, LIMITS, 0) == 1_000, "its own wrong logins count"
    logins.succeeded("carol", HERE, LIMITS)
    assert logins.wait_ms("ada", HERE, LIMITS, 0) > 0, "a login of another user wipes nothing out"


def test_nobody_waits_where_it_is_exempt_or_turned_off() -> None:
    logins, off = WrongLogins(), LIMITS._replace(wait_ms_max=0)
    for host in ("127.0.0.1", "10.1.2.3", "unix"):
        wrong(logins, "ada", host, 50)
        assert logins.wait_ms("ada", host, LIMITS, 0) == 0
    for _ in range(50):
        logins.failed("ada", HERE, off, 0)
    assert logins.wait_ms("ada", HERE, off, 0) == 0
    assert len(logins) == 0


def test_what_is_remembered_is_bounded_and_the_latest_stays() -> None:
    logins = WrongLogins()
    for number in range(10_000):
        host = f"192.0.{number // 250 % 250}.{number % 250}"
        wrong(logins, "x" * 10_000 + str(number), host)
        logins.succeeded(str(number), host, LIMITS)
    assert len(logins) == 3 * LIMITS.remembered_max
    wrong(logins, "ada", HERE, 4)
    for number in range(LIMITS.remembered_max - 1):
        wrong(logins, str(number), f"198.51.100.{number}")
    assert logins.wait_ms("ada", HERE, LIMITS, 0) == 1_000


def test_addresses_and_their_users_take_turns() -> None:
    line: FairLine[str] = FairLine()
    for number in range(3):
        line.put("greedy", "a", f"a{number}")
    line.put("greedy", "b", "b0")
    line.put("quiet", "c", "c0")
    assert [line.take() for _ in range(6)] == ["a0", "c0", "b0", "a1", "a2", None]


def test_nobody_waits_longer_than_for_one_of_each_other() -> None:
    choose = random.Random(5)
    line: FairLine[tuple[str, str, int]] = FairLine()
    count, passed = 0, dict.fromkeys("abcd", 0)
    for _ in range(5_000):
        address, user = choose.choice("aaaaaabcd"), choose.choice("xyz")
        line.put(address, user, (address, user, count))
        count += 1
        if choose.random() < 0.6:
            taken = line.take()
            assert taken is not None
            passed[taken[0]] += 1
    waiting = count - sum(passed.values())
    rest = [line.take() for _ in range(waiting)]
    assert None not in rest and line.take() is None
    first_d = next((at for at, each in enumerate(rest) if each is not None and each[0] == "d"), 0)
    assert first_d <= 3
