"""Closing a client when librdkafka would hang: the order of answers that leads there, and the bound."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from functools import partial

import confluent_kafka
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
from forebay.client.closing import Ending
from forebay.errors import ConfigError
from forebay.testing import Broker
from support.brokers.broker_process import StartBroker
from support.clients.closing import GIVEN_UP, HANGS, SOON, WAIT, given_up, in_time, receive_one, wait_in
from support.faults.holding_proxy import (
    CONSUMER_GROUP_HEARTBEAT,
    SHARE_GROUP_HEARTBEAT,
    HoldingProxy,
)

TOPIC = "jobs"
EXIT = 60.0


@pytest.fixture
def servers(forebay_broker: Broker) -> str:
    return forebay_broker.bootstrap_servers


def open_briefly(servers: str, topic: str, group: str, seconds: float) -> None:
    with (
        Queue(servers, topic, group=group) as queue,
        contextlib.suppress(QueueEmpty),
        queue.receive(seconds),
    ):
        pass


# -- the order of answers in which librdkafka hangs --------------------------------------------------------


@contextlib.contextmanager
def behind(heartbeat: int, start_broker: StartBroker) -> Iterator[HoldingProxy]:
    """A broker whose members get the metadata of their partitions when they are leaving."""
    with HoldingProxy(heartbeat) as proxy:
        broker = start_broker(f"advertised.listeners=PLAINTEXT://{proxy.address}")
        proxy.target = ("127.0.0.1", broker.port)
        Admin(proxy.address).create_topic(TOPIC)
        yield proxy


def test_a_queue_that_is_closed_while_it_learns_of_its_partitions(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with behind(SHARE_GROUP_HEARTBEAT, start_broker) as proxy:
        queue = Queue(proxy.address, TOPIC, group="g")
        waiting = wait_in(lambda: receive_one(queue))
        assert proxy.has_held.wait(WAIT)
        in_time(queue.close)
        waiting.join(WAIT)
    assert not given_up(caplog)


def test_a_consumer_that_is_closed_while_it_learns_of_its_partitions(
    start_broker: StartBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with behind(CONSUMER_GROUP_HEARTBEAT, start_broker) as proxy:
        consumer = Consumer(proxy.address, TOPIC, group="g", settings={"group.protocol": "consumer"})
        waiting = wait_in(lambda: next(consumer))
        assert proxy.has_held.wait(WAIT)
        in_time(consumer.close)
        waiting.join(WAIT)
    assert not given_up(caplog)
    # Nor has it looked for offsets to begin at, which takes ten seconds where nobody answers any more.
    assert not [record for record in caplog.records if "where to begin" in record.getMessage()]


HANGING_PROGRAM = """
    import sys, threading
    import confluent_kafka
    from forebay.client import ClientError, Queue

    class HangingConsumer(confluent_kafka.ShareConsumer):
        def unsubscribe(self):
            pass  # then closing hangs in librdkafka, where nothing but the end of the process helps

    confluent_kafka.ShareConsumer = HangingConsumer

    def receive():
        try:
            with queue.receive():
                pass
        except ClientError:
            pass

    queue = Queue(sys.argv[1], "jobs", group="g", close_seconds=1)
    thread = threading.Thread(target=receive)
    thread.start()
    print("open", flush=True)
    sys.stdin.readline()
    queue.close()
    thread.join()
    print("closed", flush=True)
