"""The logs on the disk that this broker does not use any more: deleted, or put aside.

Names change at once, on the loop. Files are removed and synced later, in threads (`work_off`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial

from forebay.broker.partition.partition import Partition
from forebay.broker.partition.unused.strays import report_stray, sort_out_strays
from forebay.broker.worker_threads import WorkerThreads
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.replicas.log_fate import Fate, decide_fate
from forebay.core.topic_partition import TopicPartition
from forebay.storage.datadir import DataDir

log = logging.getLogger(__name__)


class UnusedLogs:
    def __init__(
        self, data: DataDir, node_id: int, workers: WorkerThreads, now_ms: Callable[[], int]
    ) -> None:
        self._data = data
        self._node_id = node_id
        self._workers = workers
        self._now_ms = now_ms
        self._deleted: list[str] = []
        """Directories moved out of the way, still to be removed."""
        self._unsynced: list[str] = []
        """Directories of logs that were put aside, still to be synced."""

    def sort_out(self, image: ClusterImage, keys: Iterable[TopicPartition]) -> None:
        """Decide about directories that are not open yet. Blocks; any thread."""
        found = sort_out_strays(self._data, image, self._node_id, self._now_ms(), keys)
        self._deleted.extend(found)  # only now: `work_off` takes the list away meanwhile

    def let_go(self, partition: Partition, image: ClusterImage) -> None:
        """Close the log of a partition and delete it or put it aside. Raises OSError and StorageError."""
        key = (partition.topic, partition.index)
        # It has followed its leader in this term, if nothing was written in it, too.
        last_epoch = max(partition.epochs.latest, partition.leader_epoch)
        verdict = decide_fate(
            image,
            self._node_id,
            partition.topic_id,
            partition.index,
            last_epoch,
            store_behind=self._data.store_behind,
        )
        if verdict.fate is Fate.DELETED:
            self._deleted.append(self._data.delete_log(*key, partition.log))
            return
        path = self._data.put_aside(
            *key, verdict.reason, self._now_ms(), partition.log, partition.high_watermark
        )
        report_stray(path, verdict.reason)
        self._unsynced.append(path)

    async def work_off(self) -> None:
        """Remove the directories of deleted partitions, and sync those put aside, beside the loop."""
        await self._sync()
        paths, self._deleted = self._deleted, []
        for path in paths:
            try:
                await self._workers.run(partial(self._data.aside.remove, path))
            except OSError as error:
                log.warning(
                    "a deleted partition could not be removed yet",
                    extra={"directory": path, "reason": str(error)},
                )
                self._deleted.append(path)

    async def _sync(self) -> None:
        if self._data.aside.count:
            await self._workers.run(self._data.aside.recount)
        paths, self._unsynced = self._unsynced, []
        for path in paths:
            try:
                await self._workers.run(partial(self._data.aside.sync, path))
            except OSError as error:
                # It is checked when somebody takes it back.
                log.warning(
                    "a log that was put aside may not be whole after a loss of power",
                    extra={"directory": path, "reason": str(error)},
                )
