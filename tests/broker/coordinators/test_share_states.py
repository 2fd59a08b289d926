"""The share coordinator on a broker: the logs of its partitions are kept short, and lose nothing."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from forebay.broker.coordinators.share_coordinator import ShareStates
from forebay.core.shares.coordinator.persisted_state import ShareKey
from forebay.errors import ErrorCode
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import create_topic
from support.machines.share_coordinator import initialize_request, read_request, write_request

PARTITIONS = 3
SETTINGS = {
    "share.coordinator.state.topic.num.partitions": str(PARTITIONS),
    "share.coordinator.state.topic.prune.interval.ms": "50",
    "share.coordinator.cold.partition.snapshot.interval.ms": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "2",
}


async def make_topic(cluster: LocalCluster) -> bytes:
    (made,) = (await cluster.ask(1, create_topic("t"), 7)).topics
    assert made.error_code == ErrorCode.NONE
    topic_id: bytes = made.topic_id
    return topic_id


def key_on(states: ShareStates, index: int, topic_id: bytes) -> ShareKey:
    """A share partition that this partition of the internal topic looks after; its group decides."""
    keys = (ShareKey(f"g{n}", topic_id, 0) for n in count())
    return next(key for key in keys if states.coordinator.partition_for(key.group_id) == index)


async def test_each_log_is_pruned_up_to_what_its_own_machine_needs(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, SETTINGS, brokers=1) as cluster:
        topic_id = await make_topic(cluster)
        states = cluster[1].share_states
        await states.coordinator.ensure_topic()
        keys = [key_on(states, index, topic_id) for index in range(PARTITIONS)]
        writes = [40, 3, 20]
        for key, number in zip(keys, writes, strict=True):
            await states.ask(initialize_request(key, 1, 0))
            await states.ask(read_request(key, 0))
            for n in range(1, number + 1):
                await states.ask(write_request(key, 1, 0, n, 0, ()))

        shards = [states.coordinator.at(index) for index in range(PARTITIONS)]
        await eventually(
            lambda: all(
                each.partition.log.start_offset == each.machine.redundant_before > 0 for each in shards
            )
        )

        await cluster.stop(1)
        await cluster.start(1)
        states = cluster[1].share_states
        await eventually(lambda: all(states.coordinator.running(index) for index in range(PARTITIONS)))
        for key, number in zip(keys, writes, strict=True):
            assert (await states.ask(read_request(key, 0))).start_offset == number
