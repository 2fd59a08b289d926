"""Reporting what this broker's disk holds of partitions whose leaders are elected after a restore.

While the image shows unsettled partitions, each broker keeps its claims in the store, under its lease
(`core/cluster/restore_image.py`). They cover its own replicas, and logs that the store has elsewhere:
such a partition may have been moved here after the backup was made. A claim stays true as long as it is
there, because nothing is written to the log of an unsettled partition. A replica whose log is lent or cannot
be opened is not claimed; then the others wait. For a log that the store has elsewhere they would not, so it
is claimed as one of which nothing is known.

A partition whose log has later leader epochs than the store is made unsettled from here, too. That happens
when the store was put back and nothing else has shown it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from forebay.broker.cluster.held_lease import HeldLease
from forebay.broker.partition.opening.partition_opener import PartitionOpener
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.table import PartitionTable
from forebay.broker.telemetry.metrics import Metrics
from forebay.broker.worker_threads import WorkerThreads
from forebay.coordination.metadata import Metadata
from forebay.coordination.store import Delete, Put, Store, StoreError
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.images.topic_image import TopicImage
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.replicas.restored_partitions import doubt, unsettled_partitions
from forebay.core.cluster.restore_image import UNKNOWN, Claim, PartitionKey
from forebay.core.cluster.stored.restore_text import encode_claims
from forebay.errors import StorageError
from forebay.storage.datadir import DataDir

log = logging.getLogger(__name__)

_LOOK_AGAIN_S = 0.25
_EPOCHS_CLAIMED = 4
"""So many of the last leader epochs are in a claim: logs of replicas differ at their ends."""

Report = tuple[int, int, dict[PartitionKey, Claim]]
"""The generation of the restore, the broker epoch, and the claims."""


class Claims:
    def __init__(
        self,
        *,
        node_id: int,
        metadata: Metadata,
        store: Store,
        lease: HeldLease,
        data: DataDir,
        opener: PartitionOpener,
        partitions: PartitionTable,
        workers: WorkerThreads,
        metrics: Metrics,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._store = store
        self._lease = lease
        self._data = data
        self._opener = opener
        self._partitions = partitions
        self._workers = workers
        self._metrics = metrics
        self._reported: Report | None = None
        """The report that the store has, if that is certain."""
        self._has_reported = False
        """The store may have claims of this broker."""
        self._ahead: set[PartitionKey] = set()
        """Partitions whose logs have later leader epochs than the store."""
        self._foreign: dict[PartitionKey, Claim | None] = {}
        """Claims measured on this disk for partitions that the store has elsewhere, or None. Their logs are
        not used."""
        self._changed = asyncio.Event()

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        if before.topics is not after.topics or before.brokers is not after.brokers:
            self._changed.set()

    def found_ahead(self, partition: Partition, state: PartitionState) -> None:
        log.error(
            "a log has later leader epochs than the store knows of, as after the restore of a backup: its "
            "leader is elected by what the replicas hold",
            extra={
                "partition": str(partition),
                "epoch": partition.last_epoch,
                "epoch in the store": state.leader_epoch,
            },
        )
        self._metrics.epochs_ahead += 1
        self._ahead.add((partition.topic_id, partition.index))
        self._changed.set()

    async def run(self) -> None:
        while True:
            try:
                await self._look()
            except StoreError as error:
                log.warning("what this broker holds cannot be reported yet", extra={"reason": str(error)})
                await asyncio.sleep(_LOOK_AGAIN_S)
                continue
            unsettled = self._has_reported or bool(self._ahead)
            try:
                async with asyncio.timeout(_LOOK_AGAIN_S if unsettled else None):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()

    async def _look(self) -> None:
        if not self._lease.valid():
            return
        if self._ahead:
            await self._doubt()
        image = self._metadata.image
        if not image.unsettled:
            await self._withdraw()
            return
        if not image.restore.is_readable:
            return  # `StoreMemory` writes a new marker
        await self._measure_foreign(image)
        report = (image.restore.generation, self._lease.epoch, self._claims(image))
        if report != self._reported:
            await self._write(report)

    async def _doubt(self) -> None:
        ahead, self._ahead = self._ahead, set()
        try:
            failed = await self._metadata.change_all(doubt(self._metadata.image, ahead))
        except StoreError:
            self._ahead |= ahead
            raise
        if failed:
            self._ahead |= ahead  # another broker may have done it: what is unsettled is left out

    # -- what is here ----------------------------------------------------------------------------------

    def _claims(self, image: ClusterImage) -> dict[PartitionKey, Claim]:
        claims: dict[PartitionKey, Claim] = {}
        for topic, state in unsettled_partitions(image):
            key, place = (topic.topic_id, state.index), (topic.name, state.index)
            partition = self._partitions.usable.get(place)
            foreign = self._foreign.get(key)
            if partition is not None and partition.topic_id == topic.topic_id:
                claims[key] = claim_of(partition)
            elif place in self._partitions.lent and self._node_id not in state.replicas:
                claims[key] = UNKNOWN
            elif foreign is not None:
                claims[key] = foreign
        return claims

    async def _measure_foreign(self, image: ClusterImage) -> None:
        """Look at logs of unsettled partitions that the store has elsewhere, at each of them once."""
        wanted = [
            (topic, state)
            for topic, state in unsettled_partitions(image)
            if self._node_id not in state.replicas
            and (topic.topic_id, state.index) not in self._foreign
            and (topic.name, state.index) not in self._partitions.lent
        ]
        if wanted:
            self._foreign |= await self._workers.run(partial(self._measure_all, image, wanted))

    def _measure_all(
        self, image: ClusterImage, wanted: Sequence[tuple[TopicImage, PartitionState]]
    ) -> dict[PartitionKey, Claim | None]:
        """In a thread."""
        here = set(self._data.partitions())
        return {
            (topic.topic_id, state.index): self._measure(image, topic, state)
            if (topic.name, state.index) in here
            else None
            for topic, state in wanted
        }

    def _measure(self, image: ClusterImage, topic: TopicImage, state: PartitionState) -> Claim | None:
        """None if the log is that of another topic. `UNKNOWN` if it cannot be opened."""
        place = (topic.name, state.index)
        try:
            if self._data.topic_id(*place) != topic.topic_id:
                return None
            partition = self._opener.open(image, topic, state)
            if isinstance(partition, StorageError):
                raise partition
            claim = claim_of(partition)
            partition.log.files.close()
        except (OSError, StorageError) as error:
            log.error(
                "a log that the store has elsewhere cannot be opened: its partition has no leader before it "
                "can be, or an unclean election is asked for",
                extra={"directory": self._data.directory(*place), "reason": str(error)},
            )
            return UNKNOWN
        return claim

    # -- the store -------------------------------------------------------------------------------------

    async def _write(self, report: Report) -> None:
        generation, broker_epoch, claims = report
        self._reported, self._has_reported = None, True
        lease = self._lease.current
        assert lease is not None
        prefix = self._metadata.keys.claims(self._node_id)
        # First of all the old ones go: a report of two times would be none.
        await self._store.txn(deletes=[Delete(key=prefix, prefix=True)])
        for number, value in enumerate(encode_claims(claims, generation, broker_epoch)):
            await self._store.txn(puts=[Put(key=f"{prefix}{number}", value=value, lease=lease.id)])
        self._reported = report

    async def _withdraw(self) -> None:
        if self._has_reported:
            await self._store.txn(
                deletes=[Delete(key=self._metadata.keys.claims(self._node_id), prefix=True)]
            )
            self._reported, self._has_reported = None, False
            self._foreign.clear()
        self._data.store_behind = False


def claim_of(partition: Partition) -> Claim:
    epochs = partition.epochs
    # A copy of a compacted log may begin an epoch later, or lack it: the batches are gone that showed it.
    last = () if partition.config.compacted else tuple(epochs.entries[-_EPOCHS_CLAIMED:])
    return Claim(
        partition.last_epoch, partition.log.end_offset, epochs.latest, partition.high_watermark, last
    )
