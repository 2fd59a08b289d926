"""Mistakes that share groups can make, put into the production code on purpose, as those in `brokers.py`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from forebay.broker.record_moves.appends import MoveAppends
from forebay.broker.record_moves.journal import MoveJournal
from forebay.broker.shares.live_share import LiveShare
from forebay.broker.shares.persistence.loading import Share, ShareLoading
from forebay.broker.shares.persistence.state_reads import StateReads
from forebay.broker.shares.requests import acquiring
from forebay.core.groups.share import assignor
from forebay.core.record_moves.move import MoverState
from forebay.core.shares.coordinator.decisions import StateDraft
from forebay.core.shares.coordinator.persisted_state import ShareKey
from forebay.core.shares.partition.acknowledgements import AcknowledgeType
from forebay.core.shares.partition.record_window import Span, Window
from forebay.core.shares.partition.share_partition import Acknowledgement, Acquisition, SharePartition
from forebay.core.shares.partition.state_transitions import AVAILABLE, FINISHED, RELEASE, DeadLetterCause
from forebay.errors import KafkaError
from forebay.storage.log import intact_reads
from forebay.storage.log.intact_reads import Unreadable
from forebay.storage.log.segment.batch_parts import DamagedPart
from forebay.storage.log.segment.segment import Segment
from forebay.wire.messages.read_share_group_state import PartitionResult
from forebay.wire.messages.write_share_group_state import PartitionData


def answer_acknowledgements_before_they_are_persisted(patch: pytest.MonkeyPatch) -> None:
    careful = SharePartition.acknowledge

    def hasty(self: SharePartition, *args: Any, **named: Any) -> Acknowledgement:
        return careful(self, *args, **named)._replace(write=0)

    patch.setattr(SharePartition, "acknowledge", hasty)


def redeliver_before_it_is_persisted(patch: pytest.MonkeyPatch) -> None:
    careful = SharePartition.acquire

    def hasty(self: SharePartition, *args: Any, **named: Any) -> Acquisition:
        return careful(self, *args, **named)._replace(write=0)

    patch.setattr(SharePartition, "acquire", hasty)


def count_unsent_deliveries(patch: pytest.MonkeyPatch) -> None:
    """What was acquired and not sent is given back with its count raised."""

    def undo(self: SharePartition, span: Span, until_ms: int = 0) -> bool:
        span.count += 1
        if span.count >= self.settings.delivery_count_limit:
            return self._give_up(span, DeadLetterCause.DELIVERY_LIMIT)
        return self._apply(RELEASE, span, until_ms=until_ms)

    patch.setattr(SharePartition, "_undo", undo)


def give_up_the_neighbours_of_damaged_batches(patch: pytest.MonkeyPatch) -> None:
    """What is read together with a damaged batch is taken for damaged."""
    careful = intact_reads._unreadable

    def careless(segment: Segment, part: DamagedPart, offset: int, end: int) -> Unreadable | None:
        found = careful(segment, part, offset, end)
        return None if found is None else found._replace(last=min(found.last + 1, end - 1))

    patch.setattr(intact_reads, "_unreadable", careless)


def do_not_fence_leaders_that_were_replaced(patch: pytest.MonkeyPatch) -> None:
    careful = StateDraft.write

    def trusting(self: StateDraft, key: ShareKey, request: PartitionData) -> None:
        request.leader_epoch = self._existing(key).leader_epoch
        careful(self, key, request)

    patch.setattr(StateDraft, "write", trusting)


def do_not_fence_states_that_were_reset(patch: pytest.MonkeyPatch) -> None:
    careful = StateDraft.write

    def trusting(self: StateDraft, key: ShareKey, request: PartitionData) -> None:
        request.state_epoch = self._existing(key).state_epoch
        careful(self, key, request)

    patch.setattr(StateDraft, "write", trusting)


def keep_what_ended_sessions_held(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SharePartition, "release", lambda *_: None)


def pass_records_that_were_released(patch: pytest.MonkeyPatch) -> None:
    """The start offset moves over records that wait for another delivery."""

    def is_passed(span: Span) -> bool:
        return span.state in FINISHED or (span.state is AVAILABLE and span.count > 0)

    def first_unfinished(self: Window) -> int:
        return next((span.first for span in self.spans if not is_passed(span)), self.end + 1)

    patch.setattr(Window, "first_unfinished", first_unfinished)


def deliver_without_a_limit(patch: pytest.MonkeyPatch) -> None:
    def release(self: SharePartition, span: Span, _now_ms: int) -> bool:
        return self._apply(RELEASE, span)

    patch.setattr(SharePartition, "_release", release)


def renew_locks_without_effect(patch: pytest.MonkeyPatch) -> None:
    careful = SharePartition._acknowledge

    def forgetful(self: SharePartition, span: Span, kind: AcknowledgeType, now_ms: int) -> bool:
        return kind is not AcknowledgeType.RENEW and careful(self, span, kind, now_ms)

    patch.setattr(SharePartition, "_acknowledge", forgetful)


def deliver_what_was_aborted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(acquiring, "_aborted", lambda *_: ())


def deliver_what_is_not_committed_yet(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LiveShare, "end_offset", property(lambda self: self.partition.high_watermark))


def move_dead_letters_without_a_journal(patch: pytest.MonkeyPatch) -> None:
    """A leader that takes over does not know what the one before it has sent."""

    async def open_(_self: MoveJournal, _mover_id: str, term: int) -> MoverState:
        return MoverState(term=term, version=0)

    async def write(_self: MoveJournal, _mover_id: str, state: MoverState) -> MoverState:
        return state

    patch.setattr(MoveJournal, "open", open_)
    patch.setattr(MoveJournal, "write", write)


def drop_dead_letters_that_cannot_be_written(patch: pytest.MonkeyPatch) -> None:
    patient = MoveAppends.append

    async def hasty(self: MoveAppends, *args: Any) -> None:
        with suppress(KafkaError):
            await patient(self, *args)

    patch.setattr(MoveAppends, "append", hasty)


def pass_over_what_has_the_offsets_of_lost_messages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StateReads, "_lost_from", lambda *_: None)


def notice_lost_messages_in_the_first_term_only(patch: pytest.MonkeyPatch) -> None:
    """A leader that takes over before the group comes back finds a log that is longer than what was lost."""
    careful = StateReads._lost_from

    def careless(self: StateReads, partition: Any, group_id: str, _found: Any) -> int | None:
        return careful(self, partition, group_id, PartitionResult())

    patch.setattr(StateReads, "_lost_from", careless)


def deliver_before_the_beginning_is_persisted(patch: pytest.MonkeyPatch) -> None:
    """A leader that dies at once leaves it to the next one to choose where the group begins."""

    async def hasty(self: ShareLoading, share: Share, _state_epoch: int) -> int:
        return await self._resolve_start(share.partition, share.settings, lambda: share.is_current)

    patch.setattr(ShareLoading, "_choose_start", hasty)


def give_each_partition_to_one_member(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(assignor, "MEMBERS_PER_PARTITION", 1)
