"""librdkafka, the client most Kafka users run, as a load generator: 1 KB messages, all else at its defaults.

Each run is a process of its own. Delivery is proven by the end offset, consumption by the count.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TypeVar, cast

from bench.frames import MB_BATCH_RECORDS, RECORD_BYTES
from bench.latency import WARM_UP
from bench.load import Measure, Served
from bench.machine import Neighbours
from bench.rounds import fresh_topic
from bench.server import BenchError, Server

PRODUCE_S = 1.5
PRODUCE_MESSAGES_MAX = 1_200_000
MESSAGES_PER_CALL = 1000
CONSUME_BATCHES = 600
CLIENT_S_MAX = 60.0

T = TypeVar("T")


def librdkafka_produce(server: Server) -> Measure:
    with fresh_topic(server) as (client, topic):
        measure = _measured(server, topic, produce_many)
        stored = client.end_offset(topic)
    if stored != measure.requests:
        raise BenchError(f"librdkafka delivered {measure.requests} messages, the log has {stored}")
    return measure


def librdkafka_consume(server: Server, topic: str) -> Measure:
    """Reads a topic that holds CONSUME_BATCHES of MB_BATCH."""
    measure = _measured(server, topic, _consume)
    if measure.requests < CONSUME_BATCHES * MB_BATCH_RECORDS - 1:
        raise BenchError(f"librdkafka consumed only {measure.requests} messages")
    return measure


def _measured(server: Server, topic: str, run: Callable[[str, str], tuple[int, float]]) -> Measure:
    return measured(server, lambda: in_child(run, "{}:{}".format(*server.address), topic))


def measured(server: Served, run: Callable[[], tuple[int, float]]) -> Measure:
    """A run that tells how many messages it moved, in how many seconds, and what that cost the server."""
    neighbours, cpu_s = Neighbours(), server.cpu_s()
    messages, seconds = run()
    cpu_s = server.cpu_s() - cpu_s
    return Measure(
        requests=messages,
        payload_bytes=messages * RECORD_BYTES,
        seconds=seconds,
        cpu_s=cpu_s,
        disturbance=neighbours.share(),
    )


def in_child(run: Callable[[str, str], T], bootstrap: str, topic: str) -> T:
    """What the run returns, from a process that is gone afterwards."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_child, args=(theirs, run, bootstrap, topic), daemon=True)
    child.start()
    try:
        if not ours.poll(CLIENT_S_MAX):
            raise BenchError("librdkafka does not come to an end")
        return cast(T, ours.recv())
    finally:
        child.kill()
        child.join()


def _child(pipe: Connection, run: Callable[[str, str], object], bootstrap: str, topic: str) -> None:
    pipe.send(run(bootstrap, topic))


def produce_many(
    bootstrap: str, topic: str, *, acks: int = 1, seconds_max: float = PRODUCE_S
) -> tuple[int, float]:
    """As fast as the library takes them; how many messages, and how long until all were acknowledged."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks})
    # The connection and the topic's metadata are there before the clock starts.
    producer.list_topics(topic, timeout=10)
    value = bytes(range(250)) * (RECORD_BYTES // 250)
    sent, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds_max and sent < PRODUCE_MESSAGES_MAX:
        for _ in range(MESSAGES_PER_CALL):
            try:
                producer.produce(topic, value)
            except BufferError:
                producer.poll(0.01)
                continue
            sent += 1
    producer.flush(CLIENT_S_MAX)
    return sent, time.perf_counter() - started


def produce_one_by_one(bootstrap: str, topic: str, *, acks: int, count: int) -> list[int]:
    """Nanoseconds from each message's sending to its acknowledge; the next is sent after that."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0})
    value = bytes(RECORD_BYTES)
    taken: list[int] = []
    for number in range(-WARM_UP, count):
        started = time.perf_counter_ns()
        producer.produce(topic, value)
        if producer.flush(CLIENT_S_MAX):
            raise BenchError("a message was not acknowledged")
        if number >= 0:
            taken.append(time.perf_counter_ns() - started)
    return taken


def _consume(bootstrap: str, topic: str) -> tuple[int, float]:
    """The whole log, from the arrival of the first message to that of the last."""
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    left = CONSUME_BATCHES * MB_BATCH_RECORDS - len(consumer.consume(1, timeout=CLIENT_S_MAX))
    received, started = 0, time.perf_counter()
    while left and time.perf_counter() - started < CLIENT_S_MAX:
        # Never more than there are: librdkafka would wait for the missing ones until the timeout.
        count = len(consumer.consume(min(left, MESSAGES_PER_CALL), timeout=1.0))
        received, left = received + count, left - count
    return received, time.perf_counter() - started
