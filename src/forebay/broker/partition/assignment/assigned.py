"""Questions to a cluster image: which partitions does it assign to a broker?"""

from __future__ import annotations

from collections.abc import Container, Iterator

from forebay.broker.partition.partition import Partition
from forebay.broker.partition.unused.strays import is_in_doubt
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.images.topic_image import TopicImage
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.topic_partition import TopicPartition


def is_assigned(image: ClusterImage, node_id: int, key: TopicPartition) -> bool:
    """True also if the image cannot tell."""
    if image.unreadable and is_in_doubt(image, *key):
        return True
    state = image.partition(*key)
    return state is not None and node_id in state.replicas


def still_assigned(image: ClusterImage, node_id: int, partition: Partition) -> bool:
    """Like `is_assigned`, for this very partition: not for another of its name, of a new topic."""
    if partition.topic in image.unreadable.topics:
        return True
    topic = image.topic_by_id(partition.topic_id)
    if topic is None or partition.index >= len(topic.partitions):
        return False
    state = topic.partitions[partition.index]
    return state.unreadable or node_id in state.replicas


def assigned_partitions(image: ClusterImage, node_id: int) -> Iterator[tuple[TopicImage, PartitionState]]:
    """All partitions that are assigned to a broker and can be read."""
    for topic in image.topics.values():
        for state in topic.partitions:
            if node_id in state.replicas and not state.unreadable:
                yield topic, state


def changed_partitions(
    image: ClusterImage, before: ClusterImage, node_id: int, usable: Container[TopicPartition]
) -> Iterator[tuple[TopicImage, PartitionState]]:
    """Of those, the ones that may have changed since the image before, or are not in use.

    After a death the image changes many times, and few partitions of a topic each time.
    """
    for topic in image.topics.values():
        if before.topics.get(topic.name) is topic:
            continue
        known = _known_states(before, image, topic)
        for state in topic.partitions:
            same = known and known[state.index] is state and (topic.name, state.index) in usable
            if node_id in state.replicas and not same and not state.unreadable:
                yield topic, state


def _known_states(before: ClusterImage, after: ClusterImage, topic: TopicImage) -> tuple[PartitionState, ...]:
    """The states of a topic's partitions before; none if more than states has changed."""
    known = before.topics.get(topic.name)
    same = known is not None and known.record is topic.record and before.fills is after.fills
    return known.partitions if known is not None and same else ()


def changed_keys(before: ClusterImage, after: ClusterImage) -> Iterator[TopicPartition]:
    """Partitions that are gone, or have another state. After a death there are many images, and few changes
    in each."""
    for name, topic in before.topics.items():
        now = after.topics.get(name)
        if now is topic:
            continue
        if now is None or now.topic_id != topic.topic_id or len(now.partitions) < len(topic.partitions):
            yield from ((name, state.index) for state in topic.partitions)
        else:
            known = zip(topic.partitions, now.partitions, strict=False)
            yield from ((name, old.index) for old, new in known if old is not new)
