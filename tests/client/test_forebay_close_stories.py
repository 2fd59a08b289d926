"""Stories about clients that are closed by other threads, twice, or while their broker is silent.

Each close ends in time, and acknowledges nothing that was not handled.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from forebay.client import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    AsyncQueue,
    ClientError,
    Consumer,
    Producer,
    Queue,
    QueueEmpty,
    Record,
)
from forebay.testing import Broker
from support.brokers.broker_process import BrokerProcess
from support.clients.closing import HANGS, SOON, WAIT, given_up, in_time, receive_one, wait_in

TOPIC = "jobs"


@pytest.fixture
def servers(forebay_broker: Broker) -> str:
    return forebay_broker.bootstrap_servers


# -- other threads, and twice ------------------------------------------------------------------------------


def test_a_queue_is_closed_while_another_thread_receives(servers: str, forebay_topic: str) -> None:
    queue = Queue(servers, forebay_topic, group=forebay_topic)
    failures: list[ClientError] = []
    begun = threading.Event()

    def receive() -> None:
        try:
            with contextlib.suppress(QueueEmpty), queue.receive(0):
                pass
            begun.set()
            receive_one(queue)
        except ClientError as failure:
            failures.append(failure)

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    assert begun.wait(WAIT)
    in_time(queue.close)
    thread.join(WAIT)
    assert not thread.is_alive()
    assert [failure.fatal for failure in failures] == [True]
    assert "closed" in str(failures[0])


def test_a_message_whose_queue_is_closed_by_another_thread_comes_again(
    servers: str, forebay_topic: str
) -> None:
    """Its handling ended after the close: nobody was told, so nothing is accepted."""
    queue = Queue(servers, forebay_topic, group=forebay_topic)
    queue.send_and_wait("0")
    with pytest.raises(ClientError, match="closed"), queue.receive(WAIT):
        in_time(queue.close)
    with Queue(servers, forebay_topic, group=forebay_topic) as other, other.receive(WAIT) as message:
        assert (message.value, message.delivery_count) == (b"0", 2)


def test_a_consumer_is_closed_while_another_thread_reads(servers: str, forebay_topic: str) -> None:
    consumer = Consumer(servers, forebay_topic, group=forebay_topic)
    consumer.poll(0.5)
    reading = wait_in(lambda: next(consumer))
    in_time(consumer.close)
    reading.join(WAIT)
    assert not reading.is_alive()


def test_a_producer_is_closed_while_other_threads_send(servers: str, forebay_topic: str) -> None:
    producer = Producer(servers)
    sent: list[int] = []
    refused: list[ClientError] = []

    def send() -> None:
        try:
            while True:
                sent.append(producer.send_and_wait(Record(topic=forebay_topic, value=b"")).offset)
        except ClientError as failure:
            refused.append(failure)

    threads = [threading.Thread(target=send, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    waited_until = time.monotonic() + WAIT
    while len(sent) < 20 and time.monotonic() < waited_until:
        time.sleep(0.01)
    in_time(producer.close)
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()
    assert ["closed" in str(failure) for failure in refused] == [True] * 4
    end = Admin(servers).end_offsets(forebay_topic)
    assert sum(end.values()) == len(sent)


def test_everything_is_closed_twice(servers: str, forebay_topic: str) -> None:
    queue = Queue(servers, forebay_topic, group=forebay_topic)
    queue.send_and_wait("0")
    with queue.receive(WAIT):
        pass
    consumer = Consumer(servers, forebay_topic, group="c")
    producer = Producer(servers)
    producer.send(forebay_topic, b"1")
    for client in (queue, consumer, producer):
        client.close()
        client.close()
        threads = [threading.Thread(target=client.close) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
            assert not thread.is_alive()
    producer.flush()


async def test_everything_is_closed_twice_in_asyncio(servers: str, forebay_topic: str) -> None:
    queue = AsyncQueue(servers, forebay_topic, group=forebay_topic)
    await queue.send("0")
    async with queue.receive(WAIT):
        pass
    for client in (queue, AsyncConsumer(servers, forebay_topic, group="c"), AsyncProducer(servers)):
        await asyncio.gather(client.close(), client.close())
        await client.close()


async def test_an_async_queue_is_closed_while_another_task_receives(servers: str, forebay_topic: str) -> None:
    queue = AsyncQueue(servers, forebay_topic, group=forebay_topic)
    with pytest.raises(QueueEmpty):
        async with queue.receive(0):
            pass

    async def receive() -> None:
        async for _ in queue:
            pass

    task = asyncio.create_task(receive())
    await asyncio.sleep(0)  # the task has begun to wait
    async with asyncio.timeout(HANGS):
        await queue.close()
        with pytest.raises(ClientError, match="closed"):
            await task


async def test_a_cancelled_close_goes_on(servers: str, forebay_topic: str) -> None:
    queue = AsyncQueue(servers, forebay_topic, group=forebay_topic)
    await queue.send("0")
    async for _ in queue:
        break
    closing = asyncio.create_task(queue.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    async with asyncio.timeout(HANGS):
        await queue.close()
    async with (
        AsyncQueue(servers, forebay_topic, group=forebay_topic) as other,
        other.receive(WAIT) as message,
    ):
        assert (message.value, message.delivery_count) == (b"0", 2)


INTERRUPTED_PROGRAM = """
    import sys, threading, time
    from forebay.client import Queue

    def tell():
        while not any(thread.name == "forebay-close" for thread in threading.enumerate()):
            time.sleep(0.01)
        print("closing", flush=True)

    queue = Queue(sys.argv[1], "jobs", group="g", close_seconds=600)
    with queue.receive():
        pass
    print("done", flush=True)
    sys.stdin.readline()
    threading.Thread(target=tell, daemon=True).start()
    queue.close()
