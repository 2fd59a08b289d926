"""Errors of a client: librdkafka's errors as exceptions that say what to do about them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from confluent_kafka import KafkaError, KafkaException

from forebay.errors import ForebayError

_FENCED_CODES = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})


class ClientError(ForebayError):
    """An operation failed. `code` and `name` are Kafka's, or librdkafka's own below zero."""

    def __init__(
        self, message: str, *, code: int = 0, name: str = "", retriable: bool = False, fatal: bool = False
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.name = name
        self.retriable = retriable
        """The same call may succeed later."""
        self.fatal = fatal
        """This producer or consumer cannot be used any more: close it."""


class DeliveryFailed(ClientError):
    """Messages were not acknowledged; `count` of them since this was last raised."""

    count = 1


class TransactionAborted(ClientError):
    """The transaction was rolled back, nothing of it is visible, and it can be done again."""


class ProducerFenced(ClientError):
    """Another producer with the same transactional id has taken over: close this one."""


class LockLost(ClientError):
    """The lock on a message expired before it was acknowledged: another worker may have it, or get it.

    Its work may be done twice. Give the group longer locks, or do less per message.
    """


class QueueEmpty(ClientError):
    """No message came in time."""


def from_kafka(error: KafkaError) -> ClientError:
    return _kind(error)(
        error.str(), code=error.code(), name=error.name(), retriable=error.retriable(), fatal=error.fatal()
    )


def _kind(error: KafkaError) -> type[ClientError]:
    if error.fatal() and error.code() in _FENCED_CODES:
        return ProducerFenced
    return TransactionAborted if error.txn_requires_abort() else ClientError


def error_of(exception: KafkaException) -> KafkaError:
    error = exception.args[0]
    assert isinstance(error, KafkaError)
    return error


@contextlib.contextmanager
def kafka_errors() -> Iterator[None]:
    """Turns KafkaException inside into ClientError outside."""
    try:
        yield
    except KafkaException as exception:
        raise from_kafka(error_of(exception)) from None
