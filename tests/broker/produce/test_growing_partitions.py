"""More partitions after fewer, on one broker: closed ones take messages again, and numbers go on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forebay.broker.partition.partition import Partition
from forebay.broker.upkeep import growing_topics
from forebay.errors import ErrorCode
from forebay.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from forebay.wire.messages.folded_produce import FoldedProduceRequest
from forebay.wire.messages.folded_producers import FoldedProducersRequest
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.wire_client import (
    PRODUCE,
    WireClient,
    append,
    batch,
    create,
    only_partition,
    produce,
    read_all,
)

PRODUCER = 4711
TOPIC = "growing"
DEADLINE_S = 120.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def ask_for(client: WireClient, count: int, topic: str = TOPIC) -> tuple[int, str | None]:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)], timeout_ms=60_000
    )
    (result,) = client.call(request, 3).results
    return result.error_code, result.error_message


def resize(client: WireClient, count: int) -> None:
    """Wait for the change before it: the topic does not change its count twice at a time."""

    def done() -> bool:
        code, message = ask_for(client, count)
        assert not code or "has just got more partitions" in (message or ""), message
        return not code

    eventually(done)


def numbered(sequence: int, *, of: int = 0, epoch: int = 0) -> bytes:
    return batch(
        b"%d:%d.%d" % (of, epoch, sequence),
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def send(client: WireClient, partition: int, data: bytes) -> tuple[int, int]:
    """As clients do it: again while the partition is not ready."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        answer = append(client, TOPIC, data, partition=partition, acks=-1)
        if answer.error_code != ErrorCode.NOT_ENOUGH_REPLICAS or time.monotonic() > deadline:
            return answer.error_code, answer.base_offset
        time.sleep(0.01)


def values(client: WireClient, partition: int) -> list[bytes]:
    return [value for _, value in read_all(client, TOPIC, partition) if value is not None]


def test_closed_partitions_take_messages_again(client: WireClient) -> None:
    create(client, TOPIC, 12)
    resize(client, 4)
    resize(client, 8)
    for partition in range(12):
        assert send(client, partition, batch(b"%d" % partition))[0] == ErrorCode.NONE
    assert [values(client, partition) for partition in range(12)] == [
        *([b"%d" % partition, b"%d" % (partition + 8)] for partition in range(4)),
        *([b"%d" % partition] for partition in range(4, 8)),
        *([] for _ in range(8, 12)),
    ]


def test_numbers_go_on_where_the_other_partition_has_left_them(client: WireClient) -> None:
    create(client, TOPIC, 4)
    for sequence in range(2):
        assert send(client, 3, numbered(sequence, of=3)) == (0, sequence)
        assert send(client, 1, numbered(sequence, of=1)) == (0, sequence)
    resize(client, 2)
    for sequence in range(2, 5):
        assert send(client, 3, numbered(sequence, of=3)) == (0, sequence)
    resize(client, 4)
    assert send(client, 3, numbered(6, of=3))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for sequence in range(5):
        assert send(client, 3, numbered(sequence, of=3))[0] == ErrorCode.NONE, "sent again"
    assert send(client, 3, numbered(5, of=3))[0] == ErrorCode.NONE
    assert send(client, 1, numbered(2, of=1)) == (0, 5)
    assert values(client, 3) == [b"3:0.0", b"3:0.1", b"3:0.5"]
    assert values(client, 1) == [b"1:0.0", b"1:0.1", b"3:0.2", b"3:0.3", b"3:0.4", b"1:0.2"]


def test_back_and_forth(client: WireClient) -> None:
    """Each time the numbers of the last time are not taken for the newest."""
    create(client, TOPIC, 4)
    sequence = 0
    for count in (2, 4) * 4:
        resize(client, count)
        for _ in range(3):
            assert send(client, 3, numbered(sequence))[0] == ErrorCode.NONE
            assert send(client, 3, numbered(sequence))[0] == ErrorCode.NONE
            sequence += 1
        assert send(client, 3, numbered(sequence + 1))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    stored = values(client, 1) + values(client, 3)
    assert sorted(stored) == sorted(b"0:0.%d" % number for number in range(sequence))
    for partition in (1, 3):
        numbers = [int(value.rpartition(b".")[2]) for value in values(client, partition)]
        assert numbers == sorted(numbers) and len(numbers) == 12


