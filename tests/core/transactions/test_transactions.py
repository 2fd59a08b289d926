"""The transaction coordinator: the ways of a transaction, who may go them, and what each client is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from forebay.config import TransactionsConfig
from forebay.core.step import RequestInfo
from forebay.core.transactions.decisions import PARTITIONS_BYTES_MAX
from forebay.core.transactions.replies import failure
from forebay.core.transactions.state import (
    EPOCH_MAX,
    TRANSITIONS,
    Event,
    Identity,
    State,
    Transaction,
    record_of,
)
from forebay.core.transactions.waiting import WAIT_MS_MAX, WAITING_MAX
from forebay.errors import ErrorCode
from forebay.wire.codec.compiled import encode
from forebay.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from forebay.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from forebay.wire.messages.end_txn import EndTxnRequest
from forebay.wire.messages.init_producer_id import InitProducerIdRequest
from support.machines.transaction_log import NOBODY, Coordinator, add_request

DAY_MS = 86_400_000
A, B = ("orders", 0), ("orders", 1)


def slow_markers() -> Coordinator:
    """Markers are written when the test says so."""
    return Coordinator(writes_markers=False)


def answer(coordinator: Coordinator, ticket: int) -> Any:
    response = coordinator.take(ticket)
    assert response is not None, "not answered"
    return response


def init(coordinator: Coordinator, expected: Identity = NOBODY, **options: Any) -> Identity:
    response = answer(coordinator, coordinator.ask_init("t", expected, **options))
    assert response.error_code == ErrorCode.NONE
    return response.producer_id, response.producer_epoch


def init_error(coordinator: Coordinator, expected: Identity = NOBODY, **options: Any) -> int:
    response = answer(coordinator, coordinator.ask_init("t", expected, **options))
    assert (response.producer_id, response.producer_epoch) == NOBODY
    return int(response.error_code)


def add(coordinator: Coordinator, who: Identity, *partitions: tuple[str, int], version: int = 3) -> int:
    response = answer(coordinator, coordinator.ask_add("t", who, *(partitions or (A,)), version=version))
    results = response.results_by_topic_v3_and_below or response.results_by_transaction[0].topic_results
    errors = {result.partition_error_code for topic in results for result in topic.results_by_partition}
    assert len(errors) == 1
    return int(errors.pop())


def end(coordinator: Coordinator, who: Identity, *, commit: bool = True, version: int = 3) -> int:
    return int(answer(coordinator, coordinator.ask_end("t", who, commit=commit, version=version)).error_code)


def end_and_bump(coordinator: Coordinator, who: Identity, *, commit: bool = True) -> Identity:
    response = answer(coordinator, coordinator.ask_end("t", who, commit=commit, version=5))
    assert response.error_code == ErrorCode.NONE
    return response.producer_id, response.producer_epoch


def known(coordinator: Coordinator) -> Transaction:
    return coordinator.shard.transactions["t"]


def put(coordinator: Coordinator, **changes: Any) -> Identity:
    """Write a changed transaction into the log, as if much had happened before."""
    txn = replace(known(coordinator), **changes)
    coordinator.log.append([record_of(txn)])
    coordinator.shard.replay(coordinator.log[-1][0])
    return txn.stored


# -- the table ----------------------------------------------------------------------------------------


def test_a_decided_transaction_has_one_way_on() -> None:
    assert TRANSITIONS[State.PREPARE_COMMIT] == {Event.MARKED: State.COMPLETE_COMMIT}
    assert TRANSITIONS[State.PREPARE_ABORT] == {Event.MARKED: State.COMPLETE_ABORT}


def test_every_state_can_be_reached_or_is_only_a_name() -> None:
    reached = {state for ways in TRANSITIONS.values() for state in ways.values()}
    assert set(State) - reached == {State.PREPARE_EPOCH_FENCE}
    assert [state.label for state in State] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


# -- the ordinary way -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("commit", "prepared", "complete"),
    [
        (True, State.PREPARE_COMMIT, State.COMPLETE_COMMIT),
        (False, State.PREPARE_ABORT, State.COMPLETE_ABORT),
    ],
)
def test_a_transaction_from_begin_to_end(commit: bool, prepared: State, complete: State) -> None:
    coordinator = slow_markers()
    who = init(coordinator)
    assert who[1] == 0
    assert known(coordinator).state is State.EMPTY
    assert add(coordinator, who, A) == ErrorCode.NONE
    assert add(coordinator, who, B) == ErrorCode.NONE
    assert known(coordinator).state is State.ONGOING
    assert end(coordinator, who, commit=commit) == ErrorCode.NONE
    assert known(coordinator).state is prepared
    markers = coordinator.markers[0]
    assert (markers.producer_id, markers.producer_epoch) == who
    assert (markers.commit, markers.partitions, markers.transaction_version) == (commit, (A, B), 0)
    coordinator.marked(markers, [A])
    assert known(coordinator).state is prepared
    coordinator.marked(markers, [B])
    assert known(coordinator).state is complete
    assert known(coordinator).partitions == frozenset()


def test_nothing_is_said_or_done_before_the_log_has_it() -> None:
    coordinator = Coordinator(commits_at_once=False, writes_markers=False)
    ticket = coordinator.ask_init("t")
    assert coordinator.take(ticket) is None
    coordinator.commit(1)
    response = answer(coordinator, ticket)
    who = response.producer_id, response.producer_epoch
    coordinator.ask_add("t", who, A)
    ended = coordinator.ask_end("t", who, commit=True)
    coordinator.commit(2)
    assert not coordinator.markers
    coordinator.commit(3)
    assert answer(coordinator, ended).error_code == ErrorCode.NONE
    assert len(coordinator.markers) == 1


def test_offsets_of_a_group_are_one_more_partition() -> None:
    coordinator = slow_markers()
    who = init(coordinator)
    assert answer(coordinator, coordinator.ask_add_offsets("t", who, 3)).error_code == ErrorCode.NONE
    assert known(coordinator).partitions == {("__consumer_offsets", 3)}
    end(coordinator, who)
    assert coordinator.markers[0].partitions == (("__consumer_offsets", 3),)


def test_a_partition_that_is_in_the_transaction_already_costs_no_record() -> None:
    coordinator = Coordinator()
    who = init(coordinator)
    add(coordinator, who, A)
    before = len(coordinator.log)
    assert add(coordinator, who, A) == ErrorCode.NONE
    assert len(coordinator.log) == before


def test_a_transaction_without_partitions_ends_in_one_batch() -> None:
    coordinator = slow_markers()
    who = init(coordinator)
    coordinator.ask_add("t", who)
    assert known(coordinator).state is State.ONGOING
    assert end(coordinator, who) == ErrorCode.NONE
    assert known(coordinator).state is State.COMPLETE_COMMIT
    assert len(coordinator.log[-1]) == 2
    assert not coordinator.sent


# -- what is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_must_be_within_bounds(timeout_ms: int) -> None:
    error = init_error(Coordinator(), timeout_ms=timeout_ms)
    assert error == ErrorCode.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("expected", [(5, -1), (-1, 5)])
def test_half_an_identity_is_an_invalid_request(expected: Identity) -> None:
    assert init_error(Coordinator(), expected) == ErrorCode.INVALID_REQUEST


def test_requests_for_unknown_or_nameless_transactions() -> None:
    coordinator = Coordinator()
    for name, error in (("t", ErrorCode.INVALID_PRODUCER_ID_MAPPING), ("", ErrorCode.INVALID_REQUEST)):
        assert answer(coordinator, coordinator.ask_end(name, (1, 0), commit=True)).error_code == error
        assert answer(coordinator, coordinator.ask_add_offsets(name, (1, 0))).error_code == error
        added = answer(coordinator, coordinator.ask_add(name, (1, 0), A))
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == error
        assert coordinator.shard.verify_partition(name, (1, 0), A) == error
    assert answer(coordinator, coordinator.ask_init("")).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("version", "fenced"), [(1, "INVALID_PRODUCER_EPOCH"), (2, "PRODUCER_FENCED")])
def test_a_zombie_is_told_so_in_the_words_of_its_version(version: int, fenced: str) -> None:
    coordinator = Coordinator()
    zombie = init(coordinator)
    init(coordinator)
    assert add(coordinator, zombie, version=version) == ErrorCode[fenced]
    assert end(coordinator, zombie, version=version) == ErrorCode[fenced]
    offsets = answer(coordinator, coordinator.ask_add_offsets("t", zombie, version=version))
    assert offsets.error_code == ErrorCode[fenced]


@pytest.mark.parametrize(("version", "fenced"), [(3, "INVALID_PRODUCER_EPOCH"), (4, "PRODUCER_FENCED")])
def test_a_zombie_cannot_take_its_id_back(version: int, fenced: str) -> None:
    coordinator = Coordinator()
    zombie = init(coordinator)
    init(coordinator)
    assert init_error(coordinator, zombie, version=version) == ErrorCode[fenced]


def test_another_producer_id_is_no_mapping() -> None:
    coordinator = Coordinator()
    init(coordinator)
    for version in (3, 5):
        assert end(coordinator, (7, 0), version=version) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert add(coordinator, (7, 0), version=version) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_partitions_that_no_record_could_hold_are_refused() -> None:
    coordinator = Coordinator()
    who = init(coordinator)
    many = [("x" * 249 + str(index), 0) for index in range(PARTITIONS_BYTES_MAX // 250)]
    assert add(coordinator, who, *many) == ErrorCode.INVALID_REQUEST
    assert known(coordinator).state is State.EMPTY


def test_ends_for_clients_that_keep_their_epoch() -> None:
    coordinator = slow_markers()
    who = init(coordinator)
    assert end(coordinator, who) == ErrorCode.INVALID_TXN_STATE
    add(coordinator, who)
    assert end(coordinator, who) == ErrorCode.NONE
    assert end(coordinator, who) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert end(coordinator, who, commit=False) == ErrorCode.INVALID_TXN_STATE
    coordinator.write_markers()
    assert end(coordinator, who) == ErrorCode.NONE
    assert end(coordinator, who, commit=False) == ErrorCode.INVALID_TXN_STATE


# -- the epoch that rises with each transaction (KIP-890) -------------------------------------------------


def test_each_end_raises_the_epoch_and_marks_with_it() -> None:
    coordinator = slow_markers()
    first = init(coordinator)
    add(coordinator, first, version=5)
    second = end_and_bump(coordinator, first)
    assert second == (first[0], first[1] + 1)
    markers = coordinator.markers[0]
    assert (markers.producer_id, markers.producer_epoch, markers.transaction_version) == (*second, 2)
    coordinator.write_markers()
    assert add(coordinator, first) == ErrorCode.PRODUCER_FENCED
    assert add(coordinator, second) == ErrorCode.NONE


def test_a_lost_response_to_an_end_can_be_asked_for_again() -> None:
    coordinator = slow_markers()
    who = init(coordinator)
    add(coordinator, who)
    bumped = end_and_bump(coordinator, who)
    assert end(coordinator, who, version=5) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert end(coordinator, who, version=5, commit=False) == ErrorCode.INVALID_TXN_STATE
    coordinator.write_markers()
    assert end_and_bump(coordinator, who) == bumped
    assert end(coordinator, who, version=5, commit=False) == ErrorCode.INVALID_TXN_STATE
    coordinator.crash(len(coordinator.log))
    assert end_and_bump(coordinator, who) == bumped


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("last_epoch", [0, EPOCH_MAX - 1])
def test_a_lost_response_to_an_end_can_be_made_good_by_beginning_anew(commit: bool, last_epoch: int) -> None:
    """InitProducerId with the epoch before gives the one that the end has given, and raises nothing."""
    coordinator = slow_markers()
    init(coordinator)
    who = put(coordinator, producer_epoch=last_epoch)
    add(coordinator, who)
    bumped = end_and_bump(coordinator, who, commit=commit)
    waiting = coordinator.ask_init("t", who)
    assert coordinator.take(waiting) is None, "the markers come first"
    coordinator.write_markers()
    response = answer(coordinator, waiting)
    assert (response.producer_id, response.producer_epoch) == bumped
    coordinator.crash(len(coordinator.log))
    assert init(coordinator, who) == bumped
    assert add(coordinator, bumped) == ErrorCode.NONE
    assert init_error(coordinator, who) == ErrorCode.PRODUCER_FENCED, "its owner has gone on"


def test_a_lost_response_to_an_end_does_not_let_a_replaced_producer_back_in() -> None:
    coordinator = Coordinator()
    who = init(coordinator)
    add(coordinator, who)
    bumped = end_and_bump(coordinator, who)
    assert init(coordinator) == (bumped[0], bumped[1] + 1)
    assert init_error(coordinator, who) == ErrorCode.PRODUCER_FENCED
    assert init_error(coordinator, bumped) == ErrorCode.PRODUCER_FENCED


def test_the_next_end_while_markers_are_written_comes_again() -> None:
    coordinator = slow_markers()
    who = init(coordinator)
    add(coordinator, who)
    bumped = end_and_bump(coordinator, who)
    assert end(coordinator, bumped, version=5, commit=False) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert end(coordinator, (who[0], 7), version=5) == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("before", ["empty", "committed", "aborted"])
def test_aborting_what_never_arrived_still_raises_the_epoch(before: str) -> None:
    coordinator = Coordinator()
    who = init(coordinator)
    if before != "empty":
        add(coordinator, who)
        who = end_and_bump(coordinator, who, commit=before == "committed")
    assert end(coordinator, who, version=5, commit=True) == ErrorCode.INVALID_TXN_STATE
    bumped = end_and_bump(coordinator, who, commit=False)
    assert bumped == (who[0], who[1] + 1)
    assert known(coordinator).state is State.COMPLETE_ABORT
    assert end_and_bump(coordinator, who, commit=False) == bumped


def test_used_up_epochs_end_with_a_new_producer_id() -> None:
    coordinator = slow_markers()
    init(coordinator)
    last = put(coordinator, producer_epoch=EPOCH_MAX - 1)
    add(coordinator, last)
    fresh = end_and_bump(coordinator, last)
    assert fresh[0] != last[0]
    assert fresh[1] == 0
    markers = coordinator.markers[0]
    assert (markers.producer_id, markers.producer_epoch) == (last[0], EPOCH_MAX)
    assert end(coordinator, last, version=5) == ErrorCode.CONCURRENT_TRANSACTIONS
    waiting = coordinator.ask_add("t", fresh, A, version=5)
    assert coordinator.take(waiting) is None
    coordinator.write_markers()
    assert coordinator.take(waiting) is not None
    assert known(coordinator).stored == fresh


def test_a_lost_response_with_a_new_producer_id_can_be_asked_for_again() -> None:
    coordinator = Coordinator()
    init(coordinator)
    last = put(coordinator, producer_epoch=EPOCH_MAX - 1)
    add(coordinator, last)
    fresh = end_and_bump(coordinator, last)
    coordinator.crash(len(coordinator.log))
    assert end_and_bump(coordinator, last) == fresh
    assert end(coordinator, (last[0], 3), version=5) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


# -- taking the transactional id -------------------------------------------------------------------------


def test_every_new_producer_gets_a_higher_epoch() -> None:
    coordinator = Coordinator()
    first = init(coordinator)
    assert init(coordinator) == (first[0], 1)
    assert init(coordinator) == (first[0], 2)


def test_a_new_producer_aborts_the_open_transaction_of_the_old() -> None:
    coordinator = slow_markers()
    old = init(coordinator)
    add(coordinator, old)
    waiting = coordinator.ask_init("t")
    assert known(coordinator).state is State.PREPARE_ABORT
    assert end(coordinator, old) == ErrorCode.PRODUCER_FENCED
    assert end(coordinator, old, version=5, commit=False) == ErrorCode.PRODUCER_FENCED
    assert coordinator.take(waiting) is None
    markers = coordinator.write_markers()
    assert not markers.commit
    assert (markers.producer_id, markers.producer_epoch) == (old[0], old[1] + 1)
    response = answer(coordinator, waiting)
    assert (response.error_code, response.producer_epoch) == (ErrorCode.NONE, old[1] + 2)


def test_a_producer_may_raise_its_own_epoch_and_repeat_that() -> None:
    coordinator = Coordinator()
    first = init(coordinator)
    second = init(coordinator, first)
    assert second == (first[0], 1)
    assert init(coordinator, first) == second
    coordinator.crash(len(coordinator.log))
    assert init(coordinator, first) == second
    assert end(coordinator, first, version=5, commit=False) == ErrorCode.PRODUCER_FENCED
    assert init(coordinator, second) == (first[0], 2)
    assert init_error(coordinator, first) == ErrorCode.PRODUCER_FENCED


def test_a_zombie_cannot_abort_the_transaction_of_its_successor() -> None:
    coordinator = Coordinator()
    zombie = init(coordinator)
    who = init(coordinator)
    add(coordinator, who)
    assert init_error(coordinator, zombie) == ErrorCode.PRODUCER_FENCED
    assert known(coordinator).state is State.ONGOING


def test_used_up_epochs_begin_with_a_new_producer_id() -> None:
    coordinator = Coordinator()
    init(coordinator)
    last = put(coordinator, producer_epoch=EPOCH_MAX - 1)
    fresh = init(coordinator, last)
    assert fresh[0] != last[0]
    assert fresh[1] == 0
    assert init(coordinator, last) == fresh
    assert init(coordinator)[1] == 1
    assert init_error(coordinator, last) == ErrorCode.PRODUCER_FENCED


def test_a_producer_at_its_last_epoch_can_be_fenced() -> None:
    coordinator = Coordinator()
    init(coordinator)
    last = put(coordinator, producer_epoch=EPOCH_MAX - 1)
    add(coordinator, last)
    fresh = init(coordinator)
    assert fresh[0] != last[0]
    assert coordinator.sent[0].producer_epoch == EPOCH_MAX


def test_nobody_may_use_the_epoch_that_only_fences_have() -> None:
    coordinator = Coordinator()
    init(coordinator)
    last = put(coordinator, producer_epoch=EPOCH_MAX - 1)
    add(coordinator, last)
    coordinator.pass_time(60_000)
    assert known(coordinator).producer_epoch == EPOCH_MAX
    assert add(coordinator, known(coordinator).stored) == ErrorCode.PRODUCER_FENCED
    assert end(coordinator, last, version=5, commit=False) == ErrorCode.PRODUCER_FENCED


def test_without_a_fresh_producer_id_the_client_comes_again() -> None:
    coordinator = Coordinator()
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1)
    ticket = coordinator.ticket()
    coordinator.run(coordinator.shard.init_producer_id(ticket, request, -1, RequestInfo(5), coordinator.now))
    assert answer(coordinator, ticket).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert not coordinator.shard.transactions


# -- waiting for markers ---------------------------------------------------------------------------------


def test_what_comes_next_waits_for_the_markers_and_shares_their_batch() -> None:
    coordinator = slow_markers()
    who = init(coordinator)
    add(coordinator, who)
    end(coordinator, who)
    waiting = coordinator.ask_add("t", who, B)
    offsets = coordinator.ask_add_offsets("t", who, 1)
    assert coordinator.unanswered == {waiting, offsets}
    batches = len(coordinator.log)
    coordinator.write_markers()
    assert answer(coordinator, waiting).results_by_topic_v3_and_below
    assert answer(coordinator, offsets).error_code == ErrorCode.NONE
    assert len(coordinator.log) == batches + 1
    assert known(coordinator).partitions == {B, ("__consumer_offsets", 1)}
    assert not coordinator.unanswered


def test_waiting_ends_with_an_error_to_come_again() -> None:
    coordinator = slow_markers()
    who = init(coordinator)
    add(coordinator, who)
    end(coordinator, who)
    tickets = [coordinator.ask_init("t"), coordinator.ask_add("t", who, B)]
    coordinator.pass_time(WAIT_MS_MAX - 1)
    assert not coordinator.answers
    coordinator.pass_time(1)
    assert answer(coordinator, tickets[0]).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    result = answer(coordinator, tickets[1]).results_by_topic_v3_and_below[0].results_by_partition[0]
    assert result.partition_error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    coordinator.write_markers()
    assert known(coordinator).state is State.COMPLETE_COMMIT


def test_only_a_few_wait() -> None:
    coordinator = slow_markers()
    who = init(coordinator)
    add(coordinator, who)
    end(coordinator, who)
    tickets = [coordinator.ask_init("t") for _ in range(WAITING_MAX + 1)]
    assert answer(coordinator, tickets[-1]).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    coordinator.write_markers()
    epochs = [answer(coordinator, ticket).producer_epoch for ticket in tickets[:-1]]
    assert epochs == [1, 2, 3, 4]


def test_late_news_of_markers_does_not_end_the_next_transaction() -> None:
    coordinator = slow_markers()
    who = init(coordinator)
    add(coordinator, who)
    end(coordinator, who)
    first = coordinator.write_markers()
    add(coordinator, who)
    end(coordinator, who, commit=False)
    coordinator.marked(first, first.partitions)
    assert known(coordinator).state is State.PREPARE_ABORT


# -- time ------------------------------------------------------------------------------------------------


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced() -> None:
    coordinator = Coordinator()
    who = init(coordinator, timeout_ms=5000)
    add(coordinator, who)
    coordinator.pass_time(4000)
    add(coordinator, who, B)
    coordinator.pass_time(999)
    assert known(coordinator).state is State.ONGOING
    coordinator.pass_time(1)
    assert known(coordinator).state is State.COMPLETE_ABORT
    markers = coordinator.sent[0]
    assert (markers.commit, markers.producer_epoch, markers.partitions) == (False, who[1] + 1, (A, B))
    assert end(coordinator, who) == ErrorCode.PRODUCER_FENCED
    assert add(coordinator, who) == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("replaced", [True, False])
def test_after_a_timeout_a_producer_goes_on_unless_another_has_come(replaced: bool) -> None:
    coordinator = Coordinator()
    who = init(coordinator, timeout_ms=5000)
    add(coordinator, who)
    coordinator.pass_time(5000)
    if replaced:
        init(coordinator)
        assert init_error(coordinator, who) == ErrorCode.PRODUCER_FENCED
    else:
        assert init(coordinator, who) == (who[0], who[1] + 1)


def test_a_client_with_rising_epochs_goes_on_after_a_timeout() -> None:
    coordinator = Coordinator()
    who = init(coordinator, timeout_ms=5000)
    add(coordinator, who)
    coordinator.pass_time(5000)
    assert end(coordinator, who, version=5, commit=True) == ErrorCode.INVALID_TXN_STATE
    bumped = end_and_bump(coordinator, who, commit=False)
    assert add(coordinator, bumped, version=5) == ErrorCode.NONE


@pytest.mark.parametrize("step_ms", [-DAY_MS, -1, 0, 1, DAY_MS])
def test_an_open_transaction_has_its_timeout_whatever_the_clock_is_set_to(step_ms: int) -> None:
    coordinator = Coordinator()
    add(coordinator, init(coordinator, timeout_ms=5000))
    coordinator.pass_time(2000)
    coordinator.wall_ahead_ms += step_ms
    coordinator.pass_time(2999)
    assert known(coordinator).state is State.ONGOING
    coordinator.pass_time(1)
    assert known(coordinator).state is State.COMPLETE_ABORT


@pytest.mark.parametrize("step_ms", [-DAY_MS, 0, DAY_MS])
def test_the_time_of_an_open_transaction_begins_anew_with_a_new_coordinator(step_ms: int) -> None:
    coordinator = Coordinator()
    add(coordinator, init(coordinator, timeout_ms=5000))
    coordinator.pass_time(3000)
    coordinator.wall_ahead_ms += step_ms
    coordinator.crash(len(coordinator.log))
    coordinator.pass_time(4999)
    assert known(coordinator).state is State.ONGOING
    coordinator.pass_time(1)
    assert known(coordinator).state is State.COMPLETE_ABORT


def test_an_id_does_not_expire_by_a_step_of_the_clock_that_is_not_believed() -> None:
    coordinator = Coordinator(config=TransactionsConfig(id_expiration_ms=100_000))
    init(coordinator)
    coordinator.wall_ahead_ms += DAY_MS
    coordinator.doubted_ms = DAY_MS
    coordinator.pass_time(99_999)
    assert coordinator.shard.transactions
    coordinator.pass_time(1_001)
    assert not coordinator.shard.transactions


def test_timeouts_are_looked_for_no_more_often_than_the_interval() -> None:
    coordinator = Coordinator(config=TransactionsConfig(abort_interval_ms=1000))
    for name, timeout_ms in (("t", 500), ("u", 600)):
        response = answer(coordinator, coordinator.ask_init(name, timeout_ms=timeout_ms))
        coordinator.ask_add(name, (response.producer_id, response.producer_epoch), A)
    coordinator.pass_time(1499)
    states = [txn.state for txn in coordinator.shard.transactions.values()]
    assert states == [State.COMPLETE_ABORT, State.ONGOING]
    coordinator.pass_time(1)
    assert coordinator.shard.transactions["u"].state is State.COMPLETE_ABORT


def test_an_unused_transactional_id_is_forgotten() -> None:
    coordinator = Coordinator(config=TransactionsConfig(id_expiration_ms=100_000))
    who = init(coordinator)
    coordinator.pass_time(90_000)
    add(coordinator, who)
    end(coordinator, who)
    coordinator.pass_time(99_999)
    assert "t" in coordinator.shard.transactions
    coordinator.pass_time(1)
    assert "t" not in coordinator.shard.transactions
    assert coordinator.log[-1][0].value is None
    assert init(coordinator)[0] != who[0]


def test_an_id_in_use_is_never_forgotten() -> None:
    coordinator = Coordinator(config=TransactionsConfig(id_expiration_ms=1000), writes_markers=False)
    who = init(coordinator, timeout_ms=60_000)
    add(coordinator, who)
    coordinator.pass_time(50_000)
    assert known(coordinator).state is State.ONGOING
    end(coordinator, who)
    coordinator.pass_time(50_000)
    assert known(coordinator).state is State.PREPARE_COMMIT


def test_transactions_that_time_out_at_once_are_aborted_one_by_one_without_a_pause() -> None:
    """Each in a step of its own, so that one that fails takes no other with it."""
    coordinator = Coordinator(config=TransactionsConfig(abort_interval_ms=10_000))
    for index in range(5):
        response = answer(coordinator, coordinator.ask_init(f"t{index}", timeout_ms=1000))
        coordinator.ask_add(f"t{index}", (response.producer_id, response.producer_epoch), A)
    coordinator.now_ms += 10_000
    for count in range(1, 6):
        assert coordinator.deadline_ms is not None and coordinator.deadline_ms <= coordinator.now_ms
        coordinator.run(coordinator.shard.tick(coordinator.now))
        assert len(coordinator.sent) == count
    states = {txn.state for txn in coordinator.shard.transactions.values()}
    assert states == {State.COMPLETE_ABORT}
    assert coordinator.deadline_ms is not None and coordinator.deadline_ms > coordinator.now_ms


def test_decided_transactions_go_on_after_a_restart() -> None:
    coordinator = slow_markers()
    who = init(coordinator)
    add(coordinator, who, A, B)
    end(coordinator, who)
    coordinator.marked(coordinator.markers[0], [A])
    before = coordinator.markers[0]
    assert coordinator.shard.still_marking(before)
    coordinator.crash(len(coordinator.log))
    assert not coordinator.shard.still_marking(before)
    assert coordinator.shard.still_marking(coordinator.markers[0])
    assert coordinator.markers[0].partitions == (A, B)
    assert coordinator.markers[0].commit
    coordinator.write_markers()
    assert known(coordinator).state is State.COMPLETE_COMMIT


# -- batched requests, verification ----------------------------------------------------------------------


def test_a_batch_of_transactions_is_answered_one_by_one() -> None:
    coordinator = Coordinator()
    who = init(coordinator)
    other = answer(coordinator, coordinator.ask_init("u"))
    batch = AddPartitionsToTxnRequest(
        transactions=[
            *add_request("t", who, A, version=5).transactions,
            *add_request("u", (other.producer_id, 9), A, version=5).transactions,
            *add_request("t", who, A, version=5, verify_only=True).transactions,
        ]
    )
    ticket = coordinator.ticket()
    coordinator.run(coordinator.shard.add_partitions_to_txn(ticket, batch, RequestInfo(5), coordinator.now))
    response = answer(coordinator, ticket)
    assert len(encode(response, 5)) > 0
    errors = [
        result.topic_results[0].results_by_partition[0].partition_error_code
        for result in response.results_by_transaction
    ]
    assert errors == [ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.NONE]


@pytest.mark.parametrize(("version", "missing"), [(4, "INVALID_TXN_STATE"), (5, "TRANSACTION_ABORTABLE")])
def test_verification_changes_nothing(version: int, missing: str) -> None:
    coordinator = slow_markers()
    who = init(coordinator)
    add(coordinator, who, A)
    before = len(coordinator.log)
    request = add_request("t", who, A, B, version=version, verify_only=True)
    ticket = coordinator.ticket()
    coordinator.run(
        coordinator.shard.add_partitions_to_txn(ticket, request, RequestInfo(version), coordinator.now)
    )
    topics = answer(coordinator, ticket).results_by_transaction[0].topic_results
    errors = [topic.results_by_partition[0].partition_error_code for topic in topics]
    assert errors == [ErrorCode.NONE, ErrorCode[missing]]
    assert len(coordinator.log) == before


def test_what_a_partition_may_ask_about_a_producer() -> None:
    coordinator = slow_markers()
    who = init(coordinator)
    add(coordinator, who, A)
    verify = coordinator.shard.verify_partition
    assert verify("t", who, A) == ErrorCode.NONE
    assert verify("t", who, B) == ErrorCode.TRANSACTION_ABORTABLE
    assert verify("t", (who[0], 9), A) == ErrorCode.PRODUCER_FENCED
    assert verify("t", (who[0] + 1, 0), A) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    end(coordinator, who)
    assert verify("t", who, A) == ErrorCode.CONCURRENT_TRANSACTIONS
    coordinator.write_markers()
    assert verify("t", who, A) == ErrorCode.TRANSACTION_ABORTABLE


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (InitProducerIdRequest(transactional_id="t"), 4),
        (AddOffsetsToTxnRequest(transactional_id="t"), 3),
        (EndTxnRequest(transactional_id="t"), 5),
        (add_request("t", (1, 0), A), 3),
        (add_request("t", (1, 0), A, version=4), 4),
    ],
)
def test_a_coordinator_that_fails_says_so_in_every_response(request_: Any, version: int) -> None:
    response = failure(request_, version, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    data = encode(response, version)
    assert ErrorCode.COORDINATOR_NOT_AVAILABLE.to_bytes(2, "big") in data
