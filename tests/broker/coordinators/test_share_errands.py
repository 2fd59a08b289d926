"""The errands of share groups: who waits for whom, and for how long."""

from __future__ import annotations

import asyncio
from typing import Any

from forebay.broker.coordinators.share_errands import ShareErrands
from forebay.core.groups.share.effects import InitializeShares, ShareStart, SummarizeShares
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.initialize_share_group_state import InitializeShareGroupStateRequest

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

    async def ask(self, _: object, request: Any) -> None:
        self.attempts += 1
        self.asked.set()
        self.seconds += 1
        if not isinstance(request, InitializeShareGroupStateRequest):
            await asyncio.Event().wait()
        await self.open.wait()
        if self.error:
            raise KafkaError(self.error, "later")


def errands(coordinators: Coordinators) -> ShareErrands:
    async def end_offset(*_: object) -> int:
        return 0

    return ShareErrands(coordinators, end_offset, coordinators)  # type: ignore[arg-type]


def initialization(state_epoch: int) -> InitializeShares:
    return InitializeShares(group_id="g", state_epoch=state_epoch, partitions=(ShareStart(*AT, 0),))


async def test_an_initialization_does_not_wait_for_summaries() -> None:
    coordinators = Coordinators()
    coordinators.open.set()
    subject = errands(coordinators)
    describing = asyncio.create_task(
        subject.summarize(SummarizeShares(ticket=1, group_id="g", partitions=(AT,)))
    )
    await coordinators.asked.wait()
    async with asyncio.timeout(20):
        assert await subject.initialize(initialization(1)) == {AT: ErrorCode.NONE}
    describing.cancel()


async def test_patience_ends_in_the_queue_too() -> None:
    """The second one has waited for the first for longer than anybody waits for it: one attempt is left."""
    coordinators = Coordinators()
    subject = errands(coordinators)
    first = asyncio.create_task(subject.initialize(initialization(1)))
    second = asyncio.create_task(subject.initialize(initialization(2)))
    await coordinators.asked.wait()
    coordinators.seconds += 60
    coordinators.error = ErrorCode.NOT_COORDINATOR
    coordinators.open.set()
    for each in (first, second):
        assert await each == {AT: ErrorCode.NOT_COORDINATOR}
    assert coordinators.attempts == 2
