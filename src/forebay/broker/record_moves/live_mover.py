"""A mover on this broker: does what `core/record_moves/mover.py` wants, and repeats what can work later.

A mover works when it is woken, until nothing waits. What is refused for now (a target without a leader, a
topic that does not exist yet) is tried again, with pauses that grow, for as long as the mover is wanted;
`problem` says meanwhile what it waits for. When another mover has taken over the journal, everything begins
again with what is journaled now, if this broker is still the one to do it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from forebay.broker.background import Background
from forebay.broker.coordinators.producer_ids import ProducerIds
from forebay.broker.record_moves.journal import MoveJournal
from forebay.broker.worker_threads import WorkerThreads
from forebay.coordination.metadata import Metadata
from forebay.core.record_moves.move import Move, MoverState
from forebay.core.record_moves.mover import (
    Action,
    Ask,
    Confirm,
    Identify,
    Journal,
    Moving,
    Open,
    Plan,
    Send,
    Sent,
    moving,
)
from forebay.errors import ErrorCode, KafkaError
from forebay.lazy import dataclass
from forebay.wire.batch import build_batch
from forebay.wire.compression import Codec
from forebay.wire.records import Record

log = logging.getLogger(__name__)

_RETRY_S = 0.05
_RETRY_S_MAX = 5.0
_FAILURE_S_MAX = 30.0
_OUT_OF_ORDER_S = 60.0
"""How long a target has to say that it lacks earlier batches before it is believed: a leader that was deposed
and does not know it yet may lack what its successor has."""
_REOPEN_S = 3600.0
"""A mover whose target cannot be written for this long opens its journal again, which otherwise would take it
for one whose source is gone."""
_PRODUCER_EPOCH = 0

T = TypeVar("T")


class Appends(Protocol):
    async def append(self, topic_id: bytes, index: int, batch: bytearray) -> None:
        """Returns once the batch is committed, be it by an earlier attempt. Raises KafkaError."""


class MoveSource(Protocol):
    """Where a mover gets its records from."""

    async def plan(self) -> Move | None:
        """The next move, None if nothing waits. Raises KafkaError if it cannot be moved now."""

    def wants(self, move: Move) -> bool:
        """True if records of a move that was journaled before still wait to be moved."""

    async def records(self, move: Move, *, is_too_large: bool) -> Sequence[Record]:
        """As many as the move counts. `is_too_large`: the target has refused them for their size; then they
        are to be as small as can be, and are compressed."""

    async def confirm(self, move: Move) -> None:
        """Returns once it is persisted that these are moved. Raises KafkaError."""


class Build(Protocol):
    """Makes the batch of a pending move, under its numbers. In a thread."""

    def __call__(
        self, records: Sequence[Record], state: MoverState, /, *, is_too_large: bool
    ) -> bytearray: ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MoverHost:
    """The parts of the broker that every mover needs."""

    journal: MoveJournal
    appends: Appends
    producer_ids: ProducerIds
    metadata: Metadata
    workers: WorkerThreads
    background: Background


class _Unwanted(Exception):
    """This mover is not to go on."""


class LiveMover:
    def __init__(
        self,
        mover_id: str,
        term: int,
        source: MoveSource,
        host: MoverHost,
        *,
        wanted: Callable[[], bool],
        rested: Callable[[], None],
        build: Build | None = None,
    ) -> None:
        """`wanted` says whether this broker is still the one to move these records; `rested` is called when
        nothing is left to do. `build` makes the batch, if it is no ordinary one."""
        self.mover_id = mover_id
        self.problem = ""
        """Why it waits; empty while it does not."""
        self._doing = f"moving records for {mover_id}"
        self._term = term
        self._source = source
        self._host = host
        self._wanted = wanted
        self._state: MoverState | None = None
        self._rested = rested
        self._build = build or _whole_batch
        self.is_at_work = False
        self._is_woken = False

    def wake(self) -> None:
        """Something may wait to be moved."""
        self._is_woken = True
        if not self.is_at_work:
            self.is_at_work = True
            self._host.background.spawn(self._run(), self._doing)

    async def _run(self) -> None:
        try:
            while self._is_woken:
                self._is_woken = False
                self._state = await self._retried(self._move_all)
        except _Unwanted:
            pass
        finally:
            self.is_at_work = False
            self.problem = ""
        self._rested()

    async def _move_all(self) -> MoverState:
        """Raises KafkaError if another mover has taken over, and everything has to begin again."""
        state, self._state = self._state, None
        work = moving(state)
        try:
            return await self._carry_out(work)
        finally:
            work.close()

    async def _carry_out(self, work: Moving) -> MoverState:
        action = next(work)
        while True:
            outcome = await self._perform(action)
            try:
                action = work.send(outcome)
            except StopIteration as end:
                state: MoverState = end.value
                return state

    async def _perform(self, action: Action) -> Any:
        host, source = self._host, self._source
        match action:
            case Open():
                return await self._retried(partial(host.journal.open, self.mover_id, self._term))
            case Journal(state):
                return await self._retried(partial(host.journal.write, self.mover_id, state), _is_fenced)
            case Identify():
                return await self._retried(host.producer_ids.next)
            case Plan():
                return await self._retried(source.plan)
            case Ask(move):
                return source.wants(move) and not self._is_gone(move)
            case Send(state):
                return await self._send(state)
            case Confirm(move):
                return await self._retried(partial(source.confirm, move))

    # -- sending ---------------------------------------------------------------------------------------

    async def _send(self, state: MoverState) -> Sent:
        assert state.pending is not None
        loop = asyncio.get_running_loop()
        reopen_s = loop.time() + _REOPEN_S
        is_too_large = False
        lost_since_s: float | None = None

        async def attempt() -> Sent:
            nonlocal is_too_large, lost_since_s
            try:
                return await self._send_once(state, is_too_large=is_too_large)
            except KafkaError as error:
                is_too_large = is_too_large or error.code == ErrorCode.MESSAGE_TOO_LARGE
                if error.code != ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    lost_since_s = None
                    raise
                if lost_since_s is None:
                    lost_since_s = loop.time()
                if loop.time() - lost_since_s > _OUT_OF_ORDER_S:
                    return Sent.OUT_OF_ORDER
                raise

        return await self._retried(attempt, lambda _: loop.time() > reopen_s)

    async def _send_once(self, state: MoverState, *, is_too_large: bool) -> Sent:
        move, host = state.pending, self._host
        assert move is not None
        if self._is_gone(move):
            return Sent.TARGET_GONE
        records = await self._source.records(move, is_too_large=is_too_large)
        batch = await host.workers.run(partial(self._build, records, state, is_too_large=is_too_large))
        if not self._wanted():
            raise _Unwanted
        await host.appends.append(move.topic_id, move.partition, batch)
        return Sent.COMMITTED

    def _is_gone(self, move: Move) -> bool:
        """True if the target was deleted; an image from before the move was planned may not have it yet."""
        image = self._host.metadata.image
        return image.revision >= move.revision and not image.may_have(move.topic_id)

    # -- patience --------------------------------------------------------------------------------------

    async def _retried(
        self,
        attempt: Callable[[], Awaitable[T]],
        is_final: Callable[[KafkaError], bool] = lambda _: False,
    ) -> T:
        """Repeat until it works. Raises _Unwanted, and the errors that are final.

        A bug does not end it either: it is logged and counted, and the records wait.
        """
        delay_s = _RETRY_S
        while self._wanted():
            delay_s_max = _RETRY_S_MAX
            try:
                outcome = await attempt()
            except _Unwanted:
                raise
            except KafkaError as error:
                if is_final(error):
                    raise
                self._waits_for(error.message)
            except Exception as error:
                delay_s_max = _FAILURE_S_MAX
                self.problem = f"{type(error).__name__}: {error}"
                self._host.background.failed(self._doing, error, again_in_s=delay_s)
            else:
                self.problem = ""
                return outcome
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, delay_s_max)
        raise _Unwanted

    def _waits_for(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            log.warning("records cannot be moved now", extra={"mover": self.mover_id, "reason": problem})


def _whole_batch(records: Sequence[Record], state: MoverState, *, is_too_large: bool) -> bytearray:
    assert state.pending is not None and len(records) == state.pending.record_count, "a repeat has as many"
    return build_batch(
        records,
        producer_id=state.producer_id,
        producer_epoch=_PRODUCER_EPOCH,
        base_sequence=state.next_sequence,
        codec=Codec.GZIP if is_too_large else Codec.NONE,
    )


def _is_fenced(error: KafkaError) -> bool:
    return error.code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.INVALID_REQUEST)
