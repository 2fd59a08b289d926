"""The model of messages with their own delays: delivered once, not early, in order, none lost.

A producer may replace or cancel a scheduled message. That was surely in time only if it was acknowledged
before any broker's clock showed the due time. Otherwise the message may have been delivered or not. The same
holds for an administrator who cancels messages by their ids, or has them delivered now: if that was
acknowledged in time, they must have been delivered early.

Several producers may use the same schedule keys. Then a message may be ended by something that was sent
before it and was still under way: a batch, or a transaction that ends messages when it is committed.

Messages that were acknowledged before any clock showed their time are delivered in the order of their times,
by whichever broker.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable
from itertools import pairwise

from forebay.lazy import dataclass
from forebay.sim.models.facts import Transaction, TransactionOutcome, name_of
from forebay.sim.world.places import ALARMS


@dataclass(slots=True, kw_only=True, eq=False)
class Alarm:
    """A message, and its producer's knowledge of it."""

    due_ms: int
    key: bytes | None
    transaction: Transaction | None
    acknowledged: bool = False
    in_time: bool = False
    """True if that was before any clock showed its time."""
    may_be_ended: bool = False
    """True if another message replaces or ends it, or if nobody can say that it was ever seen."""
    ended: bool = False
    """True if that was acknowledged in time."""
    may_be_fired: bool = False
    """True if an administrator has asked for it before its time."""
    fired: bool = False
    """True if that was acknowledged in time."""
    rang_at: int | None = None
    """The offset at which it was read."""


@dataclass(slots=True, eq=False)
class Sending:
    """A batch, or all of a transaction, on its way into the log."""

    transaction: Transaction | None = None
    acknowledged: bool = False

    @property
    def is_under_way(self) -> bool:
        if self.transaction is None:
            return not self.acknowledged
        return self.transaction.outcome in (TransactionOutcome.OPEN, TransactionOutcome.COMMIT_ASKED)


