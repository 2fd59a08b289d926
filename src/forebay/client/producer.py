"""A producer whose delivery mode is one word.

`send` queues a message and returns; librdkafka gathers batches and sends them. Failures come to light in
`flush`, in `close`, or at the end of a transaction, never silently.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self

import confluent_kafka
from confluent_kafka import KafkaError

from forebay.client import messages
from forebay.client.consumer import Consumer
from forebay.client.errors import ClientError, DeliveryFailed, from_kafka, kafka_errors
from forebay.client.messages import Headers, Message, Record
from forebay.client.presets import Delivery, Profile, Settings, producer_settings
from forebay.client.transactions import Transactions

Callback = Callable[[KafkaError | None, confluent_kafka.Message], None]

QUEUE_SECONDS_MAX = 60.0
"""How long `send` waits for room in the queue."""
_SLICE_SECONDS = 0.5
_GIVE_UP_SECONDS = 5.0
# An aborted transaction throws away what was on its way: that is no failure.
_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


class Producer:
    """Any thread may send. Close it, or use `with`: what is queued is delivered first."""

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        delivery: Delivery = "at-least-once",
        profile: Profile = "throughput",
        transactional_id: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        """`transactional_id`: for exactly-once, a name that stays the same over restarts and that one process
        at a time uses: a new process then fences the old one. Without it a name is made up, and what a
        crashed process left open is aborted by its timeout only.
        """
        self.delivery = delivery
        if delivery == "exactly-once" and transactional_id is None:
            transactional_id = f"forebay-{uuid.uuid4()}"
        chosen = producer_settings(servers, delivery, profile, transactional_id, settings)
        with kafka_errors():
            self._raw = confluent_kafka.Producer(chosen)
        self.transactions = Transactions(self._raw)
        self._failed = 0
        self._first_failure: KafkaError | None = None
        self._closed = False

    @property
    def raw(self) -> confluent_kafka.Producer:
        """librdkafka's producer, for what is not here."""
        return self._raw

    # -- sending ---------------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        value: str | bytes | None = None,
        *,
        key: str | bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Queue a message; waits only while the queue is full."""
        self.send_record(
            Record(
                topic=topic,
                value=value,
                key=key,
                headers=headers,
                partition=partition,
                timestamp_ms=timestamp_ms,
            )
        )

    def send_record(self, record: Record) -> None:
        deadline = time.monotonic() + QUEUE_SECONDS_MAX
        while not self.try_send(record, self.note_delivery):
            if time.monotonic() >= deadline:
                raise ClientError(f"the queue of messages was full for {QUEUE_SECONDS_MAX:.0f} s")
            self._raw.poll(0.1)
        self._raw.poll(0)

    def send_and_wait(self, record: Record) -> Message:
        """Send one message and wait until it is acknowledged; what is returned knows its offset."""
        results: list[Message | ClientError] = []

        def on_delivery(error: KafkaError | None, raw: confluent_kafka.Message) -> None:
            results.append(from_kafka(error) if error is not None else messages.from_kafka(raw))

        deadline = time.monotonic() + QUEUE_SECONDS_MAX
        while not self.try_send(record, on_delivery):
            if time.monotonic() >= deadline:
                raise ClientError(f"the queue of messages was full for {QUEUE_SECONDS_MAX:.0f} s")
            self._raw.poll(0.1)
        while not results:  # ends: librdkafka gives up on a message after message.timeout.ms
            self._raw.poll(_SLICE_SECONDS)
        if isinstance(results[0], ClientError):
            raise results[0]
        return results[0]

    def try_send(self, record: Record, on_delivery: Callback) -> bool:
        """False when the queue is full. Never blocks; `on_delivery` is called by whoever polls."""
        if self._closed:
            raise ClientError("the producer is closed", fatal=True)
        if self.delivery == "exactly-once" and not self.transactions.open:
            raise ClientError("exactly-once: send inside `with producer.transaction():`")
        headers = record.headers
        try:
            with kafka_errors():
                self._raw.produce(
                    record.topic,
                    record.value,
                    record.key,
                    partition=-1 if record.partition is None else record.partition,
                    on_delivery=on_delivery,
                    timestamp=record.timestamp_ms or 0,
                    headers=list(headers.items()) if isinstance(headers, Mapping) else list(headers),
                )
        except BufferError:
            return False
        return True

    def note_delivery(self, error: KafkaError | None, _: confluent_kafka.Message) -> None:
        if error is None or error.code() in _PURGED:
            return
        self._failed += 1
        if self._first_failure is None:
            self._first_failure = error

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything sent is acknowledged or has failed; raises DeliveryFailed for the latter."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while left := self._flush(_SLICE_SECONDS if deadline is None else _until(deadline)):
            if deadline is not None and time.monotonic() >= deadline:
                raise ClientError(f"{left} messages are still on their way", retriable=True)
        self.raise_failures()

    def _flush(self, timeout_s: float) -> int:
        with kafka_errors():
            return self._raw.flush(timeout_s)

    def raise_failures(self) -> None:
        count, first = self._failed, self._first_failure
        self._failed, self._first_failure = 0, None
        if first is not None:
            failure = DeliveryFailed(
                f"{count} messages were not delivered: {first.str()}", code=first.code(), name=first.name()
            )
            failure.count = count
            raise failure

    # -- transactions ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def transaction(self, consumer: Consumer | None = None) -> Iterator[None]:
        """All that is sent inside becomes visible at once, or not at all.

        With a consumer, so do its offsets: everything it handed out is committed in the same transaction, and
        handed out again if that is rolled back. TransactionAborted means: rolled back, do it again.
        """
        self.begin()
        try:
            yield
            self.transactions.commit(consumer.progress() if consumer is not None else None)
        except BaseException as error:
            if self.roll_back(error) and consumer is not None:
                consumer.rewind()
            raise
        finally:
            if self.transactions.committed and consumer is not None:
                consumer.settle()

    def begin(self) -> None:
        if self.delivery != "exactly-once":
            raise ClientError(f"delivery={self.delivery!r} has no transactions: write 'exactly-once'")
        self.transactions.begin()

    def roll_back(self, error: BaseException) -> bool:
        """Abort because of this error, which stays the one to be raised; whether that has worked."""
        if isinstance(error, ClientError) and error.fatal:
            self._closed, self.transactions.open = True, False  # said once, and nothing can be delivered
        if not self.transactions.open:
            return False
        try:
            self.transactions.abort()
        except ClientError as trouble:
            error.add_note(f"the transaction could not be aborted, and ends by its timeout: {trouble}")
            return False
        self._failed, self._first_failure = 0, None
        return True

    # -- life ------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Deliver what is queued. Raises DeliveryFailed if some of it could not be."""
        if not self._closed:
            self._closed = True
            self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        # What went wrong in the block is what the caller must hear of; do not keep it waiting.
        self._closed = True
        with contextlib.suppress(ClientError):
            self._flush(_GIVE_UP_SECONDS)


def _until(deadline: float) -> float:
    return min(max(deadline - time.monotonic(), 0.0), _SLICE_SECONDS)
