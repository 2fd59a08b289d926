"""The effects of share groups: who waits for whom, and for how long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from forebay.broker.coordinators.share_group_effects import ShareGroupEffects
from forebay.core.groups.share.effects import DeleteShares, InitializeShares, ShareStart, SummarizeShares
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.read_share_group_state_summary import ReadShareGroupStateSummaryRequest

TOPIC = bytes(16)
AT = (TOPIC, 0)


class Coordinators:
    """They answer initializations from when they are `open` on; nobody hears of summaries. Each attempt
    takes a second of the clock that they are, too."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.asked = asyncio.Event()
        self.error = ErrorCode.NONE
        self.attempts = 0
        self.seconds = 0.0

    def time(self) -> float:
        return self.seconds

    async def ask(self, request: Any) -> None:
        self.attempts += 1
        self.asked.set()
        self.seconds += 1
        if isinstance(request, ReadShareGroupStateSummaryRequest):
            await asyncio.Event().wait()
        await self.open.wait()
        if self.error:
            raise KafkaError(self.error, "later")


def effects(coordinators: Coordinators) -> ShareGroupEffects:
    async def end_offset(*_: object) -> int:
        return 0

    return ShareGroupEffects(lambda: coordinators, end_offset, coordinators)  # type: ignore[arg-type, return-value]


def initialization(state_epoch: int) -> InitializeShares:
    return InitializeShares(group_id="g", state_epoch=state_epoch, partitions=(ShareStart(*AT, 0),))


def goes_on() -> bool:
    return True


async def test_an_initialization_does_not_wait_for_summaries() -> None:
    coordinators = Coordinators()
    coordinators.open.set()
    subject = effects(coordinators)
    describing = asyncio.create_task(
        subject.summarize(SummarizeShares(ticket=1, group_id="g", partitions=(AT,)), goes_on)
    )
    await coordinators.asked.wait()
    async with asyncio.timeout(20):
        assert await subject.initialize(initialization(1), goes_on) == {AT: ErrorCode.NONE}
    describing.cancel()


async def test_patience_ends_in_the_queue_too() -> None:
    """The second one has waited for the first for longer than anybody waits for it: one attempt is left."""
    coordinators = Coordinators()
    subject = effects(coordinators)
    first = asyncio.create_task(subject.initialize(initialization(1), goes_on))
    second = asyncio.create_task(subject.initialize(initialization(2), goes_on))
    await coordinators.asked.wait()
    coordinators.seconds += 60
    coordinators.error = ErrorCode.NOT_COORDINATOR
    coordinators.open.set()
    for each in (first, second):
        assert await each == {AT: ErrorCode.NOT_COORDINATOR}
    assert coordinators.attempts == 2


@pytest.mark.parametrize("is_deletion", [False, True])
async def test_nothing_is_tried_again_after_the_term_of_its_coordinator(is_deletion: bool) -> None:
    """Its successor decides then, and may have decided otherwise."""
    coordinators, terms = Coordinators(), [1]
    coordinators.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    subject = effects(coordinators)

    async def run() -> dict[tuple[bytes, int], ErrorCode]:
        if is_deletion:
            effect = DeleteShares(group_id="g", state_epoch=1, partitions=(AT,))
            return await subject.delete(effect, lambda: bool(terms))
        return await subject.initialize(initialization(1), lambda: bool(terms))

    both = [asyncio.create_task(run()) for _ in range(2)]
    await coordinators.asked.wait()
    terms.clear()
    coordinators.open.set()
    for each in both:
        assert await each == {AT: ErrorCode.NOT_COORDINATOR}
    assert coordinators.attempts == 1
