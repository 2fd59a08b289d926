"""Followers whose log ends within the offsets that compaction has added to a batch of the leader."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from forebay.wire.batch import BatchHeader, build_batch, records, split
from forebay.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from forebay.wire.records import Record
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import create_topic, fetch, only_partition, produce

CREATE_TOPICS, DELETE_RECORDS, FETCH, PRODUCE = 7, 2, 12, 9
TOPIC = "t"
SETTINGS = {
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.min.cleanable.ratio": "0",
    "log.flush.interval.ms": "20",
    "min.insync.replicas": "1",
}
COMPACTED = {"cleanup_policy": "compact,delete", "segment_bytes": "2000", "file_delete_delay_ms": "0"}


async def put(cluster: LocalCluster, key: bytes, value: bytes, **producer: int) -> int:
    made = bytes(build_batch([Record(0, int(time.time() * 1000), key, value)], **producer))
    answer = only_partition(await cluster.ask(cluster.leader(TOPIC), produce(TOPIC, made, acks=-1), PRODUCE))
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    offset: int = answer.base_offset
    return offset


def headers(cluster: LocalCluster, node: int) -> list[BatchHeader]:
    return [header for _, header in cluster[node].partitions.held(TOPIC, 0).log.files.scan(0)]


async def contents(cluster: LocalCluster, offset: int = 0) -> dict[bytes | None, bytes | None]:
    """What consumers get of the topic."""
    found: dict[bytes | None, bytes | None] = {}
    while True:
        answer = await cluster.ask(cluster.leader(TOPIC), fetch(TOPIC, offset), FETCH)
        partition = only_partition(answer)
        assert partition.error_code == ErrorCode.NONE
        data = bytes(partition.records or b"")
        if not data:
            return found
        for position, header in split(data):
            for record in records(data[position : position + header.size]):
                if record.offset >= offset:
                    found[record.key] = record.value
            offset = max(offset, header.next_offset)


async def clean(cluster: LocalCluster, node: int) -> None:
    log = cluster[node].partitions.held(TOPIC, 0).log
    log.roll()
    await eventually(lambda: cluster[node].data.first_dirty_offset(TOPIC, 0) >= log.end_offset)


async def widen(cluster: LocalCluster, away: int) -> int:
    """Have a broker go away, and the batch with its last message reach beyond that on the leader."""
    leader = cluster.leader(TOPIC)
    cluster[leader].partitions.held(TOPIC, 0).log.roll()
    for number in range(3):
        end = await put(cluster, b"a%d" % number, b"1") + 1
    await cluster.in_sync(TOPIC)
    await eventually(lambda: cluster[away].partitions.held(TOPIC, 0).log.end_offset == end)
    await cluster.kill(away)
    await cluster.bury(away)
    for number in range(3):
        await put(cluster, b"b", b"%d" % number)
    cluster[leader].partitions.held(TOPIC, 0).log.roll()
    await put(cluster, b"b", b"x" * 1900)  # so that the segment before is not joined to this one
    await clean(cluster, leader)
    wide = [each for each in headers(cluster, leader) if each.base_offset == end - 1]
    assert [(each.last_offset, each.record_count) for each in wide] == [(end + 2, 1)], "it was not widened"
    return end


async def make(cluster: LocalCluster) -> int:
    (made,) = (await cluster.ask(1, create_topic(TOPIC, 1, **COMPACTED), CREATE_TOPICS)).topics
    assert made.error_code == ErrorCode.NONE
    await cluster.knows(TOPIC)
    *_, away = (each for each in cluster.state(TOPIC).replicas if each != cluster.leader(TOPIC))
    return away


async def test_a_follower_that_ends_within_a_widened_batch_comes_back_and_leads(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        away = await make(cluster)
        end = await widen(cluster, away)
        expected = await contents(cluster)
        await cluster.start(away)
        await cluster.in_sync(TOPIC)
        leader = cluster.leader(TOPIC)
        ends = [cluster[node].partitions.held(TOPIC, 0).log.end_offset for node in (leader, away)]
        assert ends[0] == ends[1]
        rest = next(each for each in headers(cluster, away) if each.base_offset >= end)
        if cluster[away].data.first_dirty_offset(TOPIC, 0) <= end:  # else its own cleaner was faster
            assert (rest.base_offset, rest.last_offset, rest.record_count) == (end, end + 2, 0)
        await cluster.lead(TOPIC, 0, away)
        assert await contents(cluster) == expected
        assert await contents(cluster, end) == {b"b": b"x" * 1900}
        for offset in (await put(cluster, b"c", b"1"), await put(cluster, b"c", b"2")):
            assert offset >= ends[0]
        await clean(cluster, away)
        assert await contents(cluster) == expected | {b"c": b"2"}
        await cluster.in_sync(TOPIC)


async def leads(cluster: LocalCluster, node: int) -> None:
    await eventually(lambda: cluster[node].partitions.get(TOPIC, 0).is_leader)


async def agree(cluster: LocalCluster, expected: dict[bytes | None, bytes | None], start: int = 0) -> None:
    """Every replica leads once, with these contents."""
    for node in cluster.nodes:
        await cluster.in_sync(TOPIC)
        if cluster.leader(TOPIC) != node:
            await cluster.lead(TOPIC, 0, node)
        await leads(cluster, node)
        assert await contents(cluster, start) == expected


@pytest.mark.parametrize("directory", [None, "another disk"])
async def test_a_replica_copies_a_log_that_begins_within_a_widened_batch(
    tmp_path: Path, directory: str | None
) -> None:
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        away = await make(cluster)
        start = await widen(cluster, away) + 1
        wanted = DeleteRecordsPartition(partition_index=0, offset=start)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=TOPIC, partitions=[wanted])], timeout_ms=60_000
        )
        (topic,) = (await cluster.ask(cluster.leader(TOPIC), request, DELETE_RECORDS)).topics
        assert (topic.partitions[0].error_code, topic.partitions[0].low_watermark) == (ErrorCode.NONE, start)
        await cluster.start(away, directory)
        await cluster.in_sync(TOPIC)
        await eventually(lambda: cluster[away].partitions.held(TOPIC, 0).log.start_offset == start)
        await agree(cluster, {b"b": b"x" * 1900}, start)


async def test_a_widened_batch_is_cut_off_with_what_an_unclean_leader_does_not_have(tmp_path: Path) -> None:
    """The new leader has the message of the batch, and others where the rest of the batch was."""
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        away = await make(cluster)
        end = await widen(cluster, away)
        others = [node for node in cluster.nodes if node != away]
        for node in others:
            await cluster.kill(node)
        await cluster.start(away)
        for node in others:
            await cluster.bury(node)
        epoch = cluster.state(TOPIC).leader_epoch
        await cluster.change(TOPIC, 0, leader=away, isr=(away,), leader_epoch=epoch + 1)
        await leads(cluster, away)
        assert [await put(cluster, b"c", b"%d" % n) for n in range(2)] == [end, end + 1]
        for node in others:
            await cluster.start(node)
        expected: dict[bytes | None, bytes | None] = {b"a%d" % number: b"1" for number in range(3)}
        expected[b"c"] = b"1"
        await agree(cluster, expected)


async def test_a_producer_is_known_to_a_replica_that_copied_widened_batches(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, SETTINGS) as cluster:
        away = await make(cluster)
        producer = {"producer_id": 77, "producer_epoch": 0}
        for sequence in range(2):
            await put(cluster, b"p%d" % sequence, b"1", **producer, base_sequence=sequence)
        for number in range(6):
            await put(cluster, b"p%d" % (number % 2 + 2), b"1", **producer, base_sequence=2 + number)
        await widen(cluster, away)
        expected = await contents(cluster)
        await cluster.start(away, "another disk")
        await cluster.in_sync(TOPIC)
        await cluster.lead(TOPIC, 0, away)
        await leads(cluster, away)
        end = cluster[away].partitions.get(TOPIC, 0).log.end_offset
        for sequence in range(3, 8):  # the last five are found as repeats
            assert await put(cluster, b"p0", b"again", **producer, base_sequence=sequence) < end
        assert await contents(cluster) == expected
        assert await put(cluster, b"p0", b"next", **producer, base_sequence=8) == end
