"""A broker in memory, and confluent-kafka's two classes on it: no threads, no waiting, every run the same.

It has what forebay.client uses, with librdkafka's own ways: a fetch moves the position, a call in the wrong
state is `_STATE`, a producer that was fenced is fatal, markers take offsets, readers of committed messages
stop at an open transaction. A group has one member; it rebalances in the fetches that the test names.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, OFFSET_INVALID, KafkaError, KafkaException, TopicPartition

from support.chaos.history import Content, Outcome, Place

RELAPSE_FETCHES = 5
_POLL_SECONDS_MAX = 0.001


@dataclass(slots=True)
class Ledger:
    """One transaction."""

    outcome: Outcome = "open"
    places: set[Place] = field(default_factory=set)
    offsets: dict[tuple[str, Place], int] = field(default_factory=dict)


class Entry(NamedTuple):
    """A message, or a marker, which has no value."""

    value: bytes | None
    ledger: Ledger | None = None

    @property
    def is_open(self) -> bool:
        return self.ledger is not None and self.ledger.outcome == "open"

    @property
    def is_visible(self) -> bool:
        return self.value is not None and (self.ledger is None or self.ledger.outcome == "committed")


class Kafka:
    def __init__(
        self, topics: dict[str, int], rebalance_at: Iterable[int] = (), lose_at: Iterable[int] = ()
    ) -> None:
        """`rebalance_at`: the fetches in which the group rebalances; `lose_at`: messages that are lost."""
        self.lock = threading.RLock()
        self.logs: dict[Place, list[Entry]] = {
            (topic, number): [] for topic, count in topics.items() for number in range(count)
        }
        self.committed: dict[tuple[str, Place], int] = {}
        self.on_commit: Callable[[Place, int], None] = lambda _place, _offset: None
        """Told of every committed offset, as soon as it counts."""
        self.generations: Counter[str] = Counter()
        self.epochs: Counter[str] = Counter()
        self.ledgers: dict[str, Ledger] = {}
        self.fetches = 0
        self.deliveries = 0
        self.is_silent = False
        """The last fetch brought nothing, for there is nothing more."""
        self._rebalance_at = frozenset(rebalance_at)
        self._lose_at = frozenset(lose_at)

    def feed(self, topic: str, values: Iterable[bytes]) -> None:
        """To all partitions in turn."""
        places = [place for place in self.logs if place[0] == topic]
        for number, value in enumerate(values):
            self.logs[places[number % len(places)]].append(Entry(value))

    def append(self, place: Place, value: bytes, ledger: Ledger | None) -> int:
        if ledger is not None:
            ledger.places.add(place)
        self.logs[place].append(Entry(value, ledger))
        return len(self.logs[place]) - 1

    def end(self, ledger: Ledger, outcome: Outcome) -> None:
        ledger.outcome = outcome
        for place in ledger.places:
            self.logs[place].append(Entry(None))
        if outcome == "committed":
            for (group, place), offset in ledger.offsets.items():
                self.commit(group, place, offset)

    def commit(self, group: str, place: Place, offset: int) -> None:
        self.committed[group, place] = offset
        self.on_commit(place, offset)

    def is_unstable(self, group: str, place: Place) -> bool:
        return any(
            (group, place) in ledger.offsets for ledger in self.ledgers.values() if ledger.outcome == "open"
        )

    def next_visible(self, place: Place, position: int) -> int | None:
        for offset, entry in enumerate(self.logs[place][position:], position):
            if entry.is_open:
                return None
            if entry.is_visible:
                return offset
        return None

    def rebalances_now(self) -> bool:
        self.fetches += 1
        return self.fetches - 1 in self._rebalance_at

    def loses_now(self) -> bool:
        self.deliveries += 1
        return self.deliveries - 1 in self._lose_at

    def content(self, *, committed_only: bool) -> Content:
        return {
            place: {
                offset: entry.value
                for offset, entry in enumerate(entries)
                if entry.value is not None and (entry.is_visible or not committed_only)
            }
            for place, entries in self.logs.items()
        }


class Message:
    def __init__(self, place: Place, value: bytes, offset: int = OFFSET_INVALID) -> None:
        self.place, self._value, self._offset = place, value, offset

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return self._value

    def key(self) -> None: ...

    def headers(self) -> None: ...

    def leader_epoch(self) -> None: ...

    def error(self) -> None: ...

    def timestamp(self) -> tuple[int, int]:
        return 1, 0


class Queued(NamedTuple):
    message: Message
    on_delivery: Callable[[KafkaError | None, Message], None]


class Producer:
    kafka: Kafka

    def __init__(self, settings: dict[str, Any]) -> None:
        self._id: str | None = settings.get("transactional.id")
        self._state = "INIT"
        self._epoch = 0
        self._ledger: Ledger | None = None
        self._must_abort = False
        self._queue: list[Queued] = []
        self._delivering = threading.RLock()
        """Held until all reports are made: who flushes waits for those of other threads, too."""

    def produce(
        self,
        topic: str,
        value: bytes,
        _key: Any,
        *,
        partition: int,
        on_delivery: Callable[[KafkaError | None, Message], None],
        **_: Any,
    ) -> None:
        if self._id is not None:
            self._require("OPEN")
            self._check_abortable()
        with self.kafka.lock:
            self._queue.append(Queued(Message((topic, partition), value), on_delivery))

    def poll(self, timeout: float) -> int:
        served = self._serve()
        if not served:
            time.sleep(min(timeout, _POLL_SECONDS_MAX))
        return served

    def flush(self, _timeout: float) -> int:
        self._serve()
        return 0

    def purge(self) -> None:
        with self._delivering:
            for queued in self._take_queue():
                queued.on_delivery(KafkaError(KafkaError._PURGE_QUEUE), queued.message)

    def _serve(self) -> int:
        with self._delivering:
            queue = self._take_queue()
            for queued in queue:
                self._deliver(queued)
            return len(queue)

    def _deliver(self, queued: Queued) -> None:
        message, tell = queued
        if self._is_fenced():
            tell(KafkaError(KafkaError._FENCED), message)
            return
        with self.kafka.lock:
            if lost := self.kafka.loses_now():
                self._must_abort = self._id is not None
            else:
                offset = self.kafka.append(message.place, message.value(), self._ledger)
        if lost:
            tell(KafkaError(KafkaError._MSG_TIMED_OUT), message)
        else:
            tell(None, Message(message.place, message.value(), offset))

    def _take_queue(self) -> list[Queued]:
        with self.kafka.lock:
            queue, self._queue = self._queue, []
        return queue

    # -- transactions ----------------------------------------------------------------------------------

    def init_transactions(self, _timeout: float) -> None:
        assert self._id is not None
        self._require("INIT")
        with self.kafka.lock:
            self.kafka.epochs[self._id] += 1
            self._epoch = self.kafka.epochs[self._id]
            if (left := self.kafka.ledgers.get(self._id)) is not None and left.outcome == "open":
                self.kafka.end(left, "aborted")
        self._state = "READY"

    def begin_transaction(self) -> None:
        assert self._id is not None
        self._require("READY")
        self._state, self._ledger = "OPEN", Ledger()
        self.kafka.ledgers[self._id] = self._ledger

    def send_offsets_to_transaction(
        self, offsets: list[TopicPartition], member: tuple[str, int], _timeout: float
    ) -> None:
        self._require("OPEN")
        self._check_abortable()
        group, generation = member
        assert self._ledger is not None
        if generation != self.kafka.generations[group]:
            self._must_abort = True
            self._check_abortable()
        for each in offsets:
            self._ledger.offsets[group, (each.topic, each.partition)] = each.offset

    def commit_transaction(self, _timeout: float) -> None:
        self._require("OPEN")
        self._serve()
        self._check_abortable()
        self._end("committed")

    def abort_transaction(self, _timeout: float) -> None:
        self._require("OPEN")
        self.purge()
        self._must_abort = False
        self._end("aborted")

    def _end(self, outcome: Outcome) -> None:
        assert self._ledger is not None
        with self.kafka.lock:
            self.kafka.end(self._ledger, outcome)
        self._state, self._ledger = "READY", None

    def _is_fenced(self) -> bool:
        return self._id is not None and self._epoch != 0 and self._epoch != self.kafka.epochs[self._id]

    def _require(self, state: str) -> None:
        if self._is_fenced():
            raise KafkaException(KafkaError(KafkaError._FENCED, fatal=True))
        if self._state != state:
            raise KafkaException(KafkaError(KafkaError._STATE))

    def _check_abortable(self) -> None:
        if self._must_abort:
            raise KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION, txn_requires_abort=True))


class Consumer:
    kafka: Kafka

    def __init__(self, settings: dict[str, Any]) -> None:
        self._group: str = settings["group.id"]
        self._commits_stored: bool = settings["enable.auto.commit"]
        self._positions: dict[Place, int] = {}
        self._stored: dict[Place, int] = {}
        self._relapses: dict[Place, int] = {}
        self._topics: list[str] = []
        self._on_assign: Callable[[Any, list[TopicPartition]], None] = lambda *_: None
        self._on_revoke: Callable[[Any, list[TopicPartition]], None] = lambda *_: None
        self._open = True
        self._assigned = False

    def subscribe(self, topics: list[str], *, on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        del on_lost  # a group of one member loses nothing by silence
        self._topics, self._on_assign, self._on_revoke = topics, on_assign, on_revoke

    def poll(self, _timeout: float) -> Message | None:
        if self.kafka.rebalances_now() and self._assigned:
            self._revoke()
        if not self._assigned:
            self._rejoin()
            return None  # the answers to the first fetches are still on their way
        self._commit_stored()
        for place, fetch in list(self._relapses.items()):
            if self.kafka.fetches >= fetch and place in self._positions:
                self._positions[place] = 0
                del self._relapses[place]
        message = self._next()
        self.kafka.is_silent = message is None
        return message

    def consume(self, count: int, _timeout: float) -> list[Message]:
        found: list[Message] = []
        while len(found) < count and (message := self._next()) is not None:
            found.append(message)
        if self.kafka.rebalances_now():
            # Messages from before the partitions were taken away are returned all the same.
            self._revoke()
            self._rejoin()
        return found

    def _next(self) -> Message | None:
        for place, position in self._positions.items():
            offset = self.kafka.next_visible(place, position)
            if offset is not None:
                self._positions[place] = offset + 1
                value = self.kafka.logs[place][offset].value
                assert value is not None
                return Message(place, value, offset)
        return None

    def _rejoin(self) -> None:
        self.kafka.generations[self._group] += 1
        self.kafka.is_silent = False
        places = [place for place in self.kafka.logs if place[0] in self._topics]
        try:
            self._on_assign(self, [TopicPartition(*place, OFFSET_INVALID) for place in places])
        finally:
            if not self._assigned:  # as confluent-kafka does when the callback raises
                self.assign([TopicPartition(*place, OFFSET_INVALID) for place in places])

    def assign(self, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            place = (each.topic, each.partition)
            self._positions[place] = each.offset
            if each.offset < 0:
                self._positions[place] = self.kafka.committed.get((self._group, place), 0)
                if (self._group, place) not in self.kafka.committed:
                    # librdkafka looks it up; it may do so again later, when the partition has been elsewhere.
                    self._relapses[place] = self.kafka.fetches + RELAPSE_FETCHES
        self._assigned = True

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        raise AssertionError("this group assigns all at once")

    def _revoke(self) -> None:
        self._on_revoke(self, self.assignment())
        self._commit_stored()
        self._positions.clear()
        self._stored.clear()
        self._assigned = False

    def _commit_stored(self) -> None:
        """librdkafka does it in the background, and when partitions are given up."""
        if self._commits_stored:
            for place, offset in self._stored.items():
                if offset > self.kafka.committed.get((self._group, place), -1):
                    self.kafka.commit(self._group, place, offset)

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition(*place) for place in self._positions]

    def seek(self, partition: TopicPartition) -> None:
        place = (partition.topic, partition.partition)
        self._check_assigned(place)
        assert partition.offset >= 0
        self._positions[place] = partition.offset
        self.kafka.is_silent = False

    def store_offsets(self, *, offsets: list[TopicPartition]) -> None:
        for each in offsets:
            self._check_assigned((each.topic, each.partition))
            self._stored[each.topic, each.partition] = each.offset

    def _check_assigned(self, place: Place) -> None:
        if place not in self._positions:
            raise KafkaException(KafkaError(KafkaError._STATE))

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        assert not asynchronous
        for each in offsets:
            self.kafka.commit(self._group, (each.topic, each.partition), each.offset)
        return offsets

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        places = [(each.topic, each.partition) for each in partitions]
        if any(self.kafka.is_unstable(self._group, place) for place in places):
            raise KafkaException(KafkaError(KafkaError.UNSTABLE_OFFSET_COMMIT, retriable=True))
        return [
            TopicPartition(*place, self.kafka.committed.get((self._group, place), OFFSET_INVALID))
            for place in places
        ]

    def offsets_for_times(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        assert all(each.offset == OFFSET_BEGINNING for each in partitions)
        return [TopicPartition(each.topic, each.partition, 0) for each in partitions]

    def get_watermark_offsets(self, partition: TopicPartition, *, cached: bool) -> tuple[int, int]:
        assert cached
        return 0, len(self.kafka.logs[partition.topic, partition.partition])

    def consumer_group_metadata(self) -> tuple[str, int]:
        return self._group, self.kafka.generations[self._group]

    def memberid(self) -> str:
        return self._group

    def close(self) -> None:
        if self._open:
            self._open = False
            self._revoke()


def clients_of(kafka: Kafka) -> tuple[type[Producer], type[Consumer]]:
    """Classes that can stand where confluent-kafka's do."""
    here = {"kafka": kafka}
    return type("Producer", (Producer,), here), type("Consumer", (Consumer,), here)
