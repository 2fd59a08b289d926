"""Groups and transactions of real clients, while the brokers that coordinate them are killed and stopped."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import confluent_kafka
import pytest

from forebay.client import Admin, ClientError, Consumer, Producer, Record, process
from forebay.errors import ErrorCode
from forebay.testing import Cluster
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from support.chaos.witness import read_everything
from support.clients.kafka_clients import confluent_consumer
from support.clients.wire_client import WireClient

SECONDS_MAX = 90.0
GROUP, TRANSACTION = range(2)
PARTITIONS = 3
POLLED = 20
"""Few enough that the group has much left to read when its coordinator dies."""


class SleepyCluster(Cluster):
    @property
    def awake(self) -> list[int]:
        return [node for node in self.running if node not in self.paused]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SleepyCluster]:
    """One for the tests of this module, which leave all its brokers running."""
    settings = {
        "forebay.lease.ttl.ms": 6_000,
        "leader.imbalance.check.interval.seconds": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.num.partitions": 4,
    }
    running = SleepyCluster(brokers=3, settings=settings)
    with running:
        yield running


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def _coordinator(cluster: SleepyCluster, key: str, kind: int) -> int:
    """The broker that looks after a group id or a transactional id."""
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        for node in cluster.awake:
            with contextlib.suppress(OSError), WireClient(cluster.address(node)) as client:
                (found,) = client.call(request, 6).coordinators
                if found.error_code == ErrorCode.NONE and found.node_id in cluster.awake:
                    node_id: int = found.node_id
                    return node_id
        time.sleep(0.05)
    raise AssertionError(f"nobody coordinates {key}")


def _make(cluster: SleepyCluster, *topics: str) -> None:
    with Admin(cluster.bootstrap_servers) as admin:
        for topic in topics:
            admin.create_topic(topic, partitions=PARTITIONS)


def _fill(cluster: SleepyCluster, topic: str, numbers: range) -> None:
    with Producer(cluster.bootstrap_servers) as producer:
        for number in numbers:
            producer.send(topic, str(number), key=str(number))


# -- groups ------------------------------------------------------------------------------------------


class Members:
    """Two members of a group, polled in turns; they commit what they have read."""

    def __init__(self, cluster: SleepyCluster, group: str, topic: str, **settings: str) -> None:
        self.group = group
        self.seen: Counter[bytes] = Counter()
        self._consumers = [
            confluent_consumer(
                cluster.bootstrap_servers, group_id=group, auto_offset_reset="earliest", **settings
            )
            for _ in range(2)
        ]
        for consumer in self._consumers:
            consumer.subscribe([topic])

    def poll(self) -> None:
        for consumer in self._consumers:
            for message in consumer.consume(POLLED, 0.01):
                if message.error() is None:
                    self.seen[message.value() or b""] += 1
                    consumer.commit(message=message, asynchronous=True)

    def commit(self) -> None:
        """What was committed while there was no coordinator may have been lost with the request."""
        for consumer in self._consumers:
            with contextlib.suppress(confluent_kafka.KafkaException):
                consumer.commit(asynchronous=False)

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.close()


def _committed(cluster: SleepyCluster, group: str, topic: str) -> int:
    """The sum of a group's committed offsets; -1 while its coordinator cannot tell."""
    wanted = OffsetFetchRequestTopic(name=topic, partition_indexes=list(range(PARTITIONS)))
    request = OffsetFetchRequest(group_id=group, topics=[wanted], require_stable=True)
    home = _coordinator(cluster, group, GROUP)
    try:
        with WireClient(cluster.address(home)) as client:
            response = client.call(request, 7)
    except OSError:
        return -1
    partitions = response.topics[0].partitions if response.topics else []
    if response.error_code != ErrorCode.NONE or any(each.error_code for each in partitions):
        return -1
    return sum(max(each.committed_offset, 0) for each in partitions)


