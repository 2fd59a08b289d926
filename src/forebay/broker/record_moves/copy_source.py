"""The records of one partition that is to be folded, as a mover's source (`core/record_moves/closing.py`).

How far they are copied stands in the mover's journal and nowhere else: its pending move is the last one that
was begun. It is replaced by the next, until the topic's record says that the partition is closed. So a new
leader goes on where the last one was, and nothing is copied twice.

Of the records that are there when a round begins, only the last of each key is copied. If all were, and the
leader changed between the copy of a value and that of its deletion, the next leader might not have the
deletion any more: each replica forgets deletions by itself. For the same reason none forgets any while it is
copied (`upkeep/compaction.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from forebay.broker.broker_time import BrokerTime
from forebay.broker.live_config import LiveConfig
from forebay.broker.partition.fold_state import Hold
from forebay.broker.partition.partition import Partition
from forebay.broker.record_moves.copy_reads import CopyRead, latest_offsets, read_again, read_latest
from forebay.broker.record_moves.live_mover import MoverHost
from forebay.broker.telemetry.metrics import Metrics
from forebay.core.cluster.images.topic_folds import Folding
from forebay.core.cluster.topics.fewer_partitions import close_copied
from forebay.core.partition.compaction.offset_map import OffsetMap
from forebay.core.record_moves.closing import (
    HOLD_S_MAX,
    PAUSE_S,
    ClosingStep,
    Held,
    Pace,
    Progress,
    next_step,
)
from forebay.core.record_moves.key_copies import copied_batch, pack_offsets, placed_records, unpack_offsets
from forebay.core.record_moves.move import Move, MoverState
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass
from forebay.wire.compression import Codec
from forebay.wire.records import Record

log = logging.getLogger(__name__)

_WAIT_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CopyHost:
    """The parts of the broker that copying needs."""

    mover: MoverHost
    settings: LiveConfig
    metrics: Metrics
    time: BrokerTime
    loop: asyncio.AbstractEventLoop
    node_id: int


class CopySource:
    def __init__(self, partition: Partition, host: CopyHost) -> None:
        self._partition = partition
        self._host = host
        self._term = partition.leader_epoch
        self._position = partition.log.start_offset
        """Everything before it is copied. Until the journal has been opened, nothing is known to be."""
        self._read: tuple[bytes, CopyRead] | None = None
        """The records of the last move that was planned, with its entries: mostly it is sent next."""
        self._codec: int = Codec.NONE
        self._latest: OffsetMap | None = None
        self._paused_until_s = 0.0
        self._pace = Pace(partition.log.end_offset - self._position, host.loop.time())
        self._is_done = False
        """Closed: only the journal is still to be told."""

    @property
    def is_current(self) -> bool:
        """True if this broker still leads the partition, and has something left to do for it."""
        return self._is_led and (self._is_done or self._folding is not None)

    @property
    def _is_led(self) -> bool:
        partition = self._partition
        return partition.is_leader and not partition.closed and partition.leader_epoch == self._term

    @property
    def _folding(self) -> Folding | None:
        """Of the topic, while this partition is the one to be copied."""
        topic = self._host.mover.metadata.image.topic_by_id(self._partition.topic_id)
        folding = None if topic is None else topic.record.folding
        return folding if folding is not None and folding.next_copy == self._partition.index else None

    # -- planning --------------------------------------------------------------------------------------

    async def plan(self) -> Move | None:
        """The next records, or None when all are copied and the partition is closed. Raises KafkaError."""
        while True:
            folding = self._folding
            if folding is None or not self._is_led:
                raise self._partition.not_leader()
            match next_step(self._progress()):
                case ClosingStep.COPY:
                    move = await self._next_move(folding)
                    if move is not None:
                        return move
                case ClosingStep.DRAIN:
                    self._hold(is_full=False)
                case ClosingStep.HOLD:
                    self._hold(is_full=True)
                case ClosingStep.FINISH:
                    await self._finish()
                    return None
                case ClosingStep.WAIT:
                    await asyncio.sleep(_WAIT_S)

    def _progress(self) -> Progress:
        partition, hold = self._partition, self._partition.closing
        self._position = max(self._position, partition.log.start_offset)
        rest = partition.log.end_offset - self._position
        now_s = self._host.loop.time()
        return Progress(
            held=Held.NOT if hold is None else Held.FULLY if hold.is_full else Held.DRAINING,
            rest=rest,
            has_more=self._position < partition.last_stable_offset,
            in_transaction=bool(len(partition.producers.transactions)),
            is_followed=partition.is_followed,
            is_losing=self._pace.is_losing(rest, now_s),
            is_pausing=now_s < self._paused_until_s or self._has_waiting(),
        )

    def _has_waiting(self) -> bool:
        """True if delayed messages wait in the partition, from a time when its topic took such messages."""
        waiting = self._partition.delayed_messages
        return waiting is not None and waiting.may_have_messages

    async def _next_move(self, folding: Folding) -> Move | None:
        """None if there is nothing to copy up to where the log can be read."""
        partition, host = self._partition, self._host.mover
        read = await read_latest(partition.log, self._position, await self._latest_offsets(), host.workers)
        if not read.found:
            self._position = max(self._position, read.end)
            return None
        entries = pack_offsets(list(read.found))
        self._read, self._codec = (entries, read), read.codec
        return Move(
            topic_id=partition.topic_id,
            partition=folding.copied_into(partition.index),
            record_count=len(read.found),
            entries=entries,
            revision=host.metadata.image.revision,
        )

    async def _latest_offsets(self) -> OffsetMap:
        """Where each key is last, of what was committed when the last map had been copied."""
        latest, start = self._latest, self._position
        if latest is None or start >= latest.end_offset:
            cleaner = self._host.settings.current.cleaner
            log_, end = self._partition.log, self._partition.last_stable_offset
            workers = self._host.mover.workers
            latest = self._latest = await latest_offsets(log_, start, end, workers, cleaner.buffer_bytes)
        return latest

    # -- closing ---------------------------------------------------------------------------------------

    def _hold(self, *, is_full: bool) -> None:
        hold = self._partition.closing = Hold(leader_epoch=self._term, is_full=is_full)
        self._configure()
        self._host.loop.call_later(HOLD_S_MAX if hold.is_full else self._pace.drain_s, self._give_up, hold)

    def _give_up(self, hold: Hold) -> None:
        """Let producers go on, if this hold has not come to its end."""
        if self._partition.closing is hold and not hold.is_final and self._is_led:
            if not hold.is_full:
                self._pace.drain_failed()
            self._partition.closing = None
            self._configure()
            self._paused_until_s = self._host.loop.time() + PAUSE_S
            log.info("a partition stays open for now", extra={"partition": str(self._partition)})

    def _configure(self) -> None:
        storage = self._host.settings.current.storage
        self._partition.configure(self._partition.config, storage.decompress_max_bytes)

    async def _finish(self) -> None:
        """Close the partition for good. Whatever comes of it, it stays held until the record is known.

        Raises KafkaError.
        """
        partition, host = self._partition, self._host
        assert partition.closing is not None and partition.closing.is_full
        partition.closing.is_final = True
        plan = partial(
            close_copied,
            topic_id=partition.topic_id,
            index=partition.index,
            node_id=host.node_id,
            leader_epoch=self._term,
            now_ms=host.time.trusted_ms(),
        )
        await host.mover.metadata.change(plan)
        if self._folding is not None:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"that {partition} is closed is not known yet")
        self._is_done = True
        log.info("a partition is copied and closed", extra={"partition": str(partition)})

    # -- moving ----------------------------------------------------------------------------------------

    def wants(self, _move: Move) -> bool:
        return True

    async def records(self, move: Move, *, is_too_large: bool) -> Sequence[Record]:
        """Those that are left of the move, each at its place in the batch. Raises KafkaError."""
        del is_too_large  # the target takes whatever size the partition has taken
        offsets = unpack_offsets(move.entries)
        if self._read is not None and self._read[0] == move.entries:
            return placed_records(offsets, self._read[1].found)
        read = await read_again(self._partition.log, offsets, self._host.mover.workers)
        self._codec = read.codec
        return placed_records(offsets, read.found)

    def build(self, records: Sequence[Record], state: MoverState, /, *, is_too_large: bool) -> bytearray:
        """In a thread."""
        del is_too_large
        assert state.pending is not None
        return copied_batch(
            records,
            state.pending.record_count,
            producer_id=state.producer_id,
            base_sequence=state.next_sequence,
            codec=self._codec,
        )

    async def confirm(self, move: Move) -> None:
        self._position = unpack_offsets(move.entries)[-1] + 1
        self._read = None
        self._host.metrics.folded_copies += move.record_count
