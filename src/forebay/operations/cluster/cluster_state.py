"""The cluster as a command sees it: its metadata, the reassignments under way, the drained brokers.

It is turned into an image, so that the controller's own pure functions decide here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from forebay.config import DRAINED
from forebay.core.cluster.config_changes import AlterOp
from forebay.core.cluster.image import ALL_BROKERS, ClusterImage, ConfigImage
from forebay.core.cluster.images.topic_image import TopicImage, TopicRecord
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.placement import staying
from forebay.core.cluster.registration import BrokerRegistration
from forebay.lazy import dataclass
from forebay.operations.client import CommandError, join_address
from forebay.operations.cluster.broker_defaults import alter_defaults, read_defaults
from forebay.operations.topics.views import read_views
from forebay.operations.wire import WireConnection, check
from forebay.wire.messages.incremental_alter_configs import AlterableConfig
from forebay.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
)
from forebay.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from forebay.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

Place = tuple[str, int]
"""A topic and the index of one of its partitions."""


def moves_under_way(connection: WireConnection) -> dict[Place, OngoingPartitionReassignment]:
    answer = connection.ask(ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse)
    check(answer.error_code, answer.error_message)
    return {(topic.name, part.partition_index): part for topic in answer.topics for part in topic.partitions}


def read_image(connection: WireConnection) -> ClusterImage:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    answer = connection.ask(request, MetadataResponse)
    moving = moves_under_way(connection)
    views = read_views(connection, [topic.name for topic in answer.topics if topic.name is not None])
    topics = (
        _topic(topic, moving)
        for topic in answer.topics
        if topic.name is not None and topic.name not in views  # a view has no replicas of its own
    )
    return ClusterImage(
        cluster_id=answer.cluster_id or "",
        brokers={
            each.node_id: BrokerRegistration(
                id=each.node_id, host=each.host, port=each.port, rack=each.rack or None
            )
            for each in sorted(answer.brokers, key=lambda each: each.node_id)
        },
        topics={topic.name: topic for topic in topics if topic.partitions},
        controller=answer.controller_id,
        broker_configs={
            ALL_BROKERS: ConfigImage(overrides={DRAINED: ",".join(drained_brokers(connection))}, revision=0)
        },
    )


def drained_brokers(connection: WireConnection) -> list[str]:
    """The ids of the brokers that were drained and not taken back."""
    found = read_defaults(connection, [DRAINED])
    return [node for config in found for node in (config.value or "").split(",") if node]


def mark_drained(connection: WireConnection, node: int, *, drained: bool) -> None:
    """Keep new partitions from a broker, or let it have them again."""
    operation = AlterOp.APPEND if drained else AlterOp.SUBTRACT
    change = AlterableConfig(name=DRAINED, config_operation=operation, value=str(node))
    alter_defaults(connection, [change])


def forget_broker(connection: WireConnection, node: int) -> None:
    """Forget a broker that was stopped for good. Raises CommandError if it still has replicas."""
    held = sum(load.replicas for load in broker_loads(read_image(connection)) if load.id == node)
    if held:
        raise CommandError(
            f"broker {node} still has replicas of {held} partitions: "
            f"`forebay cluster drain {node}` moves them, also if it is gone"
        )
    answer = connection.ask(UnregisterBrokerRequest(broker_id=node), UnregisterBrokerResponse)
    check(answer.error_code, answer.error_message)


def _topic(topic: MetadataResponseTopic, moving: dict[Place, OngoingPartitionReassignment]) -> TopicImage:
    name = topic.name or ""
    ordered = sorted(topic.partitions, key=lambda part: part.partition_index)
    partitions = tuple(_partition(part, moving.get((name, part.partition_index))) for part in ordered)
    record = TopicRecord(
        name=name, topic_id=topic.topic_id, assignment=tuple(state.replicas for state in partitions)
    )
    return TopicImage(name=name, topic_id=topic.topic_id, partitions=partitions, record=record, revision=0)


def _partition(part: MetadataResponsePartition, move: OngoingPartitionReassignment | None) -> PartitionState:
    return PartitionState(
        index=part.partition_index,
        leader=part.leader_id,
        leader_epoch=part.leader_epoch,
        isr=tuple(part.isr_nodes),
        replicas=tuple(part.replica_nodes),
        adding=() if move is None else tuple(move.adding_replicas),
        removing=() if move is None else tuple(move.removing_replicas),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    id: int
    alive: bool
    drained: bool
    address: str
    rack: str | None
    controller: bool
    leaders: int
    replicas: int
    out_of_sync: int
    """Replicas here that are not in sync."""


def states(image: ClusterImage) -> Iterator[tuple[str, PartitionState]]:
    for name in sorted(image.topics):
        for state in image.topics[name].partitions:
            yield name, state


def broker_loads(image: ClusterImage) -> list[BrokerLoad]:
    """Every live broker, and every other one that still has partitions."""
    leaders = Counter(state.leader for _, state in states(image))
    replicas = Counter(replica for _, state in states(image) for replica in state.replicas)
    behind = Counter(
        replica for _, state in states(image) for replica in state.replicas if replica not in state.isr
    )
    known, takers = sorted({*image.brokers, *replicas}), staying(image)
    return [
        BrokerLoad(
            id=node,
            alive=node in image.brokers,
            drained=node in image.brokers and node not in takers,
            address=_address(image.brokers.get(node)),
            rack=image.brokers[node].rack if node in image.brokers else None,
            controller=node == image.controller,
            leaders=leaders[node],
            replicas=replicas[node],
            out_of_sync=behind[node],
        )
        for node in known
    ]


def under_replicated(image: ClusterImage) -> list[tuple[str, PartitionState]]:
    """Partitions with a replica that is not in sync, except those that a reassignment is adding."""
    return [
        (name, state)
        for name, state in states(image)
        if any(replica not in state.isr and replica not in state.adding for replica in state.replicas)
    ]


def moving(image: ClusterImage) -> list[tuple[str, PartitionState]]:
    return [(name, state) for name, state in states(image) if state.adding or state.removing]


def _address(broker: BrokerRegistration | None) -> str:
    if broker is None:
        return "away"
    return join_address(broker.host, broker.port)
