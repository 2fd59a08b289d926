"""The effects of a share group at the share coordinators, and the reports that come back.

Besides its duties to every state machine (`core.step`), the runtime has these to a group:

- It reports the outcome of every partition of an effect, together or one by one, by the operation of the
  shard that is named below. It gives up after some seconds and then reports an error, because administrators
  wait for the report; heartbeats wait for a second at most.
- It performs the effects that change one partition of one group in the order in which they are given, each
  after the one before has been reported. So a late request cannot create again what was deleted.

Reports may come twice, late, or to a state machine that was created again since: a group uses what still
applies.
"""

from __future__ import annotations

from typing import NamedTuple

from forebay.core.groups.assigned_partitions import TopicPartition
from forebay.core.step import Effect, Ticket
from forebay.errors import ErrorCode
from forebay.lazy import dataclass

UNINITIALIZED_OFFSET = -1
"""The partition's leader finds the first offset by `share.auto.offset.reset` when it is first asked."""


class ShareStart(NamedTuple):
    topic_id: bytes
    partition: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InitializeShares(Effect):
    """InitializeShareGroupState; reported by `share_partitions_initialized`."""

    group_id: str
    state_epoch: int
    partitions: tuple[ShareStart, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteShares(Effect):
    """DeleteShareGroupState; reported by `share_partitions_deleted`."""

    group_id: str
    state_epoch: int
    """States of higher epochs are left alone: they were created after this request."""
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarizeShares(Effect):
    """ReadShareGroupStateSummary, and the end of each log; reported by `share_partitions_summarized`."""

    ticket: Ticket
    """Identifies the request; a report names it."""
    group_id: str
    partitions: tuple[TopicPartition, ...]


class ShareSummary(NamedTuple):
    """A share group's progress in a partition."""

    start_offset: int = UNINITIALIZED_OFFSET
    leader_epoch: int = -1
    delivery_complete_count: int = -1
    """Finished records from the start offset on; -1 if unknown."""
    end_offset: int = -1
    """The log end offset; -1 if unknown."""
    error_code: ErrorCode = ErrorCode.NONE
    is_missing: bool = False
    """True if the share coordinator keeps no such state."""

    @property
    def shown_start(self) -> int:
        """The start offset that administrators see. As in Kafka there is none before the partition has its
        first record. It is kept all the same: otherwise a group that begins with the latest record would miss
        that first one, if the leader changed."""
        return UNINITIALIZED_OFFSET if self.end_offset == 0 else self.start_offset

    @property
    def lag(self) -> int:
        """Records that are not finished; -1 if unknown."""
        if min(self.shown_start, self.delivery_complete_count, self.end_offset) < 0:
            return -1
        return max(self.end_offset - self.start_offset - self.delivery_complete_count, 0)