"""


def test_a_librdkafka_that_hangs_keeps_neither_the_program_nor_its_exit(start_broker: StartBroker) -> None:
    """The real hang: without the mend of `Receiver` it is sure to come behind this proxy."""
    with behind(SHARE_GROUP_HEARTBEAT, start_broker) as proxy:
        program = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(HANGING_PROGRAM), proxy.address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with program:
            try:
                assert proxy.has_held.wait(WAIT)
                output, errors = program.communicate("\n", EXIT)
            finally:
                program.kill()
    assert (program.returncode, output) == (0, "open\nclosed\n"), errors
    assert GIVEN_UP in errors


FORGETFUL_PROGRAM = """
    import sys
    import confluent_kafka
    from forebay.client import Consumer, Producer, Queue, QueueEmpty

    servers, topic = sys.argv[1:]
    producer = Producer(servers)
    consumer = Consumer(servers, topic, group=topic)
    consumer.poll(1)
    queue = Queue(servers, topic, group=topic + "-q")
    try:
        with queue.receive(1):
            pass
    except QueueEmpty:
        pass
    print("nothing is closed", flush=True)
"""


def test_a_program_that_closes_nothing_exits(servers: str, forebay_topic: str) -> None:
    program = [sys.executable, "-c", textwrap.dedent(FORGETFUL_PROGRAM), servers, forebay_topic]
    done = subprocess.run(program, capture_output=True, text=True, timeout=EXIT, check=False)
    assert (done.returncode, done.stdout) == (0, "nothing is closed\n"), done.stderr


# -- bounds ------------------------------------------------------------------------------------------------


class Hang:
    """A call of librdkafka that does not return, until the test is over."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def __call__(self, *_: object) -> None:
        self.over.wait(HANGS)


@pytest.fixture
def hang() -> Iterator[Hang]:
    hang = Hang()
    yield hang
    hang.over.set()


