"""Background tasks: a failure is contained, told and counted; only what is vital ends the broker."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from forebay.broker.background import Background, BrokerEnded
from forebay.broker.telemetry.metrics import Metrics
from forebay.errors import StorageError
from support.brokers.local_cluster import eventually


async def fails(error: Exception) -> None:
    raise error


async def test_a_task_that_fails_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    background = Background(metrics)
    async with asyncio.TaskGroup() as tasks:
        background.open(tasks)
        background.spawn(fails(StorageError("the disk is gone")), "reading t-0")
        background.spawn(fails(ZeroDivisionError("a mistake")), "reading t-1")
        await eventually(lambda: metrics.background_failures == 2)
    about = [(record.levelno, vars(record)["doing"], vars(record)["reason"]) for record in caplog.records]
    assert about == [
        (logging.ERROR, "reading t-0", "the disk is gone"),
        (logging.ERROR, "reading t-1", "ZeroDivisionError: a mistake"),
    ]
    assert [record.exc_info is not None for record in caplog.records] == [False, True], "whose fault it is"


async def test_a_task_that_is_to_go_on_is_begun_again() -> None:
    metrics = Metrics()
    background = Background(metrics)
    begun = 0

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun < 3:
            raise OSError("not yet")

    async with asyncio.TaskGroup() as tasks:
        background.open(tasks)
        background.keep(work, "working")
    assert (begun, metrics.background_failures) == (3, 2)


async def test_what_is_vital_ends_the_broker_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    background = Background(Metrics())
    with pytest.raises(ExceptionGroup) as ended:
        async with asyncio.TaskGroup() as tasks:
            background.open(tasks)
            background.need(lambda: fails(KeyError("x")), "keeping the lease")
            await asyncio.Event().wait()
    (error,) = ended.value.exceptions
    assert isinstance(error, BrokerEnded)
    assert str(error) == "the broker cannot go on: keeping the lease failed: KeyError: 'x'"
    assert isinstance(error.__cause__, KeyError)
    assert [record.levelno for record in caplog.records] == [logging.CRITICAL]


async def test_nothing_begins_when_the_broker_stops() -> None:
    background = Background(Metrics())
    ran = False

    async def work() -> None:
        nonlocal ran
        ran = True

    background.spawn(work(), "too early")
    async with asyncio.TaskGroup() as tasks:
        background.open(tasks)
        background.close()
        background.spawn(work(), "too late")
    assert not ran


async def test_nothing_begins_while_a_cancelled_broker_waits_for_its_tasks() -> None:
    background = Background(Metrics())
    waiting, enough = asyncio.Event(), asyncio.Event()

    async def slow_to_end() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            waiting.set()
            await enough.wait()

    async def serve() -> None:
        async with asyncio.TaskGroup() as tasks:
            background.open(tasks)
            background.spawn(slow_to_end(), "what takes long to end")
            await asyncio.sleep(60)

    async def work() -> None: ...

    broker = asyncio.create_task(serve())
    await asyncio.sleep(0.01)
    broker.cancel()
    await waiting.wait()
    late = work()
    background.spawn(late, "too late")
    assert inspect.getcoroutinestate(late) == inspect.CORO_CLOSED
    enough.set()
    with pytest.raises(asyncio.CancelledError):
        await broker


async def test_what_is_cancelled_before_it_could_start_leaves_nothing_behind() -> None:
    background = Background(Metrics())

    async def work() -> None: ...

    begun = work()

    async def serve() -> None:
        async with asyncio.TaskGroup() as tasks:
            background.open(tasks)
            background.spawn(begun, "what never starts")
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await serve()
    assert inspect.getcoroutinestate(begun) == inspect.CORO_CLOSED


@pytest.mark.parametrize("is_open", [True, False])
async def test_what_the_work_was_handed_is_closed_with_it(is_open: bool) -> None:
    """An answer that the broker has no time for any more: the coroutine in it was never awaited."""
    background = Background(Metrics())

    async def answer(work: Coroutine[Any, Any, None]) -> None:
        await work

    innermost = fails(ZeroDivisionError("it must not run"))
    inner = answer(innermost)
    async with asyncio.TaskGroup() as tasks:
        if is_open:
            background.open(tasks)
        background.spawn(answer(inner), "answering")
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
    assert inspect.getcoroutinestate(inner) == inspect.CORO_CLOSED
    assert inspect.getcoroutinestate(innermost) == inspect.CORO_CLOSED


async def test_what_the_work_was_handed_in_another_object_is_closed_with_it() -> None:
    background = Background(Metrics())

    async def answer(work: list[Coroutine[Any, Any, None]]) -> None:
        await work[0]

    inner = fails(ZeroDivisionError("it must not run"))
    background.spawn(answer([inner]), "answering", inner)
    assert inspect.getcoroutinestate(inner) == inspect.CORO_CLOSED