def test_what_stays_closed_goes_where_keys_belong(client: WireClient) -> None:
    """From 8 to 2 to 4: what is sent for 7 went to 1, and goes to 3 now."""
    create(client, TOPIC, 8)
    assert send(client, 7, numbered(0)) == (0, 0)
    resize(client, 2)
    assert send(client, 7, numbered(1)) == (0, 0)
    resize(client, 4)
    for sequence in (0, 1):
        assert send(client, 7, numbered(sequence))[0] == ErrorCode.NONE
    assert send(client, 7, numbered(3))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(client, 7, numbered(2))[0] == ErrorCode.NONE
    assert [values(client, index) for index in (7, 1, 3)] == [[b"0:0.0"], [b"0:0.1"], [b"0:0.2"]]


@pytest.mark.parametrize("acks", [1, -1])
def test_requests_in_flight_keep_their_order(broker: LocalBroker, client: WireClient, acks: int) -> None:
    """What comes too early is refused, and sent again from the first that was."""
    create(client, TOPIC, 4)
    sequence = 0
    with WireClient(broker.bootstrap) as administrator:
        for count in (2, 4, 2, 4):
            for number in range(sequence, sequence + 20):
                client.post(produce(TOPIC, numbered(number), partition=3, acks=acks), PRODUCE)
                if number == sequence + 10:
                    resize(administrator, count)
            codes = [only_partition(client.read()).error_code for _ in range(20)]
            done = [code == ErrorCode.NONE for code in codes].index(False) if any(codes) else 20
            assert set(codes[done:]) <= {
                ErrorCode.NOT_ENOUGH_REPLICAS,
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            }
            for number in range(sequence + done, sequence + 20):
                assert send(client, 3, numbered(number))[0] == ErrorCode.NONE
            sequence += 20
    expected = [b"0:0.%d" % number for number in range(sequence)]
    assert sorted(values(client, 1) + values(client, 3)) == sorted(expected)


def test_a_kill_changes_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with local_broker(data) as broker, WireClient(broker.bootstrap) as client:
        create(client, TOPIC, 4)
        send(client, 3, numbered(0))
        resize(client, 2)
        send(client, 3, numbered(1))
        assert ask_for(client, 4) == (0, None)
    for _ in range(2):
        with local_broker(data) as broker, WireClient(broker.bootstrap) as client:
            for sequence in range(2):
                assert send(client, 3, numbered(sequence))[0] == ErrorCode.NONE
            assert send(client, 3, numbered(3))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    with local_broker(data) as broker, WireClient(broker.bootstrap) as client:
        assert send(client, 3, numbered(2))[0] == ErrorCode.NONE
        assert values(client, 3) == [b"0:0.0", b"0:0.2"] and values(client, 1) == [b"0:0.1"]


def test_only_brokers_hand_over_batches(client: WireClient) -> None:
    topic_id = create(client, TOPIC, 4)
    resize(client, 2)
    data = memoryview(batch(b"x"))
    request = FoldedProduceRequest(produce_version=9, acks=1, topic_id=topic_id, index=1, records=data)
    assert client.call(request, 0).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    asked = FoldedProducersRequest(topic_id=topic_id, index=1)
    assert client.call(asked, 0).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert values(client, 1) == []


def test_a_topic_that_waits_holds_up_no_other(client: WireClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a partition has gathered waits for its replicas, for as long as they are away."""
    waiting = threading.Event()

    async def stuck(_write_cycle: object, partition: Partition, *_: object, **_how: object) -> None:
        if partition.topic == "stuck":
            waiting.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(growing_topics, "committed", stuck)
    for topic in ("stuck", TOPIC):
        create(client, topic, 4)
        assert ask_for(client, 2, topic) == (0, None)
    assert ask_for(client, 4, "stuck") == (0, None)
    assert waiting.wait(DEADLINE_S)
    resize(client, 4)
    assert send(client, 3, batch(b"a"))[0] == ErrorCode.NONE
    assert values(client, 3) == [b"a"]
    refused = append(client, "stuck", batch(b"b"), partition=3, acks=-1)
    assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
