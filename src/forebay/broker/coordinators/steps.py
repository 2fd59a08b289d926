"""Carries out the steps of machines: appends, waits for the commit, then answers and acts; and ticks in time.

This keeps the promises of `core.step`. A machine that raises in an operation, at a tick, or while it replays
its own records may be half changed: it is discarded (`broken`) and rebuilt from its log. Records are replayed
before they are appended, so the log never holds a record that the machine cannot replay. Each tick is a step
of its own: if one timer's step fails, the steps before it are in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic

from forebay.broker.broker_time import BrokerTime
from forebay.broker.coordinators.loaded_shard import Commit, M, Shard
from forebay.broker.partition.own_appends import append_own, check_own
from forebay.broker.produce.commit_wait import when_committed
from forebay.broker.produce.write_cycle import WriteCycle
from forebay.core.step import Effect, RequestInfo, Step
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.batch import TRANSACTIONAL, EndTxnMarker, build_batch
from forebay.wire.fields import Request, Response
from forebay.wire.records import Record

_TICKS_PER_TURN = 64
"""When many timers are due, after this many of them the loop serves other requests."""

FailureResponse = Callable[[Request, RequestInfo, ErrorCode], Response]


class StepRunner(Generic[M]):
    def __init__(
        self,
        write_cycle: WriteCycle,
        time: BrokerTime,
        loop: asyncio.AbstractEventLoop,
        *,
        failure: FailureResponse,
        perform: Callable[[Effect], None],
        unwritable: Callable[[Shard[M], KafkaError], None],
        broken: Callable[[Shard[M], str, Exception], None],
    ) -> None:
        """`failure` makes the response to a request that failed, `perform` carries out an effect.

        `unwritable` is called with a shard whose log refuses or does not commit its records; `broken` with
        one whose machine has raised, and a description of the operation.
        """
        self._write_cycle = write_cycle
        self._time = time
        self._loop = loop
        self._failure = failure
        self._perform = perform
        self._unwritable = unwritable
        self._broken = broken

    def run(self, shard: Shard[M], doing: str, decide: Callable[[M], Step]) -> None:
        """Let the machine decide, and carry out its step."""
        try:
            self._carry_out(shard, decide(shard.machine))
        except Exception as error:
            self._broken(shard, doing, error)

    def _carry_out(self, shard: Shard[M], step: Step) -> None:
        commit = Commit(step.replies, step.effects)
        if step.records and self._is_refused(shard, step, commit):
            step.records = []
        if step.records:
            batch = self._batch(step)
            self._replay(shard, step)
            try:
                self._append(shard, batch)
            except KafkaError as error:
                self._unwritable(shard, error)
                return
            self.await_commit(shard, commit)
        elif shard.newest_commit is not None:
            shard.newest_commit.followers.append(commit)
        else:
            self._deliver(shard, commit)
        self.schedule(shard, step.deadline_ms)

    # -- records ---------------------------------------------------------------------------------------

    def _is_refused(self, shard: Shard[M], step: Step, commit: Commit) -> bool:
        """True if the step belongs to a producer whose epoch has ended. Its requests are then answered so."""
        if step.producer is None:
            return False
        try:
            check_own(shard.partition, *step.producer)
        except KafkaError as error:
            commit.replies = [
                (ticket, self._failure(ticket.request, ticket.info, error.code))
                for ticket, _ in commit.replies
            ]
            return True
        return False

    def _batch(self, step: Step) -> memoryview:
        now_ms = self._time.now_ms()
        producer_id, epoch = step.producer or (-1, -1)
        return memoryview(
            build_batch(
                [Record(i, now_ms, each.key, each.value) for i, each in enumerate(step.records)],
                producer_id=producer_id,
                producer_epoch=epoch,
                attributes=TRANSACTIONAL if step.producer else 0,
            )
        )

    def _replay(self, shard: Shard[M], step: Step) -> None:
        producer = (step.producer[0],) if step.producer else ()
        for offset, record in enumerate(step.records, shard.partition.log.end_offset):
            shard.machine.replay(record._replace(offset=offset), *producer)

    def _append(self, shard: Shard[M], batch: memoryview) -> None:
        """Raises KafkaError."""
        if not shard.in_term:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{shard.partition} is led by another now")
        append_own(shard.partition, batch)
        self._write_cycle.queued(shard.partition, len(batch))

    def marked(self, shard: Shard[M], marker: EndTxnMarker, end: Callable[[M, EndTxnMarker], None]) -> None:
        """Note that a producer's transaction on the partition has ended. Replies wait until the marker is
        committed."""
        try:
            end(shard.machine, marker)
        except Exception as error:
            self._broken(shard, "ending a transaction", error)
            return
        self.await_commit(shard, Commit([], []))

    # -- commits ---------------------------------------------------------------------------------------

    def await_commit(self, shard: Shard[M], commit: Commit) -> None:
        """Deliver replies and effects once everything that was appended so far is committed."""
        shard.newest_commit = commit

        def done(refusal: KafkaError | None) -> None:
            if not shard.ready:
                return
            if refusal is not None:
                self._unwritable(shard, refusal)
                return
            if shard.newest_commit is commit:
                shard.newest_commit = None
            try:
                self._deliver(shard, commit)
            except Exception as error:
                self._broken(shard, "acting on a decision", error)

        when_committed(self._write_cycle, shard.partition, done)

    def _deliver(self, shard: Shard[M], commit: Commit) -> None:
        for ticket, response in commit.replies:
            shard.tickets.pop(ticket, None)
            ticket.resolve(response)
        for effect in commit.effects:
            self._perform(effect)
        for follower in commit.followers:
            self._deliver(shard, follower)

    # -- time ------------------------------------------------------------------------------------------

    def schedule(self, shard: Shard[M], deadline_ms: int | None) -> None:
        if shard.timer is not None:
            shard.timer.cancel()
            shard.timer = None
        shard.deadline_ms = deadline_ms
        if deadline_ms is not None:
            delay_s = max(deadline_ms - self._time.uptime_ms(), 0) / 1000
            shard.timer = self._loop.call_later(delay_s, self._tick, shard)

    def _tick(self, shard: Shard[M]) -> None:
        shard.timer = None
        now = self._time.now()
        for _ in range(_TICKS_PER_TURN):
            if not (shard.ready and shard.in_term):
                return
            self.run(shard, "a tick", lambda machine: machine.tick(now))
            if shard.deadline_ms is None or shard.deadline_ms > now.ms:
                return