"""


def test_ctrl_c_ends_a_close_that_takes_long(job: BrokerProcess) -> None:
    command = [sys.executable, "-c", textwrap.dedent(INTERRUPTED_PROGRAM), job.bootstrap]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        try:
            assert program.stdout.readline() == "done\n"
            silence(job, "stopped")
            program.stdin.write("\n")
            program.stdin.flush()
            assert program.stdout.readline() == "closing\n"
            program.send_signal(signal.SIGINT)
            _, errors = program.communicate(timeout=WAIT)
        finally:
            program.kill()
    assert "KeyboardInterrupt" in errors


def test_a_signal_handler_closes_what_it_interrupts(
    servers: str, forebay_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler runs in the thread that is inside a call of librdkafka, and waits for the close there."""
    queue = Queue(servers, forebay_topic, group=forebay_topic)
    with pytest.raises(QueueEmpty), queue.receive(0):
        pass

    def interrupted() -> None:
        with queue.receiver._handle.using():
            queue.close()

    in_time(interrupted)
    assert not given_up(caplog)
    with pytest.raises(ClientError, match="closed"), queue.receive(0):
        pass


# -- brokers that do not answer ----------------------------------------------------------------------------


@pytest.fixture
def job(fresh_broker: BrokerProcess) -> BrokerProcess:
    """A broker with one message."""
    Admin(fresh_broker.bootstrap).create_topic(TOPIC)
    with Queue(fresh_broker.bootstrap, TOPIC) as queue:
        queue.send("0")
    return fresh_broker


def silence(broker: BrokerProcess, how: str) -> None:
    if how == "killed":
        broker.kill()
    else:
        os.kill(broker.pid, signal.SIGSTOP)


def wake(broker: BrokerProcess, how: str) -> None:
    if how == "killed":
        broker.restart()
    else:
        os.kill(broker.pid, signal.SIGCONT)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_queue_whose_broker_is_silent_closes_in_time(job: BrokerProcess, how: str) -> None:
    queue = Queue(job.bootstrap, TOPIC, group="g", lock_seconds=10, close_seconds=SOON)
    with pytest.raises(ZeroDivisionError), queue.receive(WAIT):
        silence(job, how)
        in_time(queue.close)
        raise ZeroDivisionError
    wake(job, how)
    with Queue(job.bootstrap, TOPIC, group="g") as other, other.receive(WAIT) as message:
        assert message.value == b"0"


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_an_async_queue_whose_broker_is_silent_closes_in_time(job: BrokerProcess, how: str) -> None:
    async with asyncio.timeout(HANGS):
        queue = AsyncQueue(job.bootstrap, TOPIC, group="g", lock_seconds=10, close_seconds=SOON)
        async for _ in queue:
            silence(job, how)
            break
        await queue.close()
    wake(job, how)
    async with AsyncQueue(job.bootstrap, TOPIC, group="g") as other, other.receive(WAIT) as message:
        assert message.value == b"0"


@pytest.mark.parametrize(
    ("protocol", "how"),
    # A member of the new protocol that was killed with its broker keeps its partitions for 45 s.
    [("classic", "killed"), ("classic", "stopped"), ("consumer", "stopped")],
)
def test_a_consumer_whose_broker_is_silent_closes_in_time(
    job: BrokerProcess, protocol: str, how: str
) -> None:
    settings = {"group.protocol": protocol}
    if protocol == "classic":
        settings["session.timeout.ms"] = "6000"
    consumer = Consumer(job.bootstrap, TOPIC, group="g", close_seconds=SOON, settings=settings)
    assert next(consumer).value == b"0"
    silence(job, how)
    in_time(consumer.close)
    wake(job, how)
    with Consumer(job.bootstrap, TOPIC, group="g", settings=settings) as other:
        assert next(other).value == b"0"  # it was in hand, not done


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_producer_whose_broker_is_silent_gives_up_in_time(job: BrokerProcess, how: str) -> None:
    """A block that fails does not wait for what cannot be delivered."""

    def fail() -> None:
        with Producer(job.bootstrap, close_seconds=SOON) as producer:
            silence(job, how)
            producer.send(TOPIC, b"1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        in_time(fail)
    wake(job, how)
