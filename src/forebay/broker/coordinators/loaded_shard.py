"""One machine on one partition of an internal topic, for one term, and its pending requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import partial
from itertools import islice
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from forebay.broker.partition.partition import Partition
from forebay.broker.worker_threads import WorkerThreads
from forebay.core.step import Effect, Now, RequestInfo, StateRecord, Step
from forebay.lazy import dataclass
from forebay.wire.batch import BatchHeader, EndTxnMarker, read_marker, records
from forebay.wire.fields import Request, Response

_BATCHES_PER_READ = 64
_RECORDS_PER_TURN = 500
"""While loading, after this many records the loop serves other requests. A broker that replaces a dead one
loads many coordinators, and leads other partitions as well."""


class Machine(Protocol):
    @property
    def replay(self) -> Callable[..., None]:
        """Apply a record to the state. The producer id is passed if the record is part of a transaction."""

    def loaded(self, now: Now) -> Step: ...

    def tick(self, now: Now) -> Step: ...


M = TypeVar("M", bound=Machine)
EndTransaction: TypeAlias = Callable[[M, EndTxnMarker], None]


class Ticket:
    """A request that waits for the response of a machine."""

    __slots__ = ("answer", "info", "request")

    def __init__(self, request: Request, info: RequestInfo, answer: asyncio.Future[Any]) -> None:
        self.request = request
        self.info = info
        self.answer = answer

    def resolve(self, response: Response) -> None:
        if not self.answer.done():  # it is, when the broker is being stopped
            self.answer.set_result(response)


@dataclass(slots=True, eq=False)
class Commit:
    """Replies and effects that wait until records are committed, with those of later steps."""

    replies: list[tuple[Any, Response]]
    effects: list[Effect]
    followers: list[Commit] = field(default_factory=list)


class Shard(Generic[M]):
    """One partition of the internal topic, and the machine on it for one term."""

    def __init__(self, partition: Partition, machine: M) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.machine = machine
        self.ready = False
        """True while the machine is loaded and in its term."""
        self.newest_commit: Commit | None = None
        """The newest step whose records are not committed yet."""
        self.tickets: dict[Ticket, None] = {}
        """Requests that have not been answered, the oldest first."""
        self.timer: asyncio.TimerHandle | None = None
        self.deadline_ms: int | None = None
        """When the machine wants its next tick, in monotonic time."""
        self.began_s = 0.0
        """When the machine was loaded, in the loop's time."""

    @property
    def in_term(self) -> bool:
        """True while this broker leads the partition in the epoch for which the shard was made."""
        return can_coordinate(self.partition) and self.partition.leader_epoch == self.leader_epoch

    async def replay_log(
        self, readers: WorkerThreads, end_transaction: EndTransaction[M] | None, goes_on: Callable[[], bool]
    ) -> int:
        """Rebuild the machine from its log, which threads read, including batches that are appended
        meanwhile.

        Returns the number of batches. Ends early if `goes_on` returns False after a pause.
        """
        log, count, replayed = self.partition.log, 0, 0
        offset, seen = log.start_offset, -1
        while seen < offset < log.end_offset:
            seen = offset
            for stretch in log.stretches(offset):
                batches = stretch.batches()
                while (some := await readers.run(partial(_take, batches))) and goes_on():
                    for batch, header in some:
                        self._replay(batch, header, end_transaction)
                        offset = header.next_offset
                        replayed += header.record_count
                        if replayed >= _RECORDS_PER_TURN:
                            replayed = 0
                            await asyncio.sleep(0)
                            if not goes_on():
                                return count
                    count += len(some)
                if not goes_on():
                    return count
        return count

    def _replay(
        self, batch: memoryview, header: BatchHeader, end_transaction: EndTransaction[M] | None
    ) -> None:
        # Compaction may have left a control batch without its marker.
        marker = read_marker(batch) if header.is_control and header.record_count else None
        if marker is None:
            producer = (header.producer_id,) if header.is_transactional else ()
            for record in records(batch, self.partition.log.config.decompress_max_bytes):
                state = StateRecord(record.key or b"", record.value, record.offset)
                self.machine.replay(state, *producer)
        elif end_transaction is not None:
            end_transaction(self.machine, marker)


def _take(batches: Iterator[tuple[memoryview, BatchHeader]]) -> list[tuple[memoryview, BatchHeader]]:
    """Runs in a thread."""
    return list(islice(batches, _BATCHES_PER_READ))


def can_coordinate(partition: Partition) -> bool:
    """True if records that are appended here can be committed, as far as this broker knows."""
    return partition.is_leader and partition.enough_replicas and not partition.closed
