"""The messages of one partition that wait for their time: followed in its index, and delivered by its leader.

One task does it all, one thing after the other. It reads what was committed since it last looked, and takes
the delay notes in it over into the index. While this broker leads, it delivers what is due: a note that says
which messages, and a batch of them, appended together. It goes on when the index has read that, too. So the
index never has more to tell than the log, and a message that it says is waiting was delivered by nobody.

A new leader begins when its index has come to where its term begins. What the leader before it has delivered
is in the log below, or was never committed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import NamedTuple, TypeVar

from forebay.broker.delays.appending import Delivery, NoteAppender
from forebay.broker.delays.following import DelayHost, IndexFollower
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.waiting_messages import WaitingMessages
from forebay.core.delays.backoff import Backoff
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass
from forebay.storage.delays.index import IndexState
from forebay.wire.state.delay_notes import NoMore, Waiting, build_note

_PLANNED_MAX = 20_000
_PLANNED_BYTES = 4 << 20
"""The bytes that are delivered by one write: several batches, if much is due."""
_CARRIED_MAX = 5_000
_SAID_AGAIN_MAX = 5_000
_BLOCKED_PAUSE_S = 0.02
_SLEEP_S_MAX = 1.0
"""The clock may be set, so the time is looked at this often."""
_CATCH_UP_S_MAX = 10.0
_LOOKED_AT_MAX = 1_000
_LOOKED_AT_BYTES_MAX = 4 << 20
"""The most of one answer, which is made on the loop."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Alteration:
    """A request to cancel messages, or to deliver them now."""

    ids: list[int]
    fire: bool
    from_position: int
    """Not before the index has come here: it names messages that were scheduled before it came."""
    done: asyncio.Future[set[int]]
    """Those that it found waiting, or cancelled already if they are to be cancelled."""
    left: list[int] = field(init=False)
    """The ids of messages that were not looked at yet, in their order."""
    altered: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.left = self.ids


class _Due(NamedTuple):
    """Something was found to be due."""

    now_ms: int
    """At this time."""
    noted_end: int
    """When all notes lay below this offset."""


