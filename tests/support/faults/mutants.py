"""Mistakes that a replicated log can make, put into the production code on purpose.

Each function breaks one rule by replacing one piece of the broker. A simulator that does not catch it would
not catch the mistake in earnest either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from forebay.broker import appends, membership, partition, shard
from forebay.broker.handlers import incremental_alter_configs
from forebay.broker.replication import appending, isr, manager, replica_fetch
from forebay.core import controller
from forebay.core.groups import rebalance
from forebay.core.groups.classic_state import ClassicState
from forebay.core.groups.consumer import ConsumerGroup
from forebay.core.groups.consumer_base import ConsumerBase
from forebay.core.image import PartitionState
from forebay.core.producers import ProducerTable
from forebay.core.replica import Leadership
from forebay.core.step import Step
from forebay.errors import ErrorCode

Mutant = Callable[[pytest.MonkeyPatch], None]


def acknowledge_before_replication(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(appends.Appends, "_await", lambda _self, request: request.settle())


def high_watermark_without_the_in_sync_replicas(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leadership, "high_watermark", lambda _self, end_offset: end_offset)


def skip_truncation(patch: pytest.MonkeyPatch) -> None:
    """Leaders tell nobody that their logs have parted, and followers go on at their own end."""
    patch.setattr(replica_fetch, "diverging", lambda *_: None)


def elect_outside_the_in_sync_set(patch: pytest.MonkeyPatch) -> None:
    def any_live(state: PartitionState, alive: Any, **_: object) -> PartitionState:
        if state.leader in alive:
            return state
        heir = next((node for node in reversed(state.replicas) if node in alive), None)
        if heir is None:
            return state
        isr_ = state.isr if heir in state.isr else (heir,)
        return controller.lead(replace(state, isr=isr_), heir)

    patch.setattr(controller, "settle", any_live)


def do_not_raise_the_leader_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(controller, "lead", lambda state, leader: replace(state, leader=leader))


def followers_forget_producers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(appending, "accept_batch", lambda *_: None)
    patch.setattr(appending, "load_producers", lambda *_: ProducerTable())


def shrink_before_the_store_agrees(patch: pytest.MonkeyPatch) -> None:
    agreed = isr.InSyncReplicas._proposal

    def hasty(self: isr.InSyncReplicas, partition_: partition.Partition) -> PartitionState | None:
        state = agreed(self, partition_)
        leadership = partition_.leadership
        if state is not None and leadership is not None and len(state.isr) < len(leadership.isr):
            leadership.isr = state.isr
            partition_.count_replicas()
            self._broker.appends.advance(partition_)
        return state

    patch.setattr(isr.InSyncReplicas, "_proposal", hasty)


def no_sync_where_nobody_else_is_in_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(appends.Appends, "_sync", lambda _self, _partition, done: done(None))


def no_sync_before_being_left_alone(patch: pytest.MonkeyPatch) -> None:
    async def at_once(*_: object) -> bool:
        return True

    patch.setattr(isr.InSyncReplicas, "_safe_alone", at_once)
    patch.setattr(manager.Replication, "_sync_if_alone", lambda *_: None)


def say_nothing_of_lost_power(patch: pytest.MonkeyPatch) -> None:
    """A machine that lost what it had not synced comes back as if it had everything."""

    async def silent(self: membership.Membership) -> None:
        await self._claim_node()

    patch.setattr(membership.Membership, "_own_up", silent)


def serve_committed_readers_undecided_messages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition.Partition, "last_stable_offset", property(lambda self: self.high_watermark))


def forget_what_coordinators_knew(patch: pytest.MonkeyPatch) -> None:
    def nothing(*_: object) -> Iterator[None]:
        return iter(())

    patch.setattr(shard.Shard, "replay_log", nothing)


def serve_beyond_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """Consumers are given what is written, committed or not."""
    written = manager.Replication.fetched

    def early(self: Any, partition_: partition.Partition, *rest: Any) -> None:
        written(self, partition_, *rest)
        partition_.high_watermark = partition_.log.end_offset

    patch.setattr(manager.Replication, "fetched", early)


def forget_commits_when_coordinators_move(patch: pytest.MonkeyPatch) -> None:
    """Whoever takes a group over learns its members from the log, and overlooks its offsets."""
    loading = shard.Shard.replay_log

    def careless(self: Any, *rest: Any) -> Iterator[None]:
        offsets = getattr(self.machine, "offsets", None)
        if offsets is not None:
            offsets.replay = lambda *_: None
        yield from loading(self, *rest)
        if offsets is not None:
            del offsets.replay

    patch.setattr(shard.Shard, "replay_log", careless)


def keep_members_whose_session_has_ended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rebalance, "_session_expired", lambda *_: None)
    patch.setattr(ConsumerGroup, "expired", lambda *_: Step())


def take_commits_of_whoever_asks(patch: pytest.MonkeyPatch) -> None:
    """A member that was replaced, and does not know, commits over its successor."""
    patch.setattr(ClassicState, "check_commit", lambda *_: ErrorCode.NONE)
    patch.setattr(ConsumerBase, "check_commit", lambda *_: ErrorCode.NONE)


def number_no_generations(patch: pytest.MonkeyPatch) -> None:
    begin = ClassicState.begin_generation

    def again(self: ClassicState) -> None:
        begin(self)
        self.generation = max(self.generation - 1, 1)

    patch.setattr(ClassicState, "begin_generation", again)


def answer_administrators_before_it_is_done(patch: pytest.MonkeyPatch) -> None:
    async def promise(*_: object, **__: object) -> tuple[ErrorCode, None]:
        return ErrorCode.NONE, None

    patch.setattr(incremental_alter_configs, "attempt", promise)


MUTANTS: dict[Mutant, int] = {
    acknowledge_before_replication: 1,
    high_watermark_without_the_in_sync_replicas: 1,
    skip_truncation: 13,
    elect_outside_the_in_sync_set: 3,
    do_not_raise_the_leader_epoch: 1,
    followers_forget_producers: 1,
    shrink_before_the_store_agrees: 8,
    no_sync_where_nobody_else_is_in_sync: 24,
    no_sync_before_being_left_alone: 52,
    say_nothing_of_lost_power: 3,
    serve_committed_readers_undecided_messages: 1,
    forget_what_coordinators_knew: 1,
    serve_beyond_the_high_watermark: 2,
    forget_commits_when_coordinators_move: 1,
    keep_members_whose_session_has_ended: 4,
    take_commits_of_whoever_asks: 3,
    number_no_generations: 2,
    answer_administrators_before_it_is_done: 1,
}
"""Each with the seed to begin with: one that caught it when this was written, to be quick. A change of the
broker makes other stories of the same seeds; then one of those that follow catches it."""
