"""What the requests of a client count for: the time that the loop is at work for them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from forebay.broker.net.request_context import RequestContext
from forebay.broker.quotas.client_quotas import throttle_ms
from forebay.broker.quotas.metering import RequestMeter
from forebay.core.quotas.keys import QuotaKey
from forebay.core.quotas.limiter import ClientLimits
from forebay.core.quotas.token_bucket import TokenBucket
from forebay.wire.messages.metadata import MetadataResponse


class Quotas:
    """Of a client that may take half of the loop, and has used up what was free. Time passes by hand."""

    def __init__(self) -> None:
        self.time = 0.0
        self.muted: list[float] = []
        self.prolonged: list[float] = []
        bucket = TokenBucket(50.0, 0.0, burst_s=10.0, debt_s_max=30.0)
        bucket.take(bucket.capacity, 0.0)
        self.found: ClientLimits | None = ClientLimits(None, None, bucket, None)

    def now(self) -> float:
        return self.time

    def limits(self, _context: RequestContext) -> ClientLimits | None:
        return self.found

    def mute(self, _context: RequestContext, key: QuotaKey, wait_s: float) -> int:
        assert key is QuotaKey.REQUEST
        self.muted.append(wait_s)
        return throttle_ms(wait_s)

    def prolong(self, _context: RequestContext, wait_s: float) -> None:
        self.prolonged.append(wait_s)


@pytest.fixture
def quotas() -> Quotas:
    return Quotas()


def handled(quotas: Quotas, handle: Any, *, awaits_login: bool = False) -> Any:
    connection: Any = SimpleNamespace(awaits_login=awaits_login)
    meter = RequestMeter(quotas)  # type: ignore[arg-type]
    return meter.handle(handle, RequestContext(connection, 3, 9, 1, "c"), None, 10, quotas.time)


def test_a_request_that_is_answered_at_once(quotas: Quotas) -> None:
    def handle(*_: object) -> MetadataResponse:
        quotas.time += 0.25
        return MetadataResponse()

    answer = handled(quotas, handle)
    # A quarter of a second of all the loop is half a second of half of it; half of that has passed.
    assert quotas.muted == [pytest.approx(0.25)] and answer.throttle_time_ms == 250


@pytest.mark.parametrize(("others_s", "wait_s"), [(0.0, 3.0), (1.0, 2.0), (4.0, 0.0)])
async def test_a_request_that_takes_several_turns_counts_for_its_own_work_alone(
    quotas: Quotas, others_s: float, wait_s: float
) -> None:
    """It takes 3 seconds, which are 6 seconds of its half; those that have passed since are paid."""

    def others() -> None:
        quotas.time += others_s

    async def handle(*_: object) -> MetadataResponse:
        quotas.time += 1.0
        asyncio.get_running_loop().call_soon(others)
        await asyncio.sleep(0)
        quotas.time += 2.0
        return MetadataResponse()

    answer = await handled(quotas, handle)
    assert quotas.muted == ([pytest.approx(wait_s)] if wait_s else [])
    assert answer.throttle_time_ms == wait_s * 1000


async def test_a_request_that_fails_later_fails_as_it_would(quotas: Quotas) -> None:
    async def handle(*_: object) -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await handled(quotas, handle)


async def test_a_request_that_is_cancelled_ends(quotas: Quotas) -> None:
    ended = []

    async def handle(*_: object) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(True)

    task = asyncio.ensure_future(handled(quotas, handle))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended


async def test_a_quota_that_is_gone_when_the_answer_comes_does_not_count(quotas: Quotas) -> None:
    async def handle(*_: object) -> MetadataResponse:
        quotas.time += 100.0
        quotas.found = None
        return MetadataResponse()

    assert (await handled(quotas, handle)).throttle_time_ms == 0
    assert quotas.muted == []


def test_what_comes_before_the_login_does_not_count(quotas: Quotas) -> None:
    def handle(*_: object) -> MetadataResponse:
        quotas.time += 100.0
        return MetadataResponse()

    assert handled(quotas, handle, awaits_login=True).throttle_time_ms == 0
    assert quotas.muted == []


def test_decoding_counts(quotas: Quotas) -> None:
    """Work on a request begins before its handler sees it."""
    meter = RequestMeter(quotas)  # type: ignore[arg-type]
    connection: Any = SimpleNamespace(awaits_login=False)
    began_s = quotas.time
    quotas.time += 0.25
    context = RequestContext(connection, 3, 9, 1, "c")
    answer = meter.handle(lambda *_: MetadataResponse(), context, None, 10, began_s)
    assert quotas.muted == [pytest.approx(0.25)] and answer.throttle_time_ms == 250


def test_what_is_done_after_the_answer_is_owed(quotas: Quotas) -> None:
    meter = RequestMeter(quotas)  # type: ignore[arg-type]
    connection: Any = SimpleNamespace(awaits_login=False)
    context = RequestContext(connection, 3, 9, 1, "c")
    began_s = quotas.time
    quotas.time += 2.0
    meter.count(context, began_s)
    assert quotas.prolonged == [pytest.approx(2.0)], "4 seconds of its half, of which 2 have passed"
    assert meter.owed_s(context) == pytest.approx(2.0)
    quotas.time += 1.95
    assert meter.owed_s(context) == 0.0, "a little may be owed by connections that share a quota"


async def test_work_in_many_turns_counts_also_if_it_fails(quotas: Quotas) -> None:
    meter = RequestMeter(quotas)  # type: ignore[arg-type]
    connection: Any = SimpleNamespace(awaits_login=False)
    context = RequestContext(connection, 3, 9, 1, "c")

    async def work() -> None:
        quotas.time += 1.0
        await asyncio.sleep(0)
        quotas.time += 1.0
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await meter.counted(context, work())
    assert quotas.prolonged == [pytest.approx(2.0)]
