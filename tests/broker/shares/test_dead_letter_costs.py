"""Finishing the dead letters of a move takes one pass over those that wait."""

from __future__ import annotations

import asyncio
import sys
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from forebay.broker.shares.dead_letters.letters_to_move import DeadLetterSource
from forebay.core.record_moves.move import Move
from forebay.core.shares.partition.acquired_ranges import Demand, LogRead
from forebay.core.shares.partition.dead_letter_headers import DeadLetterBatch, first_of
from forebay.core.shares.partition.settings import ShareSettings
from forebay.core.shares.partition.share_partition import SharePartition
from forebay.storage.log.leader_epochs import UNDEFINED_OFFSET
from forebay.wire.messages.share_fetch import AcknowledgementBatch

RELEASE, REJECT = 2, 3
CALLS_PER_LETTER_MAX = 100


def machine_with_letters(count: int) -> SharePartition:
    """Every second record is rejected."""
    last = 2 * count - 1
    machine = SharePartition(
        ShareSettings(has_dead_letters=True), start_offset=0, leader_epoch=1, state_epoch=1
    )
    machine.acquire("member", LogRead(0, last, [(0, last)]), Demand(1, 1), now_ms=0)
    batch = AcknowledgementBatch(
        first_offset=0, last_offset=last, acknowledge_types=[RELEASE, REJECT] * count
    )
    assert machine.acknowledge("member", [batch], is_renew_request=False, now_ms=1).error == 0
    assert machine.take_write() is not None
    machine.write_done()
    return machine


def source_of(machine: SharePartition) -> DeadLetterSource:
    partition = SimpleNamespace(
        end_of_epoch=lambda *_: (0, UNDEFINED_OFFSET),
        log=SimpleNamespace(end_offset=0),
    )
    share: Any = SimpleNamespace(
        machine=machine,
        is_current=True,
        partition=partition,
        changed=lambda: None,
        await_write=lambda _number, done: done(None),
    )
    host: Any = SimpleNamespace(metrics=SimpleNamespace(dead_letters=0))
    return DeadLetterSource(share, host)


def calls_to_confirm(source: DeadLetterSource, move: Move) -> int:
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    async def confirm() -> None:
        sys.setprofile(note)
        try:
            await source.confirm(move)
        finally:
            sys.setprofile(None)

    asyncio.run(confirm())
    return count


@pytest.mark.parametrize("count", [50, 500])
def test_letters_are_confirmed_in_one_pass(count: int) -> None:
    machine = machine_with_letters(count)
    batch = DeadLetterBatch(1, first_of(machine.dead_letters()), 1)
    assert batch.record_count == count
    move = Move(topic_id=bytes(16), partition=0, record_count=count, entries=batch.pack(), revision=1)
    assert calls_to_confirm(source_of(machine), move) <= CALLS_PER_LETTER_MAX * count
    assert machine.dead_letters() == []
