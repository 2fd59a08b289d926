"""The fast path for repeated Produce requests must answer exactly as the full path does.

A connection uses it from the third request with the same header on (`support/clients/both_ways.py`).
test_produce_repeats_transactional.py has the same for transactions.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from forebay.wire.batch import crc32c, crc_ok, split
from forebay.wire.compression import Codec
from forebay.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from forebay.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from support.brokers.broker_process import BrokerProcess
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.both_ways import ACKS_ALL, NOW, Pair
from support.clients.wire_client import (
    LATEST,
    PRODUCE,
    WireClient,
    append,
    batch,
    create,
    offset_at,
    only_partition,
    produce,
    read,
    read_all,
)
from support.faults.faulty_disk import FaultyDisk

TOPIC_RESOURCE = 2


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


@pytest.fixture
def pair(broker: BrokerProcess, client: WireClient, topic: str) -> Iterator[Pair]:
    pair = Pair(broker.bootstrap, client, topic, partitions=3)
    yield pair
    pair.close()


@pytest.mark.parametrize("acks", [1, ACKS_ALL])
@pytest.mark.parametrize("version", range(3, 14))
def test_answers_are_the_same_byte_for_byte(pair: Pair, client: WireClient, version: int, acks: int) -> None:
    count = 300
    for number in range(count):
        values = [b"%d" % number] * (1 + number % 3)
        pair.send(batch(*values, timestamp=NOW), version, partition=number % 3, acks=acks)
    answers = pair.compare(count)
    assert {answer.error_code for answer in answers} == {ErrorCode.NONE}
    for partition in range(3):
        assert read_all(client, pair.names[0], partition) == read_all(client, pair.names[1], partition)
        assert offset_at(client, pair.names[0], LATEST, partition) == sum(
            1 + n % 3 for n in range(partition, 300, 3)
        )


def test_batches_of_every_size_around_the_lengths_of_their_lengths(pair: Pair, client: WireClient) -> None:
    sizes = [0, 1, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 16_300, 16_310, 16_320, 70_000, 3]
    for size in sizes:
        pair.send(batch(bytes(size), timestamp=NOW), PRODUCE)
    assert [answer.base_offset for answer in pair.compare(len(sizes))] == list(range(len(sizes)))
    assert [len(value or b"") for _, value in read_all(client, pair.names[0])] == sizes


def test_errors_among_repeats(pair: Pair) -> None:
    good = batch(b"good", timestamp=NOW)
    wrong_crc = bytearray(good)
    wrong_crc[-1] ^= 1
    sent: list[tuple[bytes | None, int, ErrorCode]] = [
        *[(good, 0, ErrorCode.NONE)] * 4,
        (bytes(wrong_crc), 0, ErrorCode.CORRUPT_MESSAGE),
        (good, 0, ErrorCode.NONE),
        (good, 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (good, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (good, 1, ErrorCode.NONE),
        (good[:40], 1, ErrorCode.CORRUPT_MESSAGE),
        (b"", 1, ErrorCode.INVALID_RECORD),
        (None, 1, ErrorCode.INVALID_RECORD),
        (good + good, 1, ErrorCode.INVALID_RECORD),
        (good[:-1], 1, ErrorCode.CORRUPT_MESSAGE),
        (bytes(61), 1, ErrorCode.CORRUPT_MESSAGE),
        (batch(bytes(1_100_000), timestamp=NOW), 1, ErrorCode.MESSAGE_TOO_LARGE),
        (good, 1, ErrorCode.NONE),
    ]
    for data, partition, _ in sent:
        pair.send(data, PRODUCE, partition=partition)
    answers = pair.compare(len(sent))
    assert [answer.error_code for answer in answers] == [code for _, _, code in sent]
    assert answers[-1].base_offset == 1


def test_timestamps_are_judged_among_repeats(pair: Pair) -> None:
    for timestamp in (NOW, NOW, NOW, 2**62, NOW):
        pair.send(batch(timestamp=timestamp), 7)  # later versions say the time of day in their message
    codes = [answer.error_code for answer in pair.compare(5)]
    assert codes == [ErrorCode.NONE] * 3 + [ErrorCode.INVALID_TIMESTAMP, ErrorCode.NONE]


@pytest.mark.parametrize("version", [7, 8, 9, 12])
@pytest.mark.parametrize("behind", [b"\0", b"\0\0\0", b"\0\0\0\0\0\0\0\0", b"bytes"])
def test_bytes_behind_repeats_are_passed_over(
    client: WireClient, topic: str, version: int, behind: bytes
) -> None:
    create(client, topic, partitions=2)
    for number in range(12):
        body = client.frame(produce(topic, batch(b"%d" % number), partition=number % 2), version)[4:]
        body += behind if number % 4 < 2 else b""
        client.socket.sendall(len(body).to_bytes(4, "big") + body)
        answer = only_partition(client.read())
        assert (answer.error_code, answer.index, answer.base_offset) == (0, number % 2, number // 2)


def test_a_codec_that_the_version_does_not_know_is_refused_among_repeats(pair: Pair) -> None:
    for version in (5, 6, 7):
        for codec in (Codec.NONE, Codec.NONE, Codec.NONE, Codec.ZSTD):
            pair.send(batch(b"value", codec=codec, timestamp=NOW), version)
        answers = pair.compare(4)
        refused = ErrorCode.NONE if version >= 7 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert [answer.error_code for answer in answers] == [ErrorCode.NONE] * 3 + [refused]


def test_idempotent_repeats(pair: Pair, client: WireClient) -> None:
    def numbered(sequence: int, count: int = 1, epoch: int = 0) -> bytes:
        values = [b"%d" % (sequence + n) for n in range(count)]
        return batch(*values, timestamp=NOW, producer_id=77, producer_epoch=epoch, base_sequence=sequence)

    sent = [
        (numbered(0), ErrorCode.NONE, 0),
        (numbered(1), ErrorCode.NONE, 1),
        (numbered(2), ErrorCode.NONE, 2),
        (numbered(2), ErrorCode.NONE, 2),
        (numbered(0), ErrorCode.NONE, 0),
        (numbered(3, 2), ErrorCode.NONE, 3),
        (numbered(3, 2), ErrorCode.NONE, 3),
        (numbered(3), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        (numbered(9), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
        (numbered(5), ErrorCode.NONE, 5),
        (numbered(0, epoch=1), ErrorCode.NONE, 6),
        (numbered(6), ErrorCode.INVALID_PRODUCER_EPOCH, -1),
        (numbered(1, epoch=1), ErrorCode.NONE, 7),
        (numbered(1, epoch=1), ErrorCode.NONE, 7),
    ]
    for data, _, _ in sent:
        pair.send(data, PRODUCE)
    answers = pair.compare(len(sent))
    assert [(a.error_code, a.base_offset) for a in answers] == [(code, offset) for _, code, offset in sent]
    assert [value for _, value in read_all(client, pair.names[0])] == [
        b"0",
        b"1",
        b"2",
        b"3",
        b"4",
        b"5",
        b"0",
        b"1",
    ]


def test_acks_zero_among_repeats(pair: Pair, client: WireClient) -> None:
    for number in range(50):
        pair.send(batch(b"%d" % number, timestamp=NOW), PRODUCE, acks=1 if number % 5 else 0)
    assert [answer.base_offset for answer in pair.compare(40)] == [n for n in range(50) if n % 5]
    assert [value for _, value in read_all(client, pair.names[0])] == [b"%d" % n for n in range(50)]


def test_thousands_pipelined(pair: Pair, client: WireClient) -> None:
    count = 4000
    for number in range(count):
        pair.send(batch(b"%d" % number, timestamp=NOW), PRODUCE)
    assert [answer.base_offset for answer in pair.compare(count)] == list(range(count))
    assert [value for _, value in read_all(client, pair.names[0])] == [b"%d" % n for n in range(count)]


def delete(client: WireClient, name: str) -> None:
    (deleted,) = client.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]), 6).responses
    assert deleted.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [7, 9, 12])
def test_a_topic_deleted_and_made_again_between_repeats(pair: Pair, client: WireClient, version: int) -> None:
    def four(code: ErrorCode, offsets: list[int]) -> None:
        for _ in range(4):
            pair.send(batch(b"x", timestamp=NOW), version)
        answers = pair.compare(4)
        assert [(a.error_code, a.base_offset) for a in answers] == [(code, offset) for offset in offsets]

    four(ErrorCode.NONE, [0, 1, 2, 3])
    for name in pair.names:
        delete(client, name)
    four(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [-1] * 4)
    for name in pair.names:
        create(client, name)
    four(ErrorCode.NONE, [0, 1, 2, 3])


def test_an_id_stays_unknown_when_its_topic_was_made_again(pair: Pair, client: WireClient) -> None:
    """From version 13 on a request names the topic by id: a new topic of the old name is another one."""
    for _ in range(4):
        pair.send(batch(b"x", timestamp=NOW), 13)
    assert {answer.error_code for answer in pair.compare(4)} == {ErrorCode.NONE}
    for name in pair.names:
        delete(client, name)
        create(client, name)
    for _ in range(3):
        pair.send(batch(b"stray", timestamp=NOW), 13)
    assert {answer.error_code for answer in pair.compare(3)} == {ErrorCode.UNKNOWN_TOPIC_ID}
    assert offset_at(client, pair.names[0], LATEST) == 0


def configure(client: WireClient, topic: str, **configs: str) -> None:
    changes = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
        for key, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=changes)
    (changed,) = client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert changed.error_code == ErrorCode.NONE, changed.error_message


def test_settings_changed_between_repeats(pair: Pair, client: WireClient) -> None:
    def codes() -> list[int]:
        for size in (50, 50, 2000):
            pair.send(batch(bytes(size), timestamp=NOW), PRODUCE)
        return [answer.error_code for answer in pair.compare(3)]

    assert codes() == [ErrorCode.NONE] * 3
    for name in pair.names:
        configure(client, name, max_message_bytes="1000")
    assert codes() == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE]
    for name in pair.names:
        configure(client, name, max_message_bytes="100000", compression_type="gzip")
    assert codes() == [ErrorCode.NONE] * 3
    assert read_all(client, pair.names[0]) == read_all(client, pair.names[1])


def test_the_broker_time_is_told_to_repeats(client: WireClient, broker: BrokerProcess, topic: str) -> None:
    create(client, topic, message_timestamp_type="LogAppendTime")
    answers = [append(client, topic, batch(timestamp=NOW)) for _ in range(5)]
    times = [answer.log_append_time_ms for answer in answers]
    assert NOW < times[0] <= times[-1]
    assert [answer.base_offset for answer in answers] == [0, 1, 2, 3, 4]


# -- mutations ---------------------------------------------------------------------------------------------


def mutated_tail(chance: random.Random, whole: bytes, start: int) -> bytes:
    """The frame changed from `start` on; half the time under a CRC that fits, so that more is looked at."""
    body = bytearray(whole[4:])
    for _ in range(chance.randint(1, 3)):
        position = chance.randrange(start, len(body))
        if chance.random() < 0.8:
            body[position] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF, body[position] ^ 1])
        else:
            body[position : position + chance.randint(0, 2)] = chance.randbytes(chance.randint(0, 2))
    return struct.pack(">i", len(body)) + body


@pytest.mark.parametrize("version", [7, 9, 12])
def test_mutated_repeats_fare_as_on_the_ordinary_way(
    broker: BrokerProcess, client: WireClient, topic: str, version: int
) -> None:
    names = (f"{topic}-short", f"{topic}-plain")
    for name in names:
        create(client, name, partitions=2)
    chance = random.Random(version)
    for _ in range(60):
        seed = chance.random()
        short, plain = (
            fates(broker, name, version, seed, same) for name, same in zip(names, (True, False), strict=True)
        )
        assert short == plain
    for partition in (0, 1):
        # Records are the clients' own affair: some are garbage by now, but both logs hold the same.
        stored = [bytes(read(client, name, partitions=(partition,)).records) for name in names]
        assert stored[0] == stored[1]
        assert all(crc_ok(stored[0], at, header.size) for at, header in split(stored[0]))


def fates(broker: BrokerProcess, name: str, version: int, seed: float, same_client: bool) -> list[object]:
    """What becomes of requests that begin alike and end oddly, until the broker has had enough."""
    chance = random.Random(seed)
    found: list[object] = []
    with WireClient(broker.bootstrap) as sender:
        for number in range(12):
            data = bytearray(batch(b"value", b"x" * 60, timestamp=NOW))
            if chance.random() < 0.5:
                data[chance.randrange(21, len(data))] ^= 1 << chance.randrange(8)
                struct.pack_into(">I", data, 17, crc32c(data[21:]))
            client_id = f"client-{0 if same_client else number % 2}"
            whole = sender.frame(produce(name, bytes(data), partition=number % 2), version, client_id)
            if number >= 3 and chance.random() < 0.5:
                whole = mutated_tail(chance, whole, whole.index(name.encode()) + len(name))
            sender.socket.sendall(whole)
            try:
                answer = sender.read().responses
            except ConnectionError:
                return [*found, "closed"]
            found.append(
                [(p.index, p.error_code, p.base_offset) for t in answer for p in t.partition_responses]
            )
    return found


# -- with the disk in hand ---------------------------------------------------------------------------------


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data", make_disk=FaultyDisk) as running:
        yield running


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_the_fast_path_is_really_taken(local: LocalBroker, transactional_id: str | None) -> None:
    with WireClient(local.bootstrap) as client:
        create(client, "taken")
        memos = []
        for _ in range(3):
            append(client, "taken", batch(), transactional_id=transactional_id)
            memos.append(local.on_loop(lambda broker: [c.memo for c in broker.server.connections]))
        assert memos[0] == [None]
        assert memos[1] == memos[2] != [None]


@pytest.mark.parametrize("configs", [{}, {"message_timestamp_type": "LogAppendTime"}], ids=["sent", "append"])
@pytest.mark.parametrize("operation", ["append", "create"])
def test_a_disk_that_fails_under_repeats_gives_the_same_error(
    local: LocalBroker, operation: str, configs: dict[str, str]
) -> None:
    """A write fails at its own time; a new segment fails while its first batch is being placed."""
    disk = local.node.disk
    assert isinstance(disk, FaultyDisk)
    with WireClient(local.bootstrap) as client:
        pair = Pair(local.bootstrap, client, "failing", 1, segment_bytes="1000", **configs)
        for _ in range(4):
            pair.send(batch(bytes(200), timestamp=NOW), PRODUCE)
        good = [pair.clients[0].read(), pair.clients[1].read()]
        while pair.clients[0].unanswered:
            good += [pair.clients[0].read(), pair.clients[1].read()]
        assert {only_partition(answer).error_code for answer in good} == {ErrorCode.NONE}
        disk.break_path(operation, "failing")
        for _ in range(4):
            pair.send(batch(bytes(900), timestamp=NOW), PRODUCE)
        for connection in pair.clients:
            answers = [only_partition(connection.read()) for _ in range(4)]
            assert [(a.error_code, a.base_offset) for a in answers] == [
                (ErrorCode.KAFKA_STORAGE_ERROR, -1)
            ] * 4
        for name in pair.names:
            assert offset_at(client, name, LATEST) == 4
        pair.close()
