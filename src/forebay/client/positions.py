"""Where a consumer reads on in each of its partitions, so that none of its messages is passed over.

librdkafka moves on with every message that it returns. Two things make it necessary to go back. Messages that
were handed out can turn out not to be processed. And a call that raises takes with it what it had fetched:
confluent-kafka drops those messages when Ctrl-C arrives or a callback raises, though the position has moved.

Going back is first noted, which cannot fail, and done before the next fetch. Until it has been done for a
partition, no message of that partition counts.

librdkafka may go back by itself. It looks up where a log begins or ends; when it is told to seek before the
answer is there, it does not take the answer, but asks again half a second later, and begins there once more.
So a message below the position does not count either.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from forebay.client.errors import error_of, from_kafka, kafka_errors
from forebay.client.messages import Message, Place
from forebay.client.presets import Start

_LOOKUP_SECONDS = 10.0
# The partition's fetcher starts or stops at this moment.
_NOT_NOW = frozenset({KafkaError._STATE, KafkaError._PREV_IN_PROGRESS})


class Positions:
    def __init__(self, raw: confluent_kafka.Consumer, start: Start) -> None:
        self._raw = raw
        self._start = OFFSET_BEGINNING if start == "earliest" else None
        """Where to go back to when nothing is known. Not to the end: that would skip what came since."""
        self._nexts: dict[Place, int] = {}
        self._again: dict[Place, int] = {}
        """Offsets to go back to."""
        self._in_doubt: dict[Place, int | None] = {}
        """Partitions to be read from the committed offset, or from this one where nothing is committed."""
        self._fetching = False

    def begin_fetch(self) -> None:
        """Go back where that is necessary. What is fetched then counts as arrived from `end_fetch` on."""
        if self._fetching:
            self._doubt_all()
        if self._again or self._in_doubt:
            self._forget_lost()
            self._look_up()
            self._seek()
        self._fetching = True

    def end_fetch(self, fetched: Iterable[Message]) -> None:
        """These have arrived."""
        self._nexts.update({(each.topic, each.partition): each.offset + 1 for each in fetched})
        self._fetching = False

    def accept(self, fetched: Iterable[Message]) -> list[Message]:
        """Those that follow what has arrived before."""
        nexts = dict(self._nexts)
        accepted = []
        for message in fetched:
            place = (message.topic, message.partition)
            if place in self._again or place in self._in_doubt or message.offset < nexts.get(place, 0):
                continue
            nexts[place] = message.offset + 1
            accepted.append(message)
        return accepted

    def read_again(self, offsets: Mapping[Place, int]) -> None:
        self._nexts.update(offsets)
        self._again.update(offsets)

    def read_from_committed(self, otherwise: Mapping[Place, int | None]) -> None:
        """Go on at the committed offset; where nothing is committed, at this one, or where librdkafka is."""
        for place, offset in otherwise.items():
            self._forget(place)
            self._in_doubt[place] = offset

    def read_from_start(self, places: Iterable[Place]) -> None:
        """As a member that is new in the group."""
        self.read_from_committed(dict.fromkeys(places, self._start))

    def take_away(self, places: Iterable[Place]) -> None:
        for place in places:
            self._forget(place)

    def _forget(self, place: Place) -> None:
        for positions in (self._nexts, self._again, self._in_doubt):
            positions.pop(place, None)

    def _doubt_all(self) -> None:
        """A fetch did not end: whatever it had got is to be fetched again."""
        for place in self._assigned():
            if place in self._again or place in self._in_doubt:
                continue
            if place in self._nexts:
                self._again[place] = self._nexts[place]
            else:
                self._in_doubt[place] = self._start
        self._fetching = False

    def _forget_lost(self) -> None:
        """Partitions that went to another member, which begins at the committed offset."""
        assigned = self._assigned()
        self.take_away([place for place in (*self._again, *self._in_doubt) if place not in assigned])

    def _assigned(self) -> set[Place]:
        with kafka_errors():
            return {(each.topic, each.partition) for each in self._raw.assignment()}

    def _look_up(self) -> None:
        if not self._in_doubt:
            return
        with kafka_errors():
            asked = [TopicPartition(*place) for place in self._in_doubt]
            answers = self._raw.committed(asked, timeout=_LOOKUP_SECONDS)
        for answer in answers:
            if answer.error is not None:
                raise from_kafka(answer.error)
        for answer in answers:
            place = (answer.topic, answer.partition)
            offset = answer.offset if answer.offset >= 0 else self._in_doubt[place]
            del self._in_doubt[place]
            if offset is not None:
                self._again[place] = offset

    def _seek(self) -> None:
        for place, offset in list(self._again.items()):
            try:
                self._raw.seek(TopicPartition(*place, offset))
            except KafkaException as exception:
                error = error_of(exception)
                if error.fatal() or error.code() not in _NOT_NOW:
                    raise from_kafka(error) from None
                continue
            if offset >= 0:
                self._nexts[place] = offset
            del self._again[place]
