"""Consume, transform, produce: the loop that keeps the guarantee of its delivery mode.

exactly-once   messages and offsets in one transaction; rolled back and repeated as one
at-least-once  the offsets are committed after what was made of the messages is acknowledged
at-most-once   the offsets were committed before the messages came here
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial

from forebay.client.consumer import Consumer
from forebay.client.errors import TransactionAborted
from forebay.client.messages import Message, Record
from forebay.client.producer import Producer
from forebay.errors import ConfigError

Made = Record | Iterable[Record] | None
Transform = Callable[[Message], Made]

ATTEMPTS_MAX = 5
"""How often the same batch is tried when its transaction is aborted, before the error is raised."""
PAUSE_SECONDS = 0.1


def process(
    consumer: Consumer,
    producer: Producer,
    transform: Transform,
    *,
    batch_max: int = 500,
    idle_s: float | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> int:
    """Send the results of `transform` for each message; returns how many messages were processed.

    Ends if nothing came for `idle_s`, or if `stop()`, called between batches, returns True; by default never.
    An exception is raised with the batch undone: called again, this continues with the same messages. Only in
    at-most-once mode are they gone.
    """
    check_modes(consumer.delivery, producer.delivery)
    if producer.delivery == "exactly-once":
        producer.transactions.init()  # a predecessor's open transactions are aborted first
    count = 0
    watch = IdleWatch(idle_s)
    while not stop() and not watch.expired():
        done = _repeat(partial(_once, consumer, producer, transform, batch_max, watch.wait_s()))
        watch.saw(done)
        count += done
    return count


def _repeat(once: Callable[[], int]) -> int:
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            return once()
        except TransactionAborted:
            if attempt == ATTEMPTS_MAX:
                raise
            time.sleep(PAUSE_SECONDS * attempt)
    raise AssertionError("the loop returns or raises")


def _once(consumer: Consumer, producer: Producer, transform: Transform, batch_max: int, wait_s: float) -> int:
    try:
        batch = consumer.take(batch_max, wait_s)
        if batch:
            _deliver(consumer, producer, transform, batch)
    except BaseException:
        consumer.rewind()  # otherwise asking for the next batch would mean that this one is done
        raise
    return len(batch)


def _deliver(consumer: Consumer, producer: Producer, transform: Transform, batch: list[Message]) -> None:
    if producer.delivery == "exactly-once":
        with producer.transaction(consumer):
            _send(producer, transform, batch)
        return
    _send(producer, transform, batch)
    producer.flush()
    consumer.commit()


def _send(producer: Producer, transform: Transform, batch: list[Message]) -> None:
    for message in batch:
        for record in records(transform(message)):
            producer.send_record(record)


def records(made: Made) -> Iterable[Record]:
    if made is None:
        return ()
    return (made,) if isinstance(made, Record) else made


def check_modes(consumer: str, producer: str) -> None:
    if consumer != producer:
        raise ConfigError(
            f"the consumer is {consumer} and the producer {producer}: what they do together is no stronger "
            "than the weaker one, so give both the same delivery"
        )


class IdleWatch:
    """Detects that nothing has come for `idle_s`."""

    def __init__(self, idle_s: float | None) -> None:
        self._idle_s = idle_s
        self._last = time.monotonic()

    def saw(self, count: int) -> None:
        if count:
            self._last = time.monotonic()

    def expired(self) -> bool:
        return self._idle_s is not None and time.monotonic() - self._last >= self._idle_s

    def wait_s(self) -> float:
        """How long the next wait may take, so that `stop` is called now and then."""
        if self._idle_s is None:
            return 1.0
        return min(1.0, max(0.0, self._last + self._idle_s - time.monotonic()))
