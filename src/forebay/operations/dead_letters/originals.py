"""Reads the original records of dead letters that have no copy."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from forebay.operations.client import REQUEST_SECONDS, Client, CommandError
from forebay.operations.dead_letters.letters import Letter
from forebay.operations.dead_letters.reading import is_end, reader_settings
from forebay.operations.messages.log_offsets import Place
from forebay.operations.messages.message_formats import Line, line_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_SKIP_OFFSETS_MAX = 500
"""A record this close after the last one is reached by reading on."""


class Originals:
    """A consumer that is created when the first record is needed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._consumer: Consumer | None = None
        self._place: Place | None = None
        self._next = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def read(self, letter: Letter) -> Line | None:
        """None if the record no longer exists."""
        consumer = self._at(letter)
        deadline = time.monotonic() + REQUEST_SECONDS
        while time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if is_end(error):
                    self._place = None
                    return None
                continue
            line = line_of(message)
            self._next = line.offset + 1
            if line.offset > letter.offset:
                self._place = None
                return None
            if line.offset == letter.offset:
                return line
        raise CommandError(f"{letter.source} could not be read in time: try again")

    def _at(self, letter: Letter) -> Consumer:
        from confluent_kafka import TopicPartition

        if self._consumer is None:
            # The group has seen the record whatever the outcome of its transaction. A missing offset is
            # reported at once, by the end of the partition.
            settings = {**reader_settings(committed=False), "auto.offset.reset": "latest"}
            self._consumer = self._client.consumer(settings)
        place = (letter.topic, letter.partition)
        if place != self._place or not 0 <= letter.offset - self._next <= _SKIP_OFFSETS_MAX:
            self._consumer.assign([TopicPartition(*place, letter.offset)])
            self._place, self._next = place, letter.offset
        return self._consumer
