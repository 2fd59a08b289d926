"""Answers of a broker that are changed on their way to a reader of Spark's source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

from forebay.spark.wire.broker_connection import BrokerConnection

Answer = TypeVar("Answer")


@contextmanager
def first_answered(request: type[Any], change: Callable[[Answer], Answer]) -> Iterator[None]:
    """The first answer to such a request is changed, and there has to be one."""
    changes = [change]

    def change_once(answer: Answer) -> Answer:
        return changes.pop()(answer) if changes else answer

    with answered(request, change_once):
        yield
    assert not changes


@contextmanager
def answered(request: type[Any], change: Callable[[Answer], Answer]) -> Iterator[None]:
    """All answers to such a request are changed."""
    real = BrokerConnection.read

    def read(connection: BrokerConnection, **named: Any) -> Any:
        is_wanted = connection.oldest_unanswered is request
        answer = real(connection, **named)
        return change(answer) if is_wanted else answer

    with patch.object(BrokerConnection, "read", read):
        yield
