"""Several transactions ended in one step: all or none, in any order, with crashes at any point."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest

from forebay.core.topic_partition import TopicPartition
from forebay.core.transactions import end_many
from forebay.core.transactions.state import Identity, State
from forebay.errors import ErrorCode
from forebay.wire.messages.end_txn import FURTHER_MAX
from support.machines.transaction_log import Coordinator

NAMES = ("a", "b", "c")
NOT_ATTEMPTED = ErrorCode.OPERATION_NOT_ATTEMPTED

Member = tuple[str, Identity]


def opened(coordinator: Coordinator, *names: str) -> list[Member]:
    """A transaction for each name, with a partition of its own."""
    return [begun(coordinator, name, (f"topic-{name}", 0)) for name in names]


def begun(coordinator: Coordinator, name: str, *partitions: TopicPartition) -> Member:
    coordinator.commits_at_once = True
    response: Any = coordinator.take(coordinator.ask_init(name))
    who = response.producer_id, response.producer_epoch
    if partitions:
        coordinator.take(coordinator.ask_add(name, who, *partitions))
    return name, who


def end(coordinator: Coordinator, members: Sequence[Member], *, commit: bool = True) -> list[int]:
    """The error of each."""
    response: Any = coordinator.take(coordinator.ask_end_together(*members, commit=commit))
    return [response.error_code, *response.further_error_codes]


def states(coordinator: Coordinator) -> list[State]:
    return [coordinator.shard.transactions[name].state for name in NAMES]


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_all_are_decided_in_one_batch_whatever_the_order(order: tuple[int, ...], commit: bool) -> None:
    coordinator = Coordinator(writes_markers=False)
    members = opened(coordinator, *NAMES)
    batches = len(coordinator.log)
    assert end(coordinator, [members[n] for n in order], commit=commit) == [ErrorCode.NONE] * 3
    assert len(coordinator.log) == batches + 1
    assert states(coordinator) == [State.PREPARE_COMMIT if commit else State.PREPARE_ABORT] * 3
    assert {(each.transactional_id, each.commit) for each in coordinator.markers} == {
        (name, commit) for name in NAMES
    }
    while coordinator.markers:
        coordinator.write_markers()
    assert states(coordinator) == [State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT] * 3


def test_markers_of_one_do_not_wait_for_those_of_another() -> None:
    coordinator = Coordinator(writes_markers=False)
    assert not any(end(coordinator, opened(coordinator, *NAMES)))
    coordinator.markers.rotate(1)
    coordinator.write_markers()
    assert sorted(states(coordinator)) == [State.PREPARE_COMMIT, State.PREPARE_COMMIT, State.COMPLETE_COMMIT]


# -- one is wrong -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("commit", [True, False])
def test_one_that_is_fenced_leaves_all_open_and_is_named(at: int, commit: bool) -> None:
    coordinator = Coordinator()
    members = opened(coordinator, *NAMES)
    name, (producer_id, epoch) = members[at]
    members[at] = name, (producer_id, epoch - 1)
    before = len(coordinator.log)
    expected = [NOT_ATTEMPTED] * 3
    expected[at] = ErrorCode.PRODUCER_FENCED
    assert end(coordinator, members, commit=commit) == expected
    assert len(coordinator.log) == before
    assert states(coordinator) == [State.ONGOING] * 3


@pytest.mark.parametrize("at", range(3))
def test_one_that_ended_the_other_way_leaves_the_rest_open(at: int) -> None:
    coordinator = Coordinator()
    members = opened(coordinator, *NAMES)
    name, who = members[at]
    coordinator.take(coordinator.ask_end(name, who, commit=False))
    expected = [NOT_ATTEMPTED] * 3
    expected[at] = ErrorCode.INVALID_TXN_STATE
    assert end(coordinator, members) == expected
    assert states(coordinator).count(State.ONGOING) == 2


def test_each_that_is_wrong_is_named() -> None:
    coordinator = Coordinator()
    members = opened(coordinator, *NAMES)
    coordinator.pass_time(61_000)  # their time is up
    members = [("unknown", (1, 0)), ("", (1, 0)), begun(coordinator, "d", ("t", 0)), *members]
    assert end(coordinator, members) == [
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_REQUEST,
        NOT_ATTEMPTED,
        *[ErrorCode.PRODUCER_FENCED] * 3,
    ]
    assert coordinator.shard.transactions["d"].state is State.ONGOING


def test_a_producer_that_has_written_nothing_has_nothing_to_commit() -> None:
    coordinator = Coordinator()
    members = [*opened(coordinator, "a"), begun(coordinator, "idle")]
    assert end(coordinator, members) == [NOT_ATTEMPTED, ErrorCode.INVALID_TXN_STATE]


# -- again --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("marked", range(4))
def test_a_request_whose_answer_was_lost_can_be_repeated(marked: int) -> None:
    coordinator = Coordinator(writes_markers=False)
    members = opened(coordinator, *NAMES)
    assert not any(end(coordinator, members))
    for _ in range(marked):
        coordinator.write_markers()
    before = len(coordinator.log)
    assert end(coordinator, members) == [ErrorCode.NONE] * 3
    assert end(coordinator, members, commit=False) == [ErrorCode.INVALID_TXN_STATE] * 3
    assert len(coordinator.log) == before
    assert len(coordinator.sent) == 3


def test_what_was_ended_one_by_one_is_completed_in_one_step() -> None:
    coordinator = Coordinator()
    members = opened(coordinator, *NAMES)
    name, who = members[1]
    coordinator.take(coordinator.ask_end(name, who, commit=True))
    assert end(coordinator, members) == [ErrorCode.NONE] * 3
    assert states(coordinator) == [State.COMPLETE_COMMIT] * 3
    assert len(coordinator.sent) == 3


# -- crashes ------------------------------------------------------------------------------------------------


def test_a_crash_before_the_batch_is_committed_may_take_all_but_never_some() -> None:
    coordinator = Coordinator(writes_markers=False)
    members = opened(coordinator, *NAMES)
    coordinator.commits_at_once = False
    ticket = coordinator.ask_end_together(*members, commit=True)
    assert coordinator.take(ticket) is None
    assert not coordinator.markers
    coordinator.crash(len(coordinator.log) - 1)
    assert states(coordinator) == [State.ONGOING] * 3


@pytest.mark.parametrize("marked", range(3))
def test_after_the_batch_the_next_coordinator_finishes_all(marked: int) -> None:
    coordinator = Coordinator(writes_markers=False)
    members = opened(coordinator, *NAMES)
    coordinator.commits_at_once = False
    coordinator.ask_end_together(*members, commit=True)
    coordinator.commit(len(coordinator.log))
    for _ in range(marked):
        coordinator.write_markers()  # the news of which may be lost with the uncommitted tail
    coordinator.crash(coordinator.committed)
    assert states(coordinator) == [State.PREPARE_COMMIT] * 3
    coordinator.pass_time(120_000)  # no timeout takes back what is decided
    coordinator.commit(len(coordinator.log))
    assert {each.transactional_id for each in coordinator.markers} == set(NAMES)
    while coordinator.markers:
        coordinator.write_markers()
    assert states(coordinator) == [State.COMPLETE_COMMIT] * 3


# -- limits -------------------------------------------------------------------------------------------------


def test_the_same_transaction_twice_is_refused() -> None:
    coordinator = Coordinator()
    (member,) = opened(coordinator, "a")
    assert end(coordinator, [member, member]) == [ErrorCode.INVALID_REQUEST] * 2


def test_as_many_as_allowed_are_ended_and_no_more() -> None:
    coordinator = Coordinator(checks_replay=False)
    members = [begun(coordinator, f"t{n}", ("t", n)) for n in range(FURTHER_MAX + 2)]
    assert set(end(coordinator, members)) == {ErrorCode.INVALID_REQUEST}
    assert end(coordinator, members[1:]) == [ErrorCode.NONE] * (FURTHER_MAX + 1)


def test_more_than_fits_into_a_batch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_many, "RECORDS_BYTES_MAX", 20_000)
    coordinator = Coordinator(writes_markers=False)
    partitions = [(f"topic-{n}", n) for n in range(100)]
    members = [begun(coordinator, f"t{n}", *partitions) for n in range(20)]
    assert set(end(coordinator, members)) == {ErrorCode.MESSAGE_TOO_LARGE}
    fitting = next(n for n in range(20, 0, -1) if not any(end(coordinator, members[:n])))
    assert fitting > 3
    assert sum(len(each.key) + len(each.value or b"") for each in coordinator.log[-1]) <= 20_000


def test_who_asks_for_one_hears_of_no_others() -> None:
    """By this a client tells a broker that has skipped the tag."""
    coordinator = Coordinator()
    name, who = begun(coordinator, "a", ("t", 0))
    response: Any = coordinator.take(coordinator.ask_end(name, who, commit=True, version=4))
    assert (response.error_code, response.further_error_codes) == (ErrorCode.NONE, None)
