"""Transactional batches that wait until the coordinator confirms their transaction for the partition.

While the coordinator is asked, the transaction may end: its marker comes first, and a batch appended after it
would begin a transaction that never ends. So every verification holds a *guard*. A marker of the producer
removes its guards, and a batch whose guard is gone is refused. The caller that begins a verification releases
its guard when the batch is appended or refused.

A verification may also fail where the next one succeeds. For a producer that the partition does not know, any
sequence would be accepted as the first. So the lowest sequence of its verifications is kept, and a batch with
a higher one that comes before it is out of order (`producers/producer_admission.py` decides that).
"""

from __future__ import annotations

from dataclasses import field

from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass

PRODUCERS_MAX = 10_000
"""The number of producers that a partition may verify at once. It remembers as many verified ones."""


@dataclass(slots=True, kw_only=True)
class _Asked:
    producer_epoch: int
    lowest_sequence: int
    guards: set[object] = field(default_factory=set)


class Verifications:
    __slots__ = ("_asked", "_over", "_producers_max")

    def __init__(self, *, producers_max: int = PRODUCERS_MAX) -> None:
        self._producers_max = producers_max
        self._asked: dict[int, _Asked] = {}
        """By producer id, with guards. None of them is ever dropped in favour of another."""
        self._over: dict[int, _Asked] = {}
        """Without guards, least recently used first. Kept until the transaction ends: a batch may be sent
        again whose verification failed, or that could not be written."""

    def __len__(self) -> int:
        """The number of producers that are being verified."""
        return len(self._asked)

    def begin(self, producer_id: int, producer_epoch: int, base_sequence: int) -> object:
        """A guard to present with the verified batch; raises KafkaError if none is available now."""
        asked = self._asked.get(producer_id)
        if asked is not None and producer_epoch < asked.producer_epoch:
            # Most likely a zombie. Its successor must not lose its guard to it.
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"epoch {asked.producer_epoch} of producer {producer_id} is being verified; try again",
            )
        asked = asked or self._over.pop(producer_id, None)
        if asked is None or asked.producer_epoch != producer_epoch:
            asked = _Asked(producer_epoch=producer_epoch, lowest_sequence=base_sequence)
        elif base_sequence < asked.lowest_sequence:
            asked.lowest_sequence = base_sequence
        if producer_id not in self._asked and len(self._asked) >= self._producers_max:
            self._remember(producer_id, asked)
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"the transactions of {self._producers_max} producers are being verified already; try again",
            )
        self._asked[producer_id] = asked
        guard = object()
        asked.guards.add(guard)
        return guard

    def verified_from(self, producer_id: int, guard: object) -> int | None:
        """The lowest sequence asked for, if the transaction has not ended since this guard was given."""
        asked = self._asked.get(producer_id)
        return asked.lowest_sequence if asked is not None and guard in asked.guards else None

    def release(self, producer_id: int, guard: object) -> None:
        """End a verification, whatever happened to its batch."""
        asked = self._asked.get(producer_id)
        if asked is None:
            return
        asked.guards.discard(guard)
        if not asked.guards:
            self._remember(producer_id, self._asked.pop(producer_id))

    def _remember(self, producer_id: int, asked: _Asked) -> None:
        self._over[producer_id] = asked
        if len(self._over) > self._producers_max:
            del self._over[next(iter(self._over))]

    def ended(self, producer_id: int, *, next_epoch: int | None) -> None:
        """Note that the producer's transaction has ended here.

        If every transaction has its own epoch, a producer that is ahead may already ask for its next one:
        with the epoch that the marker names.
        """
        asked = self._asked.get(producer_id) or self._over.get(producer_id)
        if asked is not None and (next_epoch is None or asked.producer_epoch < next_epoch):
            self._asked.pop(producer_id, None)
            self._over.pop(producer_id, None)
