"""Batch writes with a `jobId`, after they have succeeded."""

from __future__ import annotations

from functools import partial

from forebay.spark.sink.transactions import id_prefixes
from forebay.spark.sink.transactions.batch_decisions import Ledger
from forebay.spark.sink.transactions.participants import names_for_topics
from forebay.spark.wire.connections import Cluster, check
from forebay.wire.messages.list_groups import ListGroupsRequest

__all__ = ["forget_job"]


def forget_job(job_id: str, bootstrap: str, **options: str) -> bool:
    """Forget that a job has succeeded: its next write writes its rows. Whether there was such a job.

    The same for a stream with this `streamId`, in every topic that it has written to. `options` are those of
    a write, such as `**{"kafka.security.protocol": "SSL"}`.
    """
    with Cluster(bootstrap, options) as cluster:
        groups = cluster.attempt(partial(_groups, cluster))
        known = False
        for name in (job_id, *names_for_topics(job_id, groups)):
            Ledger(cluster, name).settled()  # nobody is about to decide
            known |= id_prefixes.forget(cluster, name)
        return known


def _groups(cluster: Cluster) -> list[str]:
    found = []
    for broker in cluster.everyone():
        answer = broker.ask(ListGroupsRequest())
        check(answer.error_code, "the list of groups")
        found += [each.group_id for each in answer.groups]
    return found
