"""The model of producer ids: each belongs to one producer for ever.

A partition treats two producers with one id as the same producer: a message of the second is acknowledged as
a repeat of the first, and not stored. That shows only if both write to the same partition; here it shows at
once.
"""

from __future__ import annotations

from collections.abc import Callable


class ProducerIdOwners:
    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._owners: dict[int, str] = {}

    def give(self, producer_id: int, producer: str, *, keeps: bool = False) -> None:
        """`keeps`: a transactional producer is given its id again; others get a new one each time."""
        before = self._owners.setdefault(producer_id, "")
        if before and not (keeps and before == producer):
            self._fail(f"{producer} was given the producer id {producer_id}, which {before} has")
        self._owners[producer_id] = producer
