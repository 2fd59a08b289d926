"""The consumer on a real broker: what is committed when, and what comes again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from forebay.client import Admin, ClientError, Consumer, Delivery, Producer
from forebay.errors import ConfigError
from forebay.testing import Broker
from support.chaos.membership import generation_of
from support.waiting import Patience

Consume = Callable[..., Consumer]


@pytest.fixture
def consume(forebay_broker: Broker, forebay_topic: str) -> Consume:
    """A consumer of the test's topic, which has ten messages."""
    with Producer(
        forebay_broker.bootstrap_servers, delivery="at-most-once", acks=1, profile="latency"
    ) as producer:
        for number in range(10):
            producer.send(forebay_topic, str(number))

    def make(delivery: Delivery = "at-least-once", batch_max: int = 500) -> Consumer:
        return Consumer(
            forebay_broker.bootstrap_servers,
            forebay_topic,
            group=forebay_topic,
            delivery=delivery,
            profile="latency",
            batch_max=batch_max,
        )

    return make


@pytest.fixture
def committed(forebay_broker: Broker, forebay_topic: str) -> Callable[[], int | None]:
    admin = Admin(forebay_broker.bootstrap_servers)
    return lambda: admin.committed(forebay_topic).get((forebay_topic, 0))


Committed = Callable[[], "int | None"]


def values(consumer: Consumer, count: int) -> list[str]:
    return [(next(consumer).value or b"").decode() for _ in range(count)]


