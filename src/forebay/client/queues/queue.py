"""A queue for programs: send messages, receive them one at a time, and report the outcome of each.

    with Queue(servers, "jobs", group="resize") as queue:
        with queue.receive() as message:
            resize(message.value)

The end of the block accepts the message, an exception releases it. The group is joined by the first
`receive`, so a program that only sends is not a member of it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from forebay.client.admin import Admin
from forebay.client.closing import CLOSE_SECONDS, checked_close_seconds
from forebay.client.errors import ClientError, QueueEmpty
from forebay.client.messages import Headers, Message, Record
from forebay.client.presets import Settings, Start
from forebay.client.producer import Producer
from forebay.client.queues.group_settings import QueueSettings, prepare
from forebay.client.queues.loops import Loop
from forebay.client.queues.messages import AcknowledgeType, QueueMessage
from forebay.client.queues.receiver import POLL_SECONDS, Receiver, check_library
from forebay.client.queues.work import Handler, Stop, Work, WorkSummary, outcome_of
from forebay.errors import ConfigError

log = logging.getLogger("forebay.client")


class Queue:
    """One member of a share group, and a producer. Any thread may send; one at a time may receive."""

    def __init__(
        self,
        servers: str | Sequence[str],
        topic: str,
        *,
        group: str | None = None,
        start: Start | None = "earliest",
        lock_seconds: float | None = None,
        delivery_limit: int | None = None,
        retry_backoff_seconds: float | None = None,
        dead_letter_topic: str | None = None,
        batch_max: int = 1,
        close_seconds: float = CLOSE_SECONDS,
        settings: Settings | None = None,
    ) -> None:
        """`group` is needed to receive. The arguments from `start` to `dead_letter_topic` are settings of the
        group, for all its members; None leaves a setting unchanged. `batch_max`: how many messages may be
        fetched at once and wait here, locked. `close_seconds`: how long leaving the group may take, and
        afterwards the end of the producer. `settings`: librdkafka's.
        """
        if batch_max < 1:
            raise ConfigError(f"batch_max={batch_max}: write 1 or more")
        if dead_letter_topic == topic:
            raise ConfigError(
                f"dead_letter_topic={topic!r}: name another topic than the queue's own, which would be given "
                "its dead letters again"
            )
        self.topic = topic
        self.group = group
        self._servers = servers
        self._batch_max = batch_max
        self._close_seconds = checked_close_seconds(close_seconds)
        self._settings = settings
        self._queue_settings = QueueSettings(
            start=start,
            lock_seconds=lock_seconds,
            delivery_limit=delivery_limit,
            retry_backoff_seconds=retry_backoff_seconds,
            dead_letter_topic=dead_letter_topic,
        )
        self._lock_s: float | None = None
        """How long a message may be held; None until the group's settings were read."""
        self._receiver: Receiver | None = None
        self._producer: Producer | None = None
        self._producer_lock = threading.Lock()
        self._closed = False

    # -- receiving -------------------------------------------------------------------------------------

    @property
    def receiver(self) -> Receiver:
        """The member of the group; the first use joins, and waits for the broker."""
        if self._receiver is None:
            self._receiver = self.new_receiver()
        return self._receiver

    def new_receiver(self) -> Receiver:
        """One more member of the group, for another thread."""
        if self._closed:
            raise ClientError("the queue is closed", fatal=True)
        if not self.group:
            raise ConfigError("receiving needs a group: Queue(servers, topic, group=...)")
        check_library()
        if self._lock_s is None:
            admin = Admin(self._servers, settings=self._settings)
            self._lock_s = prepare(admin, self.topic, self.group, self._queue_settings)
        return Receiver(
            self._servers,
            self.topic,
            group=self.group,
            lock_s=self._lock_s,
            batch_max=self._batch_max,
            settings=self._settings,
            close_seconds=self._close_seconds,
        )

    @contextlib.contextmanager
    def receive(self, timeout_s: float | None = None) -> Iterator[QueueMessage]:
        """The next message. Raises `QueueEmpty` if none came in time; waits for ever without `timeout_s`.

        The end of the block accepts the message and returns when the broker has persisted that. An exception
        releases it; `Reject`, or `message.reject()`, rejects it. Raises `LockLost` when the block took longer
        than the lock: the message is delivered again, though the block has run.
        """
        message = self._next(timeout_s)
        try:
            yield message
        except BaseException as error:
            self._undo(message, error)
            raise
        self._acknowledge(message, message.outcome or AcknowledgeType.ACCEPT)

    def __iter__(self) -> Iterator[QueueMessage]:
        """Messages for ever. Asking for the next one accepts the one before."""
        return self.messages()

    def messages(self, idle_s: float | None = None) -> Loop:
        """Messages until none came for `idle_s`. A loop that is left or begun again releases its message."""
        return Loop(partial(self._next, idle_s), self._acknowledge, self._release)

    def _next(self, timeout_s: float | None) -> QueueMessage:
        receiver = self.receiver
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while (message := receiver.take()) is None:
            left_s = POLL_SECONDS if deadline_s is None else deadline_s - time.monotonic()
            if not receiver.fill(max(0.0, min(left_s, POLL_SECONDS))) and left_s <= 0:
                raise QueueEmpty(f"no message of {self.topic} came in {timeout_s:g} s", retriable=True)
        return message

    def _acknowledge(self, message: QueueMessage, outcome: AcknowledgeType) -> None:
        self.receiver.acknowledge(message, outcome)

    @property
    def is_holding(self) -> bool:
        """True while a message is handed out and not acknowledged or let go."""
        return self._receiver is not None and self._receiver.is_holding

    def _release(self, message: QueueMessage) -> None:
        """Any thread may call this, the garbage collector's included."""
        self.receiver.let_go(message)
        self.receiver.tell_left()

    def _undo(self, message: QueueMessage, error: BaseException) -> None:
        """The block has failed: its exception is raised, whatever happens here."""
        try:
            self._acknowledge(message, outcome_of(message, error))
        except ClientError as failure:
            log.warning("%s", failure)

    # -- working ---------------------------------------------------------------------------------------

    def work(
        self, handle: Handler, *, jobs: int = 1, idle_s: float | None = None, stop: Stop | None = None
    ) -> WorkSummary:
        """Call `handle` for each message, in `jobs` threads, each with its own member of the group.

        A return accepts the message, an exception releases it, `Reject` rejects it. Runs until `stop` is set,
        or nothing came for `idle_s`. Messages that are being handled are handled to the end.
        """
        return Work(self.new_receiver, handle, jobs=jobs, idle_s=idle_s, stop=stop).run()

    # -- sending ---------------------------------------------------------------------------------------

    def send(
        self,
        value: str | bytes | None = None,
        *,
        key: str | bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Send a message, delivered at least once. `flush`, `close` or the end of `with` waits for it."""
        self._sender().send(self.topic, value, key=key, headers=headers, partition=partition)

    def send_and_wait(
        self, value: str | bytes | None = None, *, key: str | bytes | None = None, headers: Headers = ()
    ) -> Message:
        """Send a message and wait until all replicas have it; the returned message has its offset."""
        record = Record(topic=self.topic, value=value, key=key, headers=headers)
        return self._sender().send_and_wait(record)

    def flush(self) -> None:
        """Wait until everything sent is acknowledged; raises `DeliveryFailed` otherwise."""
        if self._producer is not None:
            self._producer.flush()

    def _sender(self) -> Producer:
        if self._closed:
            raise ClientError("the queue is closed", fatal=True)
        with self._producer_lock:
            if self._producer is None:
                self._producer = Producer(
                    self._servers,
                    profile="latency",
                    close_seconds=self._close_seconds,
                    settings=self._settings,
                )
            return self._producer

    # -- life ------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Deliver what was sent, leave the group. Messages that were not handed out are released."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closed = True
        try:
            if self._producer is not None:
                self._producer.__exit__(kind, exception, traceback)
        finally:
            if self._receiver is not None:
                self._receiver.close()
