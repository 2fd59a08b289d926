"""The checker finds nothing in a history that is right, and finds each way to break it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.chaos.checker import RULES, check, transformed_once
from support.chaos.history import Ack, Begin, Commit, Found, Given, History, Read, Send, Transaction

ONE, TWO = ("t", 0), ("t", 1)


def good() -> History:
    """Two idempotent messages, a committed transaction, an aborted one, one that nobody knows the end of,
    and a group of which one member takes over from another.
    """
    history = History()
    sends = [
        (b"a", ONE, None),
        (b"b", ONE, None),
        (b"c1", ONE, "c"),
        (b"c2", TWO, "c"),
        (b"x", ONE, "x"),
        (b"u1", ONE, "u"),
        (b"u2", TWO, "u"),
    ]
    for number, (value, place, transaction) in enumerate(sends):
        history.sends[value] = Send(f"p-{transaction}", number, place, transaction=transaction)
    history.transactions = {
        "c": Transaction("committed", commit_begun=10),
        "x": Transaction("aborted"),
        "u": Transaction("unknown", commit_begun=20),
    }
    history.stored = {
        ONE: {0: b"a", 1: b"b", 2: b"c1", 4: b"x", 6: b"u1"},
        TWO: {0: b"c2", 2: b"u2"},
    }
    history.visible = {
        ONE: {0: b"a", 1: b"b", 2: b"c1", 6: b"u1"},
        TWO: {0: b"c2", 2: b"u2"},
    }
    history.acks = [
        Ack(value, ONE, offset) for offset, value in ((0, b"a"), (1, b"b"), (2, b"c1"), (4, b"x"))
    ]
    history.begins = [Begin("m1", ONE, 0), Begin("m2", ONE, 2), Begin("m2", TWO, 0)]
    history.reads = [
        group_read("m1", ONE, 0, b"a", 5),
        group_read("m1", ONE, 1, b"b", 6),
        group_read("m2", ONE, 2, b"c1", 30, generation=2),
        group_read("m2", TWO, 0, b"c2", 31, generation=2),
        group_read("m2", ONE, 6, b"u1", 32, generation=2),
        group_read("m2", TWO, 2, b"u2", 33, generation=2),
        Read("free", ONE, 4, b"x", 8, committed_only=False),
        Read("free", ONE, 6, b"u1", 19, committed_only=False),
    ]
    history.commits = [Commit("g", ONE, 1, 6, 7), Commit("g", ONE, 2, 8, 9), Commit("g", ONE, 7, 40)]
    history.found = [
        Found("g", ONE, 2, 11, 12),
        Found("g", TWO, None, 11, 12),
        Found("g", ONE, 7, 41, 42),
    ]
    return history


def group_read(
    member: str, place: tuple[str, int], offset: int, value: bytes, at: int, generation: int = 1
) -> Read:
    return Read(member, place, offset, value, at, group="g", generation=generation, member=member)


def test_nothing_is_wrong_with_what_is_right() -> None:
    assert check(good()) == []


def another_value(history: History) -> None:
    history.reads.append(Read("other", ONE, 0, b"b", 50))


def an_unsent_value(history: History) -> None:
    history.stored[ONE][7] = b"?"


def another_partition(history: History) -> None:
    history.stored[TWO][3] = b"a"


def a_lost_acknowledge(history: History) -> None:
    del history.visible[ONE][1]


def a_lost_repeat(history: History) -> None:
    history.sends[b"r"] = history.sends[b"a"]._replace(number=9)
    history.acks.append(Ack(b"r", ONE, None))


def an_acknowledge_elsewhere(history: History) -> None:
    history.acks.append(Ack(b"a", ONE, 9))


def a_lost_message_of_a_transaction(history: History) -> None:
    """It was not even acknowledged: its transaction was."""
    del history.visible[TWO][0]


def half_a_transaction(history: History) -> None:
    del history.visible[TWO][2]


def a_message_twice(history: History) -> None:
    history.stored[ONE][8] = b"b"


def another_order(history: History) -> None:
    history.sends[b"a"] = history.sends[b"a"]._replace(number=7)


def an_aborted_read(history: History) -> None:
    history.reads.append(Read("other", ONE, 4, b"x", 50))


def an_aborted_message_in_sight(history: History) -> None:
    history.visible[ONE][4] = b"x"


def a_read_before_the_commit(history: History) -> None:
    history.reads.append(Read("early", TWO, 0, b"c2", 9))


def a_read_of_what_nobody_committed(history: History) -> None:
    history.transactions["u"].commit_begun = None


def a_gap_between_polls(history: History) -> None:
    del history.reads[2]


def a_repeated_poll(history: History) -> None:
    history.reads.append(group_read("m1", ONE, 0, b"a", 60))


def a_late_beginning(history: History) -> None:
    history.begins[0] = Begin("m1", ONE, 0)
    del history.reads[0]


def a_commit_that_went_back(history: History) -> None:
    history.found.append(Found("g", ONE, 1, 43, 44))


def a_lost_commit(history: History) -> None:
    history.found.append(Found("g", ONE, None, 43, 44))


def a_commit_of_nobody(history: History) -> None:
    history.found.append(Found("g", ONE, 5, 43, 44))


def a_commit_from_the_future(history: History) -> None:
    history.found.append(Found("g", ONE, 7, 35, 36))


def an_aborted_commit(history: History) -> None:
    history.commits.append(Commit("g", ONE, 9, 43, 44, transaction="x"))
    history.found.append(Found("g", ONE, 9, 45, 46))


def two_owners(history: History) -> None:
    history.reads.append(group_read("m3", TWO, 0, b"c2", 61, generation=2))


def a_partition_given_twice(history: History) -> None:
    history.given |= {Given("k", 3, ONE, "m8"), Given("k", 3, ONE, "m9")}


def a_message_that_no_member_saw(history: History) -> None:
    history.visible[TWO][9] = b"u2"


BREACHES: list[tuple[Callable[[History], None], str]] = [
    (another_value, "one_value_per_offset"),
    (an_unsent_value, "nothing_from_nowhere"),
    (another_partition, "nothing_from_nowhere"),
    (a_lost_acknowledge, "no_lost_write"),
    (an_acknowledge_elsewhere, "no_lost_write"),
    (a_lost_repeat, "no_lost_write"),
    (a_lost_message_of_a_transaction, "no_lost_transaction"),
    (half_a_transaction, "all_or_nothing"),
    (a_message_twice, "no_double_write"),
    (another_order, "in_order"),
    (an_aborted_read, "no_aborted_read"),
    (an_aborted_message_in_sight, "no_aborted_read"),
    (a_read_before_the_commit, "no_aborted_read"),
    (a_read_of_what_nobody_committed, "no_aborted_read"),
    (a_gap_between_polls, "contiguous_polls"),
    (a_repeated_poll, "contiguous_polls"),
    (a_late_beginning, "contiguous_polls"),
    (a_commit_that_went_back, "commits_never_go_back"),
    (a_lost_commit, "commits_never_go_back"),
    (a_commit_of_nobody, "commits_never_go_back"),
    (a_commit_from_the_future, "commits_never_go_back"),
    (an_aborted_commit, "commits_never_go_back"),
    (two_owners, "one_member_per_generation"),
    (a_partition_given_twice, "one_member_per_generation"),
    (a_message_that_no_member_saw, "nothing_missed"),
]


@pytest.mark.parametrize(("break_it", "rule"), BREACHES, ids=lambda value: getattr(value, "__name__", ""))
def test_each_breach_is_found_by_its_rule(break_it: Callable[[History], None], rule: str) -> None:
    history = good()
    break_it(history)
    assert rule in {breach.partition(":")[0] for breach in check(history)}


def test_every_rule_can_be_broken() -> None:
    assert {rule for _, rule in BREACHES} == {rule.__name__ for rule in RULES}


def test_a_repeat_is_acknowledged_without_an_offset() -> None:
    history = good()
    history.acks += [Ack(value, ONE, None) for value in (b"a", b"b")]
    assert check(history) == []


def test_a_reset_lets_offsets_go_back() -> None:
    history = good()
    history.commits.append(Commit("g", ONE, 0, 50, 51, is_reset=True))
    history.found.append(Found("g", ONE, 0, 52, 53))
    assert check(history) == []
    history.commits.append(Commit("g", ONE, 1, 54, 55))
    history.found.append(Found("g", ONE, 0, 56, 57))
    assert [breach.partition(":")[0] for breach in check(history)] == ["commits_never_go_back"]


def test_a_plain_producer_may_store_twice() -> None:
    history = good()
    history.sends[b"b"] = history.sends[b"b"]._replace(exactly_once=False)
    history.stored[ONE][8] = b"b"
    assert check(history) == []


def test_what_was_not_acknowledged_may_be_lost() -> None:
    history = good()
    history.sends[b"z"] = Send("p-None", 9, ONE)
    assert check(history) == []


@pytest.mark.parametrize(
    ("outputs", "breaches"),
    [
        ([b"A", b"B"], []),
        ([b"A"], ["nothing was made of b'b'"]),
        ([b"A", b"B", b"B"], ["b'b' was made into something once too often"]),
        ([b"A", b"B", b"C"], ["b'c' was made into something once too often"]),
    ],
)
def test_transformations_are_counted(outputs: list[bytes], breaches: list[str]) -> None:
    history = History()
    history.visible = {("in", 0): {0: b"a", 1: b"b"}, ("out", 0): dict(enumerate(outputs))}
    assert transformed_once(history, "in", "out", bytes.lower) == breaches
