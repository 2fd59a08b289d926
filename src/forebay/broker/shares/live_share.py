"""One share partition on the leader of its partition: the machine, its writes, its timer, and its waiters.

The machine (`core/shares/partition.py`) decides. This part has its state read and written, calls it when a
lock or a backoff is over, and wakes fetches when there may be something to acquire. When the share
coordinator says that another leader has taken over, or this broker stops leading, the share is dropped:
waiters get an error, and the next fetch makes it anew from the persisted state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from forebay.broker.background import Background
from forebay.broker.broker_time import BrokerTime
from forebay.broker.partition.long_polls import Arrivals, FetchWait, release
from forebay.broker.partition.partition import Partition
from forebay.broker.shares.state_store import ShareStateStore
from forebay.config import ShareGroupSettings
from forebay.core.shares.coordinator_key import coordinator_key
from forebay.core.shares.partition import SharePartition
from forebay.core.shares.persisted_state import ShareKey
from forebay.core.shares.settings import ShareSettings
from forebay.core.shares.transitions import RecordState
from forebay.core.shares.writes import StateRange, StateWrite
from forebay.errors import ErrorCode, KafkaError

NOT_RESOLVED = -1
"""The start offset of a share partition from which nothing was read yet."""

ResolveStart = Callable[[Partition, ShareGroupSettings], Awaitable[int]]
"""Where a group begins that has read nothing of a partition yet."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShareHost:
    """What every share partition on this broker runs on."""

    store: ShareStateStore
    resolve_start: ResolveStart
    arrivals: Arrivals
    background: Background
    time: BrokerTime
    loop: asyncio.AbstractEventLoop


@dataclass(slots=True, eq=False)
class PendingWrite:
    """A request that waits until a change of a share partition is persisted."""

    number: int
    done: Callable[[KafkaError | None], None]


class LiveShare:
    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        settings: ShareGroupSettings,
        host: ShareHost,
        dropped: Callable[[LiveShare], None],
    ) -> None:
        """`dropped` is called once, when the share is given up."""
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.settings = settings
        self.machine: SharePartition | None = None
        """None until its state is loaded."""
        self.waits: dict[FetchWait, None] = {}
        self._host = host
        self._dropped = dropped
        self._pending: list[PendingWrite] = []
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def is_current(self) -> bool:
        """Whether this broker still leads the partition in the epoch for which the share was made."""
        partition = self.partition
        return (
            not self._closed
            and partition.is_leader
            and not partition.closed
            and partition.leader_epoch == self.leader_epoch
        )

    @property
    def is_idle(self) -> bool:
        """Whether dropping it would lose nothing: no lock, no backoff, no write under way."""
        machine = self.machine
        return machine is not None and machine.deadline_ms is None and machine.written == machine.changes

    # -- loading ---------------------------------------------------------------------------------------

    def load(self) -> None:
        doing = f"loading the share partition {coordinator_key(self.key)}"
        self._host.background.spawn(self._load(), doing)

    async def _load(self) -> None:
        try:
            found = await self._host.store.read(self.key, self.leader_epoch, lambda: self.is_current)
            start_offset = found.start_offset
            if start_offset == NOT_RESOLVED:
                start_offset = await self._host.resolve_start(self.partition, self.settings)
            machine = SharePartition(
                share_settings(self.settings),
                start_offset=start_offset,
                persisted_start_offset=found.start_offset,
                ranges=[
                    StateRange(b.first_offset, b.last_offset, RecordState(b.delivery_state), b.delivery_count)
                    for b in found.state_batches
                ],
                leader_epoch=self.leader_epoch,
                state_epoch=found.state_epoch,
            )
        except KafkaError as error:
            self.drop(error)
            return
        if not self.is_current:
            self.drop()
            return
        self.machine = machine
        machine.log_start(self.partition.log.start_offset)
        self.changed()

    def configure(self, settings: ShareGroupSettings) -> None:
        if settings == self.settings:
            return
        self.settings = settings
        if self.machine is not None:
            self.machine.configure(share_settings(settings))
            self.changed()

    # -- changes ---------------------------------------------------------------------------------------

    def changed(self) -> None:
        """To be called after each operation on the machine: writes, sets the timer, and wakes fetches."""
        machine, host = self.machine, self._host
        assert machine is not None
        write = machine.take_write()
        if write is not None:
            host.background.spawn(self._write(machine, write), f"writing {coordinator_key(self.key)}")
        self._schedule(machine.deadline_ms)
        if self.waits and machine.next_fetch_offset() is not None:
            host.arrivals.note(self, 1)
            host.loop.call_soon(host.arrivals.wake)

    def await_write(self, number: int, done: Callable[[KafkaError | None], None]) -> None:
        """Call `done` once the write of this number is persisted, at once if it is already."""
        if self.machine is None or self._closed:
            done(self.partition.not_leader())
        elif self.machine.written >= number:
            done(None)
        else:
            self._pending.append(PendingWrite(number, done))

    async def _write(self, machine: SharePartition, write: StateWrite) -> None:
        try:
            await self._host.store.write(
                self.key,
                write,
                state_epoch=machine.state_epoch,
                leader_epoch=machine.leader_epoch,
                wanted=lambda: self.is_current,
            )
        except KafkaError as error:
            self.drop(error)
            return
        if self._closed:
            return
        machine.write_done()
        reached = [each for each in self._pending if each.number <= machine.written]
        self._pending = [each for each in self._pending if each.number > machine.written]
        for each in reached:
            each.done(None)
        self.changed()

    # -- time ------------------------------------------------------------------------------------------

    def _schedule(self, deadline_ms: int | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline_ms is not None:
            delay_s = max(deadline_ms - self._host.time.uptime_ms(), 0) / 1000
            self._timer = self._host.loop.call_later(delay_s, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if self.machine is not None and not self._closed:
            self.machine.expire(self._host.time.uptime_ms())
            self.changed()

    # -- the end ---------------------------------------------------------------------------------------

    def drop(self, error: KafkaError | None = None) -> None:
        """Forget everything: another leads, or the state cannot be had. Waiters have to ask again."""
        if self._closed:
            return
        self._closed = True
        self._schedule(None)
        self._dropped(self)
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER if error is None else _as_answered(error.code)
        pending, self._pending = self._pending, []
        for each in pending:
            each.done(KafkaError(code, "the share partition is led by another, or gone"))
        release(self)


def _as_answered(code: ErrorCode) -> ErrorCode:
    """Clients look for the leader again when the state belongs to another."""
    if code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return code


def share_settings(settings: ShareGroupSettings) -> ShareSettings:
    return ShareSettings(
        lock_ms=settings.record_lock_duration_ms,
        delivery_count_limit=settings.delivery_count_limit,
        record_locks_max=settings.partition_max_record_locks,
        may_renew=settings.renew_enabled,
        backoff_ms=settings.retry_backoff_ms,
        backoff_ms_max=settings.retry_backoff_ms_max,
    )
