"""Who has to go when too many connections have not logged in."""

from __future__ import annotations

import random

import pytest

from forebay.core.security.networks import network_of
from forebay.core.security.sasl.unfinished_logins import UnfinishedLogins


def test_the_oldest_of_the_greediest_goes() -> None:
    logins: UnfinishedLogins[str] = UnfinishedLogins()
    logins.add("quiet", "first")
    for number in range(3):
        logins.add("greedy", f"g{number}")
    logins.add("quiet", "second")
    assert logins.next_to_go() == "g0"
    logins.discard("greedy", "g0")
    logins.discard("greedy", "g1")
    assert logins.next_to_go() == "first"


def test_addresses_of_one_ipv6_network_count_together() -> None:
    logins: UnfinishedLogins[int] = UnfinishedLogins()
    logins.add("2001:db8:0:2::1", 0)
    for number in range(1, 10):
        logins.add(f"2001:db8:0:1:{number:x}::{number:x}", number)
    assert logins.next_to_go() == 1
    for number in range(1, 9):
        logins.discard(f"2001:db8:0:1:{number:x}::{number:x}", number)
    assert (len(logins), logins.next_to_go()) == (2, 0)


@pytest.mark.parametrize(
    ("host", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "::/64"),
        ("2001:db8::1:2:3:4", "2001:db8::/64"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("broker-1", "broker-1"),
    ],
)
def test_the_network_of_an_address(host: str, network: str) -> None:
    assert network_of(host) == network


def test_counts_are_right_whatever_comes_and_goes() -> None:
    choose = random.Random(3)
    logins: UnfinishedLogins[int] = UnfinishedLogins()
    there: set[tuple[str, int]] = set()
    for _ in range(2000):
        address, login = choose.choice("abc"), choose.randrange(30)
        if choose.random() < 0.5:
            logins.add(address, login)
            there.add((address, login))
        else:
            logins.discard(address, login)
            there.discard((address, login))
        assert len(logins) == len(there)
        if there:
            sizes = {each: sum(1 for where, _ in there if where == each) for each in "abc"}
            gone = logins.next_to_go()
            assert any((each, gone) in there for each in "abc" if sizes[each] == max(sizes.values()))
