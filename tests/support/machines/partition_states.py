"""States of a partition for tests, and how one changes when a broker leaves it."""

from __future__ import annotations

from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import BrokerPut, ConfigOwner, ConfigPut, PartitionPut, TopicPut
from forebay.core.cluster.images.topic_image import TopicRecord
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.registration import BrokerRegistration
from forebay.core.cluster.replicas.controller import departure
from forebay.core.cluster.replicas.isr_changes import MAJORITY

TOPIC_ID = b"0123456789abcdef"
NODES = (1, 2, 3)


def partition(
    leader: int,
    isr: tuple[int, ...],
    eligible: tuple[int, ...] = (),
    *,
    epoch: int = 5,
    synced: bool = False,
    replicas: tuple[int, ...] = NODES,
) -> PartitionState:
    return PartitionState(
        index=0,
        leader=leader,
        leader_epoch=epoch,
        isr=isr,
        replicas=replicas,
        eligible=eligible,
        synced=synced,
    )


def depart(
    state: PartitionState,
    node: int,
    alive: tuple[int, ...],
    *,
    minimum: int = MAJORITY,
    unsynced: bool = False,
    damaged: bool = False,
    lost: bool = False,
) -> PartitionState:
    record = TopicRecord(name="t", topic_id=TOPIC_ID, assignment=(state.replicas,))
    brokers = [BrokerPut(registration=BrokerRegistration(id=number, host="h", port=9)) for number in alive]
    settings = (
        []
        if minimum < 0
        else [ConfigPut(owner=ConfigOwner.TOPIC, name="t", overrides={"min.insync.replicas": str(minimum)})]
    )
    image = ClusterImage(cluster_id="c").apply([*brokers, TopicPut(record=record), *settings])
    image = image.apply([PartitionPut(topic_id=TOPIC_ID, state=state)])
    changes = departure(image, node, unsynced=unsynced, damaged=damaged, lost=lost)
    return changes[0].state if changes else state
