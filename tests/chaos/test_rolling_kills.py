"""A rolling restart by kill -9 under load: nothing that was acknowledged is lost, and nobody waits for long.

`make chaos` kills one broker every CHAOS_KILL_EVERY_SECONDS for CHAOS_KILLING_SECONDS, each in its turn, and
starts it again. Clients have the defaults of their library.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from rich.console import Console

from forebay.local.cluster import Cluster
from support.clients.kafka_clients import DEADLINE_SECONDS, confluent_admin

KILL_EVERY_S = float(os.environ.get("CHAOS_KILL_EVERY_SECONDS", "60"))
KILLING_S = float(os.environ.get("CHAOS_KILLING_SECONDS", "600"))
WAIT_S_MAX = float(os.environ.get("CHAOS_WAIT_SECONDS_MAX", "2"))
TOPIC = "t"
PARTITIONS = 30
MESSAGES_PER_S = 300
DOWN_S = 2.0


@dataclass(slots=True)
class Waits:
    """What became of the messages, by number, and the longest waits for them."""

    sent_at: list[float] = field(default_factory=list)
    acknowledged: set[int] = field(default_factory=set)
    read: set[int] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    produce_s_max: float = 0.0
    read_s_max: float = 0.0


class Load:
    """A producer to all partitions in turn, and a consumer of them; `with` runs both."""

    def __init__(self, servers: str) -> None:
        quiet = {"bootstrap.servers": servers, "log_level": 0, "error_cb": lambda _: None}
        self._producer = Producer(quiet)
        self._consumer = Consumer({**quiet, "group.id": "g", "enable.auto.commit": False})
        self._consumer.assign([TopicPartition(TOPIC, each, OFFSET_BEGINNING) for each in range(PARTITIONS)])
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._produce, self._consume)]
        self.waits = Waits()

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self._consumer.close()

    def begin_to_count(self) -> None:
        """Once everything runs: what came before says how long it takes to connect."""
        self.wait_for_all()
        self.waits.produce_s_max = self.waits.read_s_max = 0.0

    def wait_for_all(self) -> None:
        """Until all that has been sent by now was acknowledged and read."""
        waits, sent = self.waits, len(self.waits.sent_at)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (waits.errors or (sent <= len(waits.acknowledged) and sent <= len(waits.read))):
            assert time.monotonic() < deadline, f"{len(waits.acknowledged)} and {len(waits.read)} of {sent}"
            time.sleep(0.02)

    def _produce(self) -> None:
        while not self._stopping.is_set():
            number = len(self.waits.sent_at)
            self.waits.sent_at.append(time.monotonic())
            self._producer.produce(
                TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered
            )
            self._producer.poll(1 / MESSAGES_PER_S)
        self._producer.flush(DEADLINE_SECONDS)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.waits.errors.append(str(error))
            return
        number = int(message.value() or b"")
        self.waits.acknowledged.add(number)
        self.waits.produce_s_max = max(self.waits.produce_s_max, self._age_s(number))

    def _consume(self) -> None:
        while not self._stopping.is_set():
            for message in self._consumer.consume(1_000, 0.05):
                if message.error() is not None:
                    self.waits.errors.append(str(message.error()))
                    continue
                number = int(message.value() or b"")
                if number not in self.waits.read:  # a producer without numbers may send again what was stored
                    self.waits.read.add(number)
                    self.waits.read_s_max = max(self.waits.read_s_max, self._age_s(number))

    def _age_s(self, number: int) -> float:
        return time.monotonic() - self.waits.sent_at[number]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    settings = {"forebay.lease.ttl.ms": 8_000, "forebay.flush.policy": "ack"}
    with Cluster(3, settings=settings, data_dir=tmp_path) as running:
        admin = confluent_admin(running.bootstrap_servers)
        new = NewTopic(TOPIC, PARTITIONS, replication_factor=3)
        admin.create_topics([new])[TOPIC].result(DEADLINE_SECONDS)
        wait_until_in_sync(running)
        yield running


def wait_until_in_sync(cluster: Cluster) -> None:
    admin = confluent_admin(cluster.bootstrap_servers)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        topics = admin.list_topics(timeout=DEADLINE_SECONDS).topics.values()
        behind = [part for each in topics for part in each.partitions.values() if len(part.isrs) < 3]
        if not behind:
            return
        assert time.monotonic() < deadline, f"{len(behind)} partitions are not in sync"
        time.sleep(0.1)


def roll(cluster: Cluster) -> int:
    """Kill one broker after the other; how many were killed."""
    end, kills = time.monotonic() + KILLING_S, 0
    while time.monotonic() < end:
        next_s = time.monotonic() + KILL_EVERY_S
        victim = cluster.node_ids[kills % len(cluster.node_ids)]
        cluster.kill(victim)
        kills += 1
        time.sleep(DOWN_S)
        cluster.start(victim)
        cluster.wait_until_ready()
        wait_until_in_sync(cluster)
        time.sleep(max(0.0, next_s - time.monotonic()))
    return kills


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_a_rolling_restart_by_kill_loses_nothing_and_holds_nobody_up(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with Load(cluster.bootstrap_servers) as load:
        load.begin_to_count()
        kills = roll(cluster)
        load.wait_for_all()
    waits = load.waits
    with capsys.disabled():
        Console().print(
            f"\n{kills} kills: {len(waits.acknowledged)} messages acknowledged, longest wait "
            f"{waits.produce_s_max:.2f} s to produce, {waits.read_s_max:.2f} s to read"
        )
    assert waits.errors == []
    assert waits.acknowledged <= waits.read
    assert max(waits.produce_s_max, waits.read_s_max) <= WAIT_S_MAX
