"""How long clients stand still when a broker dies or is stopped, and what a cluster costs at rest.

A producer and a consumer with the settings of their library go on over all partitions that one broker leads,
while that broker is killed or stopped. Every message carries the time it was sent at, so the longest wait of
any message is what an application would have noticed.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, Message, Producer, TopicPartition

from bench.background import BackgroundLoad
from bench.cluster import LEASE_TTL_S, LIBRARY, ForebayCluster, wait_until
from bench.coordinated import Coordinated
from bench.report import Figure
from bench.server import BenchError
from bench.suite import Suite

PARTITION_COUNTS = (10, 100, 1000)
ROLE_PARTITIONS = 100
KILL_S_MAX = 1.0
STOP_S_MAX = 0.3
IDLE_PARTITIONS = 1000
IDLE_SETTLE_S = 5.0
IDLE_S = 10.0
IDLE_PERCENT_MAX = 2.0
MESSAGES_PER_S = 500
LEAD_IN_S = 1.0
VICTIM = 1
GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
ONE_COORDINATOR_EACH = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    # The same broker is killed more often in a minute than is usual.
    "forebay.failover.verdicts.per.minute": 60,
}
_names = (f"failover-{number}" for number in itertools.count())


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """The longest waits of messages sent around a failure."""

    produce_s: float
    """Until the acknowledge."""
    consume_s: float
    """Until a consumer had it."""
    errors: int
    """Messages that the producer's library could not deliver, whatever it tried."""


class Traffic(BackgroundLoad):
    """Messages to every one of some partitions in turn, and a consumer of them."""

    def __init__(self, servers: str, topic: str, partitions: Sequence[int]) -> None:
        self._topic, self._partitions = topic, list(partitions)
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, **LIBRARY})
        consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "bench", "enable.auto.commit": False, **LIBRARY}
        )
        consumer.assign([TopicPartition(topic, number, OFFSET_END) for number in partitions])
        super().__init__(consumer, [self._produce, self._consume])
        self.sent = self._acknowledged = self._consumed = self._errors = 0
        self._produce_s_max = self._consume_s_max = 0.0

    def burst(self) -> None:
        """One message to every partition at once."""
        for number in self._partitions:
            self._send(number)

    def settle(self) -> Waits:
        """Once everything that was sent has arrived."""
        sent = self.sent
        wait_until(
            lambda: self._acknowledged + self._errors >= sent and self._consumed + self._errors >= sent,
            "messages sent before and after a failure",
        )
        return Waits(produce_s=self._produce_s_max, consume_s=self._consume_s_max, errors=self._errors)

    def _warm_up(self) -> None:
        """Until the consumer has had a message of every partition: it begins at their ends."""
        seen: set[int] = set()
        deadline = time.monotonic() + LEASE_TTL_S * 4
        while len(seen) < len(self._partitions):
            if time.monotonic() > deadline:
                raise BenchError(f"only {len(seen)} of {len(self._partitions)} partitions can be read")
            for number in self._partitions:
                if number not in seen:
                    self._producer.produce(self._topic, b"0", partition=number)
            self._producer.flush(1.0)
            seen |= {message.partition() or 0 for message in self._consumer.consume(1_000, 0.5)}

    def _produce(self) -> None:
        turns = itertools.cycle(self._partitions)
        while not self._stopping.is_set():
            self._send(next(turns))
            self._producer.poll(1 / MESSAGES_PER_S)
        self._producer.flush(LEASE_TTL_S)

    def _send(self, partition: int) -> None:
        self.sent += 1
        value = repr(time.perf_counter()).encode()
        self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors += 1
            return
        self._acknowledged += 1
        self._produce_s_max = max(self._produce_s_max, _age_s(message))

    def _consume(self) -> None:
        """One at a time: a call for many messages returns when it has them all, or after its timeout."""
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None and message.value() != b"0":
                self._consumed += 1
                self._consume_s_max = max(self._consume_s_max, _age_s(message))


def _age_s(message: Message) -> float:
    return time.perf_counter() - float(message.value() or b"0")


