"""Transactional ids with the same prefix, a *family*: requests about all of them at once.

A program that works in tasks has a transaction in each and commits all of them together (`end_many.py`). A
finished task leaves its transaction open and sends no more requests. So two things are requested for the
whole family:

Renewing. Their timeout is short, so that readers do not wait long behind a program that has died. While the
program lives, any running task renews the whole family, and all its timeouts start again. This is not in the
log: a coordinator that takes over gives every open transaction its whole timeout in any case.

Forgetting. An id that will not be used again need not be kept until it expires. An id without an open
transaction is deleted at once, any other when its transaction has ended. A coordinator that takes over in
between does not know of the request, and lets the id expire.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from forebay.core.transactions.draft import Draft
from forebay.core.transactions.state import Event, Transaction

FORGOTTEN_MAX = 5_000
"""By one request: their tombstones are one batch."""


def in_family(transactional_id: str, families: Sequence[str]) -> bool:
    """An empty prefix matches no id: it would match all."""
    return any(family and transactional_id.startswith(family) for family in families)


class Leaving:
    """Transactional ids that are forgotten when their transaction has ended."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: set[str] = set()

    def forget(self, families: Sequence[str], draft: Draft, known: Mapping[str, Transaction]) -> int:
        """How many transactional ids there are in the families."""
        members = [txn for name, txn in known.items() if in_family(name, families)]
        at_rest = [txn.transactional_id for txn in members if txn.allows(Event.EXPIRE)]
        for name in at_rest[:FORGOTTEN_MAX]:
            draft.forget(name)
        self._names.update({txn.transactional_id for txn in members}.difference(at_rest))
        return len(members)

    def stays(self, transactional_id: str) -> None:
        """The id is in use again: do not forget it."""
        self._names.discard(transactional_id)

    def ended(self, transactional_id: str, draft: Draft) -> None:
        """Forget this one if that was asked for, unless its next transaction is open already."""
        if transactional_id in self._names:
            txn = draft.get(transactional_id)
            if txn is not None and txn.allows(Event.EXPIRE):
                self._names.remove(transactional_id)
                draft.forget(transactional_id)
