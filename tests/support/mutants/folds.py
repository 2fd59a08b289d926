"""Mistakes with folded partitions, put into the production code on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from forebay.broker.coordinators import markers
from forebay.broker.folds import takers
from forebay.broker.folds.handovers import Handovers
from forebay.broker.handlers import folded_producers
from forebay.broker.partition import closed_partition as closed
from forebay.broker.partition import topic_policy
from forebay.broker.produce.request import AppendRequest
from forebay.broker.upkeep import folded_partitions, growing_topics, sequence_handover
from forebay.core.cluster.image_changes import TopicPut
from forebay.core.cluster.topics import fewer_partitions
from forebay.core.groups.group import Context
from forebay.core.partition import leadership
from forebay.core.partition.batch_rules import AppendPolicy
from forebay.core.partition.folds import closed_partition, gathered


def forget_the_numbers_of_closed_partitions(patch: pytest.MonkeyPatch) -> None:
    """The partition that takes over begins with any batch."""
    patch.setattr(takers, "assumed_state", lambda state, *_known, **_how: state)


def let_markers_hide_the_numbers_of_closed_partitions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(closed_partition.Before, "is_newer", lambda _self, _state: False)


def give_folded_batches_no_alias(patch: pytest.MonkeyPatch) -> None:
    """Two numberings of one producer meet in one log."""
    patch.setattr(takers, "aliased", lambda header, *_: header)


def hand_over_while_those_before_are_under_way_elsewhere(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Handovers, "_check_order", lambda *_: None)


def hand_over_by_any_connection(patch: pytest.MonkeyPatch) -> None:
    """What comes behind a batch that was lost with a connection leaves by the next one."""
    whole = Handovers.ask

    async def ask(self: Handovers, node_id: int, request: Any, _sent_by: object = None) -> Any:
        return await whole(self, node_id, request)

    patch.setattr(Handovers, "ask", ask)


def forget_refused_batches_while_others_wait(patch: pytest.MonkeyPatch) -> None:
    """A refusal is remembered when the whole request is answered."""
    patch.setattr(AppendRequest, "_failed", lambda *_: None)


def open_partitions_while_batches_are_under_way(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(growing_topics.GrowingTopics, "_check_answered", lambda *_: None)


def forget_repeats_in_closed_logs(patch: pytest.MonkeyPatch) -> None:
    whole = closed.decided
    patch.setattr(takers, "decided", lambda *args: whole(*args)._replace(before=None, repeats=None))


def end_transactions_only_where_they_were_named(patch: pytest.MonkeyPatch) -> None:
    """The partition that takes the batches gets no marker."""
    whole = markers.MarkerWriter._writes

    def writes(*args: Any, **how: Any) -> Iterator[tuple[int, markers.MarkerWrite]]:
        return (each for each in whole(*args, **how) if each[1].index == each[1].named)

    patch.setattr(markers.MarkerWriter, "_writes", writes)


def take_batches_in_closed_partitions(patch: pytest.MonkeyPatch) -> None:
    """Requests on the fast path are appended to the closed log."""

    def policy(**fields: Any) -> AppendPolicy:
        return AppendPolicy(**(fields | {"closed": False}))

    patch.setattr(topic_policy, "AppendPolicy", policy)


def pass_on_before_all_is_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(closed, "is_settled", lambda partition: partition.is_leader)


def pass_on_while_others_may_have_more(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leadership.Leadership, "is_followed", True)


def take_markers_of_coordinators_that_know_nothing_of_the_fold(patch: pytest.MonkeyPatch) -> None:
    whole = markers._concerns_closed
    patch.setattr(
        markers,
        "_concerns_closed",
        lambda partition, fold, write: whole(partition, fold, replace(write, revision=2**62)),
    )


def open_partitions_without_the_numbers_of_their_producers(patch: pytest.MonkeyPatch) -> None:
    """A partition that takes messages again knows what it knew when it was closed."""
    patch.setattr(growing_topics, "seeds", lambda *_: [])


def gather_only_the_last_batch(patch: pytest.MonkeyPatch) -> None:
    whole = gathered.gathered_from

    def last(state: Any, producer_id: int) -> gathered.Gathered:
        found = whole(state, producer_id)
        return found._replace(batches=found.batches[-1:])

    patch.setattr(growing_topics, "gathered_from", last)


def tell_numbers_before_hearing_that_they_stay(patch: pytest.MonkeyPatch) -> None:
    whole = growing_topics.tell

    def tell(partitions: Any, request: Any) -> Any:
        request.revision = 0
        return whole(partitions, request)

    patch.setattr(growing_topics, "tell", tell)
    patch.setattr(folded_producers, "tell", tell)


def take_what_goes_elsewhere_now(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(takers, "takes", lambda *_: True)


def end_transactions_only_where_messages_go_now(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(markers, "marker_stops", lambda topic, index: topic.stops(index))


def take_markers_of_coordinators_that_know_nothing_of_the_growth(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(markers, "_check_revision", lambda *_: None)


def number_folds_alike(patch: pytest.MonkeyPatch) -> None:
    """What a partition knows from an earlier fold is taken for the newest."""
    whole = fewer_partitions.fold_topic

    def fold_topic(*args: Any) -> Any:
        (change,) = whole(*args)
        assert isinstance(change, TopicPut) and change.record.folding is not None
        folding = change.record.folding
        alike = replace(folding, folds=tuple(fold._replace(generation=0) for fold in folding.folds))
        return [replace(change, record=replace(change.record, folding=alike))]

    patch.setattr(fewer_partitions, "fold_topic", fold_topic)


def refuse_commits_for_partitions_that_are_gone(patch: pytest.MonkeyPatch) -> None:
    """Members of groups repeat them, and do nothing else."""
    patch.setattr(Context, "has_lost_partition", lambda *_: False)


def take_away_partitions_that_are_not_empty(patch: pytest.MonkeyPatch) -> None:
    """They go with what nobody has read."""
    patch.setattr(
        folded_partitions.FoldedPartitions,
        "_is_over",
        lambda _self, partition: partition.is_leader,
    )


def let_partitions_go_without_the_numbers_of_their_producers(patch: pytest.MonkeyPatch) -> None:
    """The partition that takes over begins with any batch."""

    async def hand_over(*_: object) -> None:
        """Nothing."""

    patch.setattr(sequence_handover.SequenceHandover, "hand_over", hand_over)
