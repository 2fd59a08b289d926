"""Batch writes with a `jobId`, after they have succeeded."""

from __future__ import annotations

from forebay.spark.sink.transactions import id_prefixes
from forebay.spark.sink.transactions.batch_decisions import Ledger
from forebay.spark.wire.connections import Cluster

__all__ = ["forget_job"]


def forget_job(job_id: str, bootstrap: str, **options: str) -> bool:
    """Forget that a job has succeeded: its next write writes its rows. Whether there was such a job.

    `options` are those of a write, such as `**{"kafka.security.protocol": "SSL"}`.
    """
    with Cluster(bootstrap, options) as cluster:
        decision = Ledger(cluster, job_id).settled()
        id_prefixes.forget(cluster, job_id, decision)
        return decision is not None
