"""Elects a partition's leader after the store was restored to an earlier state, by comparing logs on disk.

The stored in-sync set is from an earlier time: members may have left it since, and messages may have been
committed without them. So it is not trusted, and the replica with the longest history leads: the one with the
latest leader epoch in its log, and among several of these the one with the most messages. Every leader had
all messages that were committed before its epoch, and every replica with messages of that epoch has copied
them from it, with everything before. So the replica with the latest epoch and the largest end has every
message that was committed in its own epoch or one before. While a replica is away, the partition has no
leader.

A leader may also commit what leaders before it have written, and write nothing itself. A replica that was
away then may have messages of an epoch in between, which were never committed, and so the latest epoch. It
is left out if it lacks what another replica knows to be committed, by its high watermark. (In a compacted
topic only if its log ends before that: copies do not know all epochs of what they have. And only an unclean
election can have committed what contradicts itself. Then the longest history counts, as ever.)

The restored store may also list replicas that the partition was moved away from. Their logs are empty, or
old. So brokers that are not listed report their logs, too. The election waits for all registered brokers,
also for logs that they have and cannot read. If a replica has nothing at all, it waits for all known brokers,
because one of them may hold the log. If that log has the longest history its broker leads, and the partition
moves from there to the replicas that the store lists.

The new leader epoch is far above every epoch that any replica knows, and the leader is the only in-sync
replica until others have copied from it. An administrator who does not want to wait asks for an unclean
election.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import cached_property

from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import PartitionPut
from forebay.core.cluster.images.topic_image import TopicImage
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.placement import drained_brokers
from forebay.core.cluster.restore_image import EPOCHS_SKIPPED, Claim, PartitionKey, reports


class ClaimBook:
    """The brokers' claims in an image. Built once for many partitions: it looks at all claims."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.generation = image.restore.generation
        epochs = {node: broker.epoch for node, broker in image.brokers.items()}
        self._reports = reports(image.claims, self.generation, epochs)
        self._silent = image.brokers.keys() - self._reports.keys()
        """Registered brokers that have not reported yet."""

    @cached_property
    def _known(self) -> frozenset[int]:
        """Every broker that may have a log."""
        image = self.image
        replicas = {
            replica
            for topic in image.topics.values()
            for state in topic.partitions
            for replica in state.replicas
        }
        return (image.nodes - drained_brokers(image)) | image.brokers.keys() | replicas

    def of(self, key: PartitionKey) -> dict[int, Claim]:
        """Each broker's claim to a partition, as far as it can be read; live brokers only."""
        found = ((node, report.get(key)) for node, report in self._reports.items())
        return {node: claim for node, claim in found if claim is not None and not claim.is_unknown}

    def missing(self, key: PartitionKey, replicas: Collection[int]) -> set[int]:
        """The brokers whose report is needed before a leader can be elected."""
        silent, is_empty = set(self._silent), False
        for node, report in self._reports.items():
            claim = report.get(key)
            if claim is None:
                if node in replicas:
                    silent.add(node)
            elif claim.is_unknown:
                silent.add(node)
            elif claim.is_empty and node in replicas:
                is_empty = True
        silent.update(replica for replica in replicas if replica not in self._reports)
        return set(self._known - self._reports.keys()) if is_empty and not silent else silent


def unsettled_partitions(image: ClusterImage) -> Iterator[tuple[TopicImage, PartitionState]]:
    """Yields them by the names of their topics, so that a decision does not depend on how strings hash."""
    for name in sorted(image.unsettled):
        topic = image.topics[name]
        yield from ((topic, state) for state in topic.partitions if state.unsettled)


def settle_unsettled(image: ClusterImage) -> tuple[list[PartitionPut], dict[int, int]]:
    """Elect leaders where enough is known; also count the partitions that wait for each missing broker."""
    changes: list[PartitionPut] = []
    awaited: dict[int, int] = {}
    if not image.unsettled or not image.restore.is_readable:
        return changes, awaited
    book = ClaimBook(image)
    for topic, state in unsettled_partitions(image):
        key = (topic.topic_id, state.index)
        missing = book.missing(key, state.replicas)
        after = state if missing else elect_by_claims(state, key, book)
        if after is not state:
            changes.append(PartitionPut(topic_id=topic.topic_id, state=after))
        for node in missing:
            awaited[node] = awaited.get(node, 0) + 1
    return changes, awaited


def elect_by_claims(state: PartitionState, key: PartitionKey, book: ClaimBook) -> PartitionState:
    """The state with the replica of the longest history as leader; the same object without any report."""
    claims = book.of(key)
    if not claims:
        return state
    places = {replica: place for place, replica in enumerate(state.replicas)}
    leader = max(
        _with_all_committed(claims),
        key=lambda node: (claims[node][:2], -places.get(node, len(places)), -node),
    )
    replicas, removing = state.replicas, state.removing
    if leader not in places:
        replicas, removing = (leader, *replicas), (*removing, leader)
    return replace(
        state,
        leader=leader,
        # Two restores of the same backup also have different epochs.
        leader_epoch=max(_latest_epoch(state, claims.values()), book.generation * EPOCHS_SKIPPED)
        + EPOCHS_SKIPPED,
        isr=(leader,),
        replicas=replicas,
        removing=removing,
        restored=book.generation,
        doubted=False,
        unsettled=False,
    )


def _with_all_committed(claims: dict[int, Claim]) -> Collection[int]:
    """The replicas that may have every message of which any replica knows that it was committed; all, if
    there is no such replica."""
    known = claims.values()
    return [node for node in claims if all(claims[node].has_committed(each) for each in known)] or claims


def _latest_epoch(state: PartitionState, claims: Iterable[Claim]) -> int:
    return max(state.leader_epoch, *(max(claim.epoch, claim.latest_epoch) for claim in claims))


def doubt(image: ClusterImage, partitions: Collection[PartitionKey]) -> list[PartitionPut]:
    """The changes to write when replicas have later leader epochs than the store."""
    return [
        PartitionPut(topic_id=topic.topic_id, state=replace(state, doubted=True))
        for topic in image.topics.values()
        for state in topic.partitions
        if not state.unsettled and (topic.topic_id, state.index) in partitions
    ]
