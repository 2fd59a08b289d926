"""Mistakes with a store that was put back to an earlier state; see brokers.py."""

from __future__ import annotations

import pytest

from forebay.broker.cluster import store_memory
from forebay.broker.coordinators import producer_ids
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.replicas.restored_partitions import ClaimBook
from forebay.core.cluster.restore_image import Claim


def believe_restored_in_sync_sets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionState, "as_of", lambda self, _restore: self)


def elect_by_the_first_claim(patch: pytest.MonkeyPatch) -> None:
    """Replicas that have not reported yet are not waited for."""
    patch.setattr(ClaimBook, "missing", lambda self, key, replicas: set() if self.of(key) else set(replicas))


def elect_without_what_was_committed(patch: pytest.MonkeyPatch) -> None:
    """The latest leader epoch decides, also if its messages were never committed and others were."""
    patch.setattr(Claim, "has_committed", lambda _self, _other: True)


def give_out_producer_ids_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(store_memory, "PRODUCER_IDS_SKIPPED", 0)
    patch.setattr(producer_ids, "end_of_ids", lambda _table: 0)
    patch.setattr(producer_ids.ProducerIds, "_end", 0)
