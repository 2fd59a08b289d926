"""Networks where somebody has logged in come before those where nobody has, and do not shut them out."""

from __future__ import annotations

from forebay.core.security.sender_rotation import KnownNetworks, StrangerRotation


def test_known_networks_have_most_turns_however_many_others_wait() -> None:
    known = KnownNetworks()
    known.note("home")
    rotation = StrangerRotation[str](known)
    for number in range(100):
        rotation.add(f"10.0.0.{number}", f"stranger {number}")
    for number in range(5):
        rotation.add("home", f"ada {number}")
    assert (len(rotation), rotation.senders) == (105, 101)
    taken = [rotation.take() for _ in range(8)]
    assert taken[:4] == ["ada 0", "ada 1", "ada 2", "stranger 0"]
    assert taken[4:] == ["ada 3", "ada 4", "stranger 1", "stranger 2"]


def test_others_are_not_shut_out_by_known_networks_that_always_want_something() -> None:
    known = KnownNetworks()
    known.note("home")
    rotation = StrangerRotation[str](known)
    rotation.add("10.0.0.1", "stranger")
    taken = []
    for _ in range(4):
        rotation.add("home", "ada")
        taken.append(rotation.take())
    assert taken == ["ada", "ada", "ada", "stranger"]
    assert rotation.take() == "ada"
    assert not rotation


def test_those_that_logged_in_the_longest_time_ago_are_forgotten_first() -> None:
    known = KnownNetworks(most=2)
    for network in ("a", "b", "a", "c"):
        known.note(network)
    assert [network in known for network in "abc"] == [True, False, True]
