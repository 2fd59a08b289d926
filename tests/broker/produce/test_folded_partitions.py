"""Fewer partitions on one broker: what is sent for closed ones is stored in others, once and in order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.node import Node
from forebay.errors import ErrorCode
from forebay.wire.batch import TRANSACTIONAL
from forebay.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from forebay.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.init_producer_id import InitProducerIdRequest
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.wire_client import (
    EARLIEST,
    LATEST,
    PRODUCE,
    WireClient,
    append,
    batch,
    create,
    offset_at,
    only_partition,
    produce,
    read_all,
)

PRODUCER = 4711
TOPIC = "shrinking"
DEADLINE_S = 120.0
WITHOUT_GRACE = {"log.retention.check.interval.ms": "50", "forebay.fold.grace.ms": "0"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data", {"log.retention.check.interval.ms": "50"}) as broker:
        yield broker


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


def fold(client: WireClient, count: int, *, topic: str = TOPIC, **how: Any) -> tuple[int, str | None]:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None, **how)], timeout_ms=60_000
    )
    (result,) = client.call(request, 3).results
    return result.error_code, result.error_message


def numbered(sequence: int, count: int = 1, *, epoch: int = 0, of: int = 0) -> bytes:
    values = [b"%d:%d.%d" % (of, epoch, sequence + n) for n in range(count)]
    return batch(*values, producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence)


def send(client: WireClient, partition: int, data: bytes, **how: int) -> tuple[int, int]:
    answer = append(client, TOPIC, data, partition=partition, **how)
    assert answer.index == partition
    return answer.error_code, answer.base_offset


def values(client: WireClient, partition: int) -> list[bytes | None]:
    return [value for _, value in read_all(client, TOPIC, partition)]


def count_of(client: WireClient) -> int:
    """Not by the metadata, which shows producers what is gone."""
    (topic,) = client.call(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)]), 0).topics
    return len(topic.partitions)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


# -- where messages go -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 7, 9, 12])
@pytest.mark.parametrize("acks", [1, -1])
def test_what_is_sent_for_a_closed_partition_is_stored_in_another(
    client: WireClient, version: int, acks: int
) -> None:
    create(client, TOPIC, 4)
    for partition in range(4):
        assert send(client, partition, batch(b"before %d" % partition)) == (0, 0)
    assert fold(client, 2) == (0, None)
    for partition in range(4):
        sent = send(client, partition, batch(b"after %d" % partition), acks=acks, version=version)
        assert sent == (0, 1 + partition // 2)
    assert values(client, 0) == [b"before 0", b"after 0", b"after 2"]
    assert values(client, 1) == [b"before 1", b"after 1", b"after 3"]
    assert [values(client, partition) for partition in (2, 3)] == [[b"before 2"], [b"before 3"]]
    assert count_of(client) == 4


def test_by_topic_id_too(client: WireClient) -> None:
    topic_id = create(client, TOPIC, 4)
    assert fold(client, 2) == (0, None)
    answer = append(client, topic_id, batch(b"x"), partition=3, version=13)
    assert (answer.index, answer.error_code, answer.base_offset) == (3, 0, 0)
    assert values(client, 1) == [b"x"]


def test_without_acknowledgements(client: WireClient) -> None:
    create(client, TOPIC, 4)
    assert fold(client, 2) == (0, None)
    for number in range(5):
        client.post(produce(TOPIC, batch(b"%d" % number), partition=2, acks=0), PRODUCE)
    eventually(lambda: offset_at(client, TOPIC, LATEST, 0) == 5)
    assert values(client, 0) == [b"%d" % number for number in range(5)]


@pytest.mark.parametrize("acks", [1, -1])
def test_requests_in_flight_when_the_partition_is_closed_keep_their_order(
    broker: LocalBroker, client: WireClient, acks: int
) -> None:
    """They have all the same prefix, so most of them take the fast path."""
    create(client, TOPIC, 4)
    with WireClient(broker.bootstrap) as administrator:
        for number in range(60):
            client.post(produce(TOPIC, numbered(number, of=2), partition=2, acks=acks), PRODUCE)
            if number == 30:
                assert fold(administrator, 2) == (0, None)
        answers = [only_partition(client.read()) for _ in range(60)]
    assert {answer.error_code for answer in answers} == {0}
    stored = values(client, 2) + values(client, 0)
    assert stored == [b"2:0.%d" % number for number in range(60)]
    assert values(client, 0), "none was sent after the fold"


def test_a_damaged_batch_is_not_made_whole(client: WireClient) -> None:
    """It gets a new checksum on its way, which must not hide that the old one was wrong."""
    create(client, TOPIC, 4)
    assert fold(client, 2) == (0, None)
    for data in (batch(b"good"), numbered(0)):
        damaged = bytearray(data)
        damaged[-1] ^= 1
        assert send(client, 3, bytes(damaged))[0] == ErrorCode.CORRUPT_MESSAGE
    assert send(client, 3, batch(b"x" * 2_000_000))[0] == ErrorCode.MESSAGE_TOO_LARGE
    assert values(client, 1) == []


# -- idempotent producers ----------------------------------------------------------------------------------


def test_numbers_go_on_where_the_closed_partition_has_left_them(client: WireClient) -> None:
    create(client, TOPIC, 4)
    for sequence in range(3):
        assert send(client, 3, numbered(sequence, of=3)) == (0, sequence)
    send(client, 1, numbered(0, of=1))
    assert fold(client, 2) == (0, None)
    assert send(client, 3, numbered(4, of=3))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(client, 3, numbered(3, of=3)) == (0, 1)
    assert send(client, 3, numbered(4, of=3)) == (0, 2)
    assert send(client, 1, numbered(1, of=1)) == (0, 3), "the numbers of another partition stand apart"
    assert send(client, 3, numbered(5, of=3)) == (0, 4)
    assert values(client, 1) == [b"1:0.0", b"3:0.3", b"3:0.4", b"1:0.1", b"3:0.5"]
    assert values(client, 3) == [b"3:0.0", b"3:0.1", b"3:0.2"]


def test_repeats_are_found_in_both_logs(client: WireClient) -> None:
    create(client, TOPIC, 4)
    for sequence in range(3):
        send(client, 3, numbered(sequence))
    assert fold(client, 2) == (0, None)
    for round_ in range(2):
        for sequence in range(3):
            assert send(client, 3, numbered(sequence)) == (0, sequence), "the offset in the closed log"
        assert send(client, 3, numbered(3 + round_)) == (0, round_)
    for sequence in (3, 4):
        assert send(client, 3, numbered(sequence)) == (0, sequence - 3), "the offset in the other"
    assert len(values(client, 1)) == 2 and len(values(client, 3)) == 3


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_producer_that_is_forgotten_where_its_batches_go_may_go_on(
    broker: LocalBroker, client: WireClient, comes_back: bool
) -> None:
    """The closed partition remembers an older number of it, which counts no more after that time."""
    create(client, TOPIC, 4)
    for sequence in range(3):
        send(client, 3, numbered(sequence))
    assert fold(client, 2) == (0, None)
    assert send(client, 3, numbered(3)) == (0, 0)

    def forget(node: Node) -> int:
        table = node.partitions.get(TOPIC, 1).producers
        return sum(table.expire(0, 0, high_watermark=2**62) for _ in range(2))

    def close_earlier(node: Node) -> None:
        closed = node.partitions.get(TOPIC, 3)
        assert closed.fold is not None
        closed.fold.closed_ms -= node.config.storage.producer_id_expiration_ms

    assert broker.on_loop(forget) == 1
    assert send(client, 3, numbered(4))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    broker.on_loop(close_earlier)
    asyncio.run_coroutine_threadsafe(broker.node.upkeep.expire_producers(), broker.node.loop).result(60)
    if comes_back:
        assert fold(client, 4) == (0, None)
        eventually(lambda: broker.on_loop(lambda node: node.partitions.get(TOPIC, 3).fold) is None)
    assert send(client, 3, numbered(4)) == (0, 3 if comes_back else 1)
    assert send(client, 3, numbered(6))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_epochs_go_on(client: WireClient) -> None:
    create(client, TOPIC, 4)
    send(client, 3, numbered(0, epoch=4))
    assert fold(client, 2) == (0, None)
    assert send(client, 3, numbered(0, epoch=3))[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(client, 3, numbered(1, epoch=5))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(client, 3, numbered(0, epoch=5)) == (0, 0)
    assert send(client, 3, numbered(1, epoch=4))[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(client, 3, numbered(1, epoch=5)) == (0, 1)


def test_a_kill_in_the_middle_changes_nothing(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with local_broker(data) as broker, WireClient(broker.bootstrap) as client:
        create(client, TOPIC, 4)
        for sequence in range(3):
            send(client, 3, numbered(sequence), acks=-1)
        assert fold(client, 2) == (0, None)
    with local_broker(data) as broker, WireClient(broker.bootstrap) as client:
        assert send(client, 3, numbered(4))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(client, 3, numbered(2)) == (0, 2)
        assert send(client, 3, numbered(3), acks=-1) == (0, 0)
    with local_broker(data) as broker, WireClient(broker.bootstrap) as client:
        assert send(client, 3, numbered(2)) == (0, 2)
        assert send(client, 3, numbered(3)) == (0, 0)
        assert send(client, 3, numbered(4)) == (0, 1)
        assert len(values(client, 1)) == 2 and len(values(client, 3)) == 3


# -- the end -----------------------------------------------------------------------------------------------


def test_a_closed_partition_goes_when_it_is_empty(tmp_path: Path) -> None:
    """Also then what is sent for it is stored in the other, and the numbers go on."""
    with (
        local_broker(tmp_path / "data", WITHOUT_GRACE) as broker,
        WireClient(broker.bootstrap) as client,
        WireClient(broker.bootstrap) as reader,
    ):
        create(client, TOPIC, 4, retention_ms="3000")
        for sequence in range(3):
            send(client, 3, numbered(sequence))
        assert fold(client, 2) == (0, None)
        assert send(client, 3, numbered(3)) == (0, 0)
        assert count_of(reader) == 4
        eventually(lambda: count_of(reader) == 2)
        end = offset_at(client, TOPIC, LATEST, 1)
        assert send(client, 3, numbered(5))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(client, 3, numbered(4)) == (0, end)
        assert send(client, 3, numbered(4)) == (0, end)
        assert send(client, 3, batch(b"plain")) == (0, end + 1)
        assert append(client, TOPIC, batch(b"x"), partition=4).error_code == (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    assert not list((tmp_path / "data").glob(f"{TOPIC}-3"))


def test_it_goes_after_a_time_with_what_it_holds(tmp_path: Path) -> None:
    with (
        local_broker(tmp_path / "data", WITHOUT_GRACE) as broker,
        WireClient(broker.bootstrap) as client,
    ):
        create(client, TOPIC, 4)
        send(client, 2, batch(b"old"))
        assert fold(client, 2, drop_after_ms=2_000) == (0, None)
        assert values(client, 2) == [b"old"]
        eventually(lambda: count_of(client) == 2)


def test_an_empty_one_stays_for_a_while(broker: LocalBroker, client: WireClient) -> None:
    """Producers may have sent to it what they do not know to have arrived."""
    create(client, TOPIC, 4)
    assert fold(client, 2) == (0, None)
    broker.on_loop(lambda node: node.background.spawn(node.upkeep.remove_folded(), "a test"))
    assert broker.on_loop(lambda node: len(node.image.topics[TOPIC].partitions)) == 4
    assert count_of(client) == 4
    assert offset_at(client, TOPIC, EARLIEST, 3) == 0


def test_a_second_fold_takes_over_what_the_first_has_moved(tmp_path: Path) -> None:
    with (
        local_broker(tmp_path / "data", WITHOUT_GRACE) as broker,
        WireClient(broker.bootstrap) as client,
    ):
        create(client, TOPIC, 8)
        assert send(client, 7, numbered(0)) == (0, 0)
        assert fold(client, 4, drop_after_ms=0) == (0, None)
        eventually(lambda: count_of(client) == 4)
        for sequence in range(1, 3):
            assert send(client, 7, numbered(sequence)) == (0, sequence), "behind what tells its number"
        assert fold(client, 2) == (0, None)
        assert send(client, 7, numbered(4))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert send(client, 7, numbered(2)) == (0, 2), "it is in the log of 3"
        assert send(client, 7, numbered(3)) == (0, 0)
        assert values(client, 1) == [b"0:0.3"]
        eventually(lambda: count_of(client) == 4)


def test_a_repeat_within_a_transaction_is_found_behind_two_folds(tmp_path: Path) -> None:
    """Partition 3 has it under an alias, and with another checksum than the client's."""
    with (
        local_broker(tmp_path / "data", WITHOUT_GRACE) as broker,
        WireClient(broker.bootstrap) as client,
    ):
        create(client, TOPIC, 8)
        found = FindCoordinatorRequest(key_type=1, coordinator_keys=["t"])
        eventually(lambda: client.call(found, 4).coordinators[0].error_code == 0)
        begun = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
        eventually(lambda: client.call(begun, 4).error_code == 0)
        producer = client.call(begun, 4)

        def transactional(sequence: int) -> tuple[int, int]:
            data = batch(
                b"%d" % sequence,
                timestamp=1_700_000_000_000,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=sequence,
                attributes=TRANSACTIONAL,
            )
            answer = append(client, TOPIC, data, version=12, partition=7, acks=-1, transactional_id="t")
            return answer.error_code, answer.base_offset

        assert fold(client, 4, drop_after_ms=0) == (0, None)
        eventually(lambda: count_of(client) == 4)
        eventually(lambda: transactional(0) == (0, 0))
        assert transactional(1) == (0, 1)
        eventually(lambda: fold(client, 2) == (0, None))
        assert transactional(1) == (0, 1)
        assert transactional(0) == (0, 0)
        assert transactional(2)[0] == ErrorCode.NONE


# -- what is refused ---------------------------------------------------------------------------------------


def test_what_cannot_be_folded_is_refused_with_a_reason(client: WireClient) -> None:
    create(client, TOPIC, 12)
    code, message = fold(client, 5)
    assert code == ErrorCode.INVALID_PARTITIONS
    assert message is not None and "choose 1, 2, 3, 4, 6," in message and "--allow-key-moves" in message
    for count in (0, -1):
        assert fold(client, count)[0] == ErrorCode.INVALID_PARTITIONS
    code, message = fold(client, 4, drop_after_ms=1000)
    assert code == ErrorCode.INVALID_PARTITIONS and message is not None and "forebay.fold.grace.ms" in message
    assert count_of(client) == 12
    assert fold(client, 5, allow_key_moves=True) == (0, None)
    for count in (5, 2):
        assert fold(client, count)[0] == ErrorCode.INVALID_PARTITIONS
    create(client, "delaying", 4, forebay_delay_enable="true")
    code, message = fold(client, 2, topic="delaying")
    assert code == ErrorCode.INVALID_PARTITIONS and message is not None and "forebay.delay.enable" in message
