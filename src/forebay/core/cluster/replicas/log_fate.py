"""Decides about a log on a broker's disk: it is used, deleted, or set aside for a person to decide.

A log is deleted only if the store says explicitly that it is not needed:

- its topic was deleted, and the store has a tombstone of it, or this broker has seen the deletion;
- its topic exists, and its partition belongs to other brokers now;
- its topic exists, and its partition was folded into others and removed.

In the last two cases the store must be newer than the log. A log with leader epochs that the store does not
know was written in a time that the store has lost: the store was restored from a backup, and the log may be
the only one with these messages. The same holds if a leader has been elected since by comparing logs
(`restored_partitions.py`) and the log has nothing of that leader: it may not have been considered. Such a
leader is recognised by its epoch, which is far above earlier ones.

A log whose topic is merely missing is set aside.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.images.topic_image import TopicImage
from forebay.core.cluster.restore_image import is_before_election

EPOCH_MAX = 2**31 - 1
UNREADABLE_EPOCHS = "its leader epochs cannot be read"


class Fate(Enum):
    USED = "used"
    DELETED = "deleted"
    PUT_ASIDE = "put aside"


class Verdict(NamedTuple):
    fate: Fate
    reason: str
    is_unknown: bool = False
    """True if the store knows nothing of the topic: neither its record nor its deletion."""


def decide_fate(
    image: ClusterImage,
    node_id: int,
    topic_id: bytes,
    index: int,
    last_epoch: int,
    *,
    store_behind: bool = False,
) -> Verdict:
    """`last_epoch`: the last leader epoch in the log, beyond EPOCH_MAX if it cannot be read. `store_behind`:
    the store has gone back.
    """
    topic = image.topic_by_id(topic_id)
    if topic is not None:
        return _of_known(topic, node_id, index, last_epoch, store_behind)
    if topic_id in image.deleted:
        return Verdict(Fate.DELETED, "its topic was deleted")
    return Verdict(
        Fate.PUT_ASIDE, "the store knows neither its topic nor that it was deleted", is_unknown=True
    )


def _of_known(topic: TopicImage, node_id: int, index: int, last_epoch: int, store_behind: bool) -> Verdict:
    if index < len(topic.partitions):
        state = topic.partitions[index]
        if node_id in state.replicas:
            return Verdict(Fate.USED, "it belongs to this broker")
        newest, reason = state.leader_epoch, "its partition belongs to other brokers"
    else:
        folding = topic.record.folding
        if folding is None or all(gone.partition != index for gone in folding.gone):
            return Verdict(Fate.PUT_ASIDE, "its topic has fewer partitions, and the store does not say why")
        newest, reason = folding.last_epoch, "its partition was folded and is gone"
    if store_behind:
        return Verdict(Fate.PUT_ASIDE, f"{reason}, says a store that has gone back")
    if last_epoch > EPOCH_MAX:
        return Verdict(Fate.PUT_ASIDE, f"{reason}, and {UNREADABLE_EPOCHS}")
    if newest < last_epoch:
        return Verdict(
            Fate.PUT_ASIDE,
            f"{reason}, says a store that knows leader epoch {newest}, and it has {last_epoch}",
        )
    if is_before_election(last_epoch, newest):
        return Verdict(
            Fate.PUT_ASIDE,
            f"{reason}, and a leader was elected by what disks hold in epoch {newest}, perhaps without it",
        )
    return Verdict(Fate.DELETED, reason)
