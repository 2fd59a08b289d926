"""What is sent behind a refused batch is refused alike: out of order, clients would repeat messages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.broker.cluster.peers.peer_connection import _UNANSWERED_MAX
from forebay.errors import ErrorCode
from forebay.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from forebay.wire.messages.folded_produce import FoldedProduceRequest
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.config_calls import increment
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
from support.faults.held_threads import HeldThreads

ACKS_ALL = -1
MANY = 5000
"""So many records are examined in a thread."""
TOPIC_RESOURCE, SET = 2, 0
NOT_ENOUGH = ErrorCode.NOT_ENOUGH_REPLICAS
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path) as running:
        yield running


def sent(client: WireClient, topic: str, *sequences: int, epoch: int = 0) -> list[int]:
    """The errors of batches with these numbers, each sent when the one before is answered."""
    return [
        append(
            client,
            topic,
            batch(b"%d" % sequence, producer_id=7, producer_epoch=epoch, base_sequence=sequence),
            acks=ACKS_ALL,
        ).error_code
        for sequence in sequences
    ]


def need_replicas(client: WireClient, topic: str, count: int) -> None:
    changed = increment(client, TOPIC_RESOURCE, topic, ("min.insync.replicas", SET, str(count)))
    assert changed.error_code == ErrorCode.NONE


def fold(client: WireClient, topic: str) -> None:
    """Close all partitions of a topic but the first."""
    fewer = CreatePartitionsTopic(name=topic, count=1, assignments=None)
    request = CreatePartitionsRequest(topics=[fewer], timeout_ms=60_000)
    assert client.call(request, 3).results[0].error_code == ErrorCode.NONE


def values(client: WireClient, topic: str) -> list[bytes | None]:
    return [value for _, value in read_all(client, topic)]


def test_they_are_refused_for_the_same_reason_until_it_comes_again(local: LocalBroker) -> None:
    with WireClient(local.bootstrap) as client:
        create(client, "t")
        assert sent(client, "t", 0, 1) == [0, 0]
        need_replicas(client, "t", 2)
        assert sent(client, "t", 2) == [NOT_ENOUGH]
        need_replicas(client, "t", 1)
        assert sent(client, "t", 3, 4) == [NOT_ENOUGH, NOT_ENOUGH]
        assert sent(client, "t", 2, 3, 4) == [0, 0, 0]
        assert values(client, "t") == [b"0", b"1", b"2", b"3", b"4"]


def test_the_second_batch_of_a_producer_is_not_taken_for_its_first(local: LocalBroker) -> None:
    with WireClient(local.bootstrap) as client:
        assert sent(client, "t", 0) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        create(client, "t")
        assert sent(client, "t", 1) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert sent(client, "t", 0, 1) == [0, 0]
        assert values(client, "t") == [b"0", b"1"]


def test_a_producer_that_leaves_a_batch_out_is_told_so_in_the_end(local: LocalBroker) -> None:
    with WireClient(local.bootstrap) as client:
        create(client, "t")
        assert sent(client, "t", 0) == [0]
        need_replicas(client, "t", 2)
        assert sent(client, "t", 1) == [NOT_ENOUGH]
        need_replicas(client, "t", 1)
        assert sent(client, "t", *[2] * 6) == [NOT_ENOUGH] * 5 + [OUT_OF_ORDER]
        assert sent(client, "t", 0, epoch=1) == [0]


def test_what_came_next_elsewhere_is_taken(local: LocalBroker) -> None:
    """The refused batch was stored by way of another connection, as when another broker led for a while."""
    with WireClient(local.bootstrap) as client, WireClient(local.bootstrap) as other:
        create(client, "t")
        assert sent(client, "t", 0) == [0]
        need_replicas(client, "t", 2)
        assert sent(client, "t", 1) == [NOT_ENOUGH]
        need_replicas(client, "t", 1)
        assert sent(other, "t", 1) == [0]
        assert sent(client, "t", 2) == [0]


@pytest.mark.parametrize("again", [True, False])
def test_the_fast_path_comes_back(local: LocalBroker, again: bool) -> None:
    with WireClient(local.bootstrap) as client:
        create(client, "t")
        create(client, "u")
        need_replicas(client, "u", 2)
        assert sent(client, "t", 0, 1, 2) == [0, 0, 0]
        assert sent(client, "u", 0) == [NOT_ENOUGH]
        assert local.on_loop(lambda node: all(each.memo is None for each in node.server.connections))
        if again:
            need_replicas(client, "u", 1)
            assert sent(client, "u", 0) == [0]
        assert sent(client, "t", *range(3, 12)) == [0] * 9
        assert local.on_loop(lambda node: any(each.memo is not None for each in node.server.connections))


def test_one_for_a_folded_partition_that_was_examined_before_it_was_refused(tmp_path: Path) -> None:
    """It is stored under an alias of its producer, and comes again as it came before."""
    threads = HeldThreads("forebay-examine")
    with (
        local_broker(tmp_path, threads=threads) as local,
        WireClient(local.bootstrap) as client,
        WireClient(local.bootstrap) as admin,
    ):
        create(client, "t", partitions=2, compression_type="gzip")
        fold(admin, "t")
        numbers = {"producer_id": 7, "producer_epoch": 0}
        first = batch(*[b"first"] * MANY, base_sequence=0, **numbers)
        second = batch(b"second", base_sequence=MANY, **numbers)
        with threads.held():
            client.post(produce("t", first, partition=1, acks=ACKS_ALL), PRODUCE)
            assert threads.has_work()
            need_replicas(admin, "t", 2)
        assert only_partition(client.read()).error_code == NOT_ENOUGH
        need_replicas(admin, "t", 1)
        answers = [append(client, "t", each, partition=1, acks=ACKS_ALL) for each in (second, first, second)]
        assert [answer.error_code for answer in answers] == [NOT_ENOUGH, 0, 0]
        assert values(client, "t") == [b"first"] * MANY + [b"second"]


def test_one_that_was_stored_before_its_partition_was_folded(local: LocalBroker) -> None:
    """The partition that takes its place knows nothing of it, nor of those behind it."""
    with WireClient(local.bootstrap) as client:
        create(client, "t", partitions=2)
        first, second, third = (
            batch(b"x", producer_id=7, producer_epoch=0, base_sequence=number) for number in range(3)
        )
        assert [append(client, "t", each, partition=1).error_code for each in (first, second)] == [0, 0]
        fold(client, "t")
        need_replicas(client, "t", 2)
        assert append(client, "t", first, partition=1, acks=ACKS_ALL).error_code == NOT_ENOUGH
        need_replicas(client, "t", 1)
        answers = [append(client, "t", each, partition=1, acks=ACKS_ALL) for each in (first, second, third)]
        assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0), (0, 1), (0, 0)]


def test_others_that_are_handed_over_by_the_same_broker_do_not_make_it_forget(local: LocalBroker) -> None:
    """As many of them may be on their way by the same connection, before the broker hears of the refusal."""
    with WireClient(local.bootstrap) as client:
        create(client, "t")
        topic_id = local.on_loop(lambda node: node.image.topics["t"].topic_id)

        def handed_over(producer_id: int, sequence: int) -> int:
            request = FoldedProduceRequest(
                produce_version=9,
                acks=ACKS_ALL,
                timeout_ms=30_000,
                topic_id=topic_id,
                index=0,
                records=memoryview(
                    bytearray(batch(producer_id=producer_id, producer_epoch=0, base_sequence=sequence))
                ),
            )
            client.socket.sendall(client.frame(request, 0, client_id="forebay-broker-1.1.1"))
            return int(client.read().error_code)

        others = range(100, 100 + _UNANSWERED_MAX // 2 - 1)
        need_replicas(client, "t", 2)
        assert handed_over(7, 0) == NOT_ENOUGH
        assert [handed_over(other, 0) for other in others] == [NOT_ENOUGH] * len(others)
        need_replicas(client, "t", 1)
        assert [handed_over(other, 0) for other in others] == [0] * len(others)
        assert handed_over(7, 1) == NOT_ENOUGH
        assert [handed_over(7, number) for number in range(2)] == [0, 0]
