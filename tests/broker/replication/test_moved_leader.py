"""A leader that comes back at another address, while the old one neither answers nor hangs up."""

from __future__ import annotations

from pathlib import Path

from forebay.errors import ErrorCode
from forebay.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from support.brokers.local_cluster import eventually, local_cluster, retried
from support.clients.wire_client import CREATE_TOPICS, PRODUCE, batch, only_partition, produce
from support.faults.links import Links, broker_name

TOPIC = "t"
PATIENT = {"replica.socket.timeout.ms": "3600000", "replica.lag.time.max.ms": "3600000"}


async def test_followers_find_it_at_once(tmp_path: Path) -> None:
    with Links() as links:
        address = "127.0.0.1:1"
        door = links.door(broker_name(1), lambda: address)
        advertised = {"advertised.listeners": f"PLAINTEXT://{door}"}
        async with local_cluster(
            tmp_path, PATIENT, settings_of=lambda node: advertised if node == 1 else {}
        ) as cluster:
            address = "{}:{}".format(*cluster.address(1))
            replicas = CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 3])
            topic = CreatableTopic(
                name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=[replicas]
            )
            (made,) = (await cluster.ask(1, CreateTopicsRequest(topics=[topic]), CREATE_TOPICS)).topics
            assert made.error_code == ErrorCode.NONE

            async def append() -> tuple[int, int]:
                answer = await cluster.ask(1, produce(TOPIC, batch(b"x"), acks=-1), PRODUCE)
                code = only_partition(answer).error_code
                return code, code

            assert await retried(append, ErrorCode.NOT_LEADER_OR_FOLLOWER) == ErrorCode.NONE
            links.hold(*((broker_name(1), broker_name(other)) for other in (2, 3)))
            await cluster.crash(1)
            advertised.clear()
            await cluster.start(1, at_once=True)
            assert (cluster.leader(TOPIC), cluster.state(TOPIC).leader_epoch) == (1, 0)
            assert await retried(append, ErrorCode.NOT_LEADER_OR_FOLLOWER) == ErrorCode.NONE
            await eventually(lambda: cluster[2].partitions.held(TOPIC, 0).log.end_offset == 2)
            links.heal(*((broker_name(1), broker_name(other)) for other in (2, 3)))
