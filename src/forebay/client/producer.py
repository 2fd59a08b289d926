"""A producer whose delivery mode is one word.

`send` queues a message and returns; librdkafka gathers batches and sends them. `flush`, `close`, or the end
of a transaction report failures; none is silent.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

import confluent_kafka
from confluent_kafka import KafkaError

from forebay.client import messages
from forebay.client.closing import CLOSE_SECONDS, ProducerHandle, checked_close_seconds
from forebay.client.consumer import Consumer
from forebay.client.errors import ClientError, DeliveryFailed, from_kafka, kafka_errors
from forebay.client.messages import Headers, Message, Record, cancellation, schedule_headers
from forebay.client.presets import Acks, Delivery, Profile, Settings, producer_settings
from forebay.client.transactions import Transactions

Callback = Callable[[KafkaError | None, confluent_kafka.Message], None]

QUEUE_SECONDS_MAX = 60.0
"""How long `send` waits for room in the queue."""
_SLICE_SECONDS = 0.5
GIVE_UP_SECONDS = 5.0
"""How long a producer that is closed because of an error tries to deliver queued messages."""
# An aborted transaction discards messages in flight: that is no failure.
_PURGED = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})


class Producer:
    """Any thread may send. Close it, or use `with`: queued messages are delivered first."""

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        delivery: Delivery = "at-least-once",
        profile: Profile = "throughput",
        acks: Acks | None = None,
        transactional_id: str | None = None,
        close_seconds: float = CLOSE_SECONDS,
        settings: Settings | None = None,
    ) -> None:
        """`acks`: for at-most-once, 1 to get the offsets of messages, or the errors that the broker answers.

        `transactional_id`: for exactly-once, a name that stays the same over restarts and that one process at
        a time uses: a new process then fences the old one. Without it a name is generated, and transactions
        that a crashed process left open are aborted by their timeout only.

        `close_seconds`: how long `close` waits for librdkafka to end, when everything is delivered or has
        failed.
        """
        self._close_seconds = checked_close_seconds(close_seconds)
        self.delivery = delivery
        if delivery == "exactly-once" and transactional_id is None:
            transactional_id = f"forebay-{uuid.uuid4()}"
        chosen = producer_settings(servers, delivery, profile, transactional_id, settings, acks)
        with kafka_errors():
            self._handle = ProducerHandle(confluent_kafka.Producer(chosen))
        self.transactions = Transactions(self._handle)
        self._failures_lock = threading.Lock()
        self._failed = 0
        self._first_failure: KafkaError | None = None
        self._closed = False
        self._useless = False
        """A fatal error was raised, and nothing can be delivered any more."""

    @property
    def raw(self) -> confluent_kafka.Producer:
        """librdkafka's producer, for everything that is not here. Raises ClientError after `close`."""
        return self._handle.raw

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
        deliver_at: datetime | int | None = None,
        deliver_after: timedelta | float | None = None,
        schedule_key: str | bytes | None = None,
    ) -> None:
        """Queue a message; waits only while the queue is full.

        `deliver_at`, `deliver_after`, `schedule_key`: see `Record`. The topic needs
        `forebay.delay.enable=true`.
        """
        self.send_record(
            Record(
                topic=topic,
                value=value,
                key=key,
                headers=headers,
                partition=partition,
                timestamp_ms=timestamp_ms,
                deliver_at=deliver_at,
                deliver_after=deliver_after,
                schedule_key=schedule_key,
            )
        )

    def send_record(self, record: Record) -> None:
        self._queue(record, self.note_delivery)
        self._poll(0)

    def send_and_wait(self, record: Record) -> Message:
        """Send one message and wait until it is acknowledged; the returned message has its offset.

        With acks=0 it only waits until the message is sent, and the offset is -1.
        """
        results: list[Message | ClientError] = []

        def on_delivery(error: KafkaError | None, raw: confluent_kafka.Message) -> None:
            results.append(from_kafka(error) if error is not None else messages.from_kafka(raw))

        self._queue(record, on_delivery)
        while not results:  # ends: librdkafka gives up on a message after message.timeout.ms
            self._poll(_SLICE_SECONDS)
        if isinstance(results[0], ClientError):
            raise results[0]
        return results[0]

    def cancel(
        self,
        topic: str,
        schedule_key: str | bytes | None = None,
        *,
        schedule_id: str | None = None,
        key: str | bytes | None = None,
        partition: int | None = None,
    ) -> None:
        """Cancel a delayed message: by its schedule key, in the partition of its key, or by its id.

        Waits for the acknowledgement: a message that was not delivered by then will not be. It is no error if
        nothing waits there (any more).
        """
        record = cancellation(topic, schedule_key, schedule_id=schedule_id, key=key, partition=partition)
        self.send_and_wait(record)

    def _queue(self, record: Record, on_delivery: Callback) -> None:
        deadline = time.monotonic() + QUEUE_SECONDS_MAX
        while not self.try_send(record, on_delivery):
            if time.monotonic() >= deadline:
                raise ClientError(f"the queue of messages was full for {QUEUE_SECONDS_MAX:.0f} s")
            self._poll(0.1)

    def try_send(self, record: Record, on_delivery: Callback) -> bool:
        """False if the queue is full. Never blocks; `on_delivery` is called by the thread that polls."""
        if self._closed:
            raise ClientError("the producer is closed", fatal=True)
        if self.delivery == "exactly-once" and not self.transactions.open:
            raise ClientError("exactly-once: send inside `with producer.transaction():`")
        headers = list(record.headers.items() if isinstance(record.headers, Mapping) else record.headers)
        if record.is_scheduled:
            headers += schedule_headers(record, [name for name, _ in headers])
        try:
            with kafka_errors():
                self._handle.raw.produce(
                    record.topic,
                    record.value,
                    record.key,
                    partition=-1 if record.partition is None else record.partition,
                    on_delivery=on_delivery,
                    timestamp=record.timestamp_ms or 0,
                    headers=headers,
                )
        except BufferError:
            return False
        return True

    def note_delivery(self, error: KafkaError | None, _: confluent_kafka.Message) -> None:
        """Called by any thread that polls."""
        if error is None or error.code() in _PURGED:
            return
        with self._failures_lock:
            self._failed += 1
            if self._first_failure is None:
                self._first_failure = error

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until everything sent is acknowledged or has failed; raises DeliveryFailed for the latter."""
        self.wait_for_reports(timeout_s)
        self.raise_failures()

    def wait_for_reports(
        self, timeout_s: float | None = None, given_up: Callable[[], bool] = lambda: False
    ) -> None:
        """Like `flush`, without reporting failures. Ends soon after `given_up()`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while left := self._flush(_SLICE_SECONDS if deadline is None else _until(deadline)):
            if given_up() or (deadline is not None and time.monotonic() >= deadline):
                raise ClientError(f"{left} messages are still on their way", retriable=True)

    def _poll(self, timeout_s: float) -> None:
        with kafka_errors():
            self._handle.raw.poll(timeout_s)

    def _flush(self, timeout_s: float) -> int:
        if self._handle.is_destroyed:
            return 0
        with kafka_errors():
            return self._handle.raw.flush(timeout_s)

    def _forget_failures(self) -> tuple[int, KafkaError | None]:
        with self._failures_lock:
            forgotten = self._failed, self._first_failure
            self._failed, self._first_failure = 0, None
        return forgotten

    def raise_failures(self) -> None:
        count, first = self._forget_failures()
        if first is not None:
            failure = DeliveryFailed(
                f"{count} messages were not delivered: {first.str()}", code=first.code(), name=first.name()
            )
            failure.count = count
            raise failure

    # -- transactions ------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def transaction(self, consumer: Consumer | None = None) -> Iterator[None]:
        """Everything sent inside becomes visible at once, or not at all.

        With a consumer, so do its offsets: everything it handed out is committed in the same transaction, and
        handed out again if that is rolled back. TransactionAborted means: rolled back, do it again.
        """
        self.check_may_begin()
        self.transactions.forget_outcome()
        try:
            self.transactions.begin()
            yield
            self.transactions.commit(consumer.progress() if consumer is not None else None)
            if consumer is not None:
                consumer.conclude("committed")
        except BaseException as error:
            try:
                self.roll_back(error)
            finally:
                if consumer is not None:
                    consumer.conclude(self.transactions.outcome)
            raise

    def check_may_begin(self) -> None:
        """Raises errors of the program: then no transaction has begun, nor is one undone."""
        if self.delivery != "exactly-once":
            raise ClientError(f"delivery={self.delivery!r} has no transactions: write 'exactly-once'")
        if self._closed:
            raise ClientError("the producer is closed", fatal=True)
        self.transactions.check_none_open()

    def roll_back(self, error: BaseException) -> None:
        """Abort because of this error, which stays the one to be raised. Then see `transactions.outcome`."""
        try:
            self.transactions.abort()
        except ClientError as trouble:
            self._useless = self._useless or trouble.fatal
            if not (isinstance(error, ClientError) and error.fatal):
                error.add_note(f"the transaction could not be aborted, and ends by its timeout: {trouble}")
        self._useless = self._useless or self.transactions.undecided
        self._closed = self._closed or self._useless
        self._forget_failures()

    # -- life ------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Deliver queued messages. Raises DeliveryFailed if some of them could not be."""
        try:
            self.deliver()
        except DeliveryFailed:  # otherwise some of them may still be delivered, by another close
            self.destroy()
            raise
        self.destroy()

    def deliver(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """Like `close`, for callers that still poll: they call `destroy` afterwards."""
        self._closed = True
        if not self._useless:
            self.wait_for_reports(None, given_up)
            self.raise_failures()

    def give_up(self) -> None:
        """Accept no more messages; those not delivered soon are discarded. Then call `destroy`.

        Waiters for the report of such a message get the error.
        """
        self._closed = True
        with contextlib.suppress(ClientError):
            if self._flush(GIVE_UP_SECONDS):
                self._handle.raw.purge()
                self._flush(_SLICE_SECONDS)

    def destroy(self) -> None:
        """Release librdkafka's producer. Returns after the bound at the latest."""
        self._handle.destroy(self._close_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        self.give_up()  # so that the error of the block is the one that is raised
        self.destroy()


def _until(deadline: float) -> float:
    return min(max(deadline - time.monotonic(), 0.0), _SLICE_SECONDS)
