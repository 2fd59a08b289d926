"""The values that the models share: messages that were sent, and the transactions that they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum

from forebay.core.topic_partition import TopicPartition
from forebay.lazy import dataclass

Content = Mapping[TopicPartition, Mapping[int, bytes]]
"""The values of messages, by partition and offset."""


class TransactionOutcome(Enum):
    OPEN = "open"
    COMMIT_ASKED = "asked to commit"
    COMMITTED = "committed"
    ABORTED = "aborted"
    """Its producer gave it up without a request to commit."""


@dataclass(eq=False, slots=True)
class Transaction:
    name: str
    outcome: TransactionOutcome = TransactionOutcome.OPEN
    values: list[bytes] = field(default_factory=list)
    offsets: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    """By group and partition: the offset that the transaction commits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    at: TopicPartition
    producer: str
    number: int
    exactly_once: bool
    sent_at: float = 0.0
    transaction: Transaction | None = None


@dataclass(slots=True)
class Counts:
    sent: int = 0
    acknowledged: int = 0
    read: int = 0
    committed: int = 0
    aborted: int = 0
    offsets: int = 0
    claims: int = 0
    """The number of times that a member of a group got its partitions."""
    deliveries: int = 0
    """Deliveries of records to members of the share group."""
    finished: int = 0
    """Records that a broker has confirmed as accepted or rejected."""
    changes: int = 0
    """Changes by administrators: topics created and deleted, settings, elections, reassignments."""
    verdicts: int = 0
    """Registrations that another broker has ended before their lease."""


def name_of(at: TopicPartition, offset: int | None = None) -> str:
    return f"{at[0]}-{at[1]}" if offset is None else f"{at[0]}-{at[1]}@{offset}"
