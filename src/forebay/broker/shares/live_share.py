"""One share partition on the leader of its partition: the machine, its writes, its timer, and its waiters.

The machine (`SharePartition`) decides. `LiveShare` has its state read and written, calls it when a lock or a
backoff is over, and wakes fetches when something may be acquired. When the share coordinator says that
another leader has taken over, or this broker stops leading, the share is dropped: waiters get an error, and
the next fetch builds it anew from the persisted state.

A share whose group has no session here is dropped as soon as nothing would be lost, because its group can be
reset without notice (`confirmation.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from forebay.broker.background import Background
from forebay.broker.broker_time import BrokerTime
from forebay.broker.fetch.cold_reads import ColdReads
from forebay.broker.fetch.topic_delays import TopicDelays
from forebay.broker.partition.long_polls import Waiter, release
from forebay.broker.partition.partition import Partition
from forebay.broker.record_moves.live_mover import LiveMover
from forebay.broker.shares.cold_headers import ColdHeaders
from forebay.broker.shares.dead_letters.letters_to_move import DeadLetterHost, DeadLetterSource
from forebay.broker.shares.fetch_line import FetchLine
from forebay.broker.shares.persistence.confirmation import Confirmation
from forebay.broker.shares.persistence.loading import ShareLoading
from forebay.broker.shares.persistence.state_store import ShareStateStore
from forebay.broker.shares.persistence.state_writes import StateWrites
from forebay.config import ShareGroupSettings
from forebay.core.record_moves.move import mover_id
from forebay.core.shares.coordinator.key import coordinator_key
from forebay.core.shares.coordinator.persisted_state import ShareKey
from forebay.core.shares.partition.acquired_ranges import Acquired
from forebay.core.shares.partition.settings import ShareSettings
from forebay.core.shares.partition.share_partition import SharePartition
from forebay.core.shares.partition.state_transitions import ARCHIVING, RecordState
from forebay.core.shares.partition.writes import StateWrite
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass

if TYPE_CHECKING:
    from forebay.broker.tiers.remote_reads import RemoteReads

Written = Callable[[KafkaError | None], None]
"""Called when a write is done, with its error."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShareHost:
    """The parts of the broker that every share partition uses."""

    store: ShareStateStore
    loading: ShareLoading
    delays: TopicDelays
    writes: StateWrites
    dead_letters: DeadLetterHost
    cold_reads: ColdReads
    remote_reads: Callable[[], RemoteReads | None]
    """Reads what is in the object store only; None without one."""
    background: Background
    time: BrokerTime
    loop: asyncio.AbstractEventLoop


