"""Topics with `forebay.delay.ms`: messages are seen when they are as old as the delay, in their order."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from forebay.errors import ErrorCode
from forebay.wire.batch import build_batch
from forebay.wire.records import Record
from support.brokers.broker_process import BrokerProcess
from support.clients.config_calls import increment
from support.clients.share_member import ShareMember, configure, join
from support.clients.wire_client import (
    EARLIEST,
    LATEST,
    WireClient,
    append,
    batch,
    create,
    fetch,
    offset_at,
    only_partition,
    read,
    read_all,
    values_of,
)

HOUR_MS = 3_600_000
TOPIC, SET = 2, 0
LONG_WAIT_MS = 25_000


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def seen(client: WireClient, topic: str, offset: int = 0) -> list[tuple[int, bytes | None]]:
    """What a fetch gives that waits for a moment, so that what is due can be found."""
    return values_of(read(client, topic, offset, max_wait_ms=300).records)


def test_a_message_hides_those_after_it_until_it_is_due(client: WireClient, topic: str) -> None:
    create(client, topic, forebay_delay_ms=str(HOUR_MS))
    old, new = now_ms() - 2 * HOUR_MS, now_ms()
    for value, timestamp in [(b"a", old), (b"b", old), (b"c", new), (b"d", old)]:
        assert append(client, topic, batch(value, timestamp=timestamp)).error_code == ErrorCode.NONE
    assert offset_at(client, topic, LATEST) == 2
    assert offset_at(client, topic, EARLIEST) == 0
    assert offset_at(client, topic, new) == -1, "a message that is not due is not found by its time either"
    assert read_all(client, topic) == [(0, b"a"), (1, b"b")]
    answer = read(client, topic, 2)
    assert (answer.error_code, answer.high_watermark, values_of(answer.records)) == (ErrorCode.NONE, 2, [])


def test_a_batch_is_due_when_its_newest_message_is(client: WireClient, topic: str) -> None:
    create(client, topic, forebay_delay_ms=str(HOUR_MS))
    append(client, topic, batch(b"a", timestamp=now_ms() - 2 * HOUR_MS))
    old, new = Record(0, now_ms() - 2 * HOUR_MS, b"key", b"b"), Record(1, now_ms(), b"key", b"c")
    append(client, topic, bytes(build_batch([old, new])))
    assert offset_at(client, topic, LATEST) == 1
    assert seen(client, topic) == [(0, b"a")]


def test_a_waiting_fetch_gets_a_message_when_it_is_due_and_not_before(
    client: WireClient, broker: BrokerProcess, topic: str
) -> None:
    create(client, topic, forebay_delay_ms=str(HOUR_MS))
    client.post(fetch(topic, 0, max_wait_ms=LONG_WAIT_MS), 12)
    with WireClient(broker.bootstrap) as producer:
        due_ms = now_ms() + 700
        append(producer, topic, batch(b"later", timestamp=due_ms - HOUR_MS))
        append(producer, topic, batch(b"with it", timestamp=due_ms - 2 * HOUR_MS))
    answer = only_partition(client.read())
    assert now_ms() >= due_ms
    assert values_of(answer.records) == [(0, b"later"), (1, b"with it")]


def test_a_fetch_that_comes_while_a_message_waits_gets_it_when_it_is_due(
    client: WireClient, topic: str
) -> None:
    create(client, topic, forebay_delay_ms=str(HOUR_MS))
    due_ms = now_ms() + 700
    append(client, topic, batch(b"later", timestamp=due_ms - HOUR_MS))
    answer = read(client, topic, 0, max_wait_ms=LONG_WAIT_MS)
    assert now_ms() >= due_ms
    assert values_of(answer.records) == [(0, b"later")]


def test_the_delay_of_a_topic_can_be_changed(client: WireClient, topic: str) -> None:
    create(client, topic)
    append(client, topic, batch(b"a", timestamp=now_ms()))
    assert read_all(client, topic) == [(0, b"a")]
    increment(client, TOPIC, topic, ("forebay.delay.ms", SET, str(HOUR_MS)))
    assert seen(client, topic) == []
    assert offset_at(client, topic, LATEST) == 0
    increment(client, TOPIC, topic, ("forebay.delay.ms", SET, "0"))
    assert read_all(client, topic) == [(0, b"a")]


def test_a_share_group_gets_a_message_when_it_is_due_and_not_before(
    client: WireClient, broker: BrokerProcess, topic: str
) -> None:
    topic_id = create(client, topic, forebay_delay_ms=str(HOUR_MS))
    configure(client, topic)
    join(client, topic, topic)
    with WireClient(broker.bootstrap) as producer:
        append(producer, topic, batch(b"now", timestamp=now_ms() - 2 * HOUR_MS))
        due_ms = now_ms() + 700
        append(producer, topic, batch(b"later", timestamp=due_ms - HOUR_MS))
    member = ShareMember(client, topic, topic_id)
    taken: list[bytes | None] = []
    while len(taken) < 2:
        taken += [each.value for each in member.take()]
        assert b"later" not in taken or now_ms() >= due_ms
    assert taken == [b"now", b"later"]
