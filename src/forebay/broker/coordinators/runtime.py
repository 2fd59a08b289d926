"""The one runtime for all coordinators: runs pure machines on the partitions of an internal topic.

A machine answers an operation with a Step, which `steps` carries out: its records are appended to the
partition's log and replayed into the machine at once; its replies and effects are held back until the records
are committed, so that no client learns what a crash could still take back.

A machine lives for one *term*: as long as this broker leads the partition in one leader epoch, and enough
replicas are in sync to commit records. When a term begins the machine is built by replaying the partition
from its start to its end. Until that is done, requests are answered with COORDINATOR_LOAD_IN_PROGRESS, and
clients retry. Some of the replayed records may not be committed yet, so replies wait for them too.

When the term ends the machine is discarded, and nothing more is appended, delivered or done for it. The same
happens within a term when the log cannot be written or read, when a commit fails, and when the machine itself
raises: its state is ahead of the committed records, or half changed. Its records may be in the log all the
same and be committed later; so the next machine is built from the log. Pending requests are answered with an
error that clients retry, and so are requests that come before the next machine is built
(COORDINATOR_NOT_AVAILABLE). It is built after a pause, which is longer each time it fails again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NamedTuple

from forebay.broker.coordinators.host import CoordinatorHost
from forebay.broker.coordinators.loaded_shard import Commit, EndTransaction, M, Shard, Ticket, can_coordinate
from forebay.broker.coordinators.steps import FailureResponse, StepRunner
from forebay.broker.partition.partition import Partition
from forebay.core.cluster.partition_state import NO_LEADER
from forebay.core.step import Effect, RequestInfo, Step
from forebay.errors import ErrorCode, ForebayError, KafkaError
from forebay.wire.batch import EndTxnMarker
from forebay.wire.coordinator_partition import partition_for
from forebay.wire.fields import Request

log = logging.getLogger(__name__)

_RELOAD_S = 1.0
_RELOAD_S_MAX = 30.0
"""The longest pause before a failed machine is built again; the pause doubles each time."""
_LEASE_DELAY_S = 0.1
_TERM_OVER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class _Pause(NamedTuple):
    """The pause after a machine has failed: its partition is led here, but not coordinated."""

    leader_epoch: int
    failures: int
    until_s: float


class Coordinator(Generic[M]):
    def __init__(
        self,
        host: CoordinatorHost,
        *,
        topic: str,
        partitions: int,
        configs: dict[str, str],
        make: Callable[[Partition], M],
        failure: FailureResponse,
        perform: Callable[[Effect], None],
        end_transaction: EndTransaction[M] | None = None,
        catch_up: Callable[[M], Step] | None = None,
    ) -> None:
        """`make` returns the machine of a partition in its present leader epoch; `failure` the response to a
        request that no machine could take. `end_transaction` notifies a machine that a producer's transaction
        on its partition has ended; `catch_up` of changes in the cluster while it was loaded.
        """
        self._host = host
        self.topic = topic
        self._default_partitions = partitions
        self._configs = configs
        self._make = make
        self._end_transaction = end_transaction
        self._catch_up = catch_up
        self._failure = failure
        self._steps = StepRunner[M](
            host.write_cycle,
            host.time,
            host.loop,
            failure=failure,
            perform=perform,
            unwritable=self._unwritable,
            broken=self._broken,
        )
        self._shards: dict[int, Shard[M]] = {}
        self._pauses: dict[int, _Pause] = {}
        self._again: asyncio.TimerHandle | None = None
        self._closed = False

    # -- asking --------------------------------------------------------------------------------------

    async def ask(
        self, key: str, request: Request, info: RequestInfo, operation: Callable[[M, Ticket], Step]
    ) -> Any:
        """The response of the machine that coordinates a group id or transactional id."""
        return await self.ask_at(self.partition_for(key), request, info, operation)

    async def ask_at(
        self, index: int, request: Request, info: RequestInfo, operation: Callable[[M, Ticket], Step]
    ) -> Any:
        try:
            shard = self.at(index)
        except KafkaError as error:
            return self._failure(request, info, error.code)
        ticket = Ticket(request, info, self._host.loop.create_future())
        shard.tickets[ticket] = None
        self.run(shard, type(request).__name__, lambda machine: operation(machine, ticket))
        return await ticket.answer

    def run(self, shard: Shard[M], doing: str, decide: Callable[[M], Step]) -> None:
        """Have the shard's machine decide something that no client has requested, and carry it out."""
        self._steps.run(shard, doing, decide)

    @property
    def partition_count(self) -> int:
        topic = self._host.metadata.image.topics.get(self.topic)
        return len(topic.partitions) if topic else self._default_partitions

    def partition_for(self, key: str) -> int:
        return partition_for(key, self.partition_count)

    def leader_of(self, key: str) -> int:
        """The broker that coordinates a group id or transactional id; raises KafkaError while none does."""
        state = self._host.metadata.image.partition(self.topic, self.partition_for(key))
        if state is None or state.leader == NO_LEADER:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no broker coordinates {key!r} now; try again"
            )
        return state.leader

    def at(self, index: int) -> Shard[M]:
        """The shard on a partition; raises KafkaError while it cannot answer."""
        if not self._host.lease.valid():
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker has lost touch with its cluster; try again"
            )
        shard = self._shards.get(index)
        if shard is None:
            raise self._absent(index)
        if not shard.ready:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self.topic}-{index} is being loaded; try again"
            )
        return shard

    def running(self, index: int) -> Shard[M] | None:
        """The shard on a partition if it is loaded, even if it may not answer at this moment."""
        shard = self._shards.get(index)
        return shard if shard is not None and shard.ready else None

    def _absent(self, index: int) -> KafkaError:
        state = self._host.metadata.image.partition(self.topic, index)
        if state is None or state.leader != self._host.node_id:
            return KafkaError(ErrorCode.NOT_COORDINATOR, f"{self.topic}-{index} is not coordinated here")
        return KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic}-{index} cannot be written now; try again"
        )

    def ready_shards(self) -> list[Shard[M]]:
        return [shard for shard in self._shards.values() if shard.ready]

    @property
    def availability(self) -> ErrorCode:
        """NONE if this broker can answer for all partitions that it leads, otherwise the error code."""
        topic, node_id = self._host.metadata.image.topics.get(self.topic), self._host.node_id
        led = [state.index for state in topic.partitions if state.leader == node_id] if topic else []
        absent = [index for index in led if self.running(index) is None]
        if any(index in self._shards or index not in self._pauses for index in absent):
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.COORDINATOR_NOT_AVAILABLE if absent else ErrorCode.NONE

    # -- following the image -------------------------------------------------------------------------

    async def ensure_topic(self) -> None:
        """Create the internal topic on first use; raises KafkaError COORDINATOR_NOT_AVAILABLE."""
        if self.topic in self._host.metadata.image.topics:
            return
        changes = self._host.topic_changes
        try:
            await changes.create(self.topic, num_partitions=self._default_partitions, configs=self._configs)
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic} could not be created: {error.message}"
                ) from error
            await changes.all_open()  # another broker was faster: its topic may not be open here yet

    def follow(self) -> None:
        """Discard shards whose term is over, and load partitions that this broker leads now."""
        for shard in list(self._shards.values()):
            if not shard.in_term:
                self._let_go(shard, self._absent(shard.partition.index).code)
        if not self._host.lease.valid():
            self._follow_later(_LEASE_DELAY_S)  # nothing could be committed now
            return
        topic = self._host.metadata.image.topics.get(self.topic)
        for index in range(len(topic.partitions) if topic and not self._closed else 0):
            if index not in self._shards:
                self._try_to_take_up(index)

    def _follow_later(self, delay_s: float) -> None:
        at_s = self._host.loop.time() + delay_s
        if self._closed or (self._again is not None and self._again.when() <= at_s):
            return
        if self._again is not None:
            self._again.cancel()
        self._again = self._host.loop.call_at(at_s, self._follow_again)

    def _follow_again(self) -> None:
        self._again = None
        self.follow()

    def _try_to_take_up(self, index: int) -> None:
        try:
            self._take_up(index)
        except Exception as error:  # of one partition; the others are taken up all the same
            self._host.background.failed(f"taking up {self.topic}-{index}", error)
            self._follow_later(_RELOAD_S_MAX)

    def _take_up(self, index: int) -> None:
        try:
            partition = self._host.partitions.get(self.topic, index)
        except KafkaError:
            return  # another broker leads it, or its log is broken; requests get the error
        if not can_coordinate(partition) or self._pauses_at(partition):
            return
        shard = self._shards[index] = Shard(partition, self._make(partition))
        partition.on_marker = lambda marker: self._marked(shard, marker)
        if partition.log.end_offset == partition.log.start_offset:
            self._begin(shard)  # nothing to replay: ready at once, for the client that waits for it
        else:
            self._host.background.spawn(self._load(shard), f"loading the coordinator of {partition}")

    def _pauses_at(self, partition: Partition) -> bool:
        """True if the last machine of this term has failed, and the next is not due yet."""
        pause = self._pauses.get(partition.index)
        if pause is None or pause.leader_epoch != partition.leader_epoch:
            self._pauses.pop(partition.index, None)
            return False
        left_s = pause.until_s - self._host.loop.time()
        if left_s > 0:
            self._follow_later(left_s)
        return left_s > 0

    def _is_current(self, shard: Shard[M]) -> bool:
        return self._shards.get(shard.partition.index) is shard

    # -- loading -------------------------------------------------------------------------------------

    async def _load(self, shard: Shard[M]) -> None:
        try:
            goes_on = partial(self._is_current, shard)
            count = await shard.replay_log(self._host.readers, self._end_transaction, goes_on)
        except Exception as error:
            self._broken(shard, "loading", error)
            return
        if not self._is_current(shard):
            return
        log.info(
            "coordinator loaded",
            extra={
                "partition": str(shard.partition),
                "leader_epoch": shard.leader_epoch,
                "batches": count,
            },
        )
        self._begin(shard)

    def _marked(self, shard: Shard[M], marker: EndTxnMarker) -> None:
        if shard.ready and self._end_transaction is not None:  # while loading it is read from the log
            self._steps.marked(shard, marker, self._end_transaction)

    def _begin(self, shard: Shard[M]) -> None:
        shard.ready = True
        shard.began_s = self._host.loop.time()
        if shard.partition.log.end_offset > shard.partition.log.start_offset:
            self._steps.await_commit(shard, Commit([], []))
        self.run(shard, "beginning", lambda machine: machine.loaded(self._host.time.now()))
        if self._catch_up is not None and shard.ready:
            self.run(shard, "catching up", self._catch_up)

    # -- failing -------------------------------------------------------------------------------------

    def _unwritable(self, shard: Shard[M], error: KafkaError) -> None:
        """Discard a machine whose records cannot be appended or committed: its state is ahead of its log."""
        if error.code in _TERM_OVER:
            self._let_go(shard, ErrorCode.NOT_COORDINATOR)
            self._follow_later(_RELOAD_S)
            return
        log.error(
            "an internal partition cannot be written; its coordinator is loaded again",
            extra={"partition": str(shard.partition), "reason": error.message},
        )
        self._pause(shard)

    def _broken(self, shard: Shard[M], doing: str, error: Exception) -> None:
        """Discard a machine that has raised, or whose log cannot be read: its state may be half changed."""
        if not self._is_current(shard):
            return
        self._host.metrics.coordinator_failures += 1
        log.error(
            "a coordinator failed; it is loaded again from its log",
            extra={
                "partition": str(shard.partition),
                "doing": doing,
                "reason": f"{type(error).__name__}: {error}",
            },
            exc_info=None if isinstance(error, ForebayError) else error,
        )
        self._pause(shard)

    def _pause(self, shard: Shard[M]) -> None:
        """Discard the machine, and read the log again after a pause."""
        index, now_s = shard.partition.index, self._host.loop.time()
        before = self._pauses.get(index)
        has_worked = shard.ready and now_s - shard.began_s > _RELOAD_S_MAX
        failures = 0 if before is None or has_worked else before.failures
        delay_s = min(_RELOAD_S * 2**failures, _RELOAD_S_MAX)
        self._pauses[index] = _Pause(shard.leader_epoch, failures + 1, now_s + delay_s)
        self._let_go(shard, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._follow_later(delay_s)

    def _let_go(self, shard: Shard[M], error: ErrorCode) -> None:
        if self._is_current(shard):
            del self._shards[shard.partition.index]
            shard.partition.on_marker = None
        shard.ready = False
        self._steps.schedule(shard, None)
        tickets, shard.tickets = shard.tickets, {}
        for ticket in tickets:
            ticket.resolve(self._failure(ticket.request, ticket.info, error))

    def close(self) -> None:
        """Cancel all timers, and answer pending requests with NOT_COORDINATOR: clients find the next one."""
        self._closed = True
        if self._again is not None:
            self._again.cancel()
        for shard in list(self._shards.values()):
            self._let_go(shard, ErrorCode.NOT_COORDINATOR)
