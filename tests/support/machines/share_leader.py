"""What the tests of share partitions share: a log, a share coordinator, and the partition between them."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.core.shares.partition.acquired_ranges import Acquired, Demand, LogRead
from forebay.core.shares.partition.settings import ShareSettings
from forebay.core.shares.partition.share_partition import Acquisition, SharePartition
from forebay.core.shares.partition.state_transitions import RecordState
from forebay.core.shares.partition.writes import StateRange, StateWrite
from forebay.errors import ErrorCode
from forebay.wire.messages.share_fetch import AcknowledgementBatch

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
SETTINGS = ShareSettings(lock_ms=1_000, record_locks_max=100)


class StoredShare:
    """What the share coordinator has, offset by offset. It merges as Kafka's does."""

    def __init__(self, start_offset: int = 0) -> None:
        self.start_offset = start_offset
        self.states: dict[int, tuple[int, RecordState]] = {}
        """Count and state."""
        self.delivery_complete_count = 0

    def write(self, write: StateWrite) -> None:
        self.start_offset = max(self.start_offset, write.start_offset)
        for first, last, state, count in write.ranges:
            for offset in range(first, last + 1):
                old = self.states.get(offset, (0, RecordState.AVAILABLE))
                self.states[offset] = max(old, (count, state))
        self.states = {offset: each for offset, each in self.states.items() if offset >= self.start_offset}
        self.delivery_complete_count = write.delivery_complete_count

    def ranges(self) -> list[StateRange]:
        return [
            StateRange(offset, offset, state, count) for offset, (count, state) in sorted(self.states.items())
        ]


class ShareLeader:
    """A share partition on a log whose batches have ten records each, unless said otherwise."""

    def __init__(
        self,
        settings: ShareSettings = SETTINGS,
        *,
        batches: Sequence[tuple[int, int]] | None = None,
        read_to: int | None = None,
    ) -> None:
        self.batches = [(n, n + 9) for n in range(0, 1_000, 10)] if batches is None else list(batches)
        self.read_to = self.batches[-1][1] if read_to is None else read_to
        """The end of the log; batches after the last one have nothing for consumers."""
        self.stored = StoredShare()
        self.now_ms = 0
        self.settings = settings
        self.shares = self._loaded()

    def _loaded(self) -> SharePartition:
        return SharePartition(
            self.settings,
            start_offset=self.stored.start_offset,
            ranges=self.stored.ranges(),
            leader_epoch=1,
            state_epoch=1,
        )

    def change_leader(self) -> None:
        """Go on with what is persisted."""
        self.shares = self._loaded()

    def save(self) -> list[StateWrite]:
        """Write until everything is persisted."""
        writes = []
        while (write := self.shares.take_write()) is not None:
            self.stored.write(write)
            self.shares.write_done()
            writes.append(write)
        return writes

    def read(self, first: int) -> LogRead:
        batches = [batch for batch in self.batches if batch[1] >= first]
        return LogRead(first, self.read_to, batches)

    def fetch(
        self,
        member: str = "m",
        records_max: int = 10,
        *,
        batch_size: int = 500,
        is_record_limit: bool = False,
    ) -> Acquisition:
        """Acquire, and send nothing yet."""
        first = self.shares.next_fetch_offset()
        if first is None:
            return Acquisition([], 0)
        demand = Demand(records_max, batch_size, is_record_limit)
        return self.shares.acquire(member, self.read(first), demand, now_ms=self.now_ms)

    def take(
        self, member: str = "m", records_max: int = 10, *, is_record_limit: bool = False
    ) -> list[Acquired]:
        """Acquire and send, whatever is not persisted yet."""
        acquired = self.fetch(member, records_max, is_record_limit=is_record_limit)
        self.shares.sent(acquired.hold, acquired.ranges, now_ms=self.now_ms)
        return acquired.ranges

    def acknowledge(
        self, first: int, last: int, *types: int, member: str = "m", is_renew_request: bool = False
    ) -> ErrorCode:
        batch = AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
        return self.shares.acknowledge(
            member, [batch], is_renew_request=is_renew_request, now_ms=self.now_ms
        ).error

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        self.shares.expire(self.now_ms)

    def states(self) -> list[tuple[int, int, str, int]]:
        """First and last offset, state and count of every span."""
        return [(span.first, span.last, span.state.name, span.count) for span in self.shares.window.spans]
