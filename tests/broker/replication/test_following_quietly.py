"""Topics that come, move and go are everyday life: followers that are a moment behind warn of nothing."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from forebay.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import CREATE_TOPICS, create_topic

FETCHER = "forebay.broker.replication.fetcher"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        f"{record.message}: {record.__dict__.get('reason')}"
        for record in caplog.records
        if record.name == FETCHER and record.levelno >= logging.WARNING
    ]


async def make(cluster: LocalCluster, name: str) -> None:
    (made,) = (await cluster.ask(1, create_topic(name, partitions=6), CREATE_TOPICS)).topics
    assert made.error_code == ErrorCode.NONE


async def known(cluster: LocalCluster, name: str) -> None:
    await eventually(lambda: all(name in cluster[node].image.topics for node in cluster.nodes))


async def test_a_leader_that_has_not_heard_of_a_change_yet(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The leader is patient, or it would take the follower out of the in-sync set before that complains."""
    leader, patient = 1, {"replica.lag.time.max.ms": "3600000"}
    hasty = {"replica.lag.time.max.ms": "4000"}
    async with local_cluster(
        tmp_path, settings_of=lambda node: patient if node == leader else hasty
    ) as cluster:
        await make(cluster, "t")
        index = next(index for index in range(6) if cluster.leader("t", index) == leader)
        await cluster.in_sync("t", index)
        follower = next(node for node in cluster.nodes if node != leader)
        partition, metrics = cluster[follower].partitions.held("t", index), cluster[leader].metrics
        refused = metrics.fetch_failures
        with cluster.deaf("t", follower, index=index):
            partition.leader_epoch += 1  # it has heard of an election
        await eventually(lambda: metrics.fetch_failures > refused + 1)
        assert warnings(caplog) == []
        # What does not pass is told of, with the reason.
        await eventually(lambda: warnings(caplog))
        assert warnings(caplog)[0] == (
            f"a partition cannot follow: the leader of t-{index} does not serve it: UNKNOWN_LEADER_EPOCH"
        )
        with cluster.deaf("t", follower, index=index):
            partition.leader_epoch -= 1
        await cluster.in_sync("t", index)


async def test_topics_that_come_and_go(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with local_cluster(tmp_path) as cluster:
        for number in range(10):
            name = f"passing-{number}"
            await make(cluster, name)
            if number % 2:
                await known(cluster, name)
            await cluster.ask(
                2, DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000), 6
            )
        await make(cluster, "stays")
        await cluster.in_sync("stays")
        for leader in (2, 3, 1):
            await cluster.lead("stays", 0, leader)
        await cluster.in_sync("stays")
    assert warnings(caplog) == []
