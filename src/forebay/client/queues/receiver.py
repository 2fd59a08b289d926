"""A member of a share group: gets messages under a lock, and reports the outcome of each to the broker.

It uses confluent-kafka's ShareConsumer, in explicit mode. An acknowledgement is sent at once and waited for,
so that a message counts as accepted only when the broker has persisted it. librdkafka 2.16 cannot renew a
lock: a message that is held for longer is delivered again, and its acknowledgement fails with `LockLost`.

A poll may return more messages than are handed out at once. They wait in `_ready`, under their locks. A
message whose lock has expired is not handed out: it is on its way to another worker. librdkafka requires
every message of a poll to be acknowledged before the next poll, so such a message is released, which the
broker refuses without harm.

Any thread may close a receiver, also while another one waits in it: the wait ends within `POLL_SECONDS`.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import confluent_kafka
from confluent_kafka import KafkaError

from forebay.client.closing import CLOSE_SECONDS, share_handle
from forebay.client.errors import ClientError, LockLost, error_of, from_kafka, kafka_errors
from forebay.client.presets import Settings, share_consumer_settings
from forebay.client.queues import messages
from forebay.client.queues.messages import AcknowledgeType, QueueMessage, unfinished_outcome
from forebay.errors import ConfigError

if TYPE_CHECKING:
    from confluent_kafka import ShareConsumer

log = logging.getLogger("forebay.client")

_Key = tuple[str, int, int]
"""Topic, partition and offset of a message."""

POLL_SECONDS = 1.0
"""One wait for messages; a stop is noticed between two of them."""
COMMIT_SECONDS = 30.0
_INVALID_RECORD_STATE = 121
# A topic that was deleted may be created again, and a member that was too slow joins again.
_PASSING = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._MAX_POLL_EXCEEDED}
)


class Receiver:
    """For one thread at a time. Joins the group when it is made; close it to leave."""

    def __init__(
        self,
        servers: str | Sequence[str],
        topic: str,
        *,
        group: str,
        lock_s: float,
        batch_max: int,
        settings: Settings | None,
        close_seconds: float = CLOSE_SECONDS,
    ) -> None:
        """`lock_s`: how long the group's settings let a member hold a message."""
        check_library()
        self._group = group
        self._lock_s = lock_s
        self._close_seconds = close_seconds
        self._ready: deque[QueueMessage] = deque()
        self._held: set[_Key] = set()
        """Messages that were handed out and not acknowledged. librdkafka polls only when there is none."""
        self._left: deque[QueueMessage] = deque()
        """Messages of loops that were left. The next call reports them to the broker."""
        chosen = share_consumer_settings(servers, group, batch_max, lock_s, settings)
        with _calls():
            self._raw = confluent_kafka.ShareConsumer(chosen)
            self._handle = share_handle(self._raw, "queue", close_seconds)
            try:
                self._raw.subscribe([topic])
            except BaseException:
                self.close()
                raise

    @property
    def is_holding(self) -> bool:
        """True while a message is handed out and not acknowledged or let go."""
        return len(self._held) > len(self._left)

    @property
    def raw(self) -> ShareConsumer:
        """confluent-kafka's share consumer."""
        return self._raw

    # -- getting messages ------------------------------------------------------------------------------

    def take(self) -> QueueMessage | None:
        """A waiting message whose lock has not expired. Never calls librdkafka."""
        if self._handle.closed or not self._ready or self._ready[0].lock_seconds_left <= 0:
            return None
        message = self._ready.popleft()
        self._held.add(_key(message))
        return message

    def fill(self, timeout_s: float) -> bool:
        """Ask the broker if nothing waits; True if something waits then. Blocks."""
        with _calls(), self._handle.using():
            return self._fill(timeout_s)

    def _fill(self, timeout_s: float) -> bool:
        self._tell_left()
        self._drop_expired()
        if self._ready:
            return True
        if self._held:
            raise ClientError(
                "the message before is still being handled: end its block first, or open a queue per thread"
            )
        polled = self._raw.poll(timeout_s)
        # The lock began at some moment of the poll. The last one counts: a message that seems expired is.
        failure = self._arrived(list(polled), time.monotonic() + self._lock_s)
        if failure is not None:
            raise failure
        return bool(self._ready)

    def _arrived(self, polled: list[confluent_kafka.Message], lock_deadline_s: float) -> ClientError | None:
        """Make messages available to `take`. Returns an error that must not be ignored."""
        failure = None
        for raw in polled:
            error = raw.error()
            if error is None:
                self._ready.append(messages.from_kafka(raw, lock_deadline_s))
            elif error.fatal() or not (error.retriable() or error.code() in _PASSING):
                failure = from_kafka(error)
            else:
                log.info("the broker could not deliver for the moment: %s", error)
        return failure

    def _drop_expired(self) -> None:
        expired = [each for each in self._ready if each.lock_seconds_left <= 0]
        if not expired:
            return
        log.warning(
            "the locks of %d messages ran out before they were handed out: they are delivered again. "
            "Give the queue a smaller batch_max, or the group longer locks",
            len(expired),
        )
        for message in expired:
            self._ready.remove(message)
            self._note(message, AcknowledgeType.RELEASE)
        self._raw.commit_sync(COMMIT_SECONDS)

    # -- acknowledging ---------------------------------------------------------------------------------

    def acknowledge(self, message: QueueMessage, outcome: AcknowledgeType) -> None:
        """Returns when the broker has persisted it. Raises `LockLost` if the lock had expired."""
        with _calls(), self._handle.using():
            self._acknowledge(message, outcome)

    def _acknowledge(self, message: QueueMessage, outcome: AcknowledgeType) -> None:
        is_late = message.lock_seconds_left <= 0
        self._held.discard(_key(message))
        if not self._note(message, outcome):
            raise _lost(message, self._lock_s)
        answers = self._raw.commit_sync(COMMIT_SECONDS)
        for answer in answers.values():
            if answer is not None:
                raise _refused(message, error_of(answer), self._lock_s)
        if is_late:
            # Brokers accept anything about a message that the group is past, so another worker may have had
            # this one. A difference of milliseconds between the clocks goes unnoticed.
            raise _lost(message, self._lock_s)
        if outcome is AcknowledgeType.REJECT:
            log.warning("%s is rejected: %s", message.place, message.reason or "no reason given")

    def _note(self, message: QueueMessage, outcome: AcknowledgeType) -> bool:
        """True if the next commit includes this message; librdkafka may no longer know of the lock."""
        kind = confluent_kafka.AcknowledgeType(outcome.value)
        try:
            self._raw.acknowledge_offset(message.topic, message.partition, message.offset, kind)
        except confluent_kafka.IllegalStateException:
            return False
        return True

    def let_go(self, message: QueueMessage) -> None:
        """Note that the handling of a message did not finish. Never blocks, any thread may call it.

        `tell_left`, the next `fill` or `close` tells the broker: the message is released, or rejected if that
        was decided.
        """
        self._left.append(message)

    def tell_left(self) -> None:
        """Report released messages to the broker. If another call is under way, the next one does it."""
        with contextlib.suppress(ClientError), _calls(), self._handle.using_if_free() as is_free:
            if is_free:
                self._tell_left()

    def _tell_left(self) -> None:
        while self._left:
            message = self._left.popleft()
            try:
                self._acknowledge(message, unfinished_outcome(message))
            except ClientError as failure:
                log.warning("%s", failure)

    # -- leaving ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Leave the group. The broker releases waiting messages.

        Any thread may call this. Returns after the bound at the latest: a librdkafka that hangs is given up.
        """
        with _calls():
            is_closed = self._handle.close(self._tell_left)
        if not is_closed:
            log.warning(
                "librdkafka has not closed its share consumer after %g s, and is left alone with it until "
                "this process ends. The broker takes the member out of group %r when its session times out, "
                "if it has not left; messages that it holds are delivered again when their locks run out",
                self._close_seconds,
                self._group,
            )
        self._ready.clear()

    def start_close(self) -> None:
        """Begin what `close` waits for."""
        self._handle.start_close(self._tell_left)


def _key(message: QueueMessage) -> _Key:
    return message.topic, message.partition, message.offset


def check_library() -> None:
    if not hasattr(confluent_kafka, "ShareConsumer"):
        raise ConfigError(
            f"queues need confluent-kafka 2.16 or newer, this is {confluent_kafka.version()}: "
            "pip install 'confluent-kafka>=2.16'"
        )


def _refused(message: QueueMessage, error: KafkaError, lock_s: float) -> ClientError:
    if error.code() == _INVALID_RECORD_STATE:
        return _lost(message, lock_s)
    return ClientError(
        f"{message.place} could not be acknowledged, it may be delivered again: {error.str()}",
        code=error.code(),
        name=error.name(),
        fatal=error.fatal(),
    )


def _lost(message: QueueMessage, lock_s: float) -> LockLost:
    return LockLost(
        f"the lock on {message.place} ran out before the message was acknowledged, so another worker may "
        f"handle it too: be done in less than {lock_s:g} s, or give the group longer locks (lock_seconds)",
        code=_INVALID_RECORD_STATE,
        name="INVALID_RECORD_STATE",
    )


@contextlib.contextmanager
def _calls() -> Iterator[None]:
    """Turns exceptions of confluent-kafka inside into ClientError outside."""
    try:
        with kafka_errors():
            yield
    except RuntimeError as error:  # a closed consumer, or one that another thread is using
        raise ClientError(f"close this queue and open another: {error}", fatal=True) from None