def test_groups_of_both_protocols_survive_the_death_of_their_coordinator(cluster: SleepyCluster) -> None:
    topic, count = "survived", 400
    _make(cluster, topic)
    _fill(cluster, topic, range(count // 2))
    both = [
        Members(cluster, "classic", topic, session_timeout_ms="6000"),
        Members(cluster, "modern", topic, group_protocol="consumer"),
    ]

    def poll_until(condition: Callable[[], bool], what: str) -> None:
        def polled() -> bool:
            for members in both:
                members.poll()
            return condition()

        _until(polled, what)

    try:
        poll_until(lambda: all(len(members.seen) > 50 for members in both), "nobody reads")
        dead = _coordinator(cluster, "classic", GROUP)
        cluster.kill(dead)
        _fill(cluster, topic, range(count // 2, count))
        poll_until(lambda: all(len(members.seen) == count for members in both), "messages are missing")
        for members in both:
            members.commit()
        _until(
            lambda: all(_committed(cluster, members.group, topic) == count for members in both),
            "commits are missing",
        )
        assert _coordinator(cluster, "classic", GROUP) != dead
    finally:
        for members in both:
            members.close()
    cluster.start(dead)
    cluster.wait_until_ready()


# -- transactions ------------------------------------------------------------------------------------


class Copier(threading.Thread):
    """Copies a topic exactly once; when its client gives up, the next one goes on, as a service would."""

    def __init__(self, cluster: SleepyCluster, source: str, target: str) -> None:
        super().__init__(name="copier", daemon=True)
        self._servers = cluster.bootstrap_servers
        self._source, self._target = source, target
        self.group = f"{source}-copiers"
        self.transactional_id = _id_apart_from(cluster, self.group)
        self._stopping = threading.Event()
        self.copied = 0
        self.restarts = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._copy()
                except (ClientError, confluent_kafka.KafkaException):
                    self.restarts += 1
                    assert self.restarts < 20, "it never succeeds"
        except BaseException as error:
            self.failure = error

    def _copy(self) -> None:
        with (
            Consumer(
                self._servers,
                self._source,
                group=self.group,
                delivery="exactly-once",
                settings={"session.timeout.ms": 6_000, "socket.timeout.ms": 3_000},
            ) as consumer,
            Producer(
                self._servers,
                delivery="exactly-once",
                transactional_id=self.transactional_id,
                settings={"socket.timeout.ms": 3_000},  # how long it waits for a broker that sleeps
            ) as producer,
        ):
            process(consumer, producer, self._transform, batch_max=10, stop=self._stopping.is_set)

    def _transform(self, message: object) -> Record:
        self.copied += 1
        value = message.value  # type: ignore[attr-defined]
        return Record(topic=self._target, value=value, key=value)

    def stop(self) -> None:
        self._stopping.set()
        self.join(SECONDS_MAX)
        assert not self.is_alive()
        if self.failure is not None:
            raise self.failure


def _id_apart_from(cluster: SleepyCluster, group: str) -> str:
    """A transactional id that another broker coordinates than the group.

    When the broker of the group dies, librdkafka from 2.11 on may wait for it for ever (its issue 5511).
    """
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:  # until the leaders are evened out, if need be
        home = _coordinator(cluster, group, GROUP)
        for name in (f"{group}-{number}" for number in range(20)):
            if _coordinator(cluster, name, TRANSACTION) != home:
                return name
    raise AssertionError("one broker coordinates everything")


@pytest.mark.parametrize("sleeps", [False, True], ids=["killed", "asleep for longer than its lease"])
def test_exactly_once_without_the_coordinator_it_began_with(cluster: SleepyCluster, sleeps: bool) -> None:
    """One that slept wakes up in the belief to coordinate what another has taken over."""
    source, target, count = f"source-{sleeps}", f"target-{sleeps}", 300
    _make(cluster, source, target)
    _fill(cluster, source, range(count // 2))
    copier = Copier(cluster, source, target)
    copier.start()
    with contextlib.ExitStack() as afterwards:
        afterwards.callback(copier.stop)
        _until(lambda: copier.copied > 50, "nothing is copied")
        gone = _coordinator(cluster, copier.transactional_id, TRANSACTION)
        if sleeps:
            cluster.pause(gone)
            afterwards.callback(cluster.resume, gone)
        else:
            cluster.kill(gone)
            afterwards.callback(cluster.start, gone)
        _fill(cluster, source, range(count // 2, count))
        _until(lambda: _committed(cluster, copier.group, source) == count, "it does not go on")
    cluster.wait_until_ready()
    places = [(target, partition) for partition in range(PARTITIONS)]
    content = read_everything(cluster.bootstrap_servers, places, "read_committed")
    values = Counter(value for of_place in content.values() for value in of_place.values())
    assert values == Counter(str(number).encode() for number in range(count))
