"""Groups whose members come, go and are killed while messages flow, with each client: 30,000 here, 100,000
in `make chaos`.

Within a generation every message is read by one member; in the end none was missed. A message may be read
again in a later generation, by whoever takes over from a member that was killed before it could commit.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import pytest
from confluent_kafka import TopicPartition

from support.brokers.broker_process import BrokerProcess, StartBroker
from support.clients.group_clients import MEMBERS, SESSION_MS, MemberProcess, Seen
from support.clients.kafka_clients import CLIENTS, DEADLINE_SECONDS, Message, confluent_consumer, create_topic

PARTITIONS = 8
MESSAGES = 30_000
MANY_MESSAGES = 100_000


class Crowd:
    """The members of one group, past and present."""

    def __init__(self, bootstrap: str, topic: str, clients: tuple[str, ...], **settings: object) -> None:
        self._bootstrap, self._topic, self._clients, self._settings = bootstrap, topic, clients, settings
        self._everybody: list[MemberProcess] = []

    @property
    def running(self) -> list[MemberProcess]:
        return [member for member in self._everybody if member.is_running]

    @property
    def seen(self) -> list[Seen]:
        return [seen for member in self._everybody for seen in member.seen]

    def join(self) -> None:
        number = len(self._everybody)
        client = self._clients[number % len(self._clients)]
        member = MemberProcess(
            f"{client}-{number}", client, self._bootstrap, self._topic, self._topic, **self._settings
        )
        self._everybody.append(member)

    def change(self, step: str, chance: random.Random) -> None:
        if step == "join":
            self.join()
        elif step == "leave":
            chance.choice(self.running).leave()
        else:
            chance.choice(self.running).kill()

    def wait_for(self, count: int) -> None:
        """Until so many different messages have been read."""
        deadline = time.monotonic() + 2 * DEADLINE_SECONDS
        while len({(seen.partition, seen.offset) for seen in self.seen}) < count:
            assert time.monotonic() < deadline, f"stuck: {self.progress()}"
            time.sleep(0.05)

    def progress(self) -> Counter[tuple[str, int]]:
        return Counter((seen.member, seen.partition) for seen in self.seen)

    def end(self) -> None:
        for member in self.running:
            member.kill()


STAGES: tuple[tuple[str, ...], ...] = (
    ("join",),
    ("join", "join", "join"),
    ("join", "join", "join", "join"),
    ("kill", "leave", "kill"),
    ("join", "leave", "kill"),
    ("leave", "kill", "leave"),
)
"""What happens while one part of the messages is being produced and read: 1, 4, 8, 5, 4 and 1 members."""


def churn(crowd: Crowd, broker: BrokerProcess, topic: str, total: int, chance: random.Random) -> None:
    part = total // len(STAGES)
    for number, stage in enumerate(STAGES):
        count = part if number < len(STAGES) - 1 else total - part * number
        messages = [Message(b"%d" % n, partition=n % PARTITIONS) for n in range(count)]
        producing = threading.Thread(target=CLIENTS[0].produce, args=(broker.bootstrap, topic, messages))
        producing.start()
        for step in stage:
            crowd.change(step, chance)
        producing.join()
        crowd.wait_for(part * number + count)


def check(seen: list[Seen], total: int) -> None:
    """Nobody reads what another reads in the same generation, or twice what it has read in one."""
    times = Counter((each.generation, each.partition, each.offset) for each in seen)
    assert [place for place, count in times.items() if count > 1] == []
    offsets: dict[int, set[int]] = {}
    for each in seen:
        offsets.setdefault(each.partition, set()).add(each.offset)
    assert sum(map(len, offsets.values())) == total
    assert all(found == set(range(len(found))) for found in offsets.values())


def committed(bootstrap: str, topic: str) -> int:
    consumer = confluent_consumer(bootstrap, group_id=topic)
    try:
        places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return sum(place.offset for place in consumer.committed(places, DEADLINE_SECONDS))
    finally:
        consumer.close()


def wait_until_committed(bootstrap: str, topic: str, total: int) -> None:
    """A commit that a rebalance has refused is made again when its messages have been read again."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (found := committed(bootstrap, topic)) != total:
        assert time.monotonic() < deadline, f"{found} of {total} offsets are committed"
        time.sleep(0.1)


def run(broker: BrokerProcess, topic: str, total: int, clients: tuple[str, ...], **settings: object) -> None:
    create_topic(broker.bootstrap, topic, PARTITIONS)
    crowd = Crowd(broker.bootstrap, topic, clients, **settings)
    try:
        churn(crowd, broker, topic, total, random.Random(f"{clients}"))
        wait_until_committed(broker.bootstrap, topic, total)
        (last,) = crowd.running
        last.leave()
    finally:
        crowd.end()
    check(crowd.seen, total)
    assert committed(broker.bootstrap, topic) == total


def test_members_of_all_clients_share_one_group(broker: BrokerProcess, topic: str) -> None:
    run(broker, topic, MESSAGES, MEMBERS)


def test_members_whose_assignment_the_broker_makes(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker(
        "group.consumer.heartbeat.interval.ms=200", f"group.consumer.session.timeout.ms={SESSION_MS}"
    )
    run(broker, topic, MESSAGES, ("confluent",), **{"group.protocol": "consumer"})


@pytest.mark.chaos
@pytest.mark.parametrize("client", MEMBERS)
def test_members_of_one_client(broker: BrokerProcess, topic: str, client: str) -> None:
    run(broker, topic, MANY_MESSAGES, (client,))


@pytest.mark.chaos
def test_cooperative_members(broker: BrokerProcess, topic: str) -> None:
    settings = {"partition.assignment.strategy": "cooperative-sticky"}
    run(broker, topic, MANY_MESSAGES, ("confluent",), **settings)
