"""Loops over queues that are left and begun again: only a message whose handling has ended is accepted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing

import pytest

from forebay.client import AsyncQueue, ClientError, Queue, QueueMessage
from forebay.testing import Broker

WAIT = 60.0
"""For what must come: long, because the machine may be busy."""
NOTHING = 1.0
"""For what must not come."""


@pytest.fixture
def servers(forebay_broker: Broker) -> str:
    return forebay_broker.bootstrap_servers


def queue_of(servers: str, topic: str) -> Queue:
    return Queue(servers, topic, group=topic)


def async_queue_of(servers: str, topic: str) -> AsyncQueue:
    return AsyncQueue(servers, topic, group=topic)


def send(servers: str, topic: str, count: int) -> None:
    with Queue(servers, topic) as queue:
        for number in range(count):
            queue.send(str(number))


def seen(message: QueueMessage) -> tuple[int, int]:
    """The number that was sent, and how often it has been delivered."""
    return int(message.value or b""), message.delivery_count


def rest(servers: str, topic: str) -> list[tuple[int, int]]:
    """What the group has not accepted."""
    with queue_of(servers, topic) as queue:
        return [seen(message) for message in queue.messages(NOTHING)]


# -- the sync queue ----------------------------------------------------------------------------------------


def test_a_loop_begun_again_after_an_exception(servers: str, forebay_topic: str) -> None:
    send(servers, forebay_topic, 2)
    with queue_of(servers, forebay_topic) as queue:
        with pytest.raises(ZeroDivisionError):
            for _ in queue:
                raise ZeroDivisionError
        assert [seen(message) for message in queue.messages(NOTHING)] == [(0, 2), (1, 1)]
    assert rest(servers, forebay_topic) == []


def test_a_loop_begun_again_after_a_break(servers: str, forebay_topic: str) -> None:
    send(servers, forebay_topic, 2)
    with queue_of(servers, forebay_topic) as queue:
        for _ in queue:
            break
        assert [seen(message) for message in queue.messages(NOTHING)] == [(0, 2), (1, 1)]
    assert rest(servers, forebay_topic) == []


def test_the_same_loop_begun_again(servers: str, forebay_topic: str) -> None:
    send(servers, forebay_topic, 2)
    with queue_of(servers, forebay_topic) as queue:
        loop = queue.messages(NOTHING)
        with pytest.raises(ZeroDivisionError):
            for _ in loop:
                raise ZeroDivisionError
        assert [seen(message) for message in loop] == [(0, 2), (1, 1)]
    assert rest(servers, forebay_topic) == []


def test_what_a_left_loop_has_rejected_stays_rejected(servers: str, forebay_topic: str) -> None:
    send(servers, forebay_topic, 2)
    with queue_of(servers, forebay_topic) as queue:
        for message in queue:
            message.reject("no such picture")
            break
        assert [seen(message) for message in queue.messages(NOTHING)] == [(1, 1)]


def test_a_loop_that_is_closed_late(servers: str, forebay_topic: str) -> None:
    """While its message is in hand nobody else may receive; afterwards it comes again."""
    send(servers, forebay_topic, 2)
    with queue_of(servers, forebay_topic) as queue:
        loop = queue.messages()
        assert seen(next(loop)) == (0, 1)
        with pytest.raises(ClientError, match="still being handled"), queue.receive(WAIT):
            pass
        loop.close()
        assert [seen(message) for message in queue.messages(NOTHING)] == [(0, 2), (1, 1)]


def test_a_generator_around_a_loop(servers: str, forebay_topic: str) -> None:
    def numbers(queue: Queue) -> Iterator[int]:
        for message in queue:
            yield seen(message)[0]

    send(servers, forebay_topic, 2)
    with queue_of(servers, forebay_topic) as queue:
        with closing(numbers(queue)) as generator:  # type: ignore[type-var]
            assert next(generator) == 0
        assert [seen(message) for message in queue.messages(NOTHING)] == [(0, 2), (1, 1)]


def test_a_loop_that_outlives_its_queue(servers: str, forebay_topic: str) -> None:
    send(servers, forebay_topic, 1)
    with queue_of(servers, forebay_topic) as queue:
        loop = queue.messages()
        assert seen(next(loop)) == (0, 1)
    with pytest.raises(ClientError, match="closed"):
        next(loop)  # says that the message is done, but nobody can tell the broker any more
    del loop
    assert rest(servers, forebay_topic) == [(0, 2)]


# -- asyncio -----------------------------------------------------------------------------------------------


async def all_of(queue: AsyncQueue) -> list[tuple[int, int]]:
    return [seen(message) async for message in queue.messages(NOTHING)]


async def first_of(queue: AsyncQueue) -> tuple[int, int]:
    async for message in queue:
        return seen(message)
    raise AssertionError("a loop over a queue does not end")


async def test_an_async_loop_begun_again_after_an_exception(servers: str, forebay_topic: str) -> None:
    send(servers, forebay_topic, 2)
    async with async_queue_of(servers, forebay_topic) as queue:
        with pytest.raises(ZeroDivisionError):
            async for _ in queue:
                raise ZeroDivisionError
        assert await first_of(queue) == (0, 2)
        assert await all_of(queue) == [(0, 3), (1, 1)]
    assert await asyncio.to_thread(rest, servers, forebay_topic) == []


async def test_an_async_loop_begun_again_after_a_break(servers: str, forebay_topic: str) -> None:
    send(servers, forebay_topic, 2)
    async with async_queue_of(servers, forebay_topic) as queue:
        async for _ in queue:
            break
        assert await first_of(queue) == (0, 2)
        assert await all_of(queue) == [(0, 3), (1, 1)]
    assert await asyncio.to_thread(rest, servers, forebay_topic) == []


async def test_an_async_loop_begun_again_after_a_cancel(servers: str, forebay_topic: str) -> None:
    async def handle_for_ever(queue: AsyncQueue, begun: asyncio.Event) -> None:
        async for _ in queue:
            begun.set()
            await asyncio.Event().wait()

    send(servers, forebay_topic, 2)
    async with async_queue_of(servers, forebay_topic) as queue:
        begun = asyncio.Event()
        task = asyncio.create_task(handle_for_ever(queue, begun))
        await asyncio.wait_for(begun.wait(), WAIT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await first_of(queue) == (0, 2)
        assert await all_of(queue) == [(0, 3), (1, 1)]
    assert await asyncio.to_thread(rest, servers, forebay_topic) == []


async def test_an_async_loop_that_is_cancelled_while_it_waits(servers: str, forebay_topic: str) -> None:
    """The message before has been handled: it is accepted, however the wait for the next one ends."""
    send(servers, forebay_topic, 1)
    handled = []
    async with async_queue_of(servers, forebay_topic) as queue:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(NOTHING):
                async for message in queue:
                    handled += [seen(message)]
        if handled:  # else a busy machine has not brought it in time
            assert await all_of(queue) == []
    assert handled + await asyncio.to_thread(rest, servers, forebay_topic) == [(0, 1)]


async def test_the_same_async_loop_begun_again(servers: str, forebay_topic: str) -> None:
    send(servers, forebay_topic, 2)
    async with async_queue_of(servers, forebay_topic) as queue:
        loop = queue.messages(NOTHING)
        with pytest.raises(ZeroDivisionError):
            async for _ in loop:
                raise ZeroDivisionError
        assert [seen(message) async for message in loop] == [(0, 2), (1, 1)]


async def test_a_message_of_a_left_async_loop_goes_to_others_at_once(
    servers: str, forebay_topic: str
) -> None:
    send(servers, forebay_topic, 1)
    async with async_queue_of(servers, forebay_topic) as queue:
        async for _ in queue:
            break
        async with async_queue_of(servers, forebay_topic) as other, other.receive(WAIT) as message:
            assert seen(message) == (0, 2)


async def test_what_a_left_async_loop_has_rejected_stays_rejected(servers: str, forebay_topic: str) -> None:
    send(servers, forebay_topic, 1)
    async with async_queue_of(servers, forebay_topic) as queue:
        async for message in queue:
            message.reject("no such picture")
            break
    assert await asyncio.to_thread(rest, servers, forebay_topic) == []


async def test_an_async_generator_around_a_loop_that_is_closed_late(servers: str, forebay_topic: str) -> None:
    async def numbers(queue: AsyncQueue) -> AsyncIterator[int]:
        async for message in queue:
            yield seen(message)[0]

    send(servers, forebay_topic, 2)
    async with async_queue_of(servers, forebay_topic) as queue:
        async for number in numbers(queue):  # the event loop closes the generator some turns later
            assert number == 0
            break
        assert await all_of(queue) == [(0, 2), (1, 1)]


async def test_a_block_inside_an_async_loop(servers: str, forebay_topic: str) -> None:
    """The message of the loop is still being handled: it is neither released nor accepted behind its back."""
    send(servers, forebay_topic, 2)
    async with async_queue_of(servers, forebay_topic) as queue:
        async with aclosing(queue.messages()) as loop:
            async for message in loop:
                assert seen(message) == (0, 1)
                with pytest.raises(ClientError, match="still being handled"):
                    async with queue.receive(WAIT):
                        pass
                break
        assert await all_of(queue) == [(0, 2), (1, 1)]