class LiveShare:
    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        settings: ShareGroupSettings,
        host: ShareHost,
        *,
        dropped: Callable[[LiveShare], None],
        is_used: Callable[[], bool],
    ) -> None:
        """`dropped` is called once, when the share is dropped; `is_used` returns True while its group has a
        session here."""
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.settings = settings
        self.headers = ColdHeaders(partition, host.cold_reads, host.remote_reads, self.changed)
        self.machine: SharePartition | None = None
        """None until its state is loaded."""
        self.waiters: dict[Waiter, None] = {}
        self.line = FetchLine(self, host.loop)
        self.failure: KafkaError | None = None
        """The reason for dropping it, if its state could not be read or written."""
        self._host = host
        self._dropped = dropped
        self._is_used = is_used
        self.confirmation = Confirmation(self.persist)
        self._pending: list[tuple[int, Written]] = []
        """Requests that wait until a change is persisted, by the number of its write."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms: int | None = None
        self._closed = False
        self.mover = LiveMover(
            mover_id("dlq", coordinator_key(key)),
            self.leader_epoch,
            DeadLetterSource(self, host.dead_letters),
            host.dead_letters.mover,
            wanted=lambda: self.is_current,
            rested=self.drop_if_unused,
        )
        """Takes dead letters to their topic."""

    @property
    def is_current(self) -> bool:
        """True while this broker leads the partition in the epoch for which the share was made."""
        partition = self.partition
        return (
            not self._closed
            and partition.is_leader
            and not partition.closed
            and partition.leader_epoch == self.leader_epoch
        )

    def is_ready_for(self, doubts: int) -> bool:
        """True if a request that came after that many doubts may acquire records."""
        return self.machine is not None and self.confirmation.answers(doubts)

    @property
    def may_deliver(self) -> bool:
        """True if something may be acquired, as far as is known without reading the log."""
        machine = self.machine
        offset = None if machine is None else machine.next_fetch_offset()
        return offset is not None and offset < self.end_offset

    @property
    def end_offset(self) -> int:
        """The end of the records that the group may read."""
        return self._host.delays.readable_end(self.partition, committed=self.settings.is_read_committed)

    @property
    def _is_idle(self) -> bool:
        """True if dropping it would lose nothing: no lock, no backoff, no write or dead letter in flight."""
        machine = self.machine
        return (
            machine is not None
            and machine.written == machine.changes
            and not machine.window.totals[RecordState.ACQUIRED]
            and not machine.window.waiting
            and not self.dead_letters_waiting
            and not self.mover.is_at_work
        )

    @property
    def dead_letters_waiting(self) -> int:
        """The number of records that wait for the dead-letter topic; `mover.problem` says why."""
        return 0 if self.machine is None else self.machine.window.totals[ARCHIVING]

    # -- loading and confirming ------------------------------------------------------------------------

    def load(self) -> None:
        self._spawn(self._load, "loading")

    async def _load(self) -> None:
        machine = await self._host.loading.load(self)
        if machine is None:
            self.drop()
            return
        self.machine = machine
        self.changed()
        self.drop_if_unused()
        self.confirm()

    def confirm(self) -> None:
        """Check that the state is still the same, if there is a doubt. Fetches wait meanwhile."""
        if self.machine is not None and self._is_used() and self.confirmation.begin():
            self._spawn(partial(self._confirm, self.machine.state_epoch), "confirming")

    async def _confirm(self, state_epoch: int) -> None:
        if not await self.confirmation.ask(state_epoch):
            self.drop()  # the next request finds out why
        if self._closed:
            return
        self.confirm()  # again, if another doubt has come up since
        self.changed()
        self.drop_if_unused()

    def _spawn(self, work: Callable[[], Awaitable[None]], doing: str) -> None:
        doing = f"{doing} the share partition {coordinator_key(self.key)}"
        self._host.background.spawn(self._or_drop(work, doing), doing)

    async def _or_drop(self, work: Callable[[], Awaitable[None]], doing: str) -> None:
        """Drop the share if this fails: its waiters would wait for ever."""
        try:
            await work()
        except KafkaError as error:
            self.drop(error)
        except Exception:
            self.drop(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{doing} failed"))
            raise

    def configure(self, settings: ShareGroupSettings) -> None:
        if settings == self.settings:
            return
        self.settings = settings
        if self.machine is not None:
            self.machine.configure(ShareSettings.of(settings))
            self.changed()

    # -- changes ---------------------------------------------------------------------------------------

    def changed(self) -> None:
        """Call it after each operation on the machine: it writes, sets the timer and wakes waiters."""
        machine = self.machine
        assert machine is not None
        if self._closed:
            return
        self._write(machine)
        self._schedule(machine.deadline_ms)
        if self.dead_letters_waiting:
            self.mover.wake()
        self.line.serve_soon()

    def _write(self, machine: SharePartition) -> None:
        if machine.is_write_due:
            self._host.writes.soon(self)
        elif machine.changes != machine.written:
            self._host.writes.later(self)

    def follow_log(self) -> None:
        """Take over the partition's present start offset, as soon as it is known."""
        machine, start_offset = self.machine, self.partition.known_start_offset
        assert machine is not None
        if start_offset is None:
            return
        before = machine.changes
        machine.log_start(start_offset)
        if machine.changes != before:
            self.changed()

    def still_held(self, hold: int, ranges: list[Acquired]) -> list[Acquired]:
        """The ranges of an acquisition that its member still holds."""
        if self.machine is None or self._closed:
            return []
        return self.machine.still_held(hold, ranges)

    def sent(self, hold: int, ranges: list[Acquired]) -> None:
        """Note that the response with these records goes to the connection. They count as delivered, and
        their locks begin."""
        machine = self.machine
        assert machine is not None, "what is held was acquired"
        # Round up, so that no lock is shorter than the members were told.
        machine.sent(hold, ranges, now_ms=self._host.time.uptime_ms() + 1)
        self._write(machine)

    def take_back(self, hold: int, ranges: list[Acquired], *, pause_ms: int = 0) -> None:
        """Undo an acquisition that was not sent. Its records can be acquired again after the pause."""
        if self.machine is not None and not self._closed:
            until_ms = self._host.time.uptime_ms() + pause_ms if pause_ms else 0
            self.machine.take_back(hold, ranges, until_ms=until_ms)
            self.changed()

    def await_write(self, number: int, done: Written) -> None:
        """Call `done` once the write of this number is persisted, or at once if it is."""
        if self.machine is None or self._closed:
            done(self.partition.not_leader())
        elif self.machine.written >= number:
            done(None)
        else:
            self._pending.append((number, done))

    def take_write(self) -> tuple[StateWrite, int] | None:
        """The next write and its state epoch; None while one is in flight, and when nothing has changed."""
        if self.machine is None or self._closed:
            return None
        write = self.machine.take_write()
        return None if write is None else (write, self.machine.state_epoch)

    def write_done(self) -> None:
        """Note that the write in flight is persisted."""
        machine = self.machine
        if machine is None or self._closed:
            return
        machine.write_done()
        reached = [done for number, done in self._pending if number <= machine.written]
        self._pending = [each for each in self._pending if each[0] > machine.written]
        for done in reached:
            done(None)
        self.changed()
        self.drop_if_unused()

    async def persist(self, write: StateWrite, state_epoch: int) -> None:
        """Write outside the machine's own writes. Raises KafkaError if it is refused."""
        await self._host.store.write(
            self.key,
            write,
            state_epoch=state_epoch,
            leader_epoch=self.leader_epoch,
            wanted=lambda: self.is_current,
        )

    # -- time ------------------------------------------------------------------------------------------

    def _schedule(self, deadline_ms: int | None) -> None:
        if deadline_ms == self._timer_ms:
            return
        self._timer_ms = deadline_ms
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline_ms is not None:
            delay_s = max(deadline_ms - self._host.time.uptime_ms(), 0) / 1000
            self._timer = self._host.loop.call_later(delay_s, self._expire)

    def _expire(self) -> None:
        self._timer = self._timer_ms = None
        if self.machine is not None and not self._closed:
            self.machine.expire(self._host.time.uptime_ms())
            self.changed()
            self.drop_if_unused()

    # -- the end ---------------------------------------------------------------------------------------

    def drop_if_unused(self) -> None:
        """Drop an unused share, if nothing would be lost."""
        if self.machine is None or self._is_used():
            return
        self.confirmation.doubt()
        if self._is_idle:
            self.drop()

    def drop(self, error: KafkaError | None = None) -> None:
        """Drop the share: another broker leads, or the state cannot be read or written. Waiters have to
        retry."""
        if self._closed:
            return
        self._closed = True
        self._schedule(None)
        self.line.close()
        self._dropped(self)
        answer = KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, "the share partition is led by another, or gone"
        )
        if error is not None:
            answer = self.failure = KafkaError(_as_answered(error.code), error.message)
        pending, self._pending = self._pending, []
        for _, done in pending:
            done(answer)
        # In a later turn: waiting fetches build the share anew, and one of them may be what has dropped it.
        self._host.loop.call_soon(release, self)


def _as_answered(code: ErrorCode) -> ErrorCode:
    """The code that makes clients look for the new leader, if the state belongs to another."""
    if code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return code