def failover_figures(suite: Suite) -> list[Figure]:
    figures: list[Figure] = []
    with ForebayCluster(suite.scratch, "failover", ONE_COORDINATOR_EACH) as cluster:
        for count in PARTITION_COUNTS:
            print(f"  failover with {count:,} partitions", flush=True)
            topic = next(_names)
            cluster.create_topic(topic, count)
            if count == IDLE_PARTITIONS:
                figures.append(_idle_figure(cluster))
            stopped = _waits(cluster, topic, count, VICTIM, cluster.stop)
            figures += _wait_figures("failover after a controlled stop", count, stopped, STOP_S_MAX)
            killed = _waits(cluster, topic, count, VICTIM, cluster.kill)
            figures += _wait_figures("failover after a kill", count, killed, KILL_S_MAX)
            if count == ROLE_PARTITIONS:
                figures += role_figures(cluster, topic, count)
            cluster.delete_topic(topic)
    return sorted(figures, key=lambda figure: figure.group)


def role_figures(cluster: ForebayCluster, topic: str, count: int) -> list[Figure]:
    """The same when the broker that is killed has another part to play, too."""
    figures: list[Figure] = []
    own = next(_names)
    cluster.create_topic(own, 1)
    with Coordinated(cluster.bootstrap_servers, own) as coordinated:
        roles: dict[str, Callable[[], int]] = {
            "the controller": cluster.controller,
            "the group's coordinator": lambda: cluster.leaders(GROUPS)[0],
            "the transaction's coordinator": lambda: cluster.leaders(TRANSACTIONS)[0],
        }
        for role, find in roles.items():
            print(f"  failover of {role}", flush=True)
            for each in (own, GROUPS, TRANSACTIONS):
                cluster.wait_until_in_sync(each, 1)
            coordinated.begin_anew()
            waits = _waits(cluster, topic, count, find(), cluster.kill)
            group = f"failover after a kill of {role}, {count:,} partitions"
            figures += _wait_figures(group, count, waits, KILL_S_MAX)
            figures += [
                _seconds(group, "commit of offsets", coordinated.offsets_s_max, KILL_S_MAX),
                _seconds(group, "transaction of one message", coordinated.transaction_s_max, KILL_S_MAX),
                _errors(group, "commits and transactions, errors shown", coordinated.errors),
            ]
    return figures


def _waits(cluster: ForebayCluster, topic: str, count: int, victim: int, end: Callable[[int], None]) -> Waits:
    """What clients notice when the broker ends that leads a third of the partitions."""
    led = [number for number, leader in cluster.leaders(topic).items() if leader == victim]
    with Traffic(cluster.bootstrap_servers, topic, led) as traffic:
        time.sleep(LEAD_IN_S)
        ended_ms = time.time() * 1000
        end(victim)
        traffic.burst()
        waits = traffic.settle()
    cluster.start(victim)
    cluster.wait_until_in_sync(topic, count)
    cluster.elect_preferred(topic, count)
    _tell_steps(cluster, ended_ms)
    return waits


def _tell_steps(cluster: ForebayCluster, since_ms: float) -> None:
    """How long the brokers took, apart from what clients do with it."""
    for each in cluster.failovers():
        if each.at_ms >= since_ms:
            steps = f"detect {each.detect_ms}, fence {each.fence_ms}, elect {each.elect_ms}"
            print(f"    broker {each.broker}, ms: {steps}, announce {each.announce_ms}", flush=True)


def _wait_figures(group: str, count: int, waits: Waits, at_most: float) -> list[Figure]:
    return [
        _seconds(group, f"{count:,} partitions, producer", waits.produce_s, at_most),
        _seconds(group, f"{count:,} partitions, consumer", waits.consume_s, at_most),
        _errors(group, f"{count:,} partitions, errors shown", waits.errors),
    ]


def _errors(group: str, name: str, count: int) -> Figure:
    return Figure(group=group, name=name, value=count, unit="messages", at_most=0.0, judged="value")


def _seconds(group: str, name: str, value: float, at_most: float) -> Figure:
    return Figure(group=group, name=name, value=value, unit="s", at_most=at_most, judged="value")


def _idle_figure(cluster: ForebayCluster) -> Figure:
    time.sleep(IDLE_SETTLE_S)
    before: dict[int, float] = cluster.cpu_s_of_each()
    time.sleep(IDLE_S)
    after: dict[int, Any] = cluster.cpu_s_of_each()
    shares = [100 * (after[node] - before[node]) / IDLE_S for node in before]
    return Figure(
        group="cluster at rest",
        name=f"CPU of a broker among three, {IDLE_PARTITIONS:,} partitions",
        value=statistics.mean(shares),
        unit="%",
        at_most=IDLE_PERCENT_MAX,
        judged="value",
    )
