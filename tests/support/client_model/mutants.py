"""Mistakes that forebay.client could make, put into it on purpose: each breaks one rule of its promises."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from forebay.client import AsyncConsumer, Consumer, Delivery, Producer
from forebay.client.aio.call_thread import CallThread
from forebay.client.offsets_to_commit import OffsetsToCommit
from forebay.client.positions import Positions
from forebay.client.transactions import Transactions

Mutant = Callable[[pytest.MonkeyPatch], None]

_LATE_SECONDS = 0.02


def go_on_after_a_failed_batch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Consumer, "rewind", lambda _: None)


def forget_what_a_broken_fetch_had(patch: pytest.MonkeyPatch) -> None:
    real = Positions.begin_fetch

    def begin(self: Positions) -> None:
        self.end_fetch(())
        real(self)

    patch.setattr(Positions, "begin_fetch", begin)


def hand_out_what_was_taken_away(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Positions, "accept", lambda _self, fetched: list(fetched))


def leave_the_begin_to_librdkafka(patch: pytest.MonkeyPatch) -> None:
    """It goes back there later, when the partition has been elsewhere."""
    patch.setattr(Positions, "assign", lambda _self, partitions: partitions)
    patch.setattr(Positions, "accept", lambda _self, fetched: list(fetched))


def take_a_commit_without_answer_for_an_abort(patch: pytest.MonkeyPatch) -> None:
    outcome = property(lambda self: "committed" if self.committed else "aborted")
    patch.setattr(Transactions, "outcome", outcome)


def take_a_commit_without_answer_for_done(patch: pytest.MonkeyPatch) -> None:
    real = Transactions.outcome
    outcome = property(lambda self: "committed" if real.fget(self) == "unknown" else real.fget(self))  # type: ignore[attr-defined]
    patch.setattr(Transactions, "outcome", outcome)


def take_the_last_outcome_for_the_next(patch: pytest.MonkeyPatch) -> None:
    """A transaction that is rolled back is taken for committed, if the one before it was."""
    patch.setattr(Transactions, "forget_outcome", lambda _: None)


def let_a_second_cancel_end_the_roll_back(patch: pytest.MonkeyPatch) -> None:
    def late(work: Callable[[], Any]) -> Any:
        time.sleep(_LATE_SECONDS)  # or it might have ended before the second cancel comes
        return work()

    async def run(self: CallThread, work: Callable[[], Any], *_: Any) -> Any:
        return await self.run(partial(late, work))

    patch.setattr(CallThread, "run_to_end", run)


def leave_a_cancelled_batch(patch: pytest.MonkeyPatch) -> None:
    async def rewind(_: AsyncConsumer) -> None: ...

    patch.setattr(AsyncConsumer, "rewind", rewind)


def say_nothing_of_failed_deliveries(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Producer, "raise_failures", lambda _: None)


def commit_a_torn_transaction(patch: pytest.MonkeyPatch) -> None:
    """Though a partition was taken away in the middle of it."""
    patch.setattr(
        OffsetsToCommit, "torn", property(lambda _: False, lambda _self, _value: None), raising=False
    )


MUTANTS: dict[Mutant, tuple[str, Delivery]] = {
    go_on_after_a_failed_batch: ("copy", "at-least-once"),
    forget_what_a_broken_fetch_had: ("read", "at-least-once"),
    hand_out_what_was_taken_away: ("pump", "exactly-once"),
    leave_the_begin_to_librdkafka: ("copy", "at-most-once"),
    take_a_commit_without_answer_for_an_abort: ("copy", "exactly-once"),
    take_a_commit_without_answer_for_done: ("copy", "exactly-once"),
    take_the_last_outcome_for_the_next: ("copy", "exactly-once"),
    commit_a_torn_transaction: ("pump", "exactly-once"),
    let_a_second_cancel_end_the_roll_back: ("copy async", "exactly-once"),
    leave_a_cancelled_batch: ("copy async", "at-least-once"),
    say_nothing_of_failed_deliveries: ("copy", "at-least-once"),
}
"""Each with a program that it breaks."""
