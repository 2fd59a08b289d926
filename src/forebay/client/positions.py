"""The position of a consumer in each of its partitions, so that no message is skipped or handed out again.

librdkafka moves on with every message that it returns. Two things make it necessary to go back. Messages that
were handed out can turn out not to be processed. And a call that raises loses what it had fetched:
confluent-kafka drops those messages when Ctrl-C arrives or a callback raises, though the position has moved.

Going back is first noted, which cannot fail, and done before the next fetch. Until it has been done for a
partition, no message of that partition counts.

librdkafka also goes back by itself. It looks up where a log begins; if the partition is paused, sought or
revoked before the answer arrives, it asks again half a second later and begins there once more, whatever has
happened meanwhile (its issues 2256 and 2782). A message that is taken from its queue while a rebalance pauses
the partition comes a second time. So it gets offsets to begin at that need no look-up, and a message below
the position counts only if the log was cut: it is shorter, or a later leader wrote it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition

from forebay.client.errors import ClientError, error_of, from_kafka, kafka_errors
from forebay.client.messages import Message, Place
from forebay.client.presets import Start

_LOOKUP_SECONDS = 10.0
_PAUSE_SECONDS = 0.05
_AGAIN_SECONDS = 30.0
"""How long other partitions are read before a failed look-up is repeated, since it delays them."""
_log = logging.getLogger("forebay.client")
# The partition's fetcher is starting or stopping at this moment.
_NOT_NOW = frozenset({KafkaError._STATE, KafkaError._PREV_IN_PROGRESS})
# A look-up that fails with one of these may succeed later: a broker is down, a transaction is still open.
_PASSING = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
    }
)


class Positions:
    def __init__(self, raw: confluent_kafka.Consumer, start: Start) -> None:
        self._raw = raw
        self._start: Start = start
        self._nexts: dict[Place, int] = {}
        self._epochs: dict[Place, int] = {}
        """The leader epochs of the last messages."""
        self._again: dict[Place, int] = {}
        """Offsets to go back to."""
        self._in_doubt: dict[Place, int | None] = {}
        """Partitions to be read from the committed offset, or from this one where nothing is committed."""
        self._look_up_at = 0.0
        self._fetching = False

    # -- fetching --------------------------------------------------------------------------------------

    @property
    def is_fetching(self) -> bool:
        """True between `begin_fetch` and `end_fetch`; outside a fetch this means that it was interrupted."""
        return self._fetching

    def begin_fetch(self) -> None:
        """Go back where necessary. Messages fetched then count as arrived from `end_fetch` on."""
        if self._fetching:
            self.distrust(self._assigned())
            self._fetching = False
        if self._again or self._in_doubt:
            self._forget_lost()
            self._resolve_doubts()
            self._seek()
        self._fetching = True

    def accept(self, fetched: Iterable[Message]) -> list[Message]:
        """The messages that follow those that have arrived before."""
        lasts: dict[Place, Message] = {}
        accepted = []
        for message in fetched:
            place = (message.topic, message.partition)
            if place in self._again or place in self._in_doubt:
                continue
            last = lasts.get(place)
            expected = self._nexts.get(place, 0) if last is None else last.offset + 1
            epoch = self._epochs.get(place, -1) if last is None else last.leader_epoch
            if message.offset < expected and not self._is_new(message, expected, epoch):
                continue
            lasts[place] = message
            accepted.append(message)
        return accepted

    def end_fetch(self, accepted: Iterable[Message]) -> None:
        """Note that these have arrived."""
        lasts = {(each.topic, each.partition): each for each in accepted}
        nexts = self._nexts | {place: each.offset + 1 for place, each in lasts.items()}
        epochs = self._epochs | {place: each.leader_epoch for place, each in lasts.items()}
        # Together, also when Ctrl-C arrives here.
        self._nexts, self._epochs, self._fetching = nexts, epochs, False

    def _is_new(self, message: Message, expected: int, epoch: int) -> bool:
        """True if librdkafka is right to go back, since the log was truncated or created again.

        Then it does not reach that far, or has been rewritten by a later leader.
        """
        if 0 <= epoch < message.leader_epoch:
            return True
        with kafka_errors():
            place = TopicPartition(message.topic, message.partition)
            _, end = self._raw.get_watermark_offsets(place, cached=True)
        return end < expected

    # -- what is noted ---------------------------------------------------------------------------------

    def read_again(self, offsets: Mapping[Place, int]) -> None:
        self._nexts.update(offsets)
        self._again.update(offsets)

    def read_from_committed(self, otherwise: Mapping[Place, int | None]) -> None:
        """Continue at the committed offset; if there is none, at this one, or where new groups begin."""
        for place, offset in otherwise.items():
            self._forget(place)
            self._in_doubt[place] = offset
            self._look_up_at = 0.0

    def distrust(self, places: Iterable[Place]) -> None:
        """librdkafka has moved on in these, and the messages it returned were lost: go back."""
        for place in places:
            if place in self._again or place in self._in_doubt:
                continue
            if place in self._nexts:
                self._again[place] = self._nexts[place]
            else:
                self._in_doubt[place] = None

    def take_away(self, places: Iterable[Place]) -> None:
        for place in places:
            self._forget(place)

    def _forget(self, place: Place) -> None:
        self._nexts.pop(place, None)
        self._epochs.pop(place, None)
        self._again.pop(place, None)
        self._in_doubt.pop(place, None)

    def _forget_lost(self) -> None:
        """Forget partitions that went to another member, which begins at the committed offset."""
        assigned = self._assigned()
        self.take_away([place for place in (*self._again, *self._in_doubt) if place not in assigned])

    def is_assigned(self, place: Place) -> bool:
        return place in self._assigned()

    def _assigned(self) -> set[Place]:
        with kafka_errors():
            return {(each.topic, each.partition) for each in self._raw.assignment()}

    # -- what is looked up -----------------------------------------------------------------------------

    def assign(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The same partitions with their start offsets, if they can be found; else before a later fetch."""
        places = [(each.topic, each.partition) for each in partitions]
        self.read_from_committed(dict.fromkeys(places))
        try:
            starts = self._find_starts(dict.fromkeys(places))
        except ClientError as error:
            self._put_off(error)
            return partitions
        for place, start in starts.items():
            del self._in_doubt[place]
            self._nexts[place] = start.offset
        if len(starts) < len(places):
            self._put_off("they have no leader")
        return [starts.get((each.topic, each.partition), each) for each in partitions]

    def _resolve_doubts(self) -> None:
        """Find the positions, now or later: no message of the partitions counts before that."""
        if not self._in_doubt or (self._nexts and time.monotonic() < self._look_up_at):
            return
        try:
            starts = self._find_starts(self._in_doubt)
        except ClientError as error:
            if error.fatal or error.code not in _PASSING:
                raise
            self._put_off(error)
            return
        for place, start in starts.items():
            del self._in_doubt[place]
            self.read_again({place: start.offset})
        if self._in_doubt:
            self._put_off("they have no leader")

    def _put_off(self, reason: object) -> None:
        _log.warning("where to begin in %d partitions is not known yet: %s", len(self._in_doubt), reason)
        self._look_up_at = time.monotonic() + _AGAIN_SECONDS

    def _find_starts(self, otherwise: Mapping[Place, int | None]) -> dict[Place, TopicPartition]:
        """The committed offset, or the given one; without either, where new groups begin."""
        starts = {
            place: TopicPartition(*place, offset) for place, offset in self._committed(otherwise).items()
        }
        new = []
        for place, offset in otherwise.items():
            if place in starts:
                continue
            if offset is None:
                new.append(place)
            else:
                starts[place] = TopicPartition(*place, offset)
        return starts | self._log_ends(new)

    def _committed(self, places: Iterable[Place]) -> dict[Place, int]:
        asked = [TopicPartition(*place) for place in places]
        deadline = time.monotonic() + _LOOKUP_SECONDS
        while True:
            try:
                with kafka_errors():
                    return _found(self._raw.committed(asked, timeout=_LOOKUP_SECONDS))
            except ClientError as error:
                # A transaction that is about to end holds the offset back.
                if error.code != KafkaError.UNSTABLE_OFFSET_COMMIT or time.monotonic() >= deadline:
                    raise
            time.sleep(_PAUSE_SECONDS)

    def _log_ends(self, places: list[Place]) -> dict[Place, TopicPartition]:
        """The starts or ends of the logs. A partition without a leader at the moment is left out."""
        if not places:
            return {}
        # Kafka's two special times are librdkafka's two special offsets.
        which = OFFSET_BEGINNING if self._start == "earliest" else OFFSET_END
        with kafka_errors():
            answers = self._raw.offsets_for_times(
                [TopicPartition(*place, which) for place in places], timeout=_LOOKUP_SECONDS
            )
        answered = [each for each in answers if each.error is None or each.error.code() not in _PASSING]
        return {place: TopicPartition(*place, offset) for place, offset in _found(answered).items()}

    def _seek(self) -> None:
        for place, offset in list(self._again.items()):
            try:
                self._raw.seek(TopicPartition(*place, offset))
            except KafkaException as exception:
                error = error_of(exception)
                if error.fatal() or error.code() not in _NOT_NOW:
                    raise from_kafka(error) from None
                continue
            del self._again[place]


def _found(answers: Iterable[TopicPartition]) -> dict[Place, int]:
    found = {}
    for answer in answers:
        if answer.error is not None:
            raise from_kafka(answer.error)
        if answer.offset >= 0:
            found[answer.topic, answer.partition] = answer.offset
    return found
