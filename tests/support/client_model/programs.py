"""Programs on forebay.client that go on after every error with the clients they have, until all is done.

Only a fatal error makes them close their clients and take new ones. `async_programs.py` has them for asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from forebay.client import ClientError, Consumer, Delivery, DeliveryFailed, Message, Producer, Record, process
from support.chaos.history import Content
from support.client_model.faults import Struck
from support.client_model.recorder import Recorder

BATCH = 3
TRIES_MAX = 100
WAIT_SECONDS = 0.2
FETCHES = [1, 2]
"""How many messages a transaction asks for, one fetch after the other."""

Failures = (ClientError, Struck, asyncio.CancelledError)


@dataclass(kw_only=True)
class Setting:
    """Where a program works, and when its work is done."""

    servers: str
    source: str
    sink: str
    recorder: Recorder
    finished: Callable[[], bool]
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def delivery(self) -> Delivery:
        return self.recorder.delivery

    def producing(self) -> Any:
        name = self.sink if self.delivery == "exactly-once" else None
        return {"delivery": self.delivery, "profile": "latency", "transactional_id": name}

    def consuming(self) -> Any:
        own = {"group": self.source, "batch_max": BATCH, "settings": self.settings}
        return {"delivery": self.delivery, "profile": "latency", **own}

    @contextlib.contextmanager
    def survived(self) -> Iterator[None]:
        """A program goes on after any failure, but for those of which the clients do not recover."""
        try:
            yield
        except Failures as failure:
            self.recorder.interrupted()
            if isinstance(failure, ClientError) and failure.fatal:
                raise


def tries() -> Iterator[int]:
    """Until the caller returns; faults come to an end, and so must a program."""
    yield from range(TRIES_MAX)
    raise AssertionError(f"no end after {TRIES_MAX} tries")


@contextlib.contextmanager
def closing(client: Any) -> Iterator[Any]:
    """`with`, and once more when that fails."""
    try:
        with client:
            yield client
    except BaseException:
        for _ in tries():
            with contextlib.suppress(*Failures):
                client.close()
                break
        raise


class Program:
    def __init__(self, setting: Setting) -> None:
        self.at = setting

    def breaches(self, visible: Content) -> list[str]:
        """Of what the program was promised, beyond the rules that hold for all."""
        del visible
        return []


class Copier(Program):
    """Sends every message of a topic to another, by `process`."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._copies = itertools.count()

    def run(self) -> None:
        at = self.at
        for _ in tries():
            with (
                contextlib.suppress(*Failures),
                closing(Producer(at.servers, **at.producing())) as producer,
                closing(Consumer(at.servers, at.source, **at.consuming())) as consumer,
            ):
                self._go_on(consumer, producer)
                return

    def _go_on(self, consumer: Consumer, producer: Producer) -> None:
        for _ in tries():
            with self.at.survived():
                process(consumer, producer, self.transform, batch_max=BATCH, stop=self.at.finished)
                return

    def transform(self, message: Message) -> Record:
        self.at.recorder.read(message, self.at.source)
        copy = b"%s|%d" % (message.value or b"", next(self._copies))
        return Record(topic=self.at.sink, partition=0, value=copy)


class Pump(Copier):
    """The same without `process`: several fetches in one transaction."""

    def _go_on(self, consumer: Consumer, producer: Producer) -> None:
        for _ in tries():
            with self.at.survived():
                self._transact(consumer, producer)
                if self.at.finished():
                    return

    def _transact(self, consumer: Consumer, producer: Producer) -> None:
        with producer.transaction(consumer):
            for count in FETCHES:
                for message in consumer.take(count, WAIT_SECONDS):
                    producer.send_record(self.transform(message))


READING = ["take", "poll", "poll", "take", "commit", "poll", "poll", "rewind", "take", "poll"]


