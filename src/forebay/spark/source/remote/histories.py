"""Compares manifests with the logs of their leaders, so that no rows of a lost history are planned.

After an unclean election a manifest lists messages that the new leader does not have, until this leader
claims it. An epoch has one leader: whoever has the last epoch of the manifest, up to its end, has all of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from forebay.errors import KafkaError
from forebay.spark.source.offset_ranges import TopicPartition
from forebay.spark.wire.connections import BrokerConnection, Cluster, check
from forebay.tiers.object_store import ManifestError
from forebay.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from forebay.wire.tiers.manifest import Manifest


class _Known(NamedTuple):
    """What a leader knows of the last epoch in a manifest."""

    leader_epoch: int
    """That of the leader itself."""
    epoch: int
    """The last one up to that of the manifest; -1 if it knows none."""
    end_offset: int

    def has(self, manifest: Manifest) -> bool:
        if manifest.leader_epoch == self.leader_epoch and not manifest.is_made_anew:
            return True  # the leader has claimed it
        last = manifest.segments[-1]
        return self.epoch == last.last_epoch and self.end_offset >= last.next_offset


def check_histories(cluster: Cluster, manifests: Mapping[TopicPartition, Manifest]) -> None:
    """Raises ManifestError if a manifest lists what its leader does not have, or leaders do not tell. Costs a
    request for each leader."""
    listed = {at: manifest for at, manifest in manifests.items() if manifest.segments}
    try:
        known = cluster.attempt(lambda: dict(_ask_leaders(cluster, listed)))
    except KafkaError as error:
        raise ManifestError(f"brokers do not tell whose history is in the object store: {error}") from error
    for at, manifest in listed.items():
        if not known[at].has(manifest):
            raise ManifestError(
                f"the manifest of {at} may list messages of a lost history: its leader of epoch"
                f" {known[at].leader_epoch} does not have all of them, and has not claimed it yet"
            )


def _ask_leaders(
    cluster: Cluster, listed: Mapping[TopicPartition, Manifest]
) -> Iterator[tuple[TopicPartition, _Known]]:
    by_leader: dict[BrokerConnection, list[TopicPartition]] = defaultdict(list)
    for at in sorted(listed):
        by_leader[cluster.leader(*at)].append(at)
    for leader, places in by_leader.items():
        epochs = {at: cluster.leadership(*at).epoch for at in places}
        answer: OffsetForLeaderEpochResponse = leader.ask(_request(listed, epochs))
        for topic in answer.topics:
            for found in topic.partitions:
                at = TopicPartition(topic.topic, found.partition)
                check(found.error_code, f"the leader epochs of {at}")
                yield at, _Known(epochs[at], found.leader_epoch, found.end_offset)


def _request(
    listed: Mapping[TopicPartition, Manifest], epochs: Mapping[TopicPartition, int]
) -> OffsetForLeaderEpochRequest:
    """A broker that does not lead in this epoch, or not any more, answers with an error."""
    topics: dict[str, list[OffsetForLeaderPartition]] = defaultdict(list)
    for at, epoch in epochs.items():
        topics[at.topic].append(
            OffsetForLeaderPartition(
                partition=at.partition,
                current_leader_epoch=epoch,
                leader_epoch=listed[at].segments[-1].last_epoch,
            )
        )
    return OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=name, partitions=found) for name, found in topics.items()]
    )
