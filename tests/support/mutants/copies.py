"""Mistakes in copying partitions of compacted topics, put into the production code on purpose."""

from __future__ import annotations

from typing import Any

import pytest

from forebay.broker.record_moves import copy_reads, copy_source
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.image_changes import Change
from forebay.core.cluster.topics import fewer_partitions
from forebay.core.partition.compaction.batch_filter import TransactionTrack
from forebay.core.record_moves.closing import ClosingStep, Held, Progress, next_step
from forebay.wire.batch import BatchHeader


def close_partitions_before_they_are_copied(patch: pytest.MonkeyPatch) -> None:
    """The rest is never copied."""

    def step(progress: Progress) -> ClosingStep:
        return ClosingStep.FINISH if progress.held is Held.FULLY else next_step(progress)

    patch.setattr(copy_source, "next_step", step)


def copy_from_the_beginning_in_each_term(patch: pytest.MonkeyPatch) -> None:
    """What the journal says of an earlier term is forgotten."""
    patch.setattr(copy_source.CopySource, "wants", lambda _self, _move: False)


def copy_what_was_aborted(patch: pytest.MonkeyPatch) -> None:
    class Blind(TransactionTrack):
        def is_aborted(self, _header: BatchHeader) -> bool:
            return False

    patch.setattr(copy_reads, "TransactionTrack", Blind)


def close_copied_partitions_of_other_leaders(patch: pytest.MonkeyPatch) -> None:
    """A leader that was replaced closes a partition that its successor has written to."""
    whole = fewer_partitions.close_copied

    def close(image: ClusterImage, topic_id: bytes, index: int, **how: Any) -> list[Change]:
        topic = image.topic_by_id(topic_id)
        if topic is not None and index < len(topic.partitions):
            state = topic.partitions[index]
            how |= {"node_id": state.leader, "leader_epoch": state.leader_epoch}
        return whole(image, topic_id, index, **how)

    patch.setattr(copy_source, "close_copied", close)


def take_messages_while_the_rest_is_copied(patch: pytest.MonkeyPatch) -> None:
    """They stay in the closed partition, behind what is copied."""

    def configure(self: copy_source.CopySource) -> None:
        hold = self._partition.closing
        if hold is not None:
            self._partition.closing = None
            self._whole_configure()  # type: ignore[attr-defined]
            self._partition.closing = hold

    patch.setattr(
        copy_source.CopySource, "_whole_configure", copy_source.CopySource._configure, raising=False
    )
    patch.setattr(copy_source.CopySource, "_configure", configure)
