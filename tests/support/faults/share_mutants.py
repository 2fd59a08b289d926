"""Mistakes that share groups can make, put into the production code on purpose, as those in `mutants.py`."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.core.shares.coordinator.decisions import StateDraft
from forebay.core.shares.coordinator.persisted_state import ShareKey
from forebay.core.shares.partition.share_partition import Acknowledgement, Acquisition, SharePartition
from forebay.core.shares.partition.transitions import AVAILABLE, FINISHED, RELEASE
from forebay.core.shares.partition.window import Span, Window
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


def do_not_fence_leaders_that_were_replaced(patch: pytest.MonkeyPatch) -> None:
    careful = StateDraft.write

    def trusting(self: StateDraft, key: ShareKey, request: PartitionData) -> None:
        request.leader_epoch = self._existing(key).leader_epoch
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
