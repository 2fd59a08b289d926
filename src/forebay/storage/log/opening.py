"""Opens a log: in any thread, which then hands it over to the loop that will own it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from forebay.clock import Clock, SystemClock
from forebay.errors import StorageError
from forebay.storage.disk import Disk
from forebay.storage.log.config import LogConfig
from forebay.storage.log.log import Log
from forebay.storage.log.recovery.log_recovery import OpenOptions, open_segments


def open_log(
    disk: Disk,
    directory: str,
    config: LogConfig | None = None,
    *,
    clock: Clock | None = None,
    start_offset: int = 0,
    recovery_point: int = 0,
    clean: bool = False,
    power_lost: bool = True,
    in_new_directory: bool = False,
    txn_indexed: bool = False,
    note_start: Callable[[int], None] = lambda _: None,
) -> Log:
    """The log in a directory, created if need be; unless `clean`, checked and repaired. Blocks.

    `power_lost`: unless the stop was clean, unsynced data may be gone. `in_new_directory`: the directory was
    just made. `txn_indexed`: see `OpenOptions`. `note_start` records that the log begins later than
    `start_offset`.
    """
    config = config or LogConfig()
    if not in_new_directory and not disk.exists(directory):
        disk.mkdirs(directory)
    options = OpenOptions(
        start_offset=start_offset,
        recovery_point=recovery_point,
        clean=clean,
        power_lost=power_lost,
        in_new_directory=in_new_directory,
        txn_indexed=txn_indexed,
        index_interval_bytes=config.index_interval_bytes,
        note_start=note_start,
    )
    log = Log(disk, directory, config, clock or SystemClock(), open_segments(disk, directory, options))
    if log.report.missing_offsets:
        log.take_offline(
            f"{directory} ends at offset {log.end_offset}, but {log.report.missing_offsets} more offsets "
            "were synced: its files were damaged or cut. Restore them, or delete "
            "recovery-point-offset-checkpoint to accept the loss"
        )
    if log.end_offset < start_offset and log.offline is None:
        # Deleted messages were lost with the power. Their offsets must not be used again.
        log.report.cut_epoch = _last_epoch(log)
        log.files.truncate_fully_and_start_at(start_offset)
    log.start_offset = min(max(start_offset, log.begin_offset), log.end_offset)
    if log.report.missing_offsets:
        # It stays on record: the log must not come back as if nothing had happened.
        log.recovery_point = recovery_point
    else:
        log.recovery_point = log.end_offset if clean else min(recovery_point, log.end_offset)
    log.files.forget_unsynced(snapshots=not clean)
    log.was_closed = clean
    return log


def _last_epoch(log: Log) -> tuple[int, int] | None:
    """The last leader epoch that batches tell, up to the first damage, and the first of its batches."""
    last = None
    with suppress(StorageError, OSError):
        for _, header in log.files.scan(log.begin_offset):
            if last is None or header.partition_leader_epoch > last[0]:
                last = header.partition_leader_epoch, header.base_offset
    return last
