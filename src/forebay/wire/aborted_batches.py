"""Which batches of a fetched piece of a log readers of committed messages pass over.

A broker lists the aborted transactions that touch the piece; a producer's batches belong to one from its
first offset up to the producer's next marker. The list is complete for each piece, so nothing is remembered
from one fetch to the next.
"""

from __future__ import annotations

from collections.abc import Iterable

from forebay.wire.batch import CONTROL, TRANSACTIONAL
from forebay.wire.messages.fetch import AbortedTransaction


class AbortedBatches:
    """Which batches were aborted. Batches must be asked about in the order of the log."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(((found.first_offset, found.producer_id) for found in aborted), reverse=True)
        self._aborting: set[int] = set()

    def skips(self, attributes: int, producer_id: int, last_offset: int) -> bool:
        while self._coming and self._coming[-1][0] <= last_offset:
            self._aborting.add(self._coming.pop()[1])
        if attributes & CONTROL:
            # A marker ends the producer's transaction, whichever way: its next one is listed by itself.
            self._aborting.discard(producer_id)
            return True
        return bool(attributes & TRANSACTIONAL) and producer_id in self._aborting
