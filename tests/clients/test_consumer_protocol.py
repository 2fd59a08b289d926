"""Groups of the consumer protocol (KIP-848) with librdkafka, and its classic consumers in the same groups."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, KafkaException, TopicPartition
from confluent_kafka.admin import NewPartitions

from support.brokers.broker_process import BrokerProcess, running_broker
from support.clients.kafka_clients import CLIENTS, DEADLINE_SECONDS, Message, confluent_admin, create_topic

REFUSALS = ("ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID", "_STATE")
HEARTBEAT_MS, SESSION_MS = 100, 6_000
SETTINGS = (
    f"group.consumer.heartbeat.interval.ms={HEARTBEAT_MS}",
    f"group.consumer.session.timeout.ms={SESSION_MS}",
)


@pytest.fixture(scope="module")
def quick_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One whose groups notice everything soon."""
    with running_broker(tmp_path_factory.mktemp("broker") / "data", *SETTINGS) as running:
        yield running


class Members:
    """Consumers of one group, polled in turns."""

    def __init__(self, bootstrap: str, group_id: str) -> None:
        self.bootstrap = bootstrap
        self.group_id = group_id
        self.open: list[Consumer] = []
        self.seen: Counter[bytes] = Counter()
        self.refused: list[tuple[Consumer, Any]] = []

    def add(self, *topics: str, protocol: str = "consumer", **settings: Any) -> Consumer:
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group_id,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "topic.metadata.refresh.interval.ms": 500,
                "log_level": 0,
                **dotted,
            }
        )
        consumer.subscribe(list(topics))
        self.open.append(consumer)
        return consumer

    def close(self, consumer: Consumer) -> None:
        self.open.remove(consumer)
        consumer.close()

    def poll_until(self, is_done: Callable[[], bool]) -> None:
        """What comes is counted, and committed by whoever got it."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not is_done():
            assert time.monotonic() < deadline, [shares(self.open), self.seen]
            for consumer in self.open:
                for message in consumer.consume(100, 0.02):
                    # A topic is known to the group before every consumer's metadata has it.
                    if message.error() is None:
                        self.commit(consumer, message)
            self.commit_refused()

    def commit(self, consumer: Consumer, message: Any) -> None:
        try:
            consumer.commit(message=message, asynchronous=False)
        except KafkaException as error:
            assert error.args[0].name() in REFUSALS, error
            self.refused.append((consumer, message))
        else:
            self.seen[message.value()] += 1

    def commit_refused(self) -> None:
        """Who keeps a partition in a rebalance tries again; who loses it leaves the message to the next."""
        refused, self.refused = self.refused, []
        for consumer, message in refused:
            if consumer in self.open and (message.topic(), message.partition()) in shares([consumer])[0]:
                self.commit(consumer, message)

    def come_to(self, *sizes: int) -> None:
        """Until the members have so many partitions each, whoever has how many, and none is had by two."""
        self.poll_until(lambda: sorted(map(len, shares(self.open))) == sorted(sizes))
        everything = [partition for share in shares(self.open) for partition in share]
        assert len(everything) == len(set(everything))


def shares(consumers: list[Consumer]) -> list[set[tuple[str, int]]]:
    return [{(each.topic, each.partition) for each in consumer.assignment()} for consumer in consumers]


def produce(broker: BrokerProcess, topic: str, values: range, partitions: int = 4) -> None:
    messages = [Message(b"%d" % value, partition=value % partitions) for value in values]
    CLIENTS[0].produce(broker.bootstrap, topic, messages)


@pytest.fixture
def members(quick_broker: BrokerProcess, topic: str) -> Iterator[Members]:
    create_topic(quick_broker.bootstrap, topic, 4)
    found = Members(quick_broker.bootstrap, f"group-of-{topic}")
    yield found
    for consumer in list(found.open):
        found.close(consumer)


def test_members_come_and_go_while_messages_flow(
    quick_broker: BrokerProcess, members: Members, topic: str
) -> None:
    produce(quick_broker, topic, range(100))
    first = members.add(topic)
    members.come_to(4)
    produce(quick_broker, topic, range(100, 200))
    members.add(topic)
    members.add(topic)
    members.come_to(2, 1, 1)
    produce(quick_broker, topic, range(200, 300))
    members.poll_until(lambda: len(+members.seen) == 300)
    members.close(first)
    members.come_to(2, 2)
    produce(quick_broker, topic, range(300, 400))
    members.poll_until(lambda: len(+members.seen) == 400)
    at_rest = [members.seen[b"%d" % value] for value in (*range(100), *range(200, 400))]
    assert set(at_rest) == {1}, "each message that came between rebalances was taken by one member"


def test_a_group_is_described(quick_broker: BrokerProcess, members: Members, topic: str) -> None:
    members.add(topic, client_id="one", group_remote_assignor="range")
    members.add(topic, client_id="two", group_remote_assignor="range")
    members.come_to(2, 2)
    members.poll_until(lambda: described(members).state == ConsumerGroupState.STABLE)
    group = described(members)
    assert (group.state, group.type, group.partition_assignor) == (
        ConsumerGroupState.STABLE,
        ConsumerGroupType.CONSUMER,
        "range",
    )
    assert {member.client_id for member in group.members} == {"one", "two"}
    shared = sorted(
        sorted(each.partition for each in member.assignment.topic_partitions) for member in group.members
    )
    assert shared == [[0, 1], [2, 3]]
    admin = confluent_admin(quick_broker.bootstrap)
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(DEADLINE_SECONDS)
    assert members.group_id in {found.group_id for found in listed.valid}


def described(members: Members) -> Any:
    admin = confluent_admin(members.bootstrap)
    return admin.describe_consumer_groups([members.group_id])[members.group_id].result(DEADLINE_SECONDS)


def test_a_killed_member_is_replaced(members: Members, topic: str, tmp_path: Path) -> None:
    script = tmp_path / "member.py"
    script.write_text(
        "import sys\n"
        "from confluent_kafka import Consumer\n"
        "consumer = Consumer({'bootstrap.servers': sys.argv[1], 'group.id': sys.argv[2],\n"
        "                     'group.protocol': 'consumer'})\n"
        "consumer.subscribe([sys.argv[3]])\n"
        "while True:\n"
        "    consumer.poll(0.1)\n"
    )
    command = [sys.executable, str(script), members.bootstrap, members.group_id, topic]
    with subprocess.Popen(command) as child:
        try:
            members.add(topic)
            members.come_to(2)
        finally:
            child.kill()
    members.come_to(4)


def test_a_pattern_follows_topics_as_they_come_and_grow(
    quick_broker: BrokerProcess, members: Members, topic: str
) -> None:
    consumer = members.add(f"^{topic}.*")
    members.come_to(4)
    create_topic(quick_broker.bootstrap, f"{topic}-more", 2)
    members.come_to(6)
    admin = confluent_admin(quick_broker.bootstrap)
    admin.create_partitions([NewPartitions(f"{topic}-more", 3)])[f"{topic}-more"].result(DEADLINE_SECONDS)
    members.come_to(7)
    consumer.subscribe([f"{topic}-more"])
    members.come_to(3)
    admin.delete_topics([f"{topic}-more"])[f"{topic}-more"].result(DEADLINE_SECONDS)
    members.come_to(0)


def test_a_static_member_comes_back_to_its_partitions(members: Members, topic: str) -> None:
    first = members.add(topic, group_instance_id="one")
    members.add(topic, group_instance_id="two")
    members.come_to(2, 2)
    had = shares([first])[0]
    members.close(first)
    again = members.add(topic, group_instance_id="one")
    members.come_to(2, 2)
    assert shares([again])[0] == had


def test_a_group_outlives_its_broker(start_broker: Callable[..., BrokerProcess], topic: str) -> None:
    broker = start_broker(*SETTINGS)
    create_topic(broker.bootstrap, topic, 4)
    produce(broker, topic, range(40))
    members = Members(broker.bootstrap, "g")
    for _ in range(2):
        members.add(topic)
    members.come_to(2, 2)
    members.poll_until(lambda: len(+members.seen) == 40)
    before = shares(members.open)
    broker.kill()
    broker.restart()
    produce(broker, topic, range(40, 80))
    members.poll_until(lambda: len(+members.seen) == 80)
    assert shares(members.open) == before
    assert set(members.seen.values()) == {1}, "nothing that was committed is read again"
    for consumer in list(members.open):
        members.close(consumer)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_working_group_changes_its_protocol_and_back(
    quick_broker: BrokerProcess, members: Members, topic: str, strategy: str
) -> None:
    classic: dict[str, Any] = {
        "protocol": "classic",
        "partition_assignment_strategy": strategy,
        "session_timeout_ms": 30_000,
        "heartbeat_interval_ms": HEARTBEAT_MS,
    }
    members.add(topic, **classic)
    old = members.add(topic, **classic)
    members.come_to(2, 2)
    produce(quick_broker, topic, range(40))
    members.poll_until(lambda: len(+members.seen) == 40)

    new = members.add(topic)
    members.come_to(2, 1, 1)
    assert kind_of(members) == ConsumerGroupType.CONSUMER
    produce(quick_broker, topic, range(40, 80))
    members.poll_until(lambda: len(+members.seen) == 80)
    members.close(old)
    members.come_to(2, 2)

    members.close(new)
    members.come_to(4)
    assert kind_of(members) == ConsumerGroupType.CLASSIC
    produce(quick_broker, topic, range(80, 120))
    members.poll_until(lambda: len(+members.seen) == 120)
    committed = members.open[0].committed(
        [TopicPartition(topic, index) for index in range(4)], DEADLINE_SECONDS
    )
    assert [each.offset for each in committed] == [30, 30, 30, 30]
    assert set(members.seen.values()) == {1}


def kind_of(members: Members) -> ConsumerGroupType:
    kind: ConsumerGroupType = described(members).type
    return kind


def test_a_producer_that_knows_only_the_group_commits_its_offsets(
    quick_broker: BrokerProcess, members: Members, topic: str
) -> None:
    """aiokafka names the group of its offsets and no member, whatever protocol the group has."""
    members.add(topic)
    members.come_to(4)

    async def transact() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=quick_broker.bootstrap, transactional_id=f"transaction-of-{topic}"
        )
        await producer.start()
        try:
            async with producer.transaction():
                await producer.send(topic, b"result", partition=0)
                offsets = {aiokafka.TopicPartition(topic, 3): 17}
                await producer.send_offsets_to_transaction(offsets, members.group_id)
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(transact(), DEADLINE_SECONDS))
    (found,) = members.open[0].committed([TopicPartition(topic, 3)], DEADLINE_SECONDS)
    assert found.offset == 17
