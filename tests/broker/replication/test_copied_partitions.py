"""Fewer partitions of a compacted topic in a cluster: what closed ones hold is copied, once and in order."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.partition.fold_state import Hold
from forebay.broker.record_moves import copy_source
from forebay.broker.record_moves.copy_source import CopySource
from forebay.clock import SystemClock
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.images.topic_folds import Folding
from forebay.errors import ErrorCode
from forebay.wire.batch import TRANSACTIONAL, build_batch, records, split
from forebay.wire.compression import Codec
from forebay.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from forebay.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from forebay.wire.records import Record
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster, retried
from support.clients.transacting import MOVED, Producer
from support.clients.wire_client import create_topic, fetch, only_partition, produce

SETTINGS = {"transaction.state.log.num.partitions": "4", "offsets.topic.num.partitions": "4"}
PASSING = (*MOVED, ErrorCode.REQUEST_TIMED_OUT)
TOPIC = "prices"
PRODUCER = 4711
NOW_MS = SystemClock().now_ms()


async def make(cluster: LocalCluster) -> None:
    """A compacted topic of four partitions: 3 is folded into 1, and each of them is led by another broker."""
    (made,) = (await cluster.ask(1, create_topic(TOPIC, 4, cleanup_policy="compact"), 7)).topics
    assert made.error_code == ErrorCode.NONE, made.error_message
    await cluster.knows(TOPIC)
    for index, node in ((0, 1), (1, 2), (2, 1), (3, 3)):
        await lead(cluster, index, node)


async def lead(cluster: LocalCluster, index: int, node: int) -> None:
    """Have a broker lead; again if the state of the partition was just written by another."""

    async def attempt() -> tuple[None, int]:
        await cluster.lead(TOPIC, index, node)
        return None, ErrorCode.NONE

    await retried(attempt)


async def fold(cluster: LocalCluster, count: int = 2, **how: Any) -> None:
    wanted = CreatePartitionsTopic(name=TOPIC, count=count, assignments=None, **how)
    response = await cluster.ask(1, CreatePartitionsRequest(topics=[wanted], timeout_ms=60_000), 3)
    assert response.results[0].error_code == ErrorCode.NONE, response.results[0].error_message


def folding(cluster: LocalCluster, node: int) -> Folding:
    found = cluster[node].image.topics[TOPIC].record.folding
    assert found is not None
    return found


async def copied(cluster: LocalCluster) -> None:
    await eventually(lambda: all(folding(cluster, node).next_copy is None for node in cluster.nodes))


async def send(cluster: LocalCluster, partition: int, data: bytes, *passing: int) -> int:
    async def attempt() -> tuple[int, int]:
        leader = cluster.leader(TOPIC, partition)
        request = produce(TOPIC, data, partition=partition, acks=-1)
        code: int = only_partition(await cluster.ask(leader, request, 9)).error_code
        return code, code

    code: int = await retried(attempt, *(passing or PASSING))
    return code


def batch_of(*pairs: tuple[bytes | None, bytes | None], codec: int = Codec.NONE, **how: int) -> bytes:
    made = [Record(n, NOW_MS + n, key, value, [("n", b"%d" % n)]) for n, (key, value) in enumerate(pairs)]
    return bytes(build_batch(made, codec=codec, **how))


async def read(cluster: LocalCluster, partition: int) -> list[Record]:
    """All records with a key that committed readers see, once nothing is undecided."""

    async def attempt() -> tuple[Any, int]:
        leader = cluster.leader(TOPIC, partition)
        request = fetch(TOPIC, partitions=[partition], isolation_level=1)
        data = only_partition(await cluster.ask(leader, request, 12))
        end = cluster[leader].partitions.get(TOPIC, partition).log.end_offset
        is_settled = data.last_stable_offset == data.high_watermark == end
        return data, data.error_code if is_settled else ErrorCode.OFFSET_NOT_AVAILABLE

    data = await retried(attempt, *MOVED, ErrorCode.OFFSET_NOT_AVAILABLE)
    buffer = memoryview(data.records or b"")
    found: list[Record] = []
    aborted = {each.producer_id for each in data.aborted_transactions or ()}
    for position, header in split(buffer):
        if not header.is_control and not (header.is_transactional and header.producer_id in aborted):
            found += records(buffer[position : position + header.size])
    return found


async def pairs(cluster: LocalCluster, partition: int) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in await read(cluster, partition)]


async def test_records_are_copied_as_they_are_and_then_the_partition_passes_on(tmp_path: Path) -> None:
    settings = SETTINGS | {"forebay.fold.grace.ms": "0"}
    async with local_cluster(tmp_path, settings) as cluster:
        await make(cluster)
        first = ((b"a", b"1"), (b"b", b"2"), (b"a", b"3"))
        assert await send(cluster, 3, batch_of(*first, codec=Codec.GZIP)) == ErrorCode.NONE
        assert await send(cluster, 3, batch_of((b"b", None))) == ErrorCode.NONE
        assert await send(cluster, 1, batch_of((b"c", b"here"))) == ErrorCode.NONE
        await fold(cluster, drop_after_ms=600_000)
        await copied(cluster)
        assert await send(cluster, 3, batch_of((b"a", b"4"))) == ErrorCode.NONE
        found = await read(cluster, 1)
        assert [(record.key, record.value) for record in found] == [
            (b"c", b"here"),
            (b"a", b"3"),
            (b"b", None),
            (b"a", b"4"),
        ], "the last of each key, and then what was sent later"
        assert [record.timestamp - NOW_MS for record in found] == [0, 2, 0, 0]
        assert [dict(record.headers)["n"] for record in found] == [b"0", b"2", b"0", b"0"]
        assert await pairs(cluster, 3) == [*first, (b"b", None)], "it stays readable"
        assert await pairs(cluster, 0) == [] == await pairs(cluster, 2)
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)])
        (topic,) = (await cluster.ask(1, request, 0)).topics
        assert (topic.copies_from, topic.copies_next, topic.copies_end) == (2, 4, 4)


async def test_copied_partitions_disappear_though_they_are_not_empty(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, SETTINGS | {"forebay.fold.grace.ms": "0"}) as cluster:
        await make(cluster)
        assert await send(cluster, 3, batch_of((b"a", b"1"))) == ErrorCode.NONE
        await fold(cluster)
        await eventually(
            lambda: all(len(cluster[node].image.topics[TOPIC].partitions) == 2 for node in (1, 2, 3))
        )
        assert folding(cluster, 1).copied is None
        assert await pairs(cluster, 1) == [(b"a", b"1")]


async def test_each_value_is_copied_once_and_none_behind_a_newer_one_while_all_leaders_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idempotent producer counts up, and sends again what was refused."""
    monkeypatch.setattr("forebay.broker.record_moves.copy_reads.RECORDS_MAX", 3)
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        await make(cluster)
        total, written, step = 150, 0, asyncio.Event()

        async def write() -> None:
            nonlocal written
            while written < total:
                value = b"%d" % written
                numbers = {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": 2 * written}
                data = batch_of((b"own " + value, value), (b"shared", value), **numbers)
                assert await send(cluster, 3, data) == ErrorCode.NONE
                written += 1
                step.set()

        async def reach(count: int) -> None:
            async with asyncio.timeout(120):
                while written < count:
                    step.clear()
                    waiting = asyncio.ensure_future(step.wait())
                    await asyncio.wait((waiting, writing), return_when=asyncio.FIRST_COMPLETED)
                    if writing.done():
                        await writing

        writing = asyncio.create_task(write())
        await reach(40)
        await fold(cluster)
        for number, (index, leader) in enumerate(((3, 1), (1, 3), (3, 2), (3, 3), (1, 1))):
            await reach(45 + number * 10)
            await lead(cluster, index, leader)
        await copied(cluster)
        await asyncio.wait_for(writing, 120)
        found, old = await pairs(cluster, 1), await pairs(cluster, 3)
        counted = [(b"own %d" % number, b"%d" % number) for number in range(total)]
        assert [pair for pair in found if pair[0] != b"shared"] == counted
        shared = [int(value or b"") for key, value in found if key == b"shared"]
        assert shared == sorted(set(shared)) and shared[-1] == total - 1
        assert len(old) >= 80 and [pair for pair in old if pair[0] != b"shared"] == counted[: len(old) // 2]


async def test_a_broker_that_dies_while_it_copies_leaves_the_rest_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.broker.record_moves.copy_reads.RECORDS_MAX", 2)
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        await make(cluster)
        counted = [(b"k%d" % n, b"%d" % n) for n in range(60)]
        for start in range(0, 60, 6):
            assert await send(cluster, 3, batch_of(*counted[start : start + 6])) == ErrorCode.NONE
        target = cluster[2].partitions.get(TOPIC, 1)
        await fold(cluster)
        await eventually(lambda: target.log.end_offset >= 6)
        await cluster.crash(3)
        await cluster.bury(3)
        await copied(cluster)
        assert await pairs(cluster, 1) == counted


async def test_a_transaction_that_is_open_goes_on_and_new_ones_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.core.record_moves.closing.HOLD_S_MAX", 3600.0)
    monkeypatch.setattr("forebay.broker.record_moves.copy_source.HOLD_S_MAX", 3600.0)
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        await make(cluster)
        old, new = KeyedProducer(cluster, TOPIC), KeyedProducer(cluster, TOPIC, transactional_id="new")
        gone = KeyedProducer(cluster, TOPIC, transactional_id="gone")
        for producer in (gone, old):
            await producer.begin()
            await producer.add(3)
            assert await producer.send(3, b"first") == ErrorCode.NONE
        await gone.end(commit=False)
        await new.begin()
        await new.add(3)
        await fold(cluster)
        partition = cluster[3].partitions.get(TOPIC, 3)
        await eventually(lambda: partition.closing is not None and not partition.closing.is_full)
        assert await new.send(3, b"later", retry=False) == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await old.send(3, b"second") == ErrorCode.NONE, "or it could never end"
        await send(cluster, 3, batch_of((b"plain", b"beside")))
        assert folding(cluster, 1).next_copy == 3
        await old.end()
        await copied(cluster)
        assert await new.send(3, b"later") == ErrorCode.NONE
        await new.end()
        assert await pairs(cluster, 1) == [
            (b"payments", b"second"),
            (b"plain", b"beside"),
            (b"new", b"later"),
        ]


async def test_a_hold_that_does_not_come_to_its_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the target cannot be written, producers are not kept off."""
    given_up: list[Hold] = []
    give_up = CopySource._give_up

    def note(source: CopySource, hold: Hold) -> None:
        given_up.extend([hold] if source._partition.closing is hold else [])
        give_up(source, hold)

    monkeypatch.setattr(CopySource, "_give_up", note)
    monkeypatch.setattr("forebay.broker.record_moves.copy_source.HOLD_S_MAX", 0.2)
    monkeypatch.setattr("forebay.broker.record_moves.copy_source.PAUSE_S", 3600.0)
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        await make(cluster)
        assert await send(cluster, 3, batch_of((b"a", b"1"))) == ErrorCode.NONE
        await cluster.change(TOPIC, 1, leader=-1, isr=(99,))
        await fold(cluster)
        await eventually(lambda: given_up)
        assert cluster[3].partitions.get(TOPIC, 3).closing is None
        assert await send(cluster, 3, batch_of((b"a", b"2"))) == ErrorCode.NONE
        assert await pairs(cluster, 3) == [(b"a", b"1"), (b"a", b"2")]
        assert folding(cluster, 1).next_copy == 3


async def test_a_leader_that_was_replaced_does_not_close_what_its_successor_has_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaders: list[int] = []
    """Of the partition, as those found it who wanted to close it."""

    close: Any = vars(copy_source)["close_copied"]

    def watched(image: ClusterImage, **how: Any) -> Any:
        leaders.append(image.topics[TOPIC].partitions[3].leader)
        return close(image, **how)

    monkeypatch.setattr(copy_source, "close_copied", watched)
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        await make(cluster)
        assert await send(cluster, 3, batch_of((b"a", b"1"))) == ErrorCode.NONE
        await cluster[3].coordinators.producer_ids.next()
        await cluster[3].move_journal.coordinator.ensure_topic()
        held = cluster[3].partitions.get(TOPIC, 3)
        with ExitStack() as later, monkeypatch.context() as patch:
            with cluster.unwritable(3):
                await fold(cluster)
                await eventually(lambda: held.closing is not None and held.closing.is_final)
                request = produce(TOPIC, batch_of((b"a", b"refused")), partition=3, acks=-1)
                answer = only_partition(await cluster.ask(3, request, 9))
                assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "it is held"
                later.enter_context(cluster.uninformed(3))
                patch.setattr(cluster[1].fold_copies, "look", lambda: None)
                await lead(cluster, 3, 1)
                assert await send_to(cluster, 1, 3, batch_of((b"a", b"2"))) == ErrorCode.NONE
                leaders.clear()
            await eventually(lambda: 1 in leaders)
        await copied(cluster)
        assert await pairs(cluster, 1) == [(b"a", b"1"), (b"a", b"2")]


async def test_nothing_is_closed_while_another_replica_may_have_more(tmp_path: Path) -> None:
    """It may lead next and commit it: that would never be copied."""
    settings = SETTINGS | {"replica.lag.time.max.ms": "300000"}
    async with local_cluster(tmp_path, settings) as cluster:
        await make(cluster)
        await cluster.in_sync(TOPIC, 3)
        await cluster[1].coordinators.producer_ids.next()
        await cluster[1].move_journal.coordinator.ensure_topic()
        other = cluster[2].partitions.held(TOPIC, 3)
        with cluster.deaf(TOPIC, 1, index=3):
            late = asyncio.create_task(send(cluster, 3, batch_of((b"a", b"1")), ErrorCode.NONE))
            await eventually(lambda: other.log.end_offset == 1)
            with cluster.uninformed(2):
                await lead(cluster, 3, 1)
                await late
                await fold(cluster)
                held = cluster[1].partitions.get(TOPIC, 3)
                await eventually(lambda: held.closing is not None or folding(cluster, 1).next_copy is None)
                for _ in range(10):  # it looks again and again, in vain
                    assert folding(cluster, 1).next_copy == 3
                    await asyncio.sleep(0.05)
                await lead(cluster, 3, 2)
        await copied(cluster)
        assert await pairs(cluster, 1) == [(b"a", b"1")]


async def send_to(cluster: LocalCluster, node: int, partition: int, data: bytes) -> int:
    async def attempt() -> tuple[int, int]:
        request = produce(TOPIC, data, partition=partition, acks=1)
        code: int = only_partition(await cluster.ask(node, request, 9)).error_code
        return code, code

    answer: int = await retried(attempt, *PASSING)
    return answer


class KeyedProducer(Producer):
    """Its messages have its transactional id as their key."""

    async def send(self, partition: int, value: bytes, *, retry: bool = True) -> int:
        sequence = self.sequences.get(partition, 0)
        data = batch_of(
            (self.transactional_id.encode(), value),
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        request = produce(
            self.topic, data, partition=partition, acks=-1, transactional_id=self.transactional_id
        )

        async def attempt() -> tuple[int, int]:
            response = await self.cluster.ask(self.cluster.leader(self.topic, partition), request, 11)
            code: int = only_partition(response).error_code
            return code, code

        code: int = await retried(attempt, *(MOVED if retry else ()))
        if code == ErrorCode.NONE:
            self.sequences[partition] = sequence + 1
        return code
