"""Transactional batches that wait for the coordinator to say that their transaction includes the partition.

While the coordinator is asked, the transaction may end: its marker comes first, and a batch appended after it
would begin a transaction that nobody ends. So every question holds a *guard*, a marker of the producer
takes the guards away, and a batch whose guard is gone is refused.

A question may also fail where the next one succeeds. Of a producer that the partition does not know, any
sequence would be taken as the first; so the lowest that was asked for is kept, and a batch that comes before
it has been appended is out of order (`core/admission.py` decides that).
"""

from __future__ import annotations

from dataclasses import dataclass, field

_PRODUCERS_MAX = 1_000


@dataclass(slots=True, kw_only=True)
class _Asked:
    producer_epoch: int
    lowest_sequence: int
    guards: set[object] = field(default_factory=set)


class Verifications:
    __slots__ = ("_asked",)

    def __init__(self) -> None:
        self._asked: dict[int, _Asked] = {}

    def begin(self, producer_id: int, producer_epoch: int, base_sequence: int) -> object:
        """A guard to show with the batch once the answer is there."""
        asked = self._asked.pop(producer_id, None)
        if asked is None or asked.producer_epoch != producer_epoch:
            asked = _Asked(producer_epoch=producer_epoch, lowest_sequence=base_sequence)
        self._asked[producer_id] = asked
        asked.lowest_sequence = min(asked.lowest_sequence, base_sequence)
        guard = object()
        asked.guards.add(guard)
        if len(self._asked) > _PRODUCERS_MAX:
            del self._asked[next(iter(self._asked))]  # its batches will be refused, and sent again
        return guard

    def verified_from(self, producer_id: int, guard: object) -> int | None:
        """The lowest sequence asked for, if the transaction has not ended since this guard was given."""
        asked = self._asked.get(producer_id)
        return asked.lowest_sequence if asked is not None and guard in asked.guards else None

    def failed(self, producer_id: int, guard: object) -> None:
        """The coordinator has said no."""
        asked = self._asked.get(producer_id)
        if asked is not None:
            asked.guards.discard(guard)

    def begun(self, producer_id: int) -> None:
        """The producer's transaction has begun here."""
        self._asked.pop(producer_id, None)

    def ended(self, producer_id: int, *, next_epoch: int | None) -> None:
        """The producer's transaction has ended here.

        Where every transaction has an epoch of its own, a producer that is ahead may ask for its next one
        already: with the epoch that the marker names.
        """
        asked = self._asked.get(producer_id)
        if asked is not None and (next_epoch is None or asked.producer_epoch < next_epoch):
            del self._asked[producer_id]
