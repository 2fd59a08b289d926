"""More replicas for the brokers' own topics, when the cluster has grown since they were made.

Groups and transactions live in internal topics, which are made when the first client asks for them: perhaps
when the first of three brokers had just started. Nobody chose one replica for them, so nobody has to mend it.
"""

from __future__ import annotations

from collections import Counter

from forebay.core.image import ClusterImage, PartitionPut, PartitionState, TopicImage
from forebay.core.placement import racks_of
from forebay.core.reassignment import reassign, reassigning
from forebay.core.topics import INTERNAL_TOPICS

_REPLICAS_WANTED = 3


def widen(image: ClusterImage, replication_factor: int = -1) -> list[PartitionPut]:
    """Moves that give internal topics the replicas that they would get today; -1: three, or all brokers."""
    wanted = _REPLICAS_WANTED if replication_factor < 0 else replication_factor
    wanted = min(wanted, len(image.brokers))
    topics = (image.topics[name] for name in INTERNAL_TOPICS if name in image.topics)
    load = _load(image)
    return [
        change
        for topic in topics
        for state in topic.partitions
        if len(state.replicas) < wanted and state.leader in image.brokers and not reassigning(state)
        for change in _widened(image, topic, state, wanted, load)
    ]


def internal_moves(image: ClusterImage) -> bool:
    """Whether any internal topic is being moved."""
    topics = (image.topics[name] for name in INTERNAL_TOPICS if name in image.topics)
    return any(reassigning(state) for topic in topics for state in topic.partitions)


def _widened(
    image: ClusterImage, topic: TopicImage, state: PartitionState, wanted: int, load: Counter[int]
) -> list[PartitionPut]:
    racks = racks_of(image.brokers)
    target = list(state.replicas)
    while len(target) < wanted:
        used = Counter(racks.get(broker) for broker in target)
        free = [broker for broker in racks if broker not in target]
        if not free:
            break  # replicas on brokers that are away take the places
        chosen = min(free, key=lambda broker: (used[racks[broker]], load[broker], broker))
        load[chosen] += 1
        target.append(chosen)
    return reassign(image, topic.name, state.index, target)


def _load(image: ClusterImage) -> Counter[int]:
    return Counter(
        broker for topic in image.topics.values() for state in topic.partitions for broker in state.replicas
    )
