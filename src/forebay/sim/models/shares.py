"""The model of a share group: deliveries and acknowledgements of each record, and rules for both.

These promises are checked as soon as a client learns something that could break them:

- A record whose accept or reject was answered without an error is not delivered again. If the answer got
  lost, both outcomes are valid.
- A record has one holder at a time. Its lock ends when the holder says something about it, when the lock
  duration is over, when the holder's session ends, or when the partition gets another leader. A session that
  continues afterwards had not ended. A lock that was renewed begins anew.
- A delivery count is never above the limit, and never above the number of deliveries. It goes up with every
  delivery; only the last one may be forgotten, by a leader that dies.
- The start offset never goes back, and passes only finished records: accepted, rejected, delivered as often
  as the limit allows, or damaged. A delivery whose answer got lost counts for each record that may have been
  in it. A record that is in no answer was not delivered, however long the answer took.
- A group that begins at the end of the log gets everything from the first record on that it was given.
- Where the log loses records (unclean elections), others get their offsets, and are as new to the group as
  any. All of the above holds for what the log did not lose, but that the start offset goes back. A record is
  known by its offset and by the leader epoch of its batch.

A broker that was replaced and does not know it yet may still deliver records that it has never delivered: a
first delivery waits for nobody. Acknowledgements to that broker have no effect.

An administrator who resets the group begins a new history of the partition. While it is unknown if that has
happened, nothing is checked; if it stays unknown, as after a lost answer, nothing is checked later either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from forebay.core.topic_partition import TopicPartition
from forebay.sim.models.facts import Content, name_of
from forebay.sim.models.share_records import (
    ACCEPT,
    REJECT,
    UNKNOWN,
    Fate,
    Hold,
    Place,
    RecordId,
    ShareLog,
    ShareRecord,
    ShareRules,
    Term,
)

_LATE_S = 10.0
"""A request may be carried out up to this long after its client gave up."""


class Shares:
    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self.rules = ShareRules(lock_ms=30_000, delivery_limit=5, backoff_ms=0)
        self.term_of: Callable[[str, TopicPartition], Term | None] = lambda _host, _at: None
        """The term in which a host leads a partition now."""
        self.may_be_invisible: Callable[[Place], bool] = lambda _place: False
        """True if a record may belong to an aborted transaction."""
        self.may_be_damaged: Callable[[Place], bool] = lambda _place: False
        """True if the batch of a record was ever damaged on a disk."""
        self.sent_at: Callable[[bytes], float] = lambda _value: 0.0
        """When the record with this value was sent."""
        self.is_vacated = False
        """True if an administrator wants the members out of the group."""
        self.deliveries_count = 0
        self.finished_count = 0
        self._logs: dict[TopicPartition, ShareLog] = {}

    # -- deliveries --------------------------------------------------------------------------------------

    def delivered(self, hold: Hold) -> None:
        at, offset = hold.place
        self.deliveries_count += 1
        log = self._log(at)
        who = f"{name_of(at, offset)} was delivered to {hold.member} by {hold.host} with count {hold.count}"
        if not 1 <= hold.count <= self.rules.delivery_limit:
            self._fail(f"{who}, and {self.rules.delivery_limit} is the limit")
        if log.unknown_resets or hold.asked_at < log.since:
            log.doubts.append(hold.received_at)
            return
        if not log.resets:  # after one, a leader that does not know of it delivers for the first time, too
            log.first = offset if log.first is None else min(log.first, offset)
        record = self._delivered_record(hold)
        if record is None:
            return
        if hold.count > 1 or (hold.term is not None and hold.term[2]):
            self._check_order(record, hold, who)
        # Of two with the same count, one is from before the leader has learned of a reset, and holds nothing.
        is_certain = not (log.resets and record.deliveries and hold.count == record.count)
        record.deliveries += 1
        is_known = not (log.resets or self.rules.loses_records)
        if is_known and hold.count > record.deliveries + len(log.doubts) + log.under_way:
            self._fail(f"{who}, and it was its delivery number {record.deliveries}")
        if hold.count >= record.count:
            record.count, record.seen_at = hold.count, hold.received_at
            record.counted_by = None if hold.term is None else (hold.host, hold.term)
        record.hold = hold if is_certain else None

    def _delivered_record(self, hold: Hold) -> ShareRecord | None:
        """None for a record that is lost: its broker had been replaced, or the answer was late."""
        record = self._record(hold.place)
        if hold.record.leader_epoch < record.id.leader_epoch:
            return None
        if self.rules.loses_records and hold.record.leader_epoch > record.id.leader_epoch:
            at, offset = hold.place
            record = self._log(at).records[offset] = ShareRecord(id=hold.record)
        return record

    def _check_order(self, record: ShareRecord, hold: Hold, who: str) -> None:
        if record.finished_at is not None and hold.asked_at >= record.finished_at:
            self._fail(f"{who}, though it was accepted or rejected at {record.finished_at:.3f}")
        is_later = hold.asked_at >= record.seen_at
        is_same_leader = hold.term is not None and record.counted_by == (hold.host, hold.term)
        is_forgotten = hold.count < record.count or (is_same_leader and hold.count == record.count)
        if is_later and record.count > 1 and is_forgotten:
            self._fail(f"{who}, and had been delivered with count {record.count}")
        before = record.hold
        if before is None or hold.term is None or (before.host, before.term) != (hold.host, hold.term):
            return
        if self._log(hold.place[0]).resets and hold.count <= before.count:
            return  # the leader has learned of a reset in between
        locked_until = max(before.asked_at, before.renewed_at) + self.rules.lock_ms / 1000
        if before.session is hold.session and hold.asked_at >= before.received_at:
            if hold.received_at < locked_until:
                self._fail(f"{who}, which holds it since {before.received_at:.3f}")
        elif hold.asked_at >= before.received_at and hold.received_at < locked_until:
            before.suspicion = f"{who}, while {before.member} held it since {before.received_at:.3f}"
            before.suspected_at = hold.received_at

    def let_go(self, place: Place, session: object) -> None:
        """Note that a record is acknowledged in a session; its lock may end now."""
        record = self._record(place)
        if record.hold is not None and record.hold.session is session:
            record.hold = None

    def lives(self, holds: Iterable[Hold], asked_at: float) -> None:
        """Note that the session in which these records were delivered has accepted a request of that time."""
        for hold in holds:
            if hold.suspicion is not None and hold.suspected_at <= asked_at:
                self._fail(hold.suspicion)

    def begin_fetch(self, partitions: Iterable[TopicPartition]) -> None:
        """Until `end_fetch`, an answer with records of these may be on its way."""
        for at in partitions:
            self._log(at).under_way += 1

    def end_fetch(self, partitions: Iterable[TopicPartition]) -> None:
        for at in partitions:
            self._log(at).under_way -= 1

    def doubt(self, at: TopicPartition, now: float) -> None:
        """Note that a fetch may have acquired records, and its member got none."""
        self._log(at).doubts.append(now)

    def no_doubt(self, at: TopicPartition, when: float) -> None:
        """Note that the answer has come after all, with everything that was delivered."""
        doubts = self._log(at).doubts
        if when in doubts:
            doubts.remove(when)

    # -- acknowledgements --------------------------------------------------------------------------------

    def asked(self, place: Place, kind: int, now: float, id: RecordId = UNKNOWN) -> None:
        """Note that a member that was given a record accepts or rejects it."""
        self._record_of(place, id).asked.setdefault(kind, []).append(now)

    def refused(self, place: Place, kind: int, asked_at: float, id: RecordId = UNKNOWN) -> None:
        """Note that this was not carried out."""
        asked = self._record_of(place, id).asked.get(kind, [])
        if asked_at in asked:
            asked.remove(asked_at)

    def finished(self, place: Place, asked_at: float, now: float, id: RecordId = UNKNOWN) -> None:
        log, record = self._log(place[0]), self._record_of(place, id)
        if log.resets and not record.count:
            return  # of records delivered before the reset: it has no effect on the new history
        if record.finished_at is None and asked_at >= log.since:
            self.finished_count += 1
            record.finished_at = now

    def taken_from_a_stranger(self, member: str, place: Place, asked_at: float, now: float) -> None:
        """Note that an acknowledgement by a member that never had the record was answered without error."""
        if self._log(place[0]).resets and not self._record(place).count:
            return  # a leader that does not know of the reset yet may be past it: that has no effect
        problem = self._unfinished(place)
        if problem is not None:
            self._fail(f"{member} has acknowledged {name_of(*place)}, which it never had; {problem}")
        self.finished(place, asked_at, now)

    # -- start offsets -----------------------------------------------------------------------------------

    def start(self, at: TopicPartition) -> int:
        """The minimum that a look at the start offset that begins now must return."""
        return self._log(at).start

    def started(
        self, at: TopicPartition, offset: int, floor: int, records: Iterable[int], asked_at: float
    ) -> None:
        """Note that all records before this offset are reported as finished; `records` are there."""
        log = self._log(at)
        if log.unknown_resets or asked_at < log.since:
            return
        if self.rules.loses_records:
            log.start = offset
            return
        if offset < floor:
            self._fail(f"the start offset of {name_of(at)} was {floor}, and is {offset} now")
        if log.first is None:
            log.first = log.start = offset
        passed = [each for each in records if log.start <= each < offset]
        log.start = max(log.start, offset)
        for each in passed:
            problem = self._unfinished((at, each))
            if problem is not None:
                self._fail(f"the start offset of {name_of(at)} is {offset}, but {each} {problem}")
                return

    def _unfinished(self, place: Place, record: ShareRecord | None = None) -> str | None:
        """Why a record cannot be finished; None if it may be."""
        at, offset = place
        log, record = self._log(at), record or self._record(place)
        if record.finished_at is not None or any(record.asked.values()) or self._is_at_limit(log, record):
            return None
        if log.unknown_resets or log.first is None or offset < log.first or self.may_be_invisible(place):
            return None
        if self.may_be_damaged(place):
            return None
        return f"was neither accepted nor rejected, and delivered {record.count} times"

    def _is_at_limit(self, log: ShareLog, record: ShareRecord) -> bool:
        """True if it may have been delivered as often as is allowed."""
        doubts = sum(1 for when in log.doubts if when + _LATE_S > record.seen_at)
        return record.count + doubts >= self.rules.delivery_limit

    # -- resets ------------------------------------------------------------------------------------------

    def resetting(self, at: TopicPartition) -> None:
        """Note that an administrator asks for another start offset."""
        log = self._log(at)
        log.resets += 1
        log.unknown_resets += 1

    def not_reset(self, at: TopicPartition) -> None:
        """Note that this was refused."""
        log = self._log(at)
        log.resets -= 1
        log.unknown_resets -= 1

    def reset(self, at: TopicPartition, start: int | None, asked_at: float, now: float) -> None:
        """Note that it was carried out. `start` is None if the settings say where the group begins."""
        before = self._log(at)
        log = self._logs[at] = self._new_log()
        if start is not None:
            log.first = log.start = start
        log.since, log.resets, log.unknown_resets = now, before.resets, before.unknown_resets - 1
        log.doubts = [when for when in before.doubts if when + _LATE_S > asked_at]
        log.under_way = before.under_way
        for offset, record in before.records.items():
            late = {
                kind: [when for when in times if when >= asked_at] for kind, times in record.asked.items()
            }
            if any(late.values()):
                log.records[offset] = ShareRecord(asked=late)

    # -- the end -----------------------------------------------------------------------------------------

    def finish(self, content: Content) -> None:
        """Check at the end: the group is finished, and should have got all of this."""
        for at in self._logs:
            for offset, value in content.get(at, {}).items():
                problem = self._unfinished((at, offset), self._last_record((at, offset), value))
                if problem is not None:
                    self._fail(f"the group is done, but {name_of(at, offset)} {problem}")

    def fates(self, content: Content) -> Mapping[Place, Fate]:
        """The possible states of all records; anything is possible where the history is unknown."""
        found: dict[Place, Fate] = {}
        for at, log in self._logs.items():
            for offset in content.get(at, {}):
                record = self._record((at, offset))
                is_unknown = bool(log.unknown_resets) or log.first is None or offset < log.first
                may_be_accepted = is_unknown or bool(record.asked.get(ACCEPT))
                may_be_given_up = bool(record.asked.get(REJECT)) or self._is_at_limit(log, record)
                is_damaged = self.may_be_damaged((at, offset))
                found[at, offset] = Fate(
                    may_be_accepted,
                    may_be_given_up or is_damaged or bool(log.resets),
                    1 + log.resets,
                    is_damaged,
                )
        return found

    def _log(self, at: TopicPartition) -> ShareLog:
        return self._logs.setdefault(at, self._new_log())

    def _new_log(self) -> ShareLog:
        return ShareLog(first=None if self.rules.begins_at_end else 0)

    def _record_of(self, place: Place, id: RecordId) -> ShareRecord:
        """The record that somebody refers to. Statements about a lost record count for none."""
        record = self._record(place)
        is_there = not self.rules.loses_records or id in (UNKNOWN, record.id)
        return record if is_there else ShareRecord()

    def _last_record(self, place: Place, value: bytes) -> ShareRecord:
        """The final record at a place."""
        record = self._record(place)
        if not self.rules.loses_records or record.id.value == value:
            return record
        return ShareRecord(seen_at=self.sent_at(value))

    def _record(self, place: Place) -> ShareRecord:
        return self._log(place[0]).records.setdefault(place[1], ShareRecord())
