"""confluent-kafka's ShareConsumer against a broker."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType

from support.brokers.broker_process import BrokerProcess
from support.clients.share_member import configure
from support.clients.share_worker import Worker, consumer, holding, work_until
from support.clients.wire_client import WireClient, append, batch, create

LOCK_SECONDS = 60.0
VALUES = [b"%d" % n for n in range(100)]


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


@pytest.fixture
def filled(client: WireClient, topic: str) -> str:
    """A topic of two partitions with 100 messages, and a group of the same name."""
    create(client, topic, 2)
    configure(client, topic, share_record_lock_duration_ms="60000")
    for n in range(0, len(VALUES), 5):
        append(client, topic, batch(*VALUES[n : n + 5]), partition=n % 2)
    return topic


def test_messages_are_accepted_by_the_next_poll(broker: BrokerProcess, filled: str) -> None:
    seen: Counter[bytes] = Counter()
    give_up = time.monotonic() + LOCK_SECONDS
    with consumer(broker.bootstrap, filled, filled) as member:
        while len(seen) < len(VALUES) and time.monotonic() < give_up:
            seen.update(each.value() or b"" for each in member.poll(0.5))
        member.commit_sync(60.0)
    assert seen == Counter(VALUES)
    with consumer(broker.bootstrap, filled, filled) as member:
        assert list(member.poll(1.0)) == []


def test_messages_are_accepted_released_and_rejected(broker: BrokerProcess, filled: str) -> None:
    def judge(message: Any) -> AcknowledgeType:
        number = int(message.value())
        if number % 10 == 0:
            return AcknowledgeType.REJECT
        if number % 10 == 5 and message.delivery_count() < 3:
            return AcknowledgeType.RELEASE
        return AcknowledgeType.ACCEPT

    wanted = Counter(value for value in VALUES if not value.endswith(b"0"))
    with Worker(broker.bootstrap, filled, filled) as worker:
        work_until(lambda: len(worker.accepted) == len(wanted), worker, judge=judge)
        assert worker.accepted == wanted
        assert {worker.deliveries[value] for value in VALUES if value.endswith(b"5")} == {3}
        assert {worker.deliveries[value] for value in VALUES if value.endswith(b"0")} == {1}
        assert worker.failures == []


def test_two_members_accept_each_message_once(broker: BrokerProcess, filled: str, client: WireClient) -> None:
    with Worker(broker.bootstrap, filled, filled) as one, Worker(broker.bootstrap, filled, filled) as two:
        work_until(lambda: len(one.accepted + two.accepted) == len(VALUES), one, two)
        more = [b"more-%d" % n for n in range(100)]
        for n, value in enumerate(more):
            append(client, filled, batch(value), partition=n % 2)
        work_until(lambda: len(one.accepted + two.accepted) == 2 * len(VALUES), one, two)
        assert one.accepted + two.accepted == Counter(VALUES + more)
        assert one.failures + two.failures == []


def test_what_a_killed_member_held_is_delivered_at_once(
    broker: BrokerProcess, client: WireClient, topic: str
) -> None:
    """With one partition all members have it, also while the group does not know yet that one has died."""
    create(client, topic)
    configure(client, topic, share_record_lock_duration_ms="60000")
    append(client, topic, batch(*VALUES))
    with holding(broker.bootstrap, topic, topic) as child:
        assert child.stdout is not None
        assert int(child.stdout.readline()) > 0
        child.kill()
        began = time.monotonic()
        with Worker(broker.bootstrap, topic, topic) as worker:
            work_until(lambda: len(worker.accepted) == len(VALUES), worker)
            assert worker.accepted == Counter(VALUES)
            assert time.monotonic() - began < LOCK_SECONDS


def test_members_outlast_the_broker(fresh_broker: BrokerProcess, topic: str) -> None:
    with WireClient(fresh_broker.bootstrap) as client:
        create(client, topic)
        configure(client, topic)
        append(client, topic, batch(*VALUES[:50]))
        with Worker(fresh_broker.bootstrap, topic, topic) as worker:
            work_until(lambda: len(worker.accepted) == 50, worker)
            fresh_broker.kill()
            fresh_broker.restart()
            with WireClient(fresh_broker.bootstrap) as again:
                append(again, topic, batch(*VALUES[50:]))
            work_until(lambda: len(worker.accepted) == len(VALUES), worker)
            assert worker.accepted == Counter(VALUES)
