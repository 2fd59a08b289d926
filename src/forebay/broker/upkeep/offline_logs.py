"""Logs that could not be written: looking whether they can be written now.

An append would find out too. But where a leader is left alone, because the disks of all replicas were full,
acks=all is refused before anything is appended, and no replica could ever join it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.errors import StorageError

if TYPE_CHECKING:
    from forebay.broker.partition.partition import Partition
    from forebay.broker.replication.isr import InSyncReplicas
    from forebay.broker.worker_threads import WorkerThreads


def may_come_back(partition: Partition) -> bool:
    return partition.log.offline is not None and not partition.log.offline_for_good


async def bring_back(partitions: list[Partition], workers: WorkerThreads, isr: InSyncReplicas) -> None:
    """Try every log in a thread; one that can be written is in use again, and may join the in-sync set."""
    for partition in partitions:
        try:
            await workers.run(partition.log.files.probe)
            if not partition.closed:
                partition.log.come_back()
                isr.consider(partition)
        except (OSError, StorageError):
            continue  # it is known to be offline
