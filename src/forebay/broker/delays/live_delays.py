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
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

from forebay.broker.delays.following import DelayHost, IndexFollower
from forebay.broker.partition.long_polls import FetchWait
from forebay.broker.partition.partition import Partition
from forebay.broker.partition.waiting_messages import WaitingMessages
from forebay.broker.produce.write_cycle import ACKS_ALL, Appended, Unacknowledged
from forebay.core.delays.fired import fired_batch, fired_note
from forebay.errors import ErrorCode, KafkaError, StorageError, known_code
from forebay.storage.delay_index import IndexState
from forebay.wire.batch import read_header
from forebay.wire.state.delay_notes import NoMore, Waiting, build_note

_DELIVERED_MAX = 5_000
"""Messages in one batch."""
_CARRIED_MAX = 5_000
_TROUBLE_PAUSE_S = 1.0
_BLOCKED_PAUSE_S = 0.02
_SLEEP_S_MAX = 1.0
"""The clock may be set, so the time is looked at this often."""
_CATCH_UP_S_MAX = 10.0
_LOOKED_AT_MAX = 1_000
_LOOKED_AT_BYTES_MAX = 4 << 20
"""The most of one answer, which is made on the loop."""

T = TypeVar("T")


class Delivery(NamedTuple):
    messages: Sequence[Waiting]
    note: bytearray
    batch: bytearray


@dataclass(slots=True, eq=False)
class Alteration:
    """A request to cancel messages, or to deliver them now."""

    left: list[int]
    """The ids of messages that were not looked at yet, in their order."""
    fire: bool
    from_position: int
    """Not before the index has come here: it names messages that were scheduled before it came."""
    done: asyncio.Future[set[int]]
    """Those that it found waiting."""
    altered: set[int] = field(default_factory=set)


class _Watch(FetchWait):
    """Waits for the partition's high watermark, again and again."""

    __slots__ = ("_wake",)

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def arrived(self, partition: object, size: int) -> None:  # noqa: ARG002 - it looks for itself
        self._wake()

    def finish(self) -> None:
        self._wake()


