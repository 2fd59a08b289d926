"""What is kept of a batch write with a jobId that has succeeded: that it has.

The decision of a job lists its participants. When all of them are committed, a short record takes its place,
so that a job costs brokers as little as can be, and is known to be finished when its transactional ids have
expired. Forebay's brokers never let it expire. Others are told to keep it: OffsetCommit could say for how
long until version 4, and brokers that serve these versions still do as it says.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial

from forebay.errors import ForebayError
from forebay.spark.sink.transactions import id_prefixes
from forebay.spark.sink.transactions.batch_decisions import Ledger
from forebay.spark.sink.transactions.participants import SLOT, Decision, group_of, pieces_of
from forebay.spark.wire.connections import GROUP, Cluster, check
from forebay.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

_log = logging.getLogger(__name__)

_KEPT_MS = 1000 * 365 * 24 * 3600 * 1000
_WITH_RETENTION_VERSION = 4


def keep(cluster: Cluster, name: str) -> None:
    """Shorten the record of a job whose rows are all committed."""
    try:
        decision = Ledger(cluster, name).read()
        if decision is None or not decision.participants:
            return
        cluster.attempt(partial(_put, cluster, name, decision))
        for n in range(1, len(pieces_of(decision.text()))):
            cluster.attempt(partial(id_prefixes.forget_piece, cluster, group_of(name, n), decision.topic))
    except ForebayError as error:
        _log.warning("the record of %s stays as long as it was: %s", name, error)


def _put(cluster: Cluster, name: str, decision: Decision) -> None:
    (piece,) = pieces_of(replace(decision, participants=()).text())
    slot = OffsetCommitRequestPartition(
        partition_index=SLOT, committed_offset=decision.batch_id, committed_metadata=piece
    )
    request = OffsetCommitRequest(
        group_id=group_of(name),
        retention_time_ms=_KEPT_MS,
        topics=[OffsetCommitRequestTopic(name=decision.topic, partitions=[slot])],
    )
    answer = cluster.coordinator(group_of(name), GROUP).ask(request, _WITH_RETENTION_VERSION)
    for topic in answer.topics:
        for partition in topic.partitions:
            check(partition.error_code, f"the record of {name}")
