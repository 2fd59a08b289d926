"""Transactional ids with the same prefix, a *family*: requests about all of them at once.

A program that works in tasks has a transaction in each and commits all of them together (`end_many.py`). A
finished task leaves its transaction open and sends no more requests. So there are two requests for the whole
family:

Renewing. Their timeout is short, so that readers do not wait long for a program that has died. While the
program lives, any running task renews the whole family, and all its timeouts start again. This is not in the
log: a coordinator that takes over gives every open transaction its whole timeout in any case.

Forgetting. An id that will not be used again need not be kept until it expires. An id without an open
transaction is deleted at once, any other when its transaction has ended. A coordinator that takes over in
between does not know of the request, and lets the id expire.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from forebay.core.transactions.draft import Draft
from forebay.core.transactions.state import Event, Transaction

FORGOTTEN_MAX = 5_000
"""The maximum for one request: their tombstones are one batch."""


def members(transactional_ids: Iterable[str], families: Iterable[str]) -> list[str]:
    """The ids that are in some family. An empty prefix matches no id, instead of all.

    A request may name thousands of families, and a shard may have thousands of ids. So families are sorted,
    and one is compared with each id: the last that is not greater, since none begins with another.
    """
    widest: list[str] = []
    for family in sorted(filter(None, families)):
        if not widest or not family.startswith(widest[-1]):
            widest.append(family)
    found = []
    for each in transactional_ids if widest else ():
        at = bisect_right(widest, each)
        if at and each.startswith(widest[at - 1]):
            found.append(each)
    return found


class Leaving:
    """Transactional ids that are forgotten when their transaction has ended."""

    __slots__ = ("_names",)

    def __init__(self) -> None:
        self._names: set[str] = set()

    def forget(self, families: Sequence[str], draft: Draft, known: Mapping[str, Transaction]) -> int:
        """Forget the transactional ids of the families; returns how many there are."""
        names = members(known, families)
        at_rest = [name for name in names if known[name].allows(Event.EXPIRE)]
        for name in at_rest[:FORGOTTEN_MAX]:
            draft.forget(name)
        self._names.update(set(names).difference(at_rest))
        return len(names)

    def stays(self, transactional_id: str) -> None:
        """The id is in use again: do not forget it."""
        self._names.discard(transactional_id)

    def ended(self, transactional_id: str, draft: Draft) -> None:
        """Forget this id if that was requested, unless its next transaction is already open."""
        if transactional_id in self._names:
            txn = draft.get(transactional_id)
            if txn is not None and txn.allows(Event.EXPIRE):
                self._names.remove(transactional_id)
                draft.forget(transactional_id)
