"""Chooses the replica that a consumer reads from (KIP-392)."""

from __future__ import annotations

from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.partition.leadership import Leadership


def closest_replica(
    image: ClusterImage, state: PartitionState, *, rack: str, leadership: Leadership, offset: int
) -> int | None:
    """The in-sync follower in the client's rack that has the requested offset (KIP-392); None: the leader."""
    brokers = image.brokers
    own = brokers.get(leadership.me)
    if not rack or (own is not None and own.rack == rack):
        return None
    for node in state.isr:
        broker, follower = brokers.get(node), leadership.followers.get(node)
        if broker is not None and broker.rack == rack and follower and follower.end_offset >= offset:
            return node
    return None
