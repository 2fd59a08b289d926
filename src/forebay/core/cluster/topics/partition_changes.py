"""Counts the partitions that changes create and delete, for the quota controller_mutation_rate."""

from __future__ import annotations

from collections.abc import Iterable

from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change, TopicDeleted, TopicPut


def partitions_changed(image: ClusterImage, changes: Iterable[Change]) -> int:
    """`image`: the image before the changes."""
    count = 0
    for change in changes:
        if isinstance(change, TopicPut):
            before = image.topics.get(change.record.name)
            count += abs(len(change.record.assignment) - (0 if before is None else len(before.partitions)))
        elif isinstance(change, TopicDeleted):
            gone = image.topics.get(change.name)
            count += 0 if gone is None else len(gone.partitions)
    return count
