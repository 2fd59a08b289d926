"""Mistakes in widening batches by compaction, put into the production code on purpose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from forebay.broker.replication import follower_append
from forebay.broker.shares.requests import acquiring
from forebay.broker.upkeep.compaction import Compactor
from forebay.core.partition.compaction.batch_filter import BatchFilter
from forebay.storage.log.compaction import cleaner
from forebay.storage.log.compaction.cleaner import CleaningTask
from forebay.storage.log.segment.batch_walk import NO_NEXT
from forebay.wire.batch import BatchHeader, read_header


def leave_followers_behind_that_end_within_a_batch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(follower_append, "_append_rest", lambda *_: None)


def widen_batches_into_other_epochs(patch: pytest.MonkeyPatch) -> None:
    careful = cleaner._Output.widen

    def widen(self: Any, emptied: BatchHeader, batches: Any) -> bool:
        if self._last is not None:
            emptied = emptied._replace(partition_leader_epoch=read_header(self._last).partition_leader_epoch)
        return careful(self, emptied, batches)

    patch.setattr(cleaner._Output, "widen", widen)


def widen_batches_that_make_no_sense(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BatchFilter, "may_widen", lambda _self, _batch, header: header.record_count > 0)


def widen_batches_over_what_is_not_due(patch: pytest.MonkeyPatch) -> None:
    careful = Compactor._task

    def task(self: Compactor, *rest: Any) -> CleaningTask:
        return replace(careful(self, *rest), readable_end=NO_NEXT)

    patch.setattr(Compactor, "_task", task)


def give_members_all_offsets_of_widened_batches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(acquiring, "_may_be_widened", lambda _: False)
