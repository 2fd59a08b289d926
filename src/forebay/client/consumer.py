"""A consumer that is iterated, and whose offsets are committed according to its delivery mode.

    at-most-once   committed, and the commit answered, before a message is handed out
    at-least-once  asking for the next message says that those before are done; done ones are committed in the
                   background, and when partitions are given up
    exactly-once   never by the consumer: offsets go into the producer's transaction, with its messages

Messages are fetched some at a time and wait in `_ready`. Messages that were handed out and are not committed
yet are unacknowledged, or in hand (`OffsetsToCommit`). If a partition is revoked, its waiting messages are
dropped: its next owner reads them again from the committed offset. `Positions` knows where reading continues,
so a call that raises does not lose a message either.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from forebay.client import messages
from forebay.client.closing import CLOSE_SECONDS, MemberHandle, checked_close_seconds, leave_in_time
from forebay.client.errors import ClientError, TransactionAborted, error_of, from_kafka, kafka_errors
from forebay.client.messages import Message, Place
from forebay.client.offsets_to_commit import OffsetsToCommit
from forebay.client.positions import Positions
from forebay.client.presets import Delivery, Profile, Settings, Start, assigns_in_steps, consumer_settings
from forebay.client.transactions import TransactionOutcome
from forebay.errors import ConfigError

log = logging.getLogger("forebay.client")

FILL_SECONDS = 1.0
"""One wait of the iterator; Ctrl-C is noticed between two of them."""
_STORE_SECONDS = 0.2
"""How often a slow program reports finished messages; a fast one does it with every fetch."""

# A subscribed topic that does not exist may still be created, and a member that was too slow joins again.
_PASSING = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._MAX_POLL_EXCEEDED})
# The group has rebalanced: the partitions come back, or go to others, with the committed offset.
_REBALANCED = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError._ASSIGNMENT_LOST,
    }
)


class Consumer:
    """One member of a group. Belongs to one thread; close it, or use `with`."""

    def __init__(
        self,
        servers: str | Sequence[str],
        topics: str | Sequence[str],
        *,
        group: str,
        delivery: Delivery = "at-least-once",
        profile: Profile = "throughput",
        start: Start = "earliest",
        batch_max: int = 500,
        close_seconds: float = CLOSE_SECONDS,
        settings: Settings | None = None,
    ) -> None:
        """`start`: where a group without committed offsets begins. `batch_max`: the number of messages that
        may wait here. `close_seconds`: how long `close` may take.
        """
        if batch_max < 1:
            raise ConfigError(f"batch_max={batch_max}: write 1 or more")
        self._close_seconds = checked_close_seconds(close_seconds)
        self._group = group
        self.delivery = delivery
        self._batch_max = batch_max
        self._ready: deque[Message] = deque()
        self._to_commit = OffsetsToCommit()
        self._half_done = False
        """True while waiting and handed-out messages change; stays True after an interrupt (Ctrl-C)."""
        self._stored: dict[Place, int] = {}
        """Offsets that librdkafka will commit in the background, unless it has already."""
        self._taken_away: set[Place] = set()
        self._store_at = 0.0
        self._failure: ClientError | None = None
        chosen = consumer_settings(servers, group, delivery, profile, start, settings)
        self._assigns_in_steps = assigns_in_steps(chosen)
        self._chosen = chosen
        self._member_id: str | None = None
        with kafka_errors():
            self._raw = confluent_kafka.Consumer(chosen)
            self._handle = MemberHandle(self._raw, "consumer", self._close_seconds)
            self._positions = Positions(self._raw, start)
            self._subscribe([topics] if isinstance(topics, str) else list(topics))

    def _subscribe(self, topics: list[str]) -> None:
        try:
            self._raw.subscribe(
                topics, on_assign=self._assign, on_revoke=self._take_away, on_lost=self._take_away
            )
        except BaseException:
            self.close()  # otherwise it would stay a member of the group, and keep its partitions
            raise

    @property
    def raw(self) -> confluent_kafka.Consumer:
        """librdkafka's consumer, for everything that is not here (pause, watermarks)."""
        return self._raw

    # -- messages --------------------------------------------------------------------------------------

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        """The next message, however long it takes."""
        while (message := self.try_next()) is None:
            self.fill(self._batch_max, FILL_SECONDS)
        return message

    def poll(self, timeout_s: float = FILL_SECONDS) -> Message | None:
        """The next message, or None if none came in time."""
        message = self.try_next()
        if message is None and self.fill(self._batch_max, timeout_s):
            # Not `try_next`: after a long wait it asks for `fill` again.
            [message] = self.hand_out(1)
        return message

    def take(self, count: int = 500, timeout_s: float = FILL_SECONDS) -> list[Message]:
        """Up to `count` messages: waits only for the first. Those taken before count as done."""
        self.fill(count, timeout_s)
        return self.hand_out(count)

    def try_next(self) -> Message | None:
        """A waiting message; None means that `fill` is needed. Never calls librdkafka."""
        self._mend()
        self._finish()
        if not self._ready or time.monotonic() >= self._store_at:
            return None
        return self.hand_out(1)[0]

    def fill(self, count: int, timeout_s: float) -> bool:
        """Store finished offsets, and fetch if nothing waits; True if something waits then. Blocks."""
        with self._handle.using():
            return self._fill(count, timeout_s)

    def _fill(self, count: int, timeout_s: float) -> bool:
        self._mend()
        self._finish()
        self._store_done()
        if self._ready:
            return True
        self._raise_failure()
        self._positions.begin_fetch()
        fetched = self._fetch(count, timeout_s)
        self._ready.extend(fetched)
        self._positions.end_fetch(fetched)
        if not fetched:
            self._raise_failure()
        return bool(fetched)

    def hand_out(self, count: int) -> list[Message]:
        """Up to that many waiting messages."""
        handed = list(itertools.islice(self._ready, count))
        self._half_done = self.delivery != "at-most-once"  # there it may be lost
        if self._half_done:
            for message in handed:
                self._to_commit.hand_out(message)
        for _ in handed:
            self._ready.popleft()
        self._half_done = False
        return handed

    def _mend(self) -> None:
        """Undo what an interrupt has left half done: the program did not get those messages."""
        if self._positions.is_fetching:
            self._ready.clear()  # will be fetched again
        if self._half_done:
            self.rewind()

    def _fetch(self, count: int, timeout_s: float) -> list[Message]:
        with kafka_errors():
            first = self._raw.poll(timeout_s)
            if first is None:
                return []
            self._taken_away.clear()  # the messages belong to this consumer now, whatever happened before
            more = self._raw.consume(count - 1, 0) if count > 1 else []
        fetched = [messages.from_kafka(raw) for raw in (first, *more) if self._is_message(raw)]
        self._positions.distrust(self._taken_away)  # those that were given back meanwhile
        fetched = self._positions.accept(fetched)
        return self._commit_first(fetched) if self.delivery == "at-most-once" else fetched

    def _is_message(self, raw: confluent_kafka.Message) -> bool:
        error = raw.error()
        if error is None:
            return True
        if error.fatal() or not (error.retriable() or error.code() in _PASSING):
            self._failure = from_kafka(error)
        return False

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    # -- offsets ---------------------------------------------------------------------------------------

    def commit(self) -> bool:
        """Commit everything handed out now, and wait for the answer.

        False if the group has rebalanced meanwhile: then some of it comes again, here or at another member.
        """
        with self._handle.using():
            return self._commit()

    def _commit(self) -> bool:
        self._mend()
        self._to_commit.finish()
        done = self._stored | {(each.topic, each.partition): each.offset for each in self._to_commit.done()}
        if self.delivery == "at-least-once":
            for offset in _offsets(done):
                self._store(offset)  # otherwise closing would commit older stored offsets, and go back
        if self._try_commit(_offsets(done)):
            return False
        self._stored.clear()
        self._to_commit.forget_done()
        return True

    def progress(self) -> tuple[list[TopicPartition], Any]:
        """The parameters to commit everything handed out in a transaction: offsets and the group's member."""
        if self._to_commit.torn:
            raise TransactionAborted("a partition was taken away while some of its messages were in hand")
        if self._half_done:
            raise TransactionAborted("the consumer was interrupted while it handed out messages")
        with self._handle.using():
            return self._to_commit.nexts(), self._raw.consumer_group_metadata()

    def conclude(self, outcome: TransactionOutcome) -> None:
        """Note that the transaction with `progress` in it has ended. Never fails, never calls librdkafka."""
        if outcome == "committed":
            self._to_commit.finish()
            self._to_commit.forget_done()
        elif outcome == "aborted":
            self.rewind()
        else:
            self._put_back(self._positions.read_from_committed)

    def rewind(self) -> None:
        """Hand out unfinished messages again: they were not processed after all.

        Never fails, never calls librdkafka: the next fetch begins there.
        """
        self._put_back(self._positions.read_again)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Continue at this offset. Messages of the partition that are in hand will not be committed.

        Only for a partition that this member has, so not before the first message or `poll`.
        """
        place = (topic, partition)
        if offset < 0:
            raise ConfigError(f"offset={offset}: write 0 or more")
        if not self._positions.is_assigned(place):
            raise ClientError(f"{topic}-{partition} is not assigned to this member, or not yet")
        self._to_commit.forget(place)
        self._stored.pop(place, None)
        self._drop_ready({place})
        self._positions.read_again({place: offset})

    def _put_back(self, note: Callable[[dict[Place, int]], None]) -> None:
        """The offset to return to is noted first: if interrupted, this can be repeated."""
        self._half_done = True
        again = {(each.topic, each.partition): each.offset for each in _firsts(self._ready)}
        note(again | self._to_commit.undone())
        self._ready.clear()
        self._to_commit.put_back()
        self._half_done = False

    def _finish(self) -> None:
        """More messages are requested: with at-least-once this means that those handed out are done."""
        if self.delivery == "at-least-once":
            self._to_commit.finish()

    def _store_done(self) -> None:
        self._store_at = time.monotonic() + _STORE_SECONDS
        if self.delivery != "at-least-once":
            return
        for offset in self._to_commit.done():
            if self._store(offset):
                self._stored[offset.topic, offset.partition] = offset.offset
        self._to_commit.forget_done()

    def _store(self, offset: TopicPartition) -> bool:
        """Have librdkafka commit this with its next commit; False if the partition is no longer assigned."""
        try:
            self._raw.store_offsets(offsets=[offset])
        except KafkaException as exception:
            if error_of(exception).fatal():
                raise from_kafka(error_of(exception)) from None
            return False  # its new owner begins at the committed offset
        return True

    def _commit_first(self, fetched: list[Message]) -> list[Message]:
        """The messages whose offsets are committed now; the others will be fetched again."""
        refused = self._try_commit(_offsets(_nexts(fetched)))
        if refused:
            dropped = _firsts(each for each in fetched if (each.topic, each.partition) in refused)
            self._positions.read_again({(each.topic, each.partition): each.offset for each in dropped})
        return [each for each in fetched if (each.topic, each.partition) not in refused]

    def _try_commit(self, offsets: list[TopicPartition]) -> set[Place]:
        """The partitions that were refused because the group has rebalanced, or for the moment."""
        if not offsets:
            return set()
        try:
            results = self._raw.commit(offsets=offsets, asynchronous=False) or []
        except KafkaException as exception:
            _raise_unless_passing(error_of(exception))
            return {(each.topic, each.partition) for each in offsets}
        for result in results:
            if result.error is not None:
                _raise_unless_passing(result.error)
        return {(each.topic, each.partition) for each in results if each.error is not None}

    def _assign(self, raw: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
        if self._handle.closed:
            return  # nothing will be read, and a connection that is being closed answers no lookup
        begin = raw.incremental_assign if self._assigns_in_steps else raw.assign
        begin(self._positions.assign(partitions))

    def _take_away(self, _: confluent_kafka.Consumer, partitions: list[TopicPartition]) -> None:
        gone = {(each.topic, each.partition) for each in partitions}
        self._taken_away |= gone
        self._to_commit.take_away(gone)
        for place in gone:
            self._stored.pop(place, None)
        self._positions.take_away(gone)
        self._drop_ready(gone)

    def _drop_ready(self, gone: set[Place]) -> None:
        kept = [each for each in self._ready if (each.topic, each.partition) not in gone]
        self._ready.clear()
        self._ready.extend(kept)

    # -- life ------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Commit finished messages, and leave the group. Messages still in hand will be handed out again.

        Any thread may call this. Returns after the bound at the latest: a librdkafka that hangs is given up.
        """
        if not self._handle.close(self._finish_up):
            log.warning(
                "librdkafka has not closed its consumer after %g s, and is left alone with it until this "
                "process ends. The consumer leaves group %r without it, and what was done last may be handed "
                "out again",
                self._close_seconds,
                self._group,
            )
            leave_in_time(self._chosen, self._group, self._member_id)

    def _finish_up(self) -> None:
        with contextlib.suppress(KafkaException):
            self._member_id = self._raw.memberid() or None
        self._store_done()
        if self.delivery == "at-most-once":
            self._try_commit(_firsts(self._ready))  # committed too early: the program has not seen them

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _firsts(fetched: Iterable[Message]) -> list[TopicPartition]:
    """The offsets to read from again, to get all of these."""
    firsts: dict[Place, int] = {}
    for each in fetched:
        firsts.setdefault((each.topic, each.partition), each.offset)
    return [TopicPartition(topic, index, offset) for (topic, index), offset in firsts.items()]


def _offsets(nexts: Mapping[Place, int]) -> list[TopicPartition]:
    return [TopicPartition(*place, offset) for place, offset in nexts.items()]


def _nexts(fetched: Iterable[Message]) -> dict[Place, int]:
    return {(each.topic, each.partition): each.offset + 1 for each in fetched}


def _raise_unless_passing(error: KafkaError) -> None:
    if error.fatal() or not (error.retriable() or error.code() in _REBALANCED):
        raise from_kafka(error)
