"""Keeping the log of a share coordinator short, and free of topics that are gone.

The log is not compacted. Its beginning is deleted, up to the oldest valid snapshot (`redundant_before`). An
idle share partition would block that for ever. So the states of *cold* ones, whose snapshot is older than
`cold_interval_ms`, are written again. That costs one record for each cold partition. It is done only when the
log holds more redundant records than needed ones, so on average no record is written more than twice.

A round begins every `prune_interval_ms`: it forgets the share partitions of deleted topics, writes cold ones
again, a few in each step, and asks for the deletion in a last step of its own. Effects wait for everything
appended before them. So the snapshots that make the deleted records redundant are committed by then, and no
change of leadership can take them back.

A topic that is seen to go is forgotten at once. One that was never seen may only be new, and unknown here for
a moment; it is left to the next round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping

from forebay.config import ShareCoordinatorConfig
from forebay.core.shares.coordinator.decisions import StateDraft, Topics
from forebay.core.shares.coordinator.persisted_state import ShareKey, ShareState
from forebay.core.step import Effect, Now
from forebay.lazy import dataclass

_RECORDS_PER_STEP = 100
_BYTES_PER_STEP = 256 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteStateRecords(Effect):
    """Deletes the records of a partition of __share_group_state before this offset: nobody needs them."""

    partition: int
    before_offset: int


class RecordOffsets:
    """The offsets of the newest snapshot of each share partition."""

    def __init__(self) -> None:
        self._snapshots: dict[ShareKey, int] = {}
        self.start_offset: int | None = None
        """The known start of the log; None while nothing was replayed."""
        self.end_offset = 0

    def replayed(self, offset: int) -> None:
        if self.start_offset is None:
            self.start_offset = offset
        self.end_offset = offset + 1

    def snapshot(self, key: ShareKey, offset: int) -> None:
        self._snapshots[key] = offset

    def forget(self, key: ShareKey) -> None:
        self._snapshots.pop(key, None)

    def deleted(self, before_offset: int) -> None:
        self.start_offset = before_offset

    @property
    def redundant_before(self) -> int:
        """All records before this offset could be deleted."""
        return min(self._snapshots.values(), default=self.end_offset)


class StateUpkeep:
    def __init__(
        self,
        config: ShareCoordinatorConfig,
        partition: int,
        states: Mapping[ShareKey, ShareState],
        offsets: RecordOffsets,
    ) -> None:
        self._config = config
        self._partition = partition
        self._states = states
        self._offsets = offsets
        self._gone: deque[ShareKey] = deque()
        self._cold: deque[ShareKey] = deque()
        self._in_round = False
        self._next_round_ms = 0
        self.deleted: Container[bytes] = ()
        """The ids of deleted topics. The states of others are kept, though their topics are missing."""

    def schedule(self, now: Now) -> None:
        self._next_round_ms = now.ms + self._config.prune_interval_ms

    def deadline_ms(self, now: Now) -> int:
        return now.ms if self._gone or self._in_round else self._next_round_ms

    def topics_deleted(self, topic_ids: set[bytes]) -> None:
        self._gone.extend(key for key in self._states if key.topic_id in topic_ids)

    def run(self, draft: StateDraft, topics: Topics, now: Now) -> DeleteStateRecords | None:
        """Continue the current round, or begin one if it is due."""
        if self._gone:
            self._forget(draft, topics)
        elif self._cold:
            self._rewrite(draft)
        elif self._in_round:
            self._in_round = False
            self.schedule(now)
            return self._deletion()
        elif now.ms >= self._next_round_ms:
            self._in_round = True
            self._gone.extend(key for key in self._states if self._is_gone(key, topics))
            self._cold.extend(self._cold_ones(now) if self._is_worthwhile() else ())
        return None

    def _forget(self, draft: StateDraft, topics: Topics) -> None:
        while self._gone and len(draft.records) < _RECORDS_PER_STEP:
            key = self._gone.popleft()
            if self._is_gone(key, topics):  # a topic may have come back since
                draft.delete(key)

    def _is_gone(self, key: ShareKey, topics: Topics) -> bool:
        return key.topic_id not in topics and key.topic_id in self.deleted

    def _rewrite(self, draft: StateDraft) -> None:
        size = 0
        while self._cold and len(draft.records) < _RECORDS_PER_STEP and size < _BYTES_PER_STEP:
            key = self._cold.popleft()
            if key in self._states:
                draft.rewrite(key)
                size += len(draft.records[-1].value or b"")

    def _deletion(self) -> DeleteStateRecords | None:
        before, start = self._offsets.redundant_before, self._offsets.start_offset
        if start is None or before <= start:
            return None
        self._offsets.deleted(before)
        return DeleteStateRecords(partition=self._partition, before_offset=before)

    def _is_worthwhile(self) -> bool:
        needed = sum(1 + state.updates for state in self._states.values())
        return self._offsets.end_offset - self._offsets.redundant_before > 2 * needed

    def _cold_ones(self, now: Now) -> list[ShareKey]:
        """A snapshot from the future was stamped by a wrong clock; it counts as old."""
        interval_ms = self._config.cold_interval_ms
        return [
            key
            for key, state in self._states.items()
            if abs(now.trusted_ms - state.written_ms) >= interval_ms
        ]