def test_the_close_of_a_queue_has_a_bound(
    servers: str,
    forebay_topic: str,
    hang: Hang,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kind = type("ShareConsumer", (confluent_kafka.ShareConsumer,), {"close": hang})
    monkeypatch.setattr(confluent_kafka, "ShareConsumer", kind)
    queue = Queue(servers, forebay_topic, group=forebay_topic, close_seconds=SOON)
    with pytest.raises(QueueEmpty), queue.receive(0):
        pass
    in_time(queue.close)
    assert len(given_up(caplog)) == 1
    queue.close()
    assert len(given_up(caplog)) == 1  # it was said before


def test_the_jobs_of_a_worker_are_closed_at_the_same_time(
    servers: str, forebay_topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each close waits for the others: one after the other, none of them would end in time."""
    all_close = threading.Barrier(3)

    class Together(confluent_kafka.ShareConsumer):
        def close(self) -> None:
            all_close.wait(HANGS)
            super().close()

    monkeypatch.setattr(confluent_kafka, "ShareConsumer", Together)
    with Queue(servers, forebay_topic, group=forebay_topic, close_seconds=20) as queue:
        in_time(lambda: queue.work(lambda _message: None, jobs=3, idle_s=0.1))
    assert not given_up(caplog)


async def test_the_close_of_an_async_queue_has_a_bound(
    servers: str,
    forebay_topic: str,
    hang: Hang,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kind = type("ShareConsumer", (confluent_kafka.ShareConsumer,), {"close": hang})
    monkeypatch.setattr(confluent_kafka, "ShareConsumer", kind)
    async with asyncio.timeout(HANGS):
        async with AsyncQueue(servers, forebay_topic, group=forebay_topic, close_seconds=SOON) as queue:
            with pytest.raises(QueueEmpty):
                async with queue.receive(0):
                    pass
    assert len(given_up(caplog)) == 1


def test_the_close_of_a_consumer_has_a_bound(
    servers: str,
    forebay_topic: str,
    hang: Hang,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kind = type("Consumer", (confluent_kafka.Consumer,), {"close": hang})
    monkeypatch.setattr(confluent_kafka, "Consumer", kind)
    consumer = Consumer(servers, forebay_topic, group=forebay_topic, close_seconds=SOON)
    in_time(consumer.close)
    assert len(given_up(caplog)) == 1
    with pytest.raises(ClientError, match="closed"):
        consumer.poll(0)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_whose_librdkafka_goes_on_leaves_its_group(
    servers: str, forebay_topic: str, hang: Hang, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """Its threads send heartbeats, so the group would wait for it for as long as the process lives."""
    settings = {"group.protocol": protocol}
    with Producer(servers) as producer:
        producer.send(forebay_topic, b"0")
    kind = type("Consumer", (confluent_kafka.Consumer,), {"close": hang})
    with monkeypatch.context() as patch:
        patch.setattr(confluent_kafka, "Consumer", kind)
        consumer = Consumer(
            servers, forebay_topic, group=forebay_topic, close_seconds=SOON, settings=settings
        )
        assert next(consumer).value == b"0"
    in_time(consumer.close)
    with Consumer(servers, forebay_topic, group=forebay_topic, settings=settings) as other:
        message = other.poll(WAIT)
        assert message is not None
        assert message.value == b"0"  # it was in hand, not done


async def test_the_close_of_an_async_consumer_has_a_bound(
    servers: str,
    forebay_topic: str,
    hang: Hang,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kind = type("Consumer", (confluent_kafka.Consumer,), {"close": hang})
    monkeypatch.setattr(confluent_kafka, "Consumer", kind)
    async with (
        asyncio.timeout(HANGS),
        AsyncConsumer(servers, forebay_topic, group=forebay_topic, close_seconds=SOON),
    ):
        pass
    assert len(given_up(caplog)) == 1


def test_the_end_of_a_producer_has_a_bound(
    servers: str,
    forebay_topic: str,
    hang: Hang,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kind = type("Producer", (confluent_kafka.Producer,), {"__del__": hang})
    monkeypatch.setattr(confluent_kafka, "Producer", kind)
    producer = Producer(servers, close_seconds=SOON)
    assert producer.send_and_wait(Record(topic=forebay_topic, value=b"0")).offset == 0
    in_time(producer.close)
    assert len(given_up(caplog)) == 1
    with pytest.raises(ClientError, match="closed"):
        producer.send(forebay_topic, b"1")


async def test_the_end_of_an_async_producer_has_a_bound(
    servers: str,
    forebay_topic: str,
    hang: Hang,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kind = type("Producer", (confluent_kafka.Producer,), {"__del__": hang})
    monkeypatch.setattr(confluent_kafka, "Producer", kind)
    async with asyncio.timeout(HANGS), AsyncProducer(servers, close_seconds=SOON) as producer:
        await producer.send(forebay_topic, b"0")
    assert len(given_up(caplog)) == 1


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_bound_is_a_number_above_0(seconds: float) -> None:
    for make in (
        lambda: Queue("127.0.0.1:1", "t", close_seconds=seconds),
        lambda: Consumer("127.0.0.1:1", "t", group="g", close_seconds=seconds),
        lambda: Producer("127.0.0.1:1", close_seconds=seconds),
    ):
        with pytest.raises(ConfigError, match="close_seconds"):
            make()


def test_what_nobody_closes_ends_in_another_thread() -> None:
    ended_by: list[str] = []
    over = threading.Event()

    def end() -> None:
        ended_by.append(threading.current_thread().name)
        over.set()

    ending = Ending(object(), end)
    del ending
    gc.collect()
    assert over.wait(WAIT)
    assert ended_by == ["forebay-close"]


# -- often -------------------------------------------------------------------------------------------------


def open_and_close(servers: str, topic: str, times: int) -> None:
    for number in range(times):
        seconds = (0.0, 0.005, 0.02, 0.1)[number % 4]
        in_time(partial(open_briefly, servers, topic, f"{topic}-{number}", seconds))


def test_open_receive_briefly_close(
    servers: str, forebay_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    open_and_close(servers, forebay_topic, 50)
    assert not given_up(caplog)


@pytest.mark.chaos
def test_open_receive_briefly_close_many_times(
    servers: str, forebay_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    open_and_close(servers, forebay_topic, 500)
    assert not given_up(caplog)