class Alarms:
    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self.shares_keys = False
        """True if producers use the same schedule keys."""
        self.are_deleted = False
        """True if retention deletes messages, including unread ones."""
        self._alarms: dict[bytes, Alarm] = {}
        self._by_key: dict[bytes, list[Alarm]] = {}
        self._ending: dict[bytes, list[Sending]] = {}
        """By key: what ends messages when it arrives, or is committed."""
        self._ids: dict[int, bytes] = {}
        """By offset: messages that were acknowledged, outside transactions."""
        self._rang: list[tuple[int, int]] = []
        """Offsets and times of messages that were acknowledged in time, and read."""

    # -- what producers do -------------------------------------------------------------------------------

    def schedule(
        self,
        value: bytes,
        due_ms: int,
        key: bytes | None,
        transaction: Transaction | None,
        sending: Sending | None = None,
    ) -> list[Alarm]:
        """Note that a message is going to be sent; returns earlier ones that it may end."""
        ends = [] if key is None else self.end(key, sending)
        alarm = self._alarms[value] = Alarm(due_ms=due_ms, key=key, transaction=transaction)
        if key is not None:
            self._by_key.setdefault(key, []).append(alarm)
            alarm.may_be_ended = any(each is not sending for each in self._ending[key])
        return ends

    def end(self, key: bytes, sending: Sending | None = None) -> list[Alarm]:
        """Note that messages under a key are going to be ended; returns the known ones that may wait."""
        under_way = [each for each in self._ending.get(key, ()) if each.is_under_way and each is not sending]
        self._ending[key] = under_way if sending is None else [*under_way, sending]
        before = self._by_key.pop(key, [])
        for alarm in before:
            alarm.may_be_ended = True
        return _certain(before)

    def waiting_under(self, keys: Iterable[bytes]) -> list[Alarm]:
        """The messages that are known to be scheduled under these keys, and may wait."""
        return [alarm for key in keys for alarm in _certain(self._by_key.get(key, ()))]

    def acknowledge(self, value: bytes, clock_ms: int, offset: int | None = None) -> None:
        """`clock_ms`: the latest time that any broker has shown. `offset`: its id, if it waits at once."""
        alarm = self._alarms[value]
        alarm.acknowledged = True
        if offset is not None and alarm.transaction is None:
            self._ids[offset] = value
        alarm.in_time = alarm.transaction is None and clock_ms < alarm.due_ms

    def ended(self, alarms: list[Alarm], clock_ms: int) -> None:
        """Note that these were ended. `clock_ms`: the latest time that any broker has shown."""
        for alarm in alarms:
            alarm.ended = alarm.ended or (clock_ms < alarm.due_ms and not alarm.may_be_fired)

    # -- what administrators do --------------------------------------------------------------------------

    def waiting_at(self, clock_ms: int) -> list[tuple[int, bytes]]:
        """The ids of messages that wait as far as is known, and the messages; by their time."""
        waiting = [
            (self._alarms[value].due_ms, id_, value)
            for id_, value in self._ids.items()
            if self._alarms[value].due_ms > clock_ms and self._alarms[value].rang_at is None
        ]
        return [(id_, value) for _, id_, value in sorted(waiting)]

    def altering(self, value: bytes, *, fire: bool) -> None:
        """Note that a message is going to be cancelled, or delivered now."""
        alarm = self._alarms[value]
        if fire:
            alarm.may_be_fired, alarm.in_time = True, False
        else:
            alarm.may_be_ended = True

    def altered(self, value: bytes, clock_ms: int, *, fire: bool) -> None:
        """Note that this was done, as the leader says. `clock_ms`: the latest time of any broker."""
        alarm = self._alarms[value]
        if fire:
            alarm.fired = alarm.fired or clock_ms < alarm.due_ms
        else:
            self.ended([alarm], clock_ms)

    # -- what readers see --------------------------------------------------------------------------------

    def read(
        self, reader: str, value: bytes, offset: int, clock_ms: int, timestamp_ms: int | None = None
    ) -> None:
        """`timestamp_ms`: the timestamp of the delivered message."""
        alarm, place = self._alarms.get(value), name_of(ALARMS, offset)
        if alarm is None:
            self._fail(f"{reader} read {value!r} at {place}, which nobody sent")
            return
        what = f"{reader} read {value!r} at {place}"
        if clock_ms < alarm.due_ms and not alarm.may_be_fired:
            self._fail(f"{what} {alarm.due_ms - clock_ms} ms before its time")
        if alarm.rang_at not in (None, offset):
            self._fail(f"{what}, which it had read at {alarm.rang_at} already")
        if alarm.ended:
            self._fail(f"{what}, which was replaced or cancelled in time")
        if alarm.fired and timestamp_ms is not None and timestamp_ms >= alarm.due_ms:
            self._fail(f"{what}, at its time, though it was delivered by request before that")
        if alarm.in_time and alarm.rang_at is None:
            self._check_order(what, offset, alarm.due_ms)
        alarm.rang_at = offset

    def _check_order(self, what: str, offset: int, due_ms: int) -> None:
        at = bisect(self._rang, (offset, due_ms))
        self._rang.insert(at, (offset, due_ms))
        for before, after in pairwise(self._rang[max(at - 1, 0) : at + 2]):
            if before[1] > after[1]:
                self._fail(f"{what}: of the messages at {before[0]} and {after[0]} the second was due first")

    def skipped(self, clock_ms: int) -> None:
        """Note that a part of the log was deleted unread: messages due by then may have been in it."""
        for alarm in self._alarms.values():
            if alarm.due_ms <= clock_ms or alarm.may_be_fired:
                alarm.may_be_ended = True

    def saw_uncommitted(self, reader: str, value: bytes) -> None:
        """Note that it was delivered: its transaction must have been committed."""
        alarm = self._alarms.get(value)
        transaction = None if alarm is None else alarm.transaction
        if transaction is not None and transaction.outcome in (
            TransactionOutcome.ABORTED,
            TransactionOutcome.OPEN,
        ):
            self._fail(f"{reader} read {value!r} of a transaction that is {transaction.outcome.value}")

    def missing(self) -> list[bytes]:
        """Messages that must be delivered, and were not read yet."""
        return [
            value
            for value, alarm in self._alarms.items()
            if alarm.rang_at is None
            and alarm.acknowledged
            and not alarm.may_be_ended
            and (alarm.transaction is None or alarm.transaction.outcome is TransactionOutcome.COMMITTED)
        ]


def _certain(alarms: Iterable[Alarm]) -> list[Alarm]:
    """The messages that are surely scheduled."""
    return [alarm for alarm in alarms if alarm.acknowledged and alarm.transaction is None]
