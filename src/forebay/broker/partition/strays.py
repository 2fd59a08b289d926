"""Directories that a broker finds at its start, of partitions that are not its own.

A partition that was moved away while the broker was down is deleted, as it would have been then. It is out of
date: if it came back one day, messages that were deleted since would come back with it. Data of topics that
the store does not know is left alone, because only an administrator may delete it.
"""

from __future__ import annotations

import logging
from collections.abc import Set

from forebay.core.cluster.image import ClusterImage
from forebay.core.topic_partition import TopicPartition
from forebay.errors import StorageError
from forebay.storage.datadir import DataDir

log = logging.getLogger(__name__)


def sort_out_strays(data: DataDir, image: ClusterImage, own: Set[TopicPartition]) -> list[str]:
    """Put aside what was moved away; the paths, which are still to be removed."""
    deleted: list[str] = []
    for topic, index in data.partitions():
        if (topic, index) in own:
            continue
        if _is_known(data, image, topic, index):
            log.info("a partition was moved away", extra={"partition": f"{topic}-{index}"})
            deleted.append(data.delete_unopened(topic, index))
            continue
        if not data.clean:
            data.distrust(topic, index)
        log.warning(
            "a directory belongs to no topic of this cluster; remove it if you do not need it",
            extra={"directory": data.directory(topic, index)},
        )
    return deleted


def _is_known(data: DataDir, image: ClusterImage, topic: str, index: int) -> bool:
    """Whether a directory belongs to a topic of the image."""
    known = image.topics.get(topic)
    try:
        return known is not None and data.topic_id(topic, index) == known.topic_id
    except (OSError, StorageError):
        return False
