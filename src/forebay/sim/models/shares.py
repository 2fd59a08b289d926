"""The model of a share group: who was given which record how often, what was said about it, what follows.

What is promised, and checked as soon as a client learns something that could break it:

- A record whose accept or reject was answered without an error is not delivered again. If the answer got
  lost, both are fine.
- A record has one holder at a time. Its lock ends when the holder says something about it, when the lock
  duration is over, when the holder's session ends, or when the partition gets another leader. A session that
  goes on afterwards has not ended before.
- A delivery count is never above the limit. It goes up with every delivery; only a first one may be
  forgotten, by a leader that dies.
- The start offset never goes back, and passes only what is finished: accepted, rejected, or delivered as
  often as the limit allows. A delivery whose answer got lost counts for each record that may have been in it.

A broker that was replaced and does not know it yet may still deliver records that it has never delivered: a
first delivery waits for nobody. What it is told about them has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from forebay.core.topic_partition import TopicPartition
from forebay.sim.models.facts import name_of

Place = tuple[TopicPartition, int]
Term = tuple[int, int, bool]
"""Of a leader: which start of its broker, the leader epoch it knows, and whether that is the newest."""

_LATE_S = 10.0
"""A request whose answer was given up may be carried out up to this much later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRules:
    """The settings of the group in this story."""

    lock_ms: int
    delivery_limit: int
    backoff_ms: int

    @property
    def locks_run_out(self) -> bool:
        """Whether a story is long enough for that. Else only ends of sessions free what is held."""
        return self.lock_ms < 10_000


@dataclass(eq=False, slots=True)
class Hold:
    """A member has a record; until it says something about it, or its session ends."""

    place: Place
    count: int
    asked_at: float
    received_at: float
    host: str
    term: Term | None
    """None if the broker began or ceased to lead meanwhile."""
    session: object
    member: str
    suspicion: str | None = None
    """Who got the record too early, if the session of this one has not ended before."""
    suspected_at: float = 0.0


@dataclass(eq=False, slots=True)
class _Record:
    count: int = 0
    """The highest that was told."""
    seen_at: float = 0.0
    asked: int = 0
    """Requests to accept or reject it that may have been carried out."""
    finished_at: float | None = None
    """When one of them was answered."""
    hold: Hold | None = None


@dataclass(slots=True)
class _Log:
    """What is known of one partition."""

    records: dict[int, _Record] = field(default_factory=dict)
    doubts: list[float] = field(default_factory=list)
    """When fetches ended whose records, if there were any, nobody got."""
    start: int = 0


class Shares:
    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self.rules = ShareRules(lock_ms=30_000, delivery_limit=5, backoff_ms=0)
        self.term_of: Callable[[str, TopicPartition], Term | None] = lambda _host, _at: None
        """The term in which a host leads a partition now."""
        self.deliveries_count = 0
        self.finished_count = 0
        self._logs: dict[TopicPartition, _Log] = {}

    # -- deliveries --------------------------------------------------------------------------------------

    def delivered(self, hold: Hold) -> None:
        at, offset = hold.place
        self.deliveries_count += 1
        record = self._record(hold.place)
        who = f"{name_of(at, offset)} was delivered to {hold.member} by {hold.host} with count {hold.count}"
        if not 1 <= hold.count <= self.rules.delivery_limit:
            self._fail(f"{who}, and {self.rules.delivery_limit} is the limit")
        if hold.count > 1 or (hold.term is not None and hold.term[2]):
            self._check_order(record, hold, who)
        if hold.count >= record.count:
            record.count, record.seen_at = hold.count, hold.received_at
        record.hold = hold

    def _check_order(self, record: _Record, hold: Hold, who: str) -> None:
        if record.finished_at is not None and hold.asked_at >= record.finished_at:
            self._fail(f"{who}, though it was accepted or rejected at {record.finished_at:.3f}")
        is_later = hold.asked_at >= record.seen_at
        if is_later and record.count > 1 and hold.count <= record.count:
            self._fail(f"{who}, and had been delivered with count {record.count}")
        before = record.hold
        if before is None or hold.term is None or (before.host, before.term) != (hold.host, hold.term):
            return
        locked_until = before.asked_at + self.rules.lock_ms / 1000
        if before.session is hold.session and hold.asked_at >= before.received_at:
            if hold.received_at < locked_until:
                self._fail(f"{who}, which holds it since {before.received_at:.3f}")
        elif hold.asked_at >= before.received_at and hold.received_at < locked_until:
            before.suspicion = f"{who}, while {before.member} held it since {before.received_at:.3f}"
            before.suspected_at = hold.received_at

    def let_go(self, place: Place, session: object) -> None:
        """Something is said about a record in a session; its lock may end now."""
        record = self._record(place)
        if record.hold is not None and record.hold.session is session:
            record.hold = None

    def lives(self, holds: Iterable[Hold], asked_at: float) -> None:
        """The session in which these records were delivered has taken a request of that time."""
        for hold in holds:
            if hold.suspicion is not None and hold.suspected_at <= asked_at:
                self._fail(hold.suspicion)

    def doubt(self, at: TopicPartition, now: float) -> None:
        """A fetch may have acquired records, and its member got none."""
        self._log(at).doubts.append(now)

    # -- acknowledgements --------------------------------------------------------------------------------

    def asked(self, place: Place) -> None:
        """A member that was given a record says that it is finished."""
        self._record(place).asked += 1

    def refused(self, place: Place) -> None:
        """That was not carried out."""
        self._record(place).asked -= 1

    def finished(self, place: Place, now: float) -> None:
        record = self._record(place)
        if record.finished_at is None:
            self.finished_count += 1
            record.finished_at = now

    def taken_from_a_stranger(self, member: str, place: Place, now: float) -> None:
        """An acknowledgement of a member that never had the record was answered without an error."""
        problem = self._unfinished(place)
        if problem is not None:
            self._fail(f"{member} has acknowledged {name_of(*place)}, which it never had; {problem}")
        self.finished(place, now)

    # -- start offsets -----------------------------------------------------------------------------------

    def start(self, at: TopicPartition) -> int:
        """What a look at the start offset that begins now must give at least."""
        return self._log(at).start

    def started(self, at: TopicPartition, offset: int, floor: int, records: Iterable[int]) -> None:
        """The share coordinator says that everything before this offset is finished; `records` are there."""
        log = self._log(at)
        if offset < floor:
            self._fail(f"the start offset of {name_of(at)} was {floor}, and is {offset} now")
        passed = [each for each in records if log.start <= each < offset]
        log.start = max(log.start, offset)
        for each in passed:
            problem = self._unfinished((at, each))
            if problem is not None:
                self._fail(f"the start offset of {name_of(at)} is {offset}, but {each} {problem}")
                return

    def _unfinished(self, place: Place) -> str | None:
        """Why a record cannot be finished; None if it may be."""
        record = self._record(place)
        if record.finished_at is not None or record.asked:
            return None
        doubts = sum(1 for when in self._log(place[0]).doubts if when + _LATE_S > record.seen_at)
        if record.count + doubts >= self.rules.delivery_limit:
            return None
        return f"was neither accepted nor rejected, and delivered {record.count} times"

    def _log(self, at: TopicPartition) -> _Log:
        return self._logs.setdefault(at, _Log())

    def _record(self, place: Place) -> _Record:
        return self._log(place[0]).records.setdefault(place[1], _Record())
