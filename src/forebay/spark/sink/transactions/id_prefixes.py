"""Brokers can renew all transactions of a run, or of a name, at once, and forget their ids.

Only Forebay's brokers can (decision 0015); with others transactions time out, and transactional ids expire.
The request goes to the coordinator of the driver's transaction, which has those of the tasks as well
(`coordinator_choice.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from forebay.errors import ErrorCode, KafkaError
from forebay.spark.sink.transactions.decision_records import DecisionRecords
from forebay.spark.sink.transactions.participants import group_of, transactional_id_of
from forebay.spark.wire.connections import TRANSACTION, Cluster
from forebay.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from forebay.wire.messages.end_txn import END_TOGETHER, LOOKS_AFTER_FAMILIES

RENEWED_TIMEOUT_MS = 120_000
"""Of transactions that are renewed: as long as Spark may take to notice that a machine has died."""
TIMEOUT_MS = 15 * 60_000
"""Of others. The longest that brokers allow by default: a batch has to be written and committed within it."""

_ADD_PARTITIONS_VERSION = 3


def family_of(name: str, run: str) -> str:
    """How the transactional ids of all attempts of a run begin."""
    return transactional_id_of(name, f"{run}-")


def timeout_ms(cluster: Cluster, name: str) -> int:
    """How long the transactions of tasks may stay open, unless a user says otherwise."""
    return RENEWED_TIMEOUT_MS if can_look_after(cluster, name) else TIMEOUT_MS


def can_look_after(cluster: Cluster, name: str) -> bool:
    def ask() -> bool:
        coordinator = cluster.coordinator(group_of(name), TRANSACTION)
        return coordinator.has_feature(END_TOGETHER, LOOKS_AFTER_FAMILIES)

    return cluster.attempt(ask)


def renew(cluster: Cluster, name: str, run: str, *, limit_s: float | None = None) -> int:
    """Let the timeouts of a run's transactions count anew; how many are open."""
    return cluster.attempt(partial(_look_after, cluster, name, renew=[family_of(name, run)]), limit_s=limit_s)


def forget(cluster: Cluster, name: str) -> bool:
    """Delete what brokers keep for a name that is not used again: its decision and its transactional ids.

    Whether there was a decision.
    """
    known = DecisionRecords(cluster, name).delete()
    forget_ids(cluster, name)
    return known


def forget_ids(cluster: Cluster, name: str) -> None:
    if can_look_after(cluster, name):
        families = [transactional_id_of(name, ""), group_of(name)]
        cluster.attempt(partial(_look_after, cluster, name, forget=families))


def _look_after(cluster: Cluster, name: str, *, renew: Sequence[str] = (), forget: Sequence[str] = ()) -> int:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=group_of(name), renew=list(renew), forget=list(forget)
    )
    coordinator = cluster.coordinator(group_of(name), TRANSACTION)
    affected: int = coordinator.ask(request, _ADD_PARTITIONS_VERSION).affected
    if affected < 0:
        raise KafkaError(ErrorCode.NOT_COORDINATOR, f"the coordinator of {group_of(name)} has moved")
    return affected
