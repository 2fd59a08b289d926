"""Mistakes that a replicated log can make, put into the production code on purpose.

Each function breaks one rule by replacing one piece of the broker. A simulator that does not catch it would
not catch the mistake in earnest either.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from forebay.broker.broker_time import BrokerTime
from forebay.broker.cluster import membership
from forebay.broker.coordinators import loaded_shard
from forebay.broker.fetch import follower_fetch
from forebay.broker.handlers import incremental_alter_configs
from forebay.broker.partition import partition
from forebay.broker.partition.assignment.assignment import Assignment
from forebay.broker.produce import write_cycle
from forebay.broker.replication import follower_append, follower_tracking, isr, truncation
from forebay.broker.upkeep import compaction
from forebay.core.cluster.partition_state import PartitionState
from forebay.core.cluster.replicas import controller
from forebay.core.groups.classic import timeouts
from forebay.core.groups.classic.group import ClassicState
from forebay.core.groups.consumer.group import ConsumerBase
from forebay.core.groups.consumer.heartbeat import ConsumerGroup
from forebay.core.partition.leadership import LeaderProof, Leadership
from forebay.core.partition.producers import producer_admission
from forebay.core.partition.producers.producer_admission import Decision, Repeats
from forebay.core.partition.producers.producer_table import ProducerState, ProducerTable
from forebay.core.partition.producers.refused_batches import RefusedBatches
from forebay.core.step import Now, Step
from forebay.errors import ErrorCode
from forebay.storage.checkpoints import Checkpoints
from forebay.storage.datadir import DataDir
from forebay.storage.log.recovery import log_recovery
from forebay.storage.log.writer import LogWriter
from forebay.wire.batch import BatchHeader

Mutant = Callable[[pytest.MonkeyPatch], None]

_NOW_MS = 1_700_000_000_000
"""About the time in the simulated world."""


def acknowledge_before_replication(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(write_cycle.WriteCycle, "_await_acks", lambda _self, request: request.on_complete())


def high_watermark_without_the_in_sync_replicas(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leadership, "high_watermark", lambda _self, end_offset: end_offset)


def skip_truncation(patch: pytest.MonkeyPatch) -> None:
    """Leaders tell nobody that their logs have parted, and followers go on at their own end."""
    patch.setattr(follower_fetch, "diverging", lambda *_: None)


def elect_outside_the_in_sync_set(patch: pytest.MonkeyPatch) -> None:
    def any_live(state: PartitionState, alive: Any, **_: object) -> PartitionState:
        if state.leader in alive:
            return state
        heir = next((node for node in reversed(state.replicas) if node in alive), None)
        if heir is None:
            return state
        isr_ = state.isr if heir in state.isr else (heir,)
        return controller.lead(replace(state, isr=isr_), heir)

    patch.setattr(controller, "desired_state", any_live)


def do_not_raise_the_leader_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(controller, "lead", lambda state, leader: replace(state, leader=leader))


def followers_forget_producers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(follower_append, "accept_batch", lambda *_: None)
    patch.setattr(truncation, "reload_producers", lambda *_: ProducerTable())


def shrink_before_the_store_agrees(patch: pytest.MonkeyPatch) -> None:
    agreed = isr.InSyncReplicas._proposal

    def hasty(self: isr.InSyncReplicas, partition_: partition.Partition) -> PartitionState | None:
        state = agreed(self, partition_)
        leadership = partition_.leadership
        if state is not None and leadership is not None and len(state.isr) < len(leadership.isr):
            leadership.isr = state.isr
            partition_.count_replicas()
            self._write_cycle.advance(partition_)
        return state

    patch.setattr(isr.InSyncReplicas, "_proposal", hasty)


def no_sync_where_nobody_else_is_in_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(write_cycle.WriteCycle, "_sync", lambda _self, _partition, done: done(None))


def no_sync_before_being_left_alone(patch: pytest.MonkeyPatch) -> None:
    async def at_once(*_: object) -> bool:
        return True

    patch.setattr(isr.InSyncReplicas, "_safe_alone", at_once)
    patch.setattr(follower_tracking.Followers, "_sync_if_alone", lambda *_: None)


def say_nothing_of_lost_power(patch: pytest.MonkeyPatch) -> None:
    """A machine that lost what it had not synced comes back as if it had everything."""

    async def silent(self: membership.Membership, *, is_replaced: bool = False) -> None:
        await self._claim_node(await self._store.get(self._node_key))

    patch.setattr(membership.Membership, "_own_up", silent)


def serve_committed_readers_undecided_messages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition.Partition, "last_stable_offset", property(lambda self: self.high_watermark))


def forget_what_coordinators_knew(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> int:
        return 0

    patch.setattr(loaded_shard.Shard, "replay_log", nothing)


def serve_beyond_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """Consumers are given what is written, committed or not."""
    written = follower_tracking.Followers.fetched

    def early(self: Any, partition_: partition.Partition, *rest: Any) -> None:
        written(self, partition_, *rest)
        partition_.high_watermark = partition_.log.end_offset

    patch.setattr(follower_tracking.Followers, "fetched", early)


def forget_commits_when_coordinators_move(patch: pytest.MonkeyPatch) -> None:
    """Whoever takes a group over learns its members from the log, and overlooks its offsets."""
    loading = loaded_shard.Shard.replay_log

    async def careless(self: Any, *rest: Any) -> int:
        offsets = getattr(self.machine, "offsets", None)
        if offsets is not None:
            offsets.replay = lambda *_: None
        count: int = await loading(self, *rest)
        if offsets is not None:
            del offsets.replay
        return count

    patch.setattr(loaded_shard.Shard, "replay_log", careless)


def keep_members_whose_session_has_ended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(timeouts, "_session_expired", lambda *_: None)
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
    async def promise(*_: object, **__: object) -> None: ...

    patch.setattr(incremental_alter_configs, "_alter", promise)


def take_any_batch_with_known_numbers_for_a_repeat(patch: pytest.MonkeyPatch) -> None:
    """Numbers are looked at before the transaction is: librdkafka gives them again after an abort."""
    carefully = producer_admission.admit

    def hastily(state: ProducerState | None, header: BatchHeader, *rest: Any) -> Decision:
        if state is not None and header.producer_epoch == state.producer_epoch:
            before = state.remembered(header)
            if before is not None:
                return Repeats(before.base_offset, before.timestamp)
        return carefully(state, header, *rest)

    patch.setattr(producer_admission, "admit", hastily)


def forget_refused_batches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RefusedBatches, "reason", lambda *_: None)


def acknowledge_repeats_without_a_lease(patch: pytest.MonkeyPatch) -> None:
    """What writes nothing is taken for harmless."""
    finish = write_cycle.WriteCycle.finish

    def early(self: Any) -> None:
        lease_valid = self._lease_valid
        if not self._dirty:
            self._lease_valid = lambda: True
        finish(self)
        self._lease_valid = lease_valid

    patch.setattr(write_cycle.WriteCycle, "finish", early)


def forget_producers_by_the_time_of_their_messages(patch: pytest.MonkeyPatch) -> None:
    def expire(self: ProducerTable, now_ms: int, expiration_ms: int) -> int:
        old = [state for state in self if state.last_timestamp < _NOW_MS - expiration_ms]
        for state in old:
            if not state.in_transaction:
                del self._producers[state.producer_id]
        return len(old)

    patch.setattr(ProducerTable, "expire", expire)


def cut_a_log_at_a_gap_between_segments(patch: pytest.MonkeyPatch) -> None:
    """A copy of a compacted log has gaps between its segments, and they are taken for losses."""
    make_ready = LogWriter._make_ready
    bases: dict[LogWriter, int] = {}

    def at_the_batch(self: LogWriter, size: int, base_offset: int, *rest: int) -> None:
        bases[self] = base_offset
        make_ready(self, size, base_offset, *rest)

    def continues(self: Any, tail: Any, following: Any) -> bool:
        return bool(
            following.base_offset == tail.next_offset or following.base_offset <= self._recovery_point
        )

    patch.setattr(LogWriter, "_make_ready", at_the_batch)
    patch.setattr(LogWriter, "_base_for", lambda self, _: bases[self])
    patch.setattr(log_recovery._Recovery, "_continues", continues)


def measure_time_by_the_wall(patch: pytest.MonkeyPatch) -> None:
    def now(self: BrokerTime) -> Now:
        return Now(self.now_ms(), self.now_ms(), self.now_ms())

    patch.setattr(BrokerTime, "now", now)
    patch.setattr(BrokerTime, "uptime_ms", lambda self: self.now_ms())


def compact_what_is_clean_again(patch: pytest.MonkeyPatch) -> None:
    """How far a log is clean is not noted, and nobody wonders that it is cleaned again and again."""
    clean = compaction.Compactor._try

    async def again(self: Any, *rest: Any) -> bool:
        await clean(self, *rest)
        self._futile.clear()
        return True

    patch.setattr(Checkpoints, "write_first_dirty", lambda *_, **__: None)
    patch.setattr(compaction.Compactor, "_try", again)


def forget_deletions_that_a_replica_has_not_seen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(compaction.Compactor, "_forgets_deletions", lambda *_: True)
    patch.setattr(
        compaction.Compactor, "_delete_retention_ms", lambda _, each: each.config.delete_retention_ms
    )


def forget_logs_that_cannot_be_opened(patch: pytest.MonkeyPatch) -> None:
    """What was known of them is dropped, and an orderly stop of the others vouches for them, too."""
    patch.setattr(Checkpoints, "_known_and_away", lambda *_: set())
    patch.setattr(DataDir, "distrust", lambda *_: None)


def leave_out_a_batch_whose_beginning_was_deleted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(follower_append, "_begins_within", lambda *_: False)


def cut_logs_on_the_loop(patch: pytest.MonkeyPatch) -> None:
    """A follower goes through its log to cut it, and serves nobody meanwhile."""
    lend = Assignment.lend

    def at_once(self: Any, partition_: partition.Partition, work: Any, take_back: Any) -> None:
        outcome: Future[Any] = Future()
        try:
            outcome.set_result(work())
        except Exception as error:
            outcome.set_exception(error)
        lend(self, partition_, outcome.result, take_back)

    patch.setattr(Assignment, "lend", at_once)


def refuse_for_good_without_asking_followers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderProof, "is_complete", True)
