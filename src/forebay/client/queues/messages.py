"""A message of a queue, and its outcome."""

from __future__ import annotations

import enum
import time
from dataclasses import field

import confluent_kafka

from forebay.client.messages import Message, fields_of
from forebay.lazy import dataclass


class AcknowledgeType(enum.Enum):
    """The outcome of a message. The numbers are the protocol's."""

    ACCEPT = 1
    """It is done, and never delivered again."""
    RELEASE = 2
    """It is delivered again, up to the group's delivery limit."""
    REJECT = 3
    """It is never delivered again; it becomes a dead letter if the group has a topic for them."""


class Reject(Exception):
    """Raised by the code that handles a message: reject it, do not try again."""


class _Decision:
    """The only part of a message that its handler may change."""

    __slots__ = ("outcome", "reason")

    def __init__(self) -> None:
        self.outcome: AcknowledgeType | None = None
        self.reason = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMessage(Message):
    """A message that this worker has locked."""

    delivery_count: int = 1
    """How often it has been delivered, including this time."""
    lock_deadline_s: float = 0.0
    """When the lock expires, at the latest, by `time.monotonic()`."""
    _decision: _Decision = field(default_factory=_Decision, repr=False, compare=False)

    @property
    def lock_seconds_left(self) -> float:
        """How long the lock lasts, at most; 0 if it has expired. It cannot be renewed."""
        return max(0.0, self.lock_deadline_s - time.monotonic())

    @property
    def place(self) -> str:
        """Topic, partition and offset, for people."""
        return f"{self.topic}/{self.partition} offset {self.offset}"

    @property
    def outcome(self) -> AcknowledgeType | None:
        """The outcome set by `reject` or `release`; None if neither was called."""
        return self._decision.outcome

    @property
    def reason(self) -> str:
        """Why it was rejected."""
        return self._decision.reason

    def reject(self, reason: str = "") -> None:
        """At the end of the block, reject this message. An exception afterwards does not change that.

        The protocol has no place for the reason: it goes to the log of this program, not to the broker.
        """
        self._decision.outcome, self._decision.reason = AcknowledgeType.REJECT, reason

    def release(self) -> None:
        """At the end of the block, release this message: it is delivered again, here or elsewhere."""
        self._decision.outcome = AcknowledgeType.RELEASE


def unfinished_outcome(message: QueueMessage) -> AcknowledgeType:
    """The outcome of a message whose handling did not finish."""
    return AcknowledgeType.REJECT if message.outcome is AcknowledgeType.REJECT else AcknowledgeType.RELEASE


def from_kafka(raw: confluent_kafka.Message, lock_deadline_s: float) -> QueueMessage:
    count = raw.delivery_count()
    return QueueMessage(
        **fields_of(raw),
        delivery_count=1 if count is None else count,
        lock_deadline_s=lock_deadline_s,
    )
