"""Directories that a broker finds at its start, of logs that it does not use.

The image decides about each as about a log in use (`core/cluster/replicas/log_fate.py`). A partition that
was moved away while the broker was down is deleted, as it would have been then. It is out of date: if it came
back one day, messages that were deleted since would come back with it. The logs of topics that were deleted
meanwhile are deleted. Logs of topics that the store does not know stay where they are, with a note: if the
store gets to know them again, they are used again. So do logs of topics and partitions that the store has and
this broker cannot read, and logs of partitions whose leader is about to be elected by what disks hold
(`replication/claims.py`). Everything else is put aside.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.replicas.log_fate import Fate, Verdict, decide_fate
from forebay.core.topic_partition import TopicPartition
from forebay.errors import StorageError
from forebay.storage.datadir import DataDir
from forebay.storage.strays import UNKNOWN_EPOCH

log = logging.getLogger(__name__)


def sort_out_strays(
    data: DataDir, image: ClusterImage, node_id: int, now_ms: int, keys: Iterable[TopicPartition]
) -> list[str]:
    """Decide about directories. Returns the paths of those that are still to be removed. Blocks."""
    deleted: list[str] = []
    for key in keys:
        is_own_name = _is_own_name(image, node_id, key)
        verdict = _verdict(data, image, node_id, key, is_own_name=is_own_name)
        if verdict.fate is Fate.USED:
            continue
        undecided = _why_undecided(data, image, key)
        if verdict.fate is Fate.DELETED and not undecided:
            log.info("a log is deleted", extra={"partition": f"{key[0]}-{key[1]}", "reason": verdict.reason})
            deleted.append(data.aside.delete(*key))
            continue
        if not data.clean:
            data.distrust(*key)
        if undecided:
            log.warning(
                "a log is kept as it is", extra={"partition": f"{key[0]}-{key[1]}", "reason": undecided}
            )
        else:
            _keep(data, is_own_name, key, verdict, now_ms)
    return deleted


def is_in_doubt(image: ClusterImage, topic: str, index: int) -> bool:
    """True if the store has something about the partition that cannot be read."""
    state = image.partition(topic, index)
    return topic in image.unreadable.topics or (state is not None and state.unreadable)


def report_stray(directory: str, reason: str) -> None:
    log.warning(
        "a log was put aside; see forebay log strays", extra={"directory": directory, "reason": reason}
    )


def _keep(data: DataDir, is_own_name: bool, key: TopicPartition, verdict: Verdict, now_ms: int) -> None:
    if verdict.is_unknown and not is_own_name:
        data.note_unused(*key, verdict.reason, now_ms)
        log.warning(
            "a log is not used; see forebay log strays",
            extra={"directory": data.directory(*key), "reason": verdict.reason},
        )
        return
    path = data.put_aside(*key, verdict.reason, now_ms)
    data.aside.sync(path)
    report_stray(path, verdict.reason)


def _why_undecided(data: DataDir, image: ClusterImage, key: TopicPartition) -> str:
    """Why it cannot be said yet whether the log is needed; empty if it can."""
    if is_in_doubt(image, *key):
        return "the store has something about it that cannot be read"
    state = image.partition(*key)
    if state is not None and state.unsettled and _is_known(data, image, key):
        # The store was put back, and the partition may have been moved here since.
        return "the store has it elsewhere, and a leader is elected by what all brokers hold"
    return ""


def _is_known(data: DataDir, image: ClusterImage, key: TopicPartition) -> bool:
    """True if the log belongs to a topic of the image."""
    known = image.topics.get(key[0])
    try:
        return known is not None and data.topic_id(*key) == known.topic_id
    except (OSError, StorageError):
        return False


def _verdict(
    data: DataDir, image: ClusterImage, node_id: int, key: TopicPartition, *, is_own_name: bool
) -> Verdict:
    try:
        topic_id = data.topic_id(*key)
    except (OSError, StorageError):
        topic_id = None
    if topic_id is None:
        # Whoever opens the partition of its name finds out what it is.
        fate = Fate.USED if is_own_name else Fate.PUT_ASIDE
        return Verdict(fate, "it does not say its topic id", is_unknown=True)
    counts = image.topic_by_id(topic_id) is not None and not is_own_name
    last_epoch = data.last_epoch(*key) if counts else UNKNOWN_EPOCH
    return decide_fate(image, node_id, topic_id, key[1], last_epoch, store_behind=data.store_behind)


def _is_own_name(image: ClusterImage, node_id: int, key: TopicPartition) -> bool:
    """True if a partition of this name belongs to the broker, whatever topic it is of."""
    state = image.partition(*key)
    return state is not None and node_id in state.replicas
