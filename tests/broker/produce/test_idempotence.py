"""Idempotent producers: each batch once, at the offset it got first, also after the broker was killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from support.brokers.broker_process import BrokerProcess
from support.brokers.local_broker import LocalBroker, local_broker
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
    read_all,
)
from support.machines.manual_clock import ManualClock

PRODUCER = 4711
SEQUENCES = 2**31


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


def numbered(sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = PRODUCER) -> bytes:
    values = [b"%d" % ((sequence + n) % SEQUENCES) for n in range(count)]
    return batch(*values, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def outcome(client: WireClient, topic: str, data: bytes, acks: int = 1) -> tuple[int, int]:
    answer = append(client, topic, data, acks=acks)
    return answer.error_code, answer.base_offset


@pytest.mark.parametrize("acks", [1, -1])
def test_a_batch_sent_again_is_answered_with_its_first_offset(
    client: WireClient, topic: str, acks: int
) -> None:
    create(client, topic)
    append(client, topic, batch(b"of somebody else"))
    sent = [numbered(n * 2, 2) for n in range(5)]
    assert [outcome(client, topic, data, acks) for data in sent] == [(0, 1 + n * 2) for n in range(5)]
    assert [outcome(client, topic, data, acks) for data in sent] == [(0, 1 + n * 2) for n in range(5)]
    assert offset_at(client, topic, LATEST) == 11


def test_five_batches_are_remembered_and_older_ones_are_out_of_order(client: WireClient, topic: str) -> None:
    create(client, topic)
    for sequence in range(6):
        assert outcome(client, topic, numbered(sequence)) == (0, sequence)
    for sequence in range(1, 6):
        assert outcome(client, topic, numbered(sequence)) == (0, sequence)
    assert outcome(client, topic, numbered(0))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_refused_until_it_is_filled(client: WireClient, topic: str) -> None:
    create(client, topic)
    assert outcome(client, topic, numbered(0)) == (0, 0)
    assert outcome(client, topic, numbered(2))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcome(client, topic, numbered(1)) == (0, 1)
    assert outcome(client, topic, numbered(2)) == (0, 2)


def test_numbers_begin_again_after_the_last(client: WireClient, topic: str) -> None:
    create(client, topic)
    assert outcome(client, topic, numbered(SEQUENCES - 3, 2)) == (0, 0)
    assert outcome(client, topic, numbered(SEQUENCES - 1, 3)) == (0, 2)  # the last number, then 0 and 1
    assert outcome(client, topic, numbered(SEQUENCES - 1, 3)) == (0, 2)
    assert outcome(client, topic, numbered(2)) == (0, 5)


def test_a_newer_epoch_begins_anew_and_ends_the_older(client: WireClient, topic: str) -> None:
    create(client, topic)
    for sequence in range(3):
        outcome(client, topic, numbered(sequence))
    assert outcome(client, topic, numbered(3, epoch=1))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert outcome(client, topic, numbered(0, epoch=1)) == (0, 3)
    assert outcome(client, topic, numbered(3))[0] == ErrorCode.INVALID_PRODUCER_EPOCH


def test_partitions_and_producers_number_for_themselves(client: WireClient, topic: str) -> None:
    create(client, topic, partitions=2)
    assert append(client, topic, numbered(0), partition=0).base_offset == 0
    assert append(client, topic, numbered(0), partition=1).base_offset == 0
    assert append(client, topic, numbered(0, producer_id=99), partition=0).base_offset == 1
    assert offset_at(client, topic, LATEST, 0) == 2


def test_duplicates_within_one_packet(client: WireClient, topic: str) -> None:
    create(client, topic)
    sequences = [0, 0, 1, 0, 1, 2, 2, 3]
    client.socket.sendall(
        b"".join(client.frame(produce(topic, numbered(sequence)), PRODUCE) for sequence in sequences)
    )
    assert [only_partition(client.read()).base_offset for _ in sequences] == sequences
    assert [value for _, value in read_all(client, topic)] == [b"0", b"1", b"2", b"3"]


ENDS: dict[str, Callable[[BrokerProcess], object]] = {
    "killed": BrokerProcess.kill,
    "stopped": BrokerProcess.stop,
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
@pytest.mark.parametrize("segment_bytes", ["1000000", "600"], ids=["one segment", "many segments"])
def test_the_state_of_producers_survives(
    fresh_broker: BrokerProcess, end: Callable[[BrokerProcess], object], segment_bytes: str
) -> None:
    with WireClient(fresh_broker.bootstrap) as client:
        create(client, "kept", segment_bytes=segment_bytes)
        for sequence in range(12):
            assert outcome(client, "kept", numbered(sequence)) == (0, sequence)
    for _ in range(2):
        end(fresh_broker)
        fresh_broker.restart()
    with WireClient(fresh_broker.bootstrap) as client:
        for sequence in range(7, 12):
            assert outcome(client, "kept", numbered(sequence)) == (0, sequence)
        assert outcome(client, "kept", numbered(13))[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert outcome(client, "kept", numbered(12)) == (0, 12)
        assert [value for _, value in read_all(client, "kept")] == [b"%d" % n for n in range(13)]


# -- forgetting ----------------------------------------------------------------------------------------------

YEARS_AGO_MS = 1_300_000_000_000
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def local(tmp_path: Path, clock: ManualClock) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data", clock=clock) as running:
        yield running


def look_for_silent_producers(local: LocalBroker) -> None:
    done = asyncio.run_coroutine_threadsafe(local.node.upkeep.expire_producers(), local.node.loop)
    done.result(30)


def old(sequence: int) -> bytes:
    return batch(
        b"%d" % sequence,
        timestamp=YEARS_AGO_MS,
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=sequence,
    )


def test_a_producer_of_old_messages_is_not_forgotten_while_it_sends(
    local: LocalBroker, clock: ManualClock
) -> None:
    """As one that replays an archive: its timestamps are years old, its retries are a moment old."""
    with WireClient(local.bootstrap) as client:
        create(client, "replayed", retention_ms="-1")
        for sequence in range(5):
            assert outcome(client, "replayed", old(sequence)) == (0, sequence)
            clock.advance(DAY_MS - 1)
            look_for_silent_producers(local)
            assert outcome(client, "replayed", old(sequence)) == (0, sequence), "the same again"
        assert offset_at(client, "replayed", LATEST) == 5


def test_a_silent_producer_is_forgotten_after_a_day(local: LocalBroker, clock: ManualClock) -> None:
    with WireClient(local.bootstrap) as client:
        create(client, "silent", retention_ms="-1")
        assert outcome(client, "silent", old(0)) == (0, 0)
        for _ in range(2):
            assert outcome(client, "silent", old(0)) == (0, 0)
            look_for_silent_producers(local)
            clock.advance(DAY_MS)
        look_for_silent_producers(local)
        assert outcome(client, "silent", old(7)) == (0, 1), "a producer that is not known may begin anywhere"


def test_a_restart_forgets_no_producer(fresh_broker: BrokerProcess) -> None:
    with WireClient(fresh_broker.bootstrap) as client:
        create(client, "restarted", retention_ms="-1")
        assert outcome(client, "restarted", old(0)) == (0, 0)
    fresh_broker.stop()
    fresh_broker.start()
    with WireClient(fresh_broker.bootstrap) as client:
        assert outcome(client, "restarted", old(0)) == (0, 0)
