"""Leaving logs in order when a broker stops, so that the next start need not check them.

What was written since the last stop is synced by several threads: file systems commit syncs together that
come at the same time. A log that nobody wrote to costs no system call.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Executor

from forebay.broker.partition.partition import Partition
from forebay.broker.partition.producer_replay import save_producers
from forebay.errors import StorageError
from forebay.storage.datadir import DataDir

log = logging.getLogger(__name__)

_SHARES = 16


def close_logs(partitions: Sequence[Partition], pool: Executor, data: DataDir) -> bool:
    """Write, sync and close logs that are out of use; whether all of them were left in order. Blocks."""
    shares = [partitions[number::_SHARES] for number in range(_SHARES)]
    with pool:
        closed = list(pool.map(lambda share: _close_share(share, data), filter(None, shares)))
    for partition in partitions:
        partition.log.files.let_go()
    return all(closed)


def _close_share(partitions: Sequence[Partition], data: DataDir) -> bool:
    closed = [_close(partition, data) for partition in partitions]  # all of them, whatever happens
    return all(closed)


def _close(partition: Partition, data: DataDir) -> bool:
    log_ = partition.log
    try:
        if log_.end_offset and not log_.offline_for_good and not log_.has_snapshot:
            # For a log that is, the producers in memory may differ from those in it (truncation.py).
            save_producers(log_, partition.producers, sync=True)
        log_.files.settle()
        if log_.offline_for_good:
            # What it wrote may be gone, or was never whole: an orderly stop does not change that.
            data.distrust(partition.topic, partition.index)
    except (OSError, StorageError):
        log.exception("a log did not close cleanly", extra={"partition": str(partition)})
        return False
    return True
