"""Brokers keep of a batch write with a jobId that it has succeeded.

The decision of a job lists its participants. When all of them are committed, a short record takes its place,
so that a job costs brokers as little as can be, and is known to be finished when its transactional ids have
expired.
"""

from __future__ import annotations

import logging

from forebay.errors import ForebayError
from forebay.spark.sink.transactions.batch_decisions import Ledger
from forebay.spark.sink.transactions.decision_records import DecisionRecords
from forebay.spark.wire.connections import Cluster

_log = logging.getLogger(__name__)


def keep(cluster: Cluster, name: str) -> None:
    """Shorten the record of a job whose rows are all committed."""
    try:
        decision = Ledger(cluster, name).read()
        if decision is not None and decision.participants:
            DecisionRecords(cluster, name).shorten(decision)
    except ForebayError as error:
        _log.warning("the record of %s stays as long as it was: %s", name, error)
