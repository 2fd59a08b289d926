"""The values of the model of a share group: records, their holders, and the settings of the group."""

from __future__ import annotations

from dataclasses import field
from typing import NamedTuple

from forebay.core.topic_partition import TopicPartition
from forebay.lazy import dataclass

Place = tuple[TopicPartition, int]
Term = tuple[int, int, bool]
"""The term of a leader: its process, the leader epoch it knows, and True if that is the newest."""

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""The possible statements about a record."""


class RecordId(NamedTuple):
    """Identifies a record at an offset, where there may be another record later."""

    leader_epoch: int
    """The leader epoch of its batch: rises from one record to the next."""
    value: bytes


UNKNOWN = RecordId(-1, b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRules:
    """The settings of the group in this story, and whether an administrator resets it."""

    lock_ms: int
    delivery_limit: int
    backoff_ms: int
    begins_at_end: bool = False
    is_committed: bool = False
    """True if it gets no records of aborted transactions."""
    has_dead_letters: bool = False
    copies_records: bool = False
    """True if records are copied into dead letters."""
    has_resets: bool = False
    loses_records: bool = False
    """True if the topic has unclean elections. Then its contents are known only from what is read."""

    @property
    def locks_run_out(self) -> bool:
        """True if a story is long enough for locks to expire. Otherwise only ended sessions release
        records."""
        return self.lock_ms < 10_000


@dataclass(eq=False, slots=True)
class Hold:
    """A member holds a record, until it acknowledges it, or its session ends."""

    place: Place
    count: int
    asked_at: float
    received_at: float
    host: str
    term: Term | None
    """None if the broker began or ceased to lead meanwhile."""
    session: object
    member: str
    record: RecordId = UNKNOWN
    renewed_at: float = 0.0
    """When the last answered renewal was requested."""
    suspicion: str | None = None
    """The member that got the record too early, if the session of this one had not ended."""
    suspected_at: float = 0.0


class Fate(NamedTuple):
    """The possible final states of a record."""

    may_be_accepted: bool
    may_be_given_up: bool
    dead_letters_max: int
    may_be_damaged: bool = False


@dataclass(eq=False, slots=True)
class ShareRecord:
    id: RecordId = UNKNOWN
    count: int = 0
    """The highest reported delivery count."""
    counted_by: object = None
    """The broker that reported it, and its term."""
    deliveries: int = 0
    """The number of deliveries."""
    seen_at: float = 0.0
    asked: dict[int, list[float]] = field(default_factory=dict)
    """When it was accepted or rejected, by requests that may have been carried out."""
    finished_at: float | None = None
    """When one of them was answered."""
    hold: Hold | None = None


@dataclass(slots=True)
class ShareLog:
    """The knowledge about one partition."""

    first: int | None
    """The offset where the group begins; None: not known yet."""
    records: dict[int, ShareRecord] = field(default_factory=dict)
    doubts: list[float] = field(default_factory=list)
    """When fetches ended whose records, if there were any, did not arrive."""
    under_way: int = 0
    """Fetches that are not answered yet."""
    start: int = 0
    since: float = 0.0
    """When the last reset was answered; earlier requests may belong to another history."""
    resets: int = 0
    """The number of requested resets."""
    unknown_resets: int = 0
    """The number of resets that may have been carried out or not, or still will be."""