class LiveDelays:
    """Waits for the partition's high watermark, again and again (`Waiter`)."""

    def __init__(self, host: DelayHost, partition: Partition, waiting: WaitingMessages) -> None:
        self._host = host
        self._partition = partition
        self._waiting = waiting
        self._follower = IndexFollower(host, partition, waiting)
        self._index = self._follower.index
        self._woken = asyncio.Event()
        self._closing: asyncio.Future[None] = host.loop.create_future()
        self._appender = NoteAppender(host, partition, waiting, self._follower, self._closing)
        self._blocked = False
        self._alterations: deque[Alteration] = deque()
        self._due: _Due | None = None
        """The messages to deliver next, until they are delivered."""

    @property
    def _state(self) -> IndexState:
        return self._follower.state

    def arrived(self, _partition: object, _size: int) -> None:
        self.wake()

    def finish(self) -> None:
        self.wake()

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        """The partition is out of use here, or the broker stops."""
        if not self._closing.done():
            self._closing.set_result(None)
        self.wake()

    async def run(self) -> None:
        """Follow and deliver until `close`. After trouble that lasts, it is tried ever less often."""
        self._partition.waiters[self] = None
        self._waiting.on_carry, self._waiting.sync_index = self.wake, self._index.sync
        self._waiting.find_keys = self._index.waiting_under
        backoff = Backoff()
        try:
            while not self._closing.done():
                began_s = self._host.loop.time()
                try:
                    await self._serve()
                except Exception as error:
                    self._host.background.failed("following delays", error, partition=str(self._partition))
                    pause_s = backoff.pause_s(self._host.loop.time() - began_s)
                    await asyncio.wait((self._closing,), timeout=pause_s)
        finally:
            self._partition.waiters.pop(self, None)
            self._waiting.index = self._waiting.on_carry = self._waiting.sync_index = None
            self._waiting.find_keys = None

    async def _serve(self) -> None:
        try:
            await self._follower.open()
            while not self._closing.done():
                self._woken.clear()
                if not await self._step():
                    await self._sleep()
            await self._follower.save()
        finally:
            await self._in_thread(self._index.close)

    async def _step(self) -> bool:
        """Do one thing that is to be done; False if there is none."""
        await self._follower.follow_start()
        has_moved = await self._follower.follow()
        if not self._partition.is_leader:
            return has_moved
        # Also while messages keep coming: the index may never be seen to have come to the end of the log.
        return (
            (not has_moved and await self._close_off())
            or await self._alter()
            or await self._say_again()
            or await self._deliver(waits=has_moved)
            or await self._carry()
            or has_moved
        )

    async def _close_off(self) -> bool:
        """Append something to a log that ends with a note whose batch was lost, with the leader before.

        A note counts only if its batch follows. Until something else does, the index waits for that.
        """
        partition, end_offset = self._partition, self._partition.log.end_offset
        is_at_end = self._waiting.unindexed.wait_for == end_offset <= partition.high_watermark
        if not is_at_end or self._state.position >= end_offset:
            return False
        if partition.closed or not partition.enough_replicas or not self._host.lease.valid():
            return False
        note = build_note([], bound=False, timestamp=self._host.time.now_ms())
        return await self._appender.append_alone(note)

    async def _sleep(self) -> None:
        timer = None
        due_ms = self._state.next_due_ms
        # Nobody tells when the disk can be written again, or enough replicas are in sync.
        has_work = self._state.out_of_order or self._state.position < self._waiting.unindexed.wait_for
        if self._partition.is_leader and (due_ms is not None or has_work):
            left_s = _SLEEP_S_MAX if due_ms is None else (due_ms - self._host.time.now_ms()) / 1000
            least_s = _BLOCKED_PAUSE_S if self._blocked else 0.0
            timer = self._host.loop.call_later(min(max(left_s, least_s), _SLEEP_S_MAX), self.wake)
        await self._woken.wait()
        if timer is not None:
            timer.cancel()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await self._host.threads.run(work)

    # -- delivering ------------------------------------------------------------------------------------

    async def _deliver(self, *, waits: bool) -> bool:
        """Append what is due; whether there was any.

        `waits`: while there is more to index, for what was noted before this was due: it may be due sooner.
        """
        now_ms, due_ms = self._host.time.now_ms(), self._state.next_due_ms
        self._blocked = due_ms is not None and due_ms <= now_ms
        if not self._blocked:
            self._due = None
            return False
        self._due = due = self._due or _Due(now_ms, self._waiting.unindexed.last_offset)
        if (waits and self._state.position < due.noted_end) or not self._appender.may_append():
            return False
        self._due = None
        ended = self._waiting.unindexed.ended_names()
        deliveries = await self._in_thread(partial(self._plan, min(due.now_ms, now_ms), *ended))
        try:
            return deliveries != [] and await self._appender.deliver(deliveries)
        except KafkaError:
            return True  # what has become of them, the index finds out

    def _plan(self, now_ms: int, keys: frozenset[bytes], ids: frozenset[int]) -> list[Delivery]:
        """Deliveries of the messages that are due, without those ended under these keys and ids. In a
        thread."""
        bytes_max = max(self._partition.policy.max_message_bytes, _PLANNED_BYTES)
        found = self._index.due(now_ms, count_max=_PLANNED_MAX, bytes_max=bytes_max)
        left = [each for each in found if each.schedule_key not in keys and each.id not in ids]
        return self._appender.deliveries_of(left, now_ms)

    # -- what the log can lose -------------------------------------------------------------------------

    async def _say_again(self) -> bool:
        """Say at the end of the log what a transaction has ended out of order (`storage/delays/index.py`).

        Until then nothing is deleted from the note of the transaction on.
        """
        if not self._state.out_of_order or not self._appender.may_append():
            return False
        ids = await self._in_thread(partial(self._index.ended_out_of_order, count_max=_SAID_AGAIN_MAX))
        return await self._end(ids)

    async def _carry(self) -> bool:
        """Write messages that wait to the end of the log, so that their old place can be deleted.

        Only where that frees more than it takes: otherwise a log full of them would be written again and
        again.
        """
        waiting, carry = self._waiting, self._waiting.carry
        if carry is None or not self._appender.may_append():
            return False
        if 2 * await self._in_thread(partial(self._index.bytes_below, carry.below)) > carry.size:
            waiting.carry = None
            return False
        bytes_max = self._partition.policy.max_message_bytes
        find = partial(self._index.noted_below, carry.below, count_max=_CARRIED_MAX, bytes_max=bytes_max)
        found = await self._in_thread(find)
        if not found:
            waiting.carry = None
            return False
        note = await self._in_thread(partial(_carrying_note, found, self._host.time.now_ms()))
        if not self._appender.may_append() or waiting.unindexed.ends_any(found):
            return False
        return await self._appender.append_alone(note)

    # -- what others ask for ---------------------------------------------------------------------------

    async def look(
        self, ids: Sequence[int], *, after: tuple[int, int], limit: int
    ) -> tuple[list[Waiting], bool, int]:
        """Messages that wait: of these ids, or some behind a place in the order of (due, id).

        Also whether others follow, and how many wait. Raises KafkaError.
        """
        # What the leader before has acknowledged is in this log, but may not be known as committed yet.
        await self._come_to(max(self._partition.high_watermark, self._waiting.unindexed.wait_for))
        if ids:
            found = await self._in_thread(
                partial(self._index.of_ids, ids[:_LOOKED_AT_MAX], bytes_max=_LOOKED_AT_BYTES_MAX)
            )
            return found, False, self._state.pending
        count = min(max(limit, 0), _LOOKED_AT_MAX)
        find = partial(self._index.after, *after, count_max=count + 1, bytes_max=_LOOKED_AT_BYTES_MAX)
        found = await self._in_thread(find)
        has_more = len(found) > count or (found != [] and len(found) < min(count, self._state.pending))
        return found[:count], has_more, self._state.pending

    async def alter(self, ids: Sequence[int], *, fire: bool, timeout_s: float) -> set[int]:
        """Cancel messages, or deliver them now; those that were waiting. Raises KafkaError.

        A message that was cancelled before can be cancelled again: who was not answered asks again.
        """
        done: asyncio.Future[set[int]] = self._host.loop.create_future()
        alteration = Alteration(sorted(set(ids)), fire, self._partition.log.end_offset, done)
        self._alterations.append(alteration)
        self.wake()
        await asyncio.wait((done, self._closing), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            done.cancel()
            if not self._partition.is_leader:
                raise self._partition.not_leader()
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the partition could not be written in time")
        return done.result()

    async def _come_to(self, position: int) -> None:
        deadline_s = self._host.loop.time() + _CATCH_UP_S_MAX
        while self._waiting.index is None or self._waiting.index.position < position:
            if self._closing.done() or self._host.loop.time() > deadline_s:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the index of delays is not ready; try again")
            await asyncio.wait((self._closing,), timeout=_BLOCKED_PAUSE_S)

    async def _alter(self) -> bool:
        """Do what is asked for first; whether there was anything that could be done."""
        while self._alterations and self._alterations[0].done.done():
            self._alterations.popleft()
        if not self._alterations or not self._appender.may_append():
            return False
        alteration = self._alterations[0]
        if self._state.position < alteration.from_position:
            return False
        ids, bytes_max = alteration.left, self._partition.policy.max_message_bytes
        found = self._appender.fitting(
            await self._in_thread(partial(self._index.of_ids, ids, bytes_max=bytes_max))
        )
        waiting = [each for each in found if not self._waiting.unindexed.ends(each)]
        if waiting and not await self._carry_out(alteration, waiting):
            return True
        alteration.altered.update(each.id for each in waiting)
        alteration.left = [id_ for id_ in ids if found and id_ > found[-1].id]
        if alteration.left:
            return True  # the others in a batch of their own, when the index has these
        if not alteration.fire:
            others = [id_ for id_ in alteration.ids if id_ not in alteration.altered]
            alteration.altered |= await self._in_thread(partial(self._index.cancelled, others))
        self._alterations.popleft()
        if not alteration.done.done():
            alteration.done.set_result(alteration.altered)
        return True

    async def _carry_out(self, alteration: Alteration, messages: list[Waiting]) -> bool:
        """Cancel messages, or deliver them before their time; False if it is not done, or not for certain."""
        if not alteration.fire:
            return await self._end([each.id for each in messages])
        try:
            return await self._fire(messages)
        except KafkaError as error:
            if not alteration.done.done():
                alteration.done.set_exception(error)  # the next leader may not have them, and deliver later
            return False

    async def _fire(self, messages: list[Waiting]) -> bool:
        """False if it has to be tried again."""
        now_ms = self._host.time.now_ms()
        messages.sort(key=lambda each: (each.due_ms, each.id))
        deliveries = await self._in_thread(partial(self._appender.deliveries_of, messages, now_ms))
        return await self._appender.deliver(deliveries)

    async def _end(self, ids: Sequence[int]) -> bool:
        """Say that these messages wait no more; False if it has to be tried again."""
        if not ids or not self._appender.may_append():
            return False
        note = build_note([NoMore(tuple(ids))], bound=False, timestamp=self._host.time.now_ms())
        return await self._appender.append_alone(note, ids)


def _carrying_note(messages: Sequence[Waiting], now_ms: int) -> bytearray:
    """In a thread."""
    return build_note(messages, bound=False, timestamp=now_ms)