class LiveDelays:
    def __init__(self, host: DelayHost, partition: Partition, waiting: WaitingMessages) -> None:
        self._host = host
        self._partition = partition
        self._waiting = waiting
        self._follower = IndexFollower(host, partition, waiting)
        self._index = self._follower.index
        self._woken = asyncio.Event()
        self._closing: asyncio.Future[None] = host.loop.create_future()
        self._blocked = False
        self._alterations: deque[Alteration] = deque()

    @property
    def _state(self) -> IndexState:
        return self._follower.state

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None:
        """The partition is out of use here, or the broker stops."""
        if not self._closing.done():
            self._closing.set_result(None)
        self.wake()

    async def run(self) -> None:
        """Follow and deliver until `close`."""
        watch = _Watch(self.wake)
        self._partition.waits[watch] = None
        self._waiting.on_carry = self.wake
        try:
            while not self._closing.done():
                try:
                    await self._serve()
                except Exception as error:
                    self._host.background.failed("following delays", error, partition=str(self._partition))
                    await asyncio.wait((self._closing,), timeout=_TROUBLE_PAUSE_S)
        finally:
            self._partition.waits.pop(watch, None)
            self._waiting.index = self._waiting.on_carry = None

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
        if await self._follower.follow():
            return True
        return self._partition.is_leader and (
            await self._alter() or await self._deliver() or await self._carry()
        )

    async def _sleep(self) -> None:
        timer = None
        due_ms = self._state.next_due_ms
        if self._partition.is_leader and due_ms is not None:
            left_s = (due_ms - self._host.time.now_ms()) / 1000
            least_s = _BLOCKED_PAUSE_S if self._blocked else 0.0
            timer = self._host.loop.call_later(min(max(left_s, least_s), _SLEEP_S_MAX), self.wake)
        await self._woken.wait()
        if timer is not None:
            timer.cancel()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await self._host.threads.run(work)

    # -- delivering ------------------------------------------------------------------------------------

    def _may_append(self) -> bool:
        """Whether the index knows all that was delivered and cancelled, and this broker may say so."""
        partition, waiting = self._partition, self._waiting
        position = self._state.position
        return (
            partition.is_leader
            and not partition.closed
            and partition.enough_replicas
            and self._host.lease.valid()
            and position >= waiting.in_flight_end
            and position >= waiting.unindexed.wait_for
            and self._follower.knows_start
        )

    async def _deliver(self) -> bool:
        """Append a batch of what is due; whether there was any."""
        now_ms, due_ms = self._host.time.now_ms(), self._state.next_due_ms
        self._blocked = due_ms is not None and due_ms <= now_ms
        if not self._blocked or not self._may_append():
            return False
        ended = self._waiting.unindexed.ended_names()
        delivery = await self._in_thread(partial(self._plan, now_ms, *ended))
        return delivery is not None and await self._append(delivery)

    def _plan(self, now_ms: int, keys: frozenset[bytes], ids: frozenset[int]) -> Delivery | None:
        """What is due, without what was ended under these keys and ids. In a thread."""
        bytes_max = self._partition.policy.max_message_bytes
        found = self._index.due(now_ms, count_max=_DELIVERED_MAX, bytes_max=bytes_max)
        left = [each for each in found if each.schedule_key not in keys and each.id not in ids]
        return self._delivery_of(left, now_ms) if left else None

    def _delivery_of(self, messages: Sequence[Waiting], now_ms: int) -> Delivery:
        """What delivers these messages. In a thread."""
        policy = self._partition.policy
        batch = fired_batch(
            messages,
            partition=self._partition.index,
            now_ms=now_ms,
            log_append_time=policy.log_append_time,
            codec=messages[0].codec if policy.codec is None else policy.codec,
            compression_level=policy.compression_level,
        )
        return Delivery(messages, fired_note(messages, now_ms), batch)

    async def _append(self, delivery: Delivery) -> bool:
        """Append a delivery and wait until it is committed; False if it was not appended."""
        partition, waiting = self._partition, self._waiting
        unindexed = waiting.unindexed
        if not self._may_append() or any(unindexed.ends(message) for message in delivery.messages):
            return False  # some were cancelled meanwhile
        batch = memoryview(delivery.batch)
        try:
            waiting.append_noted(partition.log, delivery.note, batch, read_header(batch))
            waiting.in_flight_end = partition.log.end_offset
            unindexed.appended(partition.log.end_offset)
            await self._committed(len(delivery.note) + len(batch))
        except StorageError:  # the log has said why; it is tried again
            await asyncio.wait((self._closing,), timeout=_TROUBLE_PAUSE_S)
            return False
        except KafkaError:
            return True  # it is in the log, and may be committed yet
        self._count(delivery)
        return True

    def _count(self, delivery: Delivery) -> None:
        metrics, now_ms = self._host.metrics, self._host.time.now_ms()
        metrics.delayed_fired += len(delivery.messages)
        metrics.delayed_late_ms += sum(max(now_ms - message.due_ms, 0) for message in delivery.messages)

    # -- retention -------------------------------------------------------------------------------------

    async def _carry(self) -> bool:
        """Write messages that wait to the end of the log, so that their old place can be deleted.

        Only where that frees more than it takes: otherwise a log full of them would be written again and
        again.
        """
        waiting, carry = self._waiting, self._waiting.carry
        if carry is None or not self._may_append():
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
        if not self._may_append() or any(waiting.unindexed.ends(each) for each in found):
            return False
        return await self._append_alone(note)

    async def _append_alone(self, note: bytearray, ids: Sequence[int] = ()) -> bool:
        """Append a note that ends these messages, or none, and wait until it is committed."""
        waiting, log = self._waiting, self._partition.log
        try:
            waiting.append_note(log, note)
            waiting.in_flight_end = log.end_offset
            waiting.unindexed.appended(log.end_offset, ids=ids)
            await self._committed(len(note))
        except KafkaError:
            await asyncio.wait((self._closing,), timeout=_TROUBLE_PAUSE_S)
            return False
        return True

    # -- what others ask for ---------------------------------------------------------------------------

    async def look(
        self, ids: Sequence[int], *, after: tuple[int, int], limit: int
    ) -> tuple[list[Waiting], bool, int]:
        """Messages that wait: of these ids, or some behind a place in the order of (due, id).

        Also whether others follow, and how many wait. Raises KafkaError.
        """
        await self._come_to(self._partition.high_watermark)
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
        """Cancel messages, or deliver them now; those that were waiting. Raises KafkaError."""
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
        if not self._alterations or not self._may_append():
            return False
        alteration = self._alterations[0]
        if self._state.position < alteration.from_position:
            return False
        ids, bytes_max = alteration.left, self._partition.policy.max_message_bytes
        found = await self._in_thread(partial(self._index.of_ids, ids, bytes_max=bytes_max))
        waiting = [each for each in found if not self._waiting.unindexed.ends(each)]
        if waiting and not (await (self._fire(waiting) if alteration.fire else self._cancel(waiting))):
            return True
        alteration.altered.update(each.id for each in waiting)
        alteration.left = [id_ for id_ in ids if found and id_ > found[-1].id]
        if alteration.left:
            return True  # the others in a batch of their own, when the index has these
        self._alterations.popleft()
        if not alteration.done.done():
            alteration.done.set_result(alteration.altered)
        return True

    async def _fire(self, messages: list[Waiting]) -> bool:
        """Deliver messages before their time; False if it has to be tried again."""
        now_ms = self._host.time.now_ms()
        messages.sort(key=lambda each: (each.due_ms, each.id))
        delivery = await self._in_thread(partial(self._delivery_of, messages, now_ms))
        return await self._append(delivery)

    async def _cancel(self, messages: list[Waiting]) -> bool:
        if not self._may_append():
            return False
        ids = tuple(each.id for each in messages)
        note = build_note([NoMore(ids)], bound=False, timestamp=self._host.time.now_ms())
        return await self._append_alone(note, ids)

    async def _committed(self, size: int) -> None:
        """Wait until what was just queued is committed, or this broker stops. Raises KafkaError."""
        partition = self._partition
        result = Appended(partition.index, partition)
        settled: asyncio.Future[None] = self._host.loop.create_future()

        def settle() -> None:
            if not settled.done():
                settled.set_result(None)

        self._host.write_cycle.queued(partition, size)
        self._host.write_cycle.add(Unacknowledged([result], ACKS_ALL, settle))
        self._host.write_cycle.finish_soon()
        await asyncio.wait((settled, self._closing), return_when=asyncio.FIRST_COMPLETED)
        code = known_code(result.error_code)
        if code == ErrorCode.KAFKA_STORAGE_ERROR:
            raise StorageError(result.error_message or "not written")
        if code != ErrorCode.NONE:
            raise KafkaError(code, result.error_message or "not committed")


def _carrying_note(messages: Sequence[Waiting], now_ms: int) -> bytearray:
    """In a thread."""
    return build_note(messages, bound=False, timestamp=now_ms)
