"""The deadlines of transactions and of unused transactional ids; `shard.py` then ends them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forebay.config import TransactionsConfig
from forebay.core.deadline_heap import DeadlineHeap
from forebay.core.step import Now
from forebay.core.transactions.id_prefixes import members
from forebay.core.transactions.state import Event, State, Transaction


class Deadlines:
    """The deadlines of all transactions of a shard, in monotonic time.

    A timeout counts from when the transaction was opened here or found in the log, or was last renewed; the
    start in the log was read from another clock. Renewing keeps a transaction open for `max_lifetime_ms` at
    most.
    """

    def __init__(self, config: TransactionsConfig) -> None:
        self._config = config
        self._abort_at: dict[str, int] = {}
        self._end_at: dict[str, int] = {}
        self._deadlines = DeadlineHeap[str]()
        self._looked_ms = 0

    def schedule(self, txn: Transaction, now: Now) -> None:
        """Note that a transaction has changed, or was found in the log."""
        name = txn.transactional_id
        if txn.state is not State.ONGOING:
            self._abort_at.pop(name, None)
            self._end_at.pop(name, None)
        elif name not in self._abort_at:
            self._abort_at[name] = now.ms + txn.timeout_ms
            self._end_at[name] = now.ms + self._config.max_lifetime_ms
        at_ms = self._deadline_of(txn, now)
        if at_ms is not None:
            # A deadline that moves later is corrected when it comes up: most transactions end long before.
            self._deadlines.set_no_later(name, at_ms)

    def renew(self, families: Sequence[str], known: Mapping[str, Transaction], now_ms: int) -> int:
        """Renew the open transactions of the families; returns how many there are."""
        names = members(self._abort_at, families)
        for name in names:
            renewed_ms = min(now_ms + known[name].timeout_ms, self._end_at[name])
            self._abort_at[name] = max(renewed_ms, self._abort_at[name])
        return len(names)

    def take_due(self, now_ms: int) -> str | None:
        """A transactional id whose time may be up: `is_over` decides."""
        self._looked_ms = now_ms
        return self._deadlines.pop_due(now_ms)

    def is_over(self, txn: Transaction, now: Now) -> bool:
        at_ms = self._deadline_of(txn, now)
        if at_ms is not None and at_ms > now.ms:
            self._deadlines.set_no_later(txn.transactional_id, at_ms)
        return at_ms is not None and at_ms <= now.ms

    def next_ms(self) -> int | None:
        """When to look again: no more often than every `abort_interval_ms`, unless more is due already."""
        due_ms = self._deadlines.next_ms()
        if due_ms is not None and due_ms > self._looked_ms:
            return max(due_ms, self._looked_ms + self._config.abort_interval_ms)
        return due_ms

    def _deadline_of(self, txn: Transaction, now: Now) -> int | None:
        if txn.state is State.ONGOING:
            return self._abort_at[txn.transactional_id]
        if txn.allows(Event.EXPIRE):
            return now.ms + txn.last_update_ms + self._config.id_expiration_ms - now.trusted_ms
        return None
