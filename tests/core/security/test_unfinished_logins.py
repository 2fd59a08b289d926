"""Who has to go when too many connections have not logged in."""

from __future__ import annotations

import random

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
