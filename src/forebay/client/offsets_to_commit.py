"""Which offsets to commit: which messages of each partition a program holds, and which of them are done.

Per partition there are three offsets: where what is in hand begins, up to where messages were handed out,
and up to where they are done. Kafka's committed offset is the next one to read, so all ends are exclusive.
"""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import TopicPartition

from forebay.client.messages import Message, Place
from forebay.lazy import dataclass


@dataclass(slots=True)
class _Span:
    first: int
    next: int
    done: int


class OffsetsToCommit:
    def __init__(self) -> None:
        self._spans: dict[Place, _Span] = {}
        self.torn = False
        """A partition was taken away, or cut, while some of its messages were in hand."""

    def hand_out(self, message: Message) -> None:
        span = self._spans.get((message.topic, message.partition))
        if span is None or message.offset < span.next:
            self.torn = self.torn or span is not None
            at = message.offset
            self._spans[message.topic, message.partition] = _Span(at, at + 1, at)
        else:
            span.next = message.offset + 1

    def finish(self) -> None:
        """Everything that was handed out is done."""
        for span in self._spans.values():
            span.done = span.next

    def done(self) -> list[TopicPartition]:
        """Where to read on, in partitions with messages that are done, since the last `forget_done`."""
        return [
            TopicPartition(topic, index, span.done)
            for (topic, index), span in self._spans.items()
            if span.done > span.first
        ]

    def forget_done(self) -> None:
        """What is done has been written down: it is in hand no more."""
        for at, span in list(self._spans.items()):
            if span.done == span.next:
                del self._spans[at]
            else:
                span.first = span.done

    def nexts(self) -> list[TopicPartition]:
        """Where to read on, once everything in hand is done."""
        return [TopicPartition(topic, index, span.next) for (topic, index), span in self._spans.items()]

    def undone(self) -> dict[Place, int]:
        """From where each partition has to be read again to get what is in hand and not done."""
        return {place: span.done for place, span in self._spans.items() if span.done < span.next}

    def put_back(self) -> None:
        """What is not done is in hand no more."""
        for place, span in list(self._spans.items()):
            if span.done == span.first:
                del self._spans[place]
            else:
                span.next = span.done
        self.torn = False

    def forget(self, place: Place) -> None:
        self._spans.pop(place, None)

    def take_away(self, places: Iterable[Place]) -> None:
        for place in places:
            if self._spans.pop(place, None) is not None:
                self.torn = True
