"""Offsets by time and by meaning, the ends of epochs, deleted records, producer ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from forebay.errors import ErrorCode
from forebay.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from forebay.wire.messages.init_producer_id import InitProducerIdRequest
from forebay.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from support.brokers.broker_process import BrokerProcess
from support.clients.wire_client import (
    EARLIEST,
    LATEST,
    LIST_OFFSETS,
    MAX_TIMESTAMP,
    WireClient,
    append,
    batch,
    create,
    fetch,
    list_offsets,
    offset_at,
    only_partition,
    read,
    read_all,
    values_of,
)

NOW = 1_700_000_000_000
EARLIEST_LOCAL, LATEST_TIERED = -4, -5


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


def listed(client: WireClient, topic: str, timestamp: int, version: int = LIST_OFFSETS, **how: Any) -> Any:
    return client.call(list_offsets(topic, timestamp, **how), version).topics[0].partitions[0]


@pytest.mark.parametrize("version", range(1, 12))
def test_offsets_by_meaning_in_every_version(client: WireClient, topic: str, version: int) -> None:
    create(client, topic)
    append(client, topic, batch(b"a", b"b", b"c", timestamp=NOW))
    for timestamp, offset in [(EARLIEST, 0), (LATEST, 3)]:
        found = listed(client, topic, timestamp, version)
        assert (found.error_code, found.offset, found.timestamp) == (ErrorCode.NONE, offset, -1)
    found = listed(client, topic, NOW + 1, version)
    assert (found.offset, found.timestamp) == (1, NOW + 1)


def test_offsets_by_time(client: WireClient, topic: str) -> None:
    """Timestamps need not rise; the answer is the first record that is not older."""
    create(client, topic, segment_bytes="3000", index_interval_bytes="200")
    times = [NOW, NOW + 500, NOW + 100, NOW + 900, NOW + 300, NOW + 2000]
    for time_ms in times:
        append(client, topic, batch(bytes(800), timestamp=time_ms))
    for asked in (NOW - 1, NOW, NOW + 1, NOW + 500, NOW + 501, NOW + 901, NOW + 2000):
        expected = next(n for n, time_ms in enumerate(times) if time_ms >= asked)
        found = listed(client, topic, asked)
        assert (found.offset, found.timestamp) == (expected, times[expected])
    beyond = listed(client, topic, NOW + 2001)
    assert (beyond.error_code, beyond.offset, beyond.timestamp) == (ErrorCode.NONE, -1, -1)


def test_the_largest_timestamp(client: WireClient, topic: str) -> None:
    create(client, topic)
    assert listed(client, topic, MAX_TIMESTAMP).offset == -1
    for time_ms in (NOW, NOW + 900, NOW + 100):
        append(client, topic, batch(b"a", b"b", timestamp=time_ms))
    found = listed(client, topic, MAX_TIMESTAMP)
    assert (found.offset, found.timestamp) == (3, NOW + 901)


def test_offsets_of_tiers_that_do_not_exist(client: WireClient, topic: str) -> None:
    create(client, topic)
    append(client, topic, batch(b"a", b"b"))
    assert listed(client, topic, EARLIEST_LOCAL, 9).offset == 0
    assert listed(client, topic, LATEST_TIERED, 9).offset == -1


def test_list_offsets_tells_errors(client: WireClient, topic: str) -> None:
    create(client, topic)
    assert listed(client, "nowhere", LATEST).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert listed(client, topic, LATEST, partition=5).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert listed(client, topic, LATEST, leader_epoch=1000).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert listed(client, topic, -99).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_end_of_a_leader_epoch(client: WireClient, topic: str, version: int) -> None:
    create(client, topic)
    append(client, topic, batch(b"a", b"b"))
    epoch = listed(client, topic, LATEST).leader_epoch

    def ask(leader_epoch: int, current: int = -1) -> Any:
        wanted = OffsetForLeaderPartition(
            partition=0, leader_epoch=leader_epoch, current_leader_epoch=current
        )
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])])
        return client.call(request, version).topics[0].partitions[0]

    found = ask(epoch)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (ErrorCode.NONE, epoch, 2)
    later = ask(epoch + 5)
    assert (later.leader_epoch, later.end_offset) == (-1, -1)
    assert ask(epoch, current=epoch + 5).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


# -- deleting records --------------------------------------------------------------------------------------


def delete_records(client: WireClient, topic: str, offset: int, version: int = 2) -> tuple[int, int]:
    wanted = DeleteRecordsTopic(
        name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
    )
    result = (
        client.call(DeleteRecordsRequest(topics=[wanted], timeout_ms=1000), version).topics[0].partitions[0]
    )
    return result.error_code, result.low_watermark


@pytest.mark.parametrize("version", range(3))
def test_deleted_records_are_gone_for_readers(client: WireClient, topic: str, version: int) -> None:
    create(client, topic, segment_bytes="2000")
    for number in range(10):
        append(client, topic, batch(b"%d" % number, bytes(500)))
    assert delete_records(client, topic, 7, version) == (ErrorCode.NONE, 7)
    assert offset_at(client, topic, EARLIEST) == 7
    assert read(client, topic, 6).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    data = read(client, topic, 7)
    assert (data.log_start_offset, data.high_watermark) == (7, 20)
    assert values_of(data.records)[-1][0] >= 7
    assert [offset for offset, _ in read_all(client, topic)] == list(range(7, 20))
    assert delete_records(client, topic, 3, version) == (ErrorCode.NONE, 7)  # never back
    assert delete_records(client, topic, -1, version) == (ErrorCode.NONE, 20)
    assert append(client, topic, batch(b"next")).base_offset == 20


@pytest.mark.parametrize(
    ("policy", "code", "start"),
    [("compact", "POLICY_VIOLATION", 0), ("compact,delete", "NONE", 1), ("delete", "NONE", 1)],
)
def test_records_are_deleted_where_the_policy_has_delete(
    client: WireClient, topic: str, policy: str, code: str, start: int
) -> None:
    create(client, topic, cleanup_policy=policy)
    append(client, topic, batch(b"kept"))
    assert delete_records(client, topic, 1)[0] == ErrorCode[code]
    assert offset_at(client, topic, EARLIEST) == start


def test_deleting_beyond_the_end_is_refused(client: WireClient, topic: str) -> None:
    create(client, topic)
    append(client, topic, batch(b"a"))
    for offset in (2, 1000, -2):
        assert delete_records(client, topic, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(client, "nowhere", 0)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_wait_below_the_new_start_is_told(broker: BrokerProcess, client: WireClient, topic: str) -> None:
    create(client, topic)
    append(client, topic, batch(b"a"))
    with WireClient(broker.bootstrap) as waiting:
        waiting.post(fetch(topic, 0, max_wait_ms=30_000, min_bytes=1_000_000), 12)
        assert waiting.is_silent()
        delete_records(client, topic, 1)
        assert only_partition(waiting.read()).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# -- producer ids ------------------------------------------------------------------------------------------


def producer_id(client: WireClient, version: int = 4) -> int:
    answer = client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), version)
    assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, 0)
    found: int = answer.producer_id
    return found


def test_producer_ids_are_never_given_twice(fresh_broker: BrokerProcess) -> None:
    def some(count: int) -> list[int]:
        with WireClient(fresh_broker.bootstrap) as client:
            return [producer_id(client, n % 6) for n in range(count)]

    given = some(1500)
    fresh_broker.kill()
    fresh_broker.restart()
    given += some(10)
    assert fresh_broker.stop() == 0
    fresh_broker.restart()
    given += some(10)
    assert len(set(given)) == len(given)
    assert min(given) >= 0
