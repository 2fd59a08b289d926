"""Transactional ids with the same beginning: renewed while their program lives, forgotten when it is done."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.config import TransactionsConfig
from forebay.core.transactions.state import Identity, State
from forebay.errors import ErrorCode
from support.machines.transaction_log import Coordinator

TIMEOUT_MS = 60_000
HOUR_MS = 3_600_000
AT = ("topic", 0)


def init(coordinator: Coordinator, name: str) -> Identity:
    response: Any = coordinator.take(coordinator.ask_init(name, timeout_ms=TIMEOUT_MS))
    return response.producer_id, response.producer_epoch


def opened(coordinator: Coordinator, *names: str) -> list[Identity]:
    found = []
    for name in names:
        found.append(init(coordinator, name))
        coordinator.take(coordinator.ask_add(name, found[-1], AT))
    return found


def states(coordinator: Coordinator) -> dict[str, State]:
    return {name: txn.state for name, txn in coordinator.shard.transactions.items()}


# -- renewing ------------------------------------------------------------------------------------------------


def test_what_is_renewed_stays_open_and_what_is_not_ends_after_its_timeout() -> None:
    coordinator = Coordinator()
    opened(coordinator, "job-1-a", "job-1-b", "job-2-a")
    for _ in range(10):
        coordinator.pass_time(TIMEOUT_MS // 2)
        assert coordinator.look_after(renew=["job-1-"]) == 2
    assert states(coordinator) == {
        "job-1-a": State.ONGOING,
        "job-1-b": State.ONGOING,
        "job-2-a": State.COMPLETE_ABORT,
    }
    coordinator.pass_time(TIMEOUT_MS - 1)
    assert states(coordinator)["job-1-a"] is State.ONGOING
    coordinator.pass_time(2_000)
    assert set(states(coordinator).values()) == {State.COMPLETE_ABORT}
    assert coordinator.look_after(renew=["job-1-"]) == 0


def test_adding_partitions_can_renew_others_on_the_way() -> None:
    coordinator = Coordinator()
    (_, second) = opened(coordinator, "job-a", "job-b")
    coordinator.pass_time(TIMEOUT_MS // 2)
    ticket = coordinator.ask_add("job-b", second, ("topic", 1), renew=["job-"])
    response: Any = coordinator.take(ticket)
    (topic,) = response.results_by_topic_v3_and_below
    assert topic.results_by_partition[0].partition_error_code == ErrorCode.NONE
    coordinator.pass_time(TIMEOUT_MS * 3 // 4)
    assert states(coordinator) == {"job-a": State.ONGOING, "job-b": State.ONGOING}


def test_a_family_without_a_name_is_nobody() -> None:
    coordinator = Coordinator()
    opened(coordinator, "a")
    assert coordinator.look_after(renew=[""], forget=[""]) == 0
    coordinator.pass_time(TIMEOUT_MS + 2_000)
    assert states(coordinator) == {"a": State.COMPLETE_ABORT}


def test_renewing_opens_nothing() -> None:
    coordinator = Coordinator()
    init(coordinator, "job-a")
    batches = len(coordinator.log)
    assert coordinator.look_after(renew=["job-"]) == 0
    assert states(coordinator) == {"job-a": State.EMPTY}
    assert len(coordinator.log) == batches, "what is renewed is not in the log"


def test_nothing_is_renewed_for_ever() -> None:
    coordinator = Coordinator(config=TransactionsConfig(max_lifetime_ms=HOUR_MS))
    opened(coordinator, "job-a")
    for _ in range(HOUR_MS // TIMEOUT_MS * 2 - 1):
        coordinator.pass_time(TIMEOUT_MS // 2)
        assert coordinator.look_after(renew=["job-"]) == 1
    coordinator.pass_time(TIMEOUT_MS // 2 + 2_000)
    assert states(coordinator) == {"job-a": State.COMPLETE_ABORT}


def test_a_lifetime_shorter_than_the_timeout_takes_nothing_of_it() -> None:
    coordinator = Coordinator(config=TransactionsConfig(max_lifetime_ms=1))
    opened(coordinator, "job-a")
    assert coordinator.look_after(renew=["job-"]) == 1
    coordinator.pass_time(TIMEOUT_MS - 1)
    assert states(coordinator) == {"job-a": State.ONGOING}
    coordinator.pass_time(2_000)
    assert states(coordinator) == {"job-a": State.COMPLETE_ABORT}


def test_the_next_coordinator_gives_the_whole_timeout_and_renews() -> None:
    coordinator = Coordinator()
    opened(coordinator, "job-a")
    coordinator.pass_time(TIMEOUT_MS * 3 // 4)
    coordinator.crash(len(coordinator.log))
    coordinator.pass_time(TIMEOUT_MS * 3 // 4)
    assert coordinator.look_after(renew=["job-"]) == 1
    coordinator.pass_time(TIMEOUT_MS * 3 // 4)
    assert states(coordinator) == {"job-a": State.ONGOING}


# -- forgetting ----------------------------------------------------------------------------------------------


def test_ids_at_rest_are_forgotten_at_once() -> None:
    coordinator = Coordinator()
    first, second = opened(coordinator, "job-a", "job-b")
    init(coordinator, "job-c")
    init(coordinator, "other")
    coordinator.take(coordinator.ask_end("job-a", first, commit=True))
    coordinator.take(coordinator.ask_end("job-b", second, commit=False))
    assert coordinator.look_after(forget=["job-"]) == 3
    assert states(coordinator) == {"other": State.EMPTY}
    coordinator.crash(len(coordinator.log))
    assert states(coordinator) == {"other": State.EMPTY}


@pytest.mark.parametrize("commit", [True, False])
def test_ids_in_use_are_forgotten_when_their_transaction_has_ended(commit: bool) -> None:
    coordinator = Coordinator(writes_markers=False)
    first, second = opened(coordinator, "job-a", "job-b")
    coordinator.take(coordinator.ask_end("job-a", first, commit=commit))
    assert coordinator.look_after(forget=["job-"]) == 2
    assert len(states(coordinator)) == 2
    coordinator.take(coordinator.ask_end("job-b", second, commit=commit))
    while coordinator.markers:
        coordinator.write_markers()
    assert states(coordinator) == {}


def test_ids_whose_time_is_up_are_forgotten_then() -> None:
    coordinator = Coordinator()
    opened(coordinator, "job-a")
    coordinator.look_after(forget=["job-"])
    coordinator.pass_time(TIMEOUT_MS + 2_000)
    assert states(coordinator) == {}


def test_an_id_that_somebody_takes_again_stays() -> None:
    coordinator = Coordinator(writes_markers=False)
    (who,) = opened(coordinator, "job-a")
    coordinator.take(coordinator.ask_end("job-a", who, commit=True))
    coordinator.look_after(forget=["job-"])
    ticket = coordinator.ask_init("job-a")  # waits for the markers
    coordinator.write_markers()
    assert coordinator.take(ticket) is not None
    assert states(coordinator) == {"job-a": State.EMPTY}


def test_an_id_stays_while_its_next_transaction_is_open() -> None:
    coordinator = Coordinator(writes_markers=False)
    (who,) = opened(coordinator, "job-a")
    coordinator.take(coordinator.ask_end("job-a", who, commit=True))
    coordinator.look_after(forget=["job-"])
    ticket = coordinator.ask_add("job-a", who, AT)  # waits for the markers
    coordinator.write_markers()
    assert coordinator.take(ticket) is not None
    assert states(coordinator) == {"job-a": State.ONGOING}
    coordinator.take(coordinator.ask_end("job-a", who, commit=True))
    coordinator.write_markers()
    assert states(coordinator) == {}
