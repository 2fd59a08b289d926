"""A producer's transactions: begun, committed or rolled back, with a limit on librdkafka's retries.

A call that fails temporarily is repeated until its time is up. After that a commit may still have happened:
only the coordinator knows. This process must not repeat anything then, so the error is fatal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from forebay.client.closing import ProducerHandle
from forebay.client.errors import ClientError, error_of, from_kafka, kafka_errors

SECONDS_MAX = 60.0
_CALL_SECONDS = 5.0
PAUSE_SECONDS = 0.05

Progress = tuple[list[TopicPartition], Any]
"""Offsets to commit, and the metadata of the group member that commits them (`Consumer.progress`)."""


TransactionOutcome = Literal["committed", "aborted", "unknown"]
"""How a transaction ended. Unknown: it may be committed or not, and only the coordinator knows."""


class Transactions:
    def __init__(self, handle: ProducerHandle) -> None:
        self._handle = handle
        self._initialised = False
        self._must_abort = False
        """A roll-back did not finish."""
        self.open = False
        self.committed = False
        """True if the last transaction was committed."""
        self._commit_asked = False
        self.undecided = False
        """A commit got no answer: nothing can follow it in this producer."""

    @property
    def _raw(self) -> confluent_kafka.Producer:
        return self._handle.raw

    @property
    def outcome(self) -> TransactionOutcome:
        """How the last transaction ended, after `commit` or `abort`, even if they raised."""
        if self.committed:
            return "committed"
        return "unknown" if self._commit_asked else "aborted"

    def init(self) -> None:
        """Take over the transactional id, and abort transactions left open, here or by an earlier
        producer."""
        if not self._initialised:
            # The wrong state for it: a call that raised had done it all the same.
            self._repeat(self._raw.init_transactions, unless=KafkaError._STATE)
            self._initialised = True
        if self._must_abort:
            self._abort()

    def begin(self) -> None:
        """It may have begun even if this raises: then `abort` it."""
        self.check_none_open()
        self.forget_outcome()
        self.init()
        self.open = True
        with kafka_errors():
            self._raw.begin_transaction()

    def forget_outcome(self) -> None:
        """Forget the outcome of the previous transaction: later errors have nothing to do with it."""
        self.committed, self._commit_asked = False, False

    def check_none_open(self) -> None:
        if self.open:
            raise ClientError("a transaction is open already")

    def commit(self, progress: Progress | None) -> None:
        """Messages and offsets become visible together. After an error, `abort`."""
        if progress is not None and progress[0]:
            offsets, member = progress
            self._repeat(lambda timeout_s: self._raw.send_offsets_to_transaction(offsets, member, timeout_s))
        self._commit_asked = True
        try:
            self._repeat(self._raw.commit_transaction)
        except ClientError as error:
            if error.retriable:
                self.open, self.undecided = False, True
                raise _undecided(error) from error
            raise
        self.open, self.committed = False, True

    def abort(self) -> None:
        """End it, unless it is committed; `outcome` then says how. If this raises, `init` repeats it."""
        if not self.open:
            return
        self.open, self._must_abort = False, True
        self._abort()

    def _abort(self) -> None:
        if self._repeat(self._raw.abort_transaction, unless=KafkaError._STATE):
            self._commit_asked = False  # refused or not, it is aborted now
        # Otherwise there is none: it was never begun, or has ended without a known outcome.
        self._must_abort = False

    def _repeat(self, call: Callable[[float], None], unless: int | None = None) -> bool:
        """Repeat until it succeeds, fails for good, or the time is up: then the last error, still retriable.

        False if the error is the expected one.
        """
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            try:
                call(_CALL_SECONDS)
                return True
            except KafkaException as exception:
                error = error_of(exception)
                if error.code() == unless and not error.fatal():
                    return False
                # A conflict is with a call that did not finish, and that only the same call resumes.
                is_final = not error.retriable() or error.code() == KafkaError._CONFLICT
                if is_final or time.monotonic() >= deadline:
                    raise from_kafka(error) from None
            time.sleep(PAUSE_SECONDS)


def _undecided(error: ClientError) -> ClientError:
    return ClientError(
        f"whether the transaction was committed is not known ({error}): close the producer; a new one with "
        "its transactional id ends what is pending, and the group's committed offsets tell which way it went",
        code=error.code,
        name=error.name,
        fatal=True,
    )
