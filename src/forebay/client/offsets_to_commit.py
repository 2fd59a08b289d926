"""The offsets to commit: which messages of each partition a program holds, and which of them are done.

Per partition there are three offsets: the first message in hand, the end of the messages handed out, and the
end of the finished ones. Kafka's committed offset is the next one to read, so all ends are exclusive.
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
        """True if a partition was revoked, or its log truncated, while some of its messages were in hand."""

    def hand_out(self, message: Message) -> None:
        span = self._spans.get((message.topic, message.partition))
        if span is None or message.offset < span.next:
            self.torn = self.torn or span is not None
            at = message.offset
            self._spans[message.topic, message.partition] = _Span(at, at + 1, at)
        else:
            span.next = message.offset + 1

    def finish(self) -> None:
        """Note that everything handed out is done."""
        for span in self._spans.values():
            span.done = span.next

    def done(self) -> list[TopicPartition]:
        """The offsets to continue at, in partitions with finished messages, since the last `forget_done`."""
        return [
            TopicPartition(topic, index, span.done)
            for (topic, index), span in self._spans.items()
            if span.done > span.first
        ]

    def forget_done(self) -> None:
        """Note that finished offsets were stored: these messages are no longer in hand."""
        for at, span in list(self._spans.items()):
            if span.done == span.next:
                del self._spans[at]
            else:
                span.first = span.done

    def nexts(self) -> list[TopicPartition]:
        """The offsets to continue at, once everything in hand is done."""
        return [TopicPartition(topic, index, span.next) for (topic, index), span in self._spans.items()]

    def undone(self) -> dict[Place, int]:
        """The offset from which each partition has to be read again to get unfinished messages."""
        return {place: span.done for place, span in self._spans.items() if span.done < span.next}

    def put_back(self) -> None:
        """Unfinished messages are no longer in hand."""
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
