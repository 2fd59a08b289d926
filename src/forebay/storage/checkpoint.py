"""Checkpoints: small text files in Kafka's formats that record progress.

A checkpoint is a version line, a count line and one line per entry. Per data directory, keyed by "topic
partition":

- `recovery-point-offset-checkpoint`: everything below had been synced
- `log-start-offset-checkpoint`: where each log begins (DeleteRecords may have moved it into a segment)
- `replication-offset-checkpoint`: high watermarks
- `cleaner-offset-checkpoint`: how far compaction has come

Per partition, `leader-epoch-checkpoint` (see log/leader_epochs.py) and `partition.metadata`, which ties the
directory to a topic id. All are replaced atomically: a reader sees the old file or the new one.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from forebay.core.topic_partition import TopicPartition
from forebay.errors import StorageError
from forebay.storage.disk import Disk

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANED_OFFSETS = "cleaner-offset-checkpoint"
PARTITION_METADATA = "partition.metadata"

_VERSION = "0"
_TXN_INDEXED = "txn_indexed"


def read_lines(disk: Disk, path: str) -> list[str]:
    """The entries of a checkpoint file; none if there is no file, or a power failure emptied it."""
    data = _read(disk, path)
    if not data:
        return []
    lines = data.decode("utf-8", "replace").splitlines()
    if len(lines) < 2 or lines[0].strip() != _VERSION or lines[1].strip() != str(len(lines) - 2):
        raise StorageError(f"{path} is not a checkpoint of version {_VERSION}: restore it, or delete it")
    return lines[2:]


def _read(disk: Disk, path: str) -> bytes:
    """The content of a file; nothing if there is none."""
    try:
        return disk.read_bytes(path)
    except FileNotFoundError:
        return b""


def write_lines(disk: Disk, path: str, lines: Iterable[str], *, sync_name: bool = True) -> None:
    """`sync_name`: see `Disk.write_atomic`."""
    entries = list(lines)
    text = "\n".join([_VERSION, str(len(entries)), *entries]) + "\n"
    disk.write_atomic(path, text.encode(), sync_name=sync_name)


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for line in read_lines(disk, path):
        try:
            topic, partition, offset = line.split(" ")
            offsets[topic, int(partition)] = int(offset)
        except ValueError:
            raise StorageError(f"{path} holds the line {line!r}: restore the file, or delete it") from None
    return offsets


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    write_lines(
        disk,
        path,
        (f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items())),
    )


class PartitionMetadata(NamedTuple):
    """What `partition.metadata` says."""

    topic_id: bytes | None = None
    """The topic that the directory was made for; None if that is not recorded."""
    txn_indexed: bool = False
    """True if all segments have an index of aborted transactions (log/recovery/txn_index_recovery.py)."""


def read_partition_metadata(disk: Disk, directory: str) -> PartitionMetadata:
    path = f"{directory}/{PARTITION_METADATA}"
    data = _read(disk, path)
    if not data:
        return PartitionMetadata()
    fields = read_properties(data.decode("utf-8", "replace"), ":")
    try:
        topic_id = urlsafe_b64decode(fields["topic_id"] + "==")
    except (KeyError, ValueError):
        topic_id = b""
    if fields.get("version") != "0" or len(topic_id) != 16:
        raise StorageError(f"{path} does not name a topic id")
    return PartitionMetadata(topic_id, fields.get(_TXN_INDEXED) == "true")


def write_partition_metadata(
    disk: Disk, directory: str, metadata: PartitionMetadata, *, in_new_directory: bool
) -> None:
    assert metadata.topic_id is not None, "there is nothing to record"
    text = f"version: 0\ntopic_id: {urlsafe_b64encode(metadata.topic_id).decode().rstrip('=')}"
    if metadata.txn_indexed:
        text += f"\n{_TXN_INDEXED}: true"  # Kafka reads the first two lines
    path = f"{directory}/{PARTITION_METADATA}"
    # Not synced: it can be restored from the store, and thousands of partitions may be created at once.
    if in_new_directory:
        disk.write_new(path, text.encode())
    else:
        disk.write_atomic(path, text.encode(), sync=False)


def read_properties(text: str, separator: str = "=") -> dict[str, str]:
    """Lines of `key<separator>value`; empty lines and comments are skipped."""
    pairs = [
        line.split(separator, 1) for line in text.splitlines() if line.strip() and not line.startswith("#")
    ]
    return {pair[0].strip(): pair[1].strip() for pair in pairs if len(pair) == 2}
