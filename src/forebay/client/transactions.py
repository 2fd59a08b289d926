"""A producer's transactions: begun, committed or rolled back, with librdkafka's retries brought to an end.

A call that fails for the moment is repeated until its time is up. After that a commit may still have
happened: only the coordinator knows. Nothing must be done again then in this process, so the error is fatal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException, TopicPartition

from forebay.client.errors import ClientError, error_of, from_kafka, kafka_errors

SECONDS_MAX = 60.0
_CALL_SECONDS = 5.0
_PAUSE_SECONDS = 0.05

Progress = tuple[list[TopicPartition], Any]
"""Offsets to commit, and the group member who does it (`Consumer.progress`)."""


class Transactions:
    def __init__(self, raw: confluent_kafka.Producer) -> None:
        self._raw = raw
        self._initialised = False
        self.open = False
        self.committed = False
        """How the last transaction ended."""

    def init(self) -> None:
        """Take over the transactional id: an earlier producer is fenced, what it left open is aborted."""
        if not self._initialised:
            self._repeat(self._raw.init_transactions)
            self._initialised = True

    def begin(self) -> None:
        if self.open:
            raise ClientError("a transaction is open already")
        self.init()
        with kafka_errors():
            self._raw.begin_transaction()
        self.open, self.committed = True, False

    def commit(self, progress: Progress | None) -> None:
        """Messages and offsets become visible together. TransactionAborted asks for `abort`."""
        if progress is not None and progress[0]:
            offsets, member = progress
            self._repeat(lambda timeout_s: self._raw.send_offsets_to_transaction(offsets, member, timeout_s))
        try:
            self._repeat(self._raw.commit_transaction)
        except ClientError as error:
            if error.retriable:
                raise ClientError(
                    f"whether the transaction was committed is not known ({error}): close the producer; "
                    "a new one with its transactional id ends what is pending, and the group's committed "
                    "offsets tell which way it went",
                    code=error.code,
                    name=error.name,
                    fatal=True,
                ) from error
            raise
        self.open, self.committed = False, True

    def abort(self) -> None:
        self.open = False
        self._repeat(self._raw.abort_transaction)

    def _repeat(self, call: Callable[[float], None]) -> None:
        """Until it succeeds, fails for good, or the time is up: then the last error, still retriable."""
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            try:
                call(_CALL_SECONDS)
                return
            except KafkaException as exception:
                error = error_of(exception)
                if not error.retriable() or time.monotonic() >= deadline:
                    raise from_kafka(error) from None
            time.sleep(_PAUSE_SECONDS)
