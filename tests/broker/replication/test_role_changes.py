"""Which partitions take their roles again when the image changes: only those whose states have changed."""

from __future__ import annotations

from pathlib import Path

from forebay.broker.partition.partition import Partition
from forebay.core.cluster.image import PartitionState
from forebay.errors import ErrorCode
from support.brokers.local_cluster import local_cluster
from support.clients.wire_client import create_topic

CREATE_TOPICS = 7
TOPIC = "t"


async def test_a_change_of_one_partition_leaves_the_others_of_its_topic_alone(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as cluster:
        (made,) = (await cluster.ask(1, create_topic(TOPIC, 3), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await cluster.knows(TOPIC)
        for index in range(3):
            await cluster.in_sync(TOPIC, index)
        taken: list[tuple[int, int]] = []

        def note(partition: Partition, state: PartitionState) -> None:
            taken.append((partition.index, state.leader))

        cluster[1].assignment.role_taken.listen(note)
        heir = next(node for node in cluster.nodes if node != cluster.leader(TOPIC, 1))
        await cluster.lead(TOPIC, 1, heir)
        assert taken == [(1, heir)]