class Reader(Program):
    """Reads a topic to its end in all the ways there are, one after the other."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.ways = itertools.cycle(READING)

    def run(self) -> None:
        at = self.at
        for _ in tries():
            with (
                contextlib.suppress(*Failures),
                closing(Consumer(at.servers, at.source, **at.consuming())) as consumer,
            ):
                self._go_on(consumer)
                return

    def _go_on(self, consumer: Consumer) -> None:
        for _ in tries():
            with self.at.survived():
                while not self.at.finished():
                    self._read(consumer, next(self.ways))
                return

    def _read(self, consumer: Consumer, way: str) -> None:
        if way == "take":
            self.note(consumer.take(BATCH, WAIT_SECONDS))
        elif way == "poll":
            self.note([consumer.poll(WAIT_SECONDS)])
        elif way == "commit":
            consumer.commit()
        else:
            consumer.rewind()

    def note(self, messages: list[Message] | list[Message | None]) -> None:
        for message in messages:
            if message is not None:
                self.at.recorder.read(message, self.at.source)


class Sent:
    """What a sender was told of its messages."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self.waiting: list[bytes] = []
        self.delivered: set[bytes] = set()
        self.rolled_back: set[bytes] = set()

    def value(self) -> bytes:
        return b"message-%d" % next(self._numbers)

    def flushed(self) -> None:
        self.delivered.update(self.waiting)
        self.waiting.clear()

    def breaches(self, visible: Content) -> list[str]:
        found = {value for values in visible.values() for value in values.values()}
        lost = [f"delivered: {value!r} is not there" for value in self.delivered - found]
        return lost + [f"rolled back: {value!r} is there" for value in self.rolled_back & found]


SENDING = ["send", "send", "send_and_wait", "flush", "send", "flush", "send_and_wait", "send", "flush"]
TRANSACTIONS = [(2, True), (1, False), (3, True), (0, True), (2, False), (1, True)]
"""How many messages, and whether the program lets it commit."""


class Unwanted(Exception):
    """The program changed its mind in the middle of a transaction."""


class Sender(Program):
    """Sends one by one, or in transactions."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.sent = Sent()
        self.steps = iter(SENDING)
        self.transactions = iter(TRANSACTIONS)

    def run(self) -> None:
        for _ in tries():
            with (
                contextlib.suppress(*Failures),
                closing(Producer(self.at.servers, **self.at.producing())) as producer,
            ):
                self.sent.waiting.clear()  # of another producer
                if self.at.delivery == "exactly-once":
                    self._transact_all(producer)
                else:
                    self._send_all(producer)
                return

    def breaches(self, visible: Content) -> list[str]:
        return self.sent.breaches(visible)

    def record(self) -> Record:
        return Record(topic=self.at.sink, partition=0, value=self.sent.value())

    def _send_all(self, producer: Producer) -> None:
        for step in self.steps:
            with self.at.survived():
                self._send(producer, step)
        for _ in tries():
            with self.at.survived():
                self._flush(producer)
                return

    def _send(self, producer: Producer, step: str) -> None:
        if step == "flush":
            self._flush(producer)
            return
        record = self.record()
        if step == "send":
            producer.send_record(record)
            self.sent.waiting.append(value_of(record))
        else:
            producer.send_and_wait(record)
            self.sent.delivered.add(value_of(record))

    def _flush(self, producer: Producer) -> None:
        try:
            producer.flush()
        except DeliveryFailed:
            self.sent.waiting.clear()  # some of them, and nobody knows which
            raise
        self.sent.flushed()

    def _transact_all(self, producer: Producer) -> None:
        for count, wanted in self.transactions:
            with self.at.survived(), contextlib.suppress(Unwanted):
                self._transact(producer, [self.record() for _ in range(count)], wanted)

    def _transact(self, producer: Producer, records: list[Record], wanted: bool) -> None:
        asked = False
        try:
            with producer.transaction():
                for record in records:
                    producer.send_record(record)
                if not wanted:
                    raise Unwanted
                asked = True
        except BaseException:
            if not asked:
                self.sent.rolled_back.update(map(value_of, records))
            raise
        self.sent.delivered.update(map(value_of, records))


def value_of(record: Record) -> bytes:
    assert isinstance(record.value, bytes)
    return record.value
