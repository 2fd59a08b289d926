"""A step under construction, and its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from forebay.core.step import Effect, Now, Step, Ticket
from forebay.core.topic_partition import TopicPartition
from forebay.core.transactions.state import Transaction, record_of, tombstone
from forebay.lazy import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteMarkers(Effect):
    """Write the markers of an ended transaction to its partitions."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    transaction_version: int
    """2 if the marker's epoch is higher than that of the transaction's messages."""
    commit: bool
    partitions: tuple[TopicPartition, ...]


class Asked(NamedTuple):
    """A request, with what the runtime added: a fresh producer id, or the group's offsets partition."""

    ticket: Ticket
    request: Any
    version: int
    number: int = -1


class Draft:
    """One operation's step, which sees its own decisions so far."""

    __slots__ = ("_changed", "_known", "now", "step")

    def __init__(self, known: Mapping[str, Transaction], now: Now) -> None:
        self.step = Step()
        self.now = now
        self._known = known
        self._changed: dict[str, Transaction | None] = {}

    def get(self, transactional_id: str) -> Transaction | None:
        if transactional_id in self._changed:
            return self._changed[transactional_id]
        return self._known.get(transactional_id)

    def put(self, txn: Transaction) -> None:
        self._changed[txn.transactional_id] = txn
        self.step.records.append(record_of(txn))

    def forget(self, transactional_id: str) -> None:
        self._changed[transactional_id] = None
        self.step.records.append(tombstone(transactional_id))
