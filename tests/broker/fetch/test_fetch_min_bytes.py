"""Fetch waits for min_bytes only while there is nothing more to read.

What an answer had no room for is there all the same: records beyond max_bytes, a batch that did not fit,
the next segment. Every fetch here is willing to wait for an hour, so one that waits fails its test.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.errors import ErrorCode
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from support.brokers.broker_process import BrokerProcess
from support.brokers.local_cluster import LocalCluster, local_cluster
from support.clients.wire_client import (
    CREATE_TOPICS,
    FETCH,
    PRODUCE,
    WireClient,
    append,
    batch,
    create,
    create_topic,
    fetch,
    only_partition,
    produce,
    read,
    values_of,
)

HOUR_MS = 3_600_000
MIB = 1 << 20
BATCH = batch(bytes(100_000))
BATCHES = 200
"""20 MB in batches of which ten fill most of a MiB."""


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


@pytest.fixture
def waiting(broker: BrokerProcess) -> Iterator[WireClient]:
    """Another connection, for a fetch that waits."""
    with WireClient(broker.bootstrap) as client:
        yield client


def fill(client: WireClient, topic: str, count: int = BATCHES) -> None:
    """That many batches, and one more than a test reads: there is always something left to read."""
    for _ in range(count + 1):
        assert append(client, topic, BATCH).error_code == ErrorCode.NONE


def requests_to_read(client: WireClient, topic: str, count: int = BATCHES, **how: Any) -> int:
    """How many fetches it takes to read that many batches."""
    offset = requests = 0
    while offset < count:
        found = values_of(read(client, topic, offset, max_wait_ms=HOUR_MS, **how).records)
        assert found and found[0][0] == offset
        offset = found[-1][0] + 1
        requests += 1
    assert offset == count
    return requests


@pytest.mark.parametrize("isolation_level", [0, 1], ids=["uncommitted", "committed"])
def test_what_max_bytes_cuts_off_counts(client: WireClient, topic: str, isolation_level: int) -> None:
    create(client, topic)
    fill(client, topic)
    limits = {"min_bytes": MIB, "isolation_level": isolation_level}
    assert requests_to_read(client, topic, partition_max_bytes=MIB, **limits) == 20
    assert requests_to_read(client, topic, max_bytes=MIB, partition_max_bytes=10 * MIB, **limits) == 20


@pytest.mark.parametrize("isolation_level", [0, 1], ids=["uncommitted", "committed"])
def test_what_lies_in_the_next_segment_counts(client: WireClient, topic: str, isolation_level: int) -> None:
    create(client, topic, segment_bytes="350000")
    fill(client, topic, 198)
    assert requests_to_read(client, topic, 198, min_bytes=MIB, isolation_level=isolation_level) == 66


def test_more_than_an_answer_can_hold_is_not_waited_for(
    client: WireClient, waiting: WireClient, topic: str
) -> None:
    create(client, topic)
    fill(client, topic, 3)
    small: dict[str, Any] = {"partition_max_bytes": len(BATCH), "min_bytes": 50 * MIB}
    assert requests_to_read(client, topic, 4, **small) == 4  # the last one fills its answer, too
    for offset, limits in enumerate((small, {"max_bytes": len(BATCH), "min_bytes": 50 * MIB}), 4):
        waiting.post(fetch(topic, offset, max_wait_ms=HOUR_MS, **limits), FETCH)
        assert waiting.is_silent()
        append(client, topic, BATCH)
        assert values_of(only_partition(waiting.read()).records)[0][0] == offset


def test_what_a_session_has_no_room_for_counts(client: WireClient, topic: str) -> None:
    create(client, topic, partitions=2)
    fill(client, topic)

    def answer(session_id: int, epoch: int, offset: int | None, partitions: tuple[int, ...] = (0,)) -> Any:
        request = fetch(
            topic,
            offset or 0,
            partitions=partitions if offset is not None else (),
            max_wait_ms=HOUR_MS,
            min_bytes=MIB,
            max_bytes=MIB,
            session_id=session_id,
            session_epoch=epoch,
        )
        response = client.call(request, FETCH)
        (data,) = [each for each in response.responses[0].partitions if each.records]
        return response.session_id, values_of(data.records)[-1][0] + 1

    session_id, offset = answer(0, 0, 0, partitions=(0, 1))
    requests = 1
    while offset < BATCHES:
        _, offset = answer(session_id, requests, offset)
        requests += 1
    assert requests == 20


def test_little_that_was_not_cut_off_is_waited_for(
    client: WireClient, waiting: WireClient, topic: str
) -> None:
    create(client, topic, segment_bytes="350000")
    fill(client, topic, 3)
    waiting.post(fetch(topic, 3, max_wait_ms=HOUR_MS, min_bytes=2 * len(BATCH)), FETCH)
    assert waiting.is_silent()
    append(client, topic, BATCH)
    assert [offset for offset, _ in values_of(only_partition(waiting.read()).records)] == [3, 4]


# -- followers ---------------------------------------------------------------------------------------------


async def test_what_a_followers_fetch_cuts_off_counts(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        made = await cluster.ask(1, create_topic("t", segment_bytes="350000"), CREATE_TOPICS)
        assert made.topics[0].error_code == ErrorCode.NONE
        await cluster.knows("t")
        leader, follower, _ = cluster.state("t").replicas
        for _ in range(22):
            answer = await cluster.ask(leader, produce("t", BATCH, acks=-1), PRODUCE)
            assert only_partition(answer).error_code == ErrorCode.NONE
        for limit, expected in ((len(BATCH) + 1000, 21), (MIB, 7)):
            offset = requests = session = 0
            while offset < 21:
                request = _follower_fetch(cluster, follower, offset, limit, session, requests)
                response = await cluster.ask(leader, request, 17)
                session = response.session_id
                offset = values_of(only_partition(response).records)[-1][0] + 1
                requests += 1
            assert requests == expected


def _follower_fetch(
    cluster: LocalCluster, follower: int, offset: int, limit: int, session: int, epoch: int
) -> FetchRequest:
    wanted = FetchPartition(
        partition=0, fetch_offset=offset, current_leader_epoch=0, partition_max_bytes=limit
    )
    topic_id = cluster[1].image.topics["t"].topic_id
    return FetchRequest(
        replica_state=ReplicaState(replica_id=follower, replica_epoch=cluster[follower].lease.epoch),
        max_wait_ms=HOUR_MS,
        min_bytes=2 * MIB,
        max_bytes=2 * MIB,
        session_id=session,
        session_epoch=epoch,
        topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])],
    )
