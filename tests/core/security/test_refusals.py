"""Which refusals are written, and that every other one is counted, whatever the noise."""

from __future__ import annotations

import random
from collections import Counter

from forebay.core.security.refusals import PRINCIPAL_SHARES, SAMPLES_MAX, RefusalLimits, Refusals

LIMITS = RefusalLimits(per_second=2.0, burst=5, senders_max=50)


def refuse(
    refusals: Refusals, principal: str, host: str, times: int, now_s: float = 0.0, need: str = "READ TOPIC:t"
) -> tuple[int, int]:
    """Lines written, and what they told of as left out."""
    written = told = 0
    for _ in range(times):
        found = refusals.admit(principal, host, "Fetch", need, LIMITS, now_s)
        if found is not None:
            written += 1
            told += found.apis.total()
    return written, told


def test_a_sender_has_a_burst_and_then_a_rate_and_the_next_line_tells_the_rest() -> None:
    refusals = Refusals()
    assert refuse(refusals, "User:a", "10.0.0.1", 100) == (5, 0)
    assert refuse(refusals, "User:a", "10.0.0.1", 1, now_s=0.4) == (0, 0)
    assert refuse(refusals, "User:a", "10.0.0.1", 1, now_s=0.6) == (1, 96)
    assert refuse(refusals, "User:a", "10.0.0.1", 100, now_s=1000.0) == (5, 0)


def test_noise_takes_no_line_from_other_principals_nor_from_other_addresses() -> None:
    refusals = Refusals()
    refuse(refusals, "User:noisy", "10.0.0.1", 10_000)
    assert refuse(refusals, "User:quiet", "10.0.0.1", 1) == (1, 0)
    assert refuse(refusals, "User:noisy", "10.0.0.2", 1) == (1, 0)


def test_a_principal_at_many_addresses_has_a_bound_as_a_whole() -> None:
    refusals = Refusals()
    written = sum(refuse(refusals, "User:noisy", f"10.0.0.{number}", 100)[0] for number in range(40))
    assert written == LIMITS.burst * PRINCIPAL_SHARES
    assert refuse(refusals, "User:quiet", "10.0.0.1", 1) == (1, 0)


def test_addresses_of_one_ipv6_network_are_one_sender() -> None:
    refusals = Refusals()
    written = sum(refuse(refusals, "User:a", f"2001:db8::{number:x}", 1)[0] for number in range(100))
    assert written == LIMITS.burst


def test_nothing_is_lost_from_the_counts_and_memory_is_bounded() -> None:
    choose, refusals = random.Random(7), Refusals()
    asked, written, told = 20_000, 0, 0
    for number in range(asked):
        principal = f"User:{choose.randrange(200)}"
        found = refusals.admit(
            principal, f"10.0.{choose.randrange(3)}.1", "Fetch", f"READ TOPIC:{number}", LIMITS, number / 1000
        )
        if found is not None:
            written += 1
            told += found.apis.total()
        assert len(refusals) <= 2 * LIMITS.senders_max
    left = refusals.untold()
    assert written + told + sum(each.apis.total() for each in left) == asked
    assert all(len(each.needs) <= SAMPLES_MAX for each in left)
    assert left == sorted(left, key=lambda each: -each.apis.total())
    assert refusals.untold() == []


def test_what_was_left_out_says_which_apis_and_some_of_what_was_asked_for() -> None:
    refusals = Refusals()
    for number in range(LIMITS.burst + 40):
        refusals.admit("User:a", "10.0.0.1", "Fetch", f"READ TOPIC:{number}", LIMITS, 0.0)
    refusals.admit("User:a", "10.0.0.1", "DeleteTopics", "DELETE TOPIC:x", LIMITS, 0.0)
    (left,) = refusals.untold()
    assert (left.principal, left.network) == ("User:a", "10.0.0.1")
    assert left.apis == Counter({"Fetch": 40, "DeleteTopics": 1})
    assert len(left.needs) == SAMPLES_MAX and left.needs[0] == "READ TOPIC:5"
