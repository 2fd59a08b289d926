"""What a client knows of a partition's leadership, compared with what this broker knows."""

from __future__ import annotations

from forebay.broker.partition.partition import Partition
from forebay.errors import ErrorCode, KafkaError


def check_leader_epoch(partition: Partition, epoch: int) -> None:
    """Refuse a client whose idea of the leadership is older or newer than ours; -1 means it has none."""
    if epoch < 0 or epoch == partition.leader_epoch:
        return
    if epoch < partition.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {epoch} is over")
    raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch {epoch} is not known here yet")


def check_end_known(partition: Partition) -> None:
    """A new leader does not tell where the log ends before its followers have said what is committed.

    Until then its high watermark may lie below what the leader before has shown to consumers.
    """
    leadership = partition.leadership
    if leadership is not None and partition.high_watermark < leadership.start_offset:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, f"{partition} has a new leader; try again")
