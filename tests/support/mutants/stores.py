"""Mistakes of brokers that trust whatever answers in place of their store."""

from __future__ import annotations

import pytest

from forebay.broker.coordinators import producer_ids
from forebay.broker.partition.unused import strays, unused_logs
from forebay.coordination import metadata, producer_id_counter
from forebay.coordination.metadata import Metadata
from forebay.coordination.store import Store
from forebay.coordination.store_identity import Header, KnownStore
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.replicas import log_fate
from forebay.core.cluster.replicas.log_fate import Fate, Verdict


def believe_any_store(patch: pytest.MonkeyPatch) -> None:
    """Who answers, and how far it has come, is noted and makes no difference."""

    def note(self: KnownStore, header: Header, _: object = None, **__: object) -> None:
        self.store, self.revision = self.store or header.store, max(self.revision, header.revision)

    patch.setattr(KnownStore, "mismatch", note)
    patch.setattr(metadata, "check_image", lambda *_, **__: None)
    patch.setattr(metadata, "check_events", lambda *_: None)


def believe_a_store_that_went_back(patch: pytest.MonkeyPatch) -> None:
    """The id of the store is compared, and nothing else."""
    looked_at = KnownStore.mismatch
    patch.setattr(KnownStore, "mismatch", lambda self, header, _=None, **__: looked_at(self, header))
    patch.setattr(metadata, "check_image", lambda *_, **__: None)


def take_producer_ids_by_any_answer(patch: pytest.MonkeyPatch) -> None:
    """An older state of the store gives out ids, too."""

    async def hasty(metadata: Metadata, store: Store, count: int, *, floor: int = 0) -> range:
        return (await producer_id_counter.allocate_producer_ids(store, metadata.keys, count, floor=floor)).ids

    patch.setattr(producer_ids, "take_producer_ids", hasty)


def delete_logs_by_absence(patch: pytest.MonkeyPatch) -> None:
    """A topic that is not there counts as deleted."""

    def hasty(
        image: ClusterImage,
        node_id: int,
        topic_id: bytes,
        index: int,
        last_epoch: int,
        *,
        store_behind: bool = False,
    ) -> Verdict:
        found = log_fate.decide_fate(image, node_id, topic_id, index, last_epoch, store_behind=store_behind)
        return found if found.fate is Fate.USED else Verdict(Fate.DELETED, found.reason)

    patch.setattr(unused_logs, "decide_fate", hasty)
    patch.setattr(strays, "decide_fate", hasty)