def digits(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


def test_a_poll_returns_the_message_that_it_has_waited_for(
    forebay_broker: Broker, forebay_topic: str, consume: Consume
) -> None:
    with consume() as consumer, Producer(forebay_broker.bootstrap_servers) as producer:
        assert values(consumer, 10) == digits(0, 9)
        late = threading.Timer(0.5, producer.send, (forebay_topic, "10"))
        late.start()
        message = consumer.poll(60.0)
        late.join()
    assert message is not None
    assert message.value == b"10"


def test_at_least_once_the_one_in_hand_comes_again(consume: Consume, committed: Committed) -> None:
    with consume() as consumer:
        assert values(consumer, 4) == digits(0, 3)
    assert committed() == 3
    with consume() as consumer:
        assert values(consumer, 2) == ["3", "4"]


def test_at_least_once_commit_says_that_the_one_in_hand_is_done(
    consume: Consume, committed: Committed
) -> None:
    with consume() as consumer:
        values(consumer, 4)
        assert consumer.commit()
        assert committed() == 4


def test_at_least_once_commit_waits_for_what_would_be_committed_in_the_background(
    forebay_broker: Broker, forebay_topic: str, committed: Committed
) -> None:
    servers = forebay_broker.bootstrap_servers
    with Producer(servers, delivery="at-most-once", acks=1, profile="latency") as producer:
        producer.send(forebay_topic, "a")
    never = {"auto.commit.interval.ms": 3_600_000}
    with Consumer(servers, forebay_topic, group=forebay_topic, profile="latency", settings=never) as consumer:
        assert values(consumer, 1) == ["a"]
        assert consumer.poll(0.05) is None  # says that the first is done, so that it is in hand no more
        assert consumer.commit()
        assert committed() == 1


def test_at_most_once_is_committed_before_it_is_handed_out(consume: Consume, committed: Committed) -> None:
    with consume("at-most-once", batch_max=4) as consumer:
        assert values(consumer, 1) == ["0"]
        assert committed() in range(1, 5)
        assert values(consumer, 5) == digits(1, 5)


def test_at_most_once_gives_back_on_close_what_nobody_has_seen(
    consume: Consume, committed: Committed
) -> None:
    with consume("at-most-once") as consumer:
        assert values(consumer, 3) == digits(0, 2)
    assert committed() == 3
    with consume("at-most-once") as consumer:
        assert values(consumer, 7) == digits(3, 9)


def test_exactly_once_never_commits_by_itself(consume: Consume, committed: Committed) -> None:
    with consume("exactly-once") as consumer:
        assert values(consumer, 10) == digits(0, 9)
    assert committed() is None


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_rewind_hands_out_again_what_is_not_done(consume: Consume, delivery: Delivery) -> None:
    with consume(delivery) as consumer:
        assert values(consumer, 4) == digits(0, 3)
        consumer.rewind()
        # At least once, asking for the fourth has said that three are done.
        assert values(consumer, 3) == (digits(3, 5) if delivery == "at-least-once" else digits(0, 2))


def test_take_is_bounded_and_returns_empty_when_nothing_comes(consume: Consume) -> None:
    with consume() as consumer:
        taken: list[str] = []
        while len(taken) < 10:
            batch = consumer.take(3, 60.0)
            assert 1 <= len(batch) <= 3
            taken += [(each.value or b"").decode() for each in batch]
        assert taken == digits(0, 9)
        assert consumer.take(3, 0.05) == []
        assert consumer.poll(0.05) is None


def test_a_group_shares_the_partitions_and_a_leaver_s_go_to_who_stays(
    forebay_broker: Broker, forebay_topic: str
) -> None:
    servers, topic = forebay_broker.bootstrap_servers, forebay_topic
    admin = Admin(servers)
    admin.add_partitions(topic, 2)

    def member() -> Consumer:
        return Consumer(
            servers, topic, group=topic, profile="latency", settings={"heartbeat.interval.ms": 100}
        )

    with member() as one, Producer(servers, delivery="at-most-once", acks=1, profile="latency") as producer:
        with member() as other:
            patience = Patience("each member has a partition")
            while not _share(one, other):
                patience.check()
                assert one.poll(0.05) is None
                assert other.poll(0.05) is None
            for partition in (0, 1):
                producer.send(topic, "x", partition=partition)
            assert {next(one).partition, next(other).partition} == {0, 1}
            assert one.commit()
            assert other.commit()
        for partition in (0, 1):
            producer.send(topic, "y", partition=partition)
        assert sorted((each.partition, each.value) for each in (next(one), next(one))) == [
            (0, b"y"),
            (1, b"y"),
        ]


def _share(one: Consumer, other: Consumer) -> bool:
    """Each has a partition, and none is still on its way to the generation of the other."""
    generations = {generation_of(member.raw) for member in (one, other)}
    return len(generations) == 1 and len(one.raw.assignment()) == len(other.raw.assignment()) == 1


def test_a_closed_consumer_says_so(consume: Consume) -> None:
    consumer = consume()
    consumer.close()
    consumer.close()
    with pytest.raises(ClientError, match="closed"):
        next(consumer)


def test_batch_max_must_be_positive(consume: Consume) -> None:
    with pytest.raises(ConfigError, match="batch_max"):
        consume(batch_max=0)


def test_commit_tells_when_the_group_has_moved_on(forebay_broker: Broker, forebay_topic: str) -> None:
    servers = forebay_broker.bootstrap_servers
    short = {"session.timeout.ms": 3000, "max.poll.interval.ms": 3000, "heartbeat.interval.ms": 100}
    with Producer(servers, delivery="at-most-once", acks=1, profile="latency") as producer:
        for number in range(5):
            producer.send(forebay_topic, str(number))
    with Consumer(servers, forebay_topic, group=forebay_topic, profile="latency", settings=short) as consumer:
        assert values(consumer, 3) == digits(0, 2)
        admin = Admin(servers)
        # Too slow for the group: after three seconds without polling it goes on without this member.
        patience = Patience("the group goes on without the member")
        while any(each.state == "Stable" for each in admin.groups() if each.group == forebay_topic):
            patience.check()
            time.sleep(0.1)
        assert not consumer.commit()
        while (found := values(consumer, 1)) != ["2"]:
            patience.check(found)  # what was refused comes again, after what waited here already
