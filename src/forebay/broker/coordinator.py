"""The one runtime for all coordinators: runs pure machines on the partitions of an internal topic.

A machine answers an operation with a Step. Its records are appended to the partition's log, as one batch, and
replayed into the machine at once, so that the next operation sees them; its replies and effects are held back
until the records are committed. A step without records that comes meanwhile waits for those before it: nobody
is told what a crash could still take back.

A machine lives for one *term*: as long as this broker leads the partition in one leader epoch, and enough
replicas are in sync for anything to be promised. When a term begins the machine is built by replaying the
partition from its start to its end. Until that is done, who asks is told to come back
(COORDINATOR_LOAD_IN_PROGRESS). What was loaded may not be committed yet, so replies wait for that too.

When the term ends the machine is thrown away, and nothing more is appended, delivered or done for it. The
same happens when its log cannot be written or a commit fails: the machine is ahead of what is certain. Its
records may be in the log all the same and be committed later; so the next machine is built from the log, and
who waited for an answer is told to ask again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

from forebay.broker.administration import new_topic_id
from forebay.broker.appends import ACKS_ALL, Appended, Unacknowledged
from forebay.broker.shard import Commit, EndTransaction, M, Shard, Ticket, can_coordinate
from forebay.core.image import NO_LEADER
from forebay.core.step import Effect, RequestInfo, Step
from forebay.core.topics import NewTopic, create_topic
from forebay.errors import ErrorCode, ForebayError, KafkaError
from forebay.wire.batch import TRANSACTIONAL, EndTxnMarker, build_batch
from forebay.wire.fields import Request, Response
from forebay.wire.hashing import partition_for
from forebay.wire.records import Record

if TYPE_CHECKING:
    from forebay.broker.broker import Broker

log = logging.getLogger(__name__)

_BATCHES_PER_TURN = 64
"""While loading, after so many batches the loop serves others."""
_RELOAD_DELAY_S = 1.0
_LEASE_DELAY_S = 0.1
_TERM_OVER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

Failure = Callable[[Request, RequestInfo, ErrorCode], Response]


class Coordinator(Generic[M]):
    def __init__(
        self,
        broker: Broker,
        *,
        topic: str,
        partitions: int,
        configs: dict[str, str],
        make: Callable[[int], M],
        failure: Failure,
        perform: Callable[[Effect], None],
        end_transaction: EndTransaction[M] | None = None,
        catch_up: Callable[[M], Step] | None = None,
    ) -> None:
        """`make` gives the machine of a leader epoch; `failure` the answer to a request that no machine could
        take; `end_transaction` tells a machine that a producer's transaction on its partition has ended;
        `catch_up` what happened in the cluster while it was loaded.
        """
        self._broker = broker
        self.topic = topic
        self._default_partitions = partitions
        self._configs = configs
        self._make = make
        self._perform = perform
        self._end_transaction = end_transaction
        self._catch_up = catch_up
        self._failure = failure
        self._shards: dict[int, Shard[M]] = {}
        self._again: asyncio.TimerHandle | None = None
        self._closed = False

    # -- asking --------------------------------------------------------------------------------------

    async def ask(
        self, key: str, request: Request, info: RequestInfo, operation: Callable[[M, Ticket], Step]
    ) -> Any:
        """The response of the machine that looks after a group id or transactional id."""
        return await self.ask_at(self.partition_for(key), request, info, operation)

    async def ask_at(
        self, index: int, request: Request, info: RequestInfo, operation: Callable[[M, Ticket], Step]
    ) -> Any:
        try:
            shard = self.at(index)
        except KafkaError as error:
            return self._failure(request, info, error.code)
        ticket = Ticket(request, info, self._broker.loop.create_future())
        shard.tickets[ticket] = None
        self.carry_out(shard, operation(shard.machine, ticket))
        return await ticket.answer

    @property
    def partition_count(self) -> int:
        topic = self._broker.image.topics.get(self.topic)
        return len(topic.partitions) if topic else self._default_partitions

    def partition_for(self, key: str) -> int:
        return partition_for(key, self.partition_count)

    def leader_of(self, key: str) -> int:
        """The broker that looks after a group id or transactional id; raises KafkaError while none does."""
        state = self._broker.image.partition(self.topic, self.partition_for(key))
        if state is None or state.leader == NO_LEADER:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no broker coordinates {key!r} now; try again"
            )
        return state.leader

    def at(self, index: int) -> Shard[M]:
        """The shard on a partition; raises KafkaError while it cannot answer."""
        if not self._broker.membership.valid():
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
        """The shard on a partition if it has been loaded, whether or not it may answer at this moment."""
        shard = self._shards.get(index)
        return shard if shard is not None and shard.ready else None

    def _absent(self, index: int) -> KafkaError:
        state = self._broker.image.partition(self.topic, index)
        if state is None or state.leader != self._broker.node_id:
            return KafkaError(ErrorCode.NOT_COORDINATOR, f"{self.topic}-{index} is not coordinated here")
        return KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic}-{index} cannot be written now; try again"
        )

    def ready_shards(self) -> list[Shard[M]]:
        return [shard for shard in self._shards.values() if shard.ready]

    @property
    def loading(self) -> bool:
        """Whether there are groups or transactions that this broker should know of and does not yet."""
        topic, node_id = self._broker.image.topics.get(self.topic), self._broker.node_id
        led = [state.index for state in topic.partitions if state.leader == node_id] if topic else []
        return len(self.ready_shards()) < len(led)

    # -- following the image -------------------------------------------------------------------------

    async def ensure_topic(self) -> None:
        """Create the internal topic on first use; raises KafkaError COORDINATOR_NOT_AVAILABLE."""
        if self.topic in self._broker.image.topics:
            return
        new = NewTopic(
            name=self.topic,
            topic_id=new_topic_id(self._broker),
            num_partitions=self._default_partitions,
            configs=self._configs,
        )
        try:
            await self._broker.metadata.change(lambda image: create_topic(image, self._broker.config, new))
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # another broker was faster
                raise KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.topic} could not be created: {error.message}"
                ) from error

    def follow(self) -> None:
        """Let go of shards whose term is over, and take up partitions that this broker has come to lead."""
        for shard in list(self._shards.values()):
            if not shard.in_term:
                self._let_go(shard, self._absent(shard.partition.index).code)
        if not self._broker.membership.valid():
            self._follow_later(_LEASE_DELAY_S)  # nothing could be committed now
            return
        topic = self._broker.image.topics.get(self.topic)
        for index in range(len(topic.partitions) if topic and not self._closed else 0):
            if index not in self._shards:
                self._take_up(index)

    def _follow_later(self, delay_s: float) -> None:
        if self._again is None and not self._closed:
            self._again = self._broker.loop.call_later(delay_s, self._follow_again)

    def _follow_again(self) -> None:
        self._again = None
        self.follow()

    def _take_up(self, index: int) -> None:
        try:
            partition = self._broker.replicas.get(self.topic, index)
        except KafkaError:
            return  # another broker leads it, or its log is broken; clients are told when they ask
        if not can_coordinate(partition):
            return
        shard = self._shards[index] = Shard(partition, self._make(partition.leader_epoch))
        partition.on_marker = lambda marker: self._marked(shard, marker)
        if partition.log.end_offset == partition.log.start_offset:
            self._begin(shard)  # nothing to replay: ready at once, for the client that waits for it
        else:
            self._broker.spawn(self._load(shard))

    def _is_current(self, shard: Shard[M]) -> bool:
        return self._shards.get(shard.partition.index) is shard

    # -- loading -------------------------------------------------------------------------------------

    async def _load(self, shard: Shard[M]) -> None:
        count = 0
        try:
            for _ in shard.replay_log(self._end_transaction):
                count += 1
                if count % _BATCHES_PER_TURN == 0:
                    await asyncio.sleep(0)
                    if not self._is_current(shard):
                        return
        except ForebayError as error:
            log.error(
                "an internal partition cannot be read; its groups or transactions cannot be served",
                extra={"partition": str(shard.partition), "reason": str(error)},
            )
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
            self._end_transaction(shard.machine, marker)
            self._await_commit(shard, Commit([], []))  # nobody is told of it before

    def _begin(self, shard: Shard[M]) -> None:
        shard.ready = True
        if shard.partition.log.end_offset > shard.partition.log.start_offset:
            self._await_commit(shard, Commit([], []))
        self.carry_out(shard, shard.machine.loaded(self._broker.now()))
        if self._catch_up is not None and shard.ready:
            self.carry_out(shard, self._catch_up(shard.machine))

    # -- running -------------------------------------------------------------------------------------

    def carry_out(self, shard: Shard[M], step: Step) -> None:
        """Do what an operation of the shard's machine has answered with."""
        commit = Commit(step.replies, step.effects)
        if step.records:
            try:
                self._append(shard, step)
            except KafkaError as error:
                self._fail(shard, error)
                return
            self._await_commit(shard, commit)
        elif shard.last is not None:
            shard.last.followers.append(commit)
        else:
            self._deliver(shard, commit)
        self._schedule(shard, step.deadline_ms)

    def _append(self, shard: Shard[M], step: Step) -> None:
        if not shard.in_term:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{shard.partition} is led by another now")
        now_ms = self._broker.now_ms()
        producer_id, epoch = step.producer or (-1, -1)
        batch = memoryview(
            build_batch(
                [Record(i, now_ms, key, value) for i, (key, value) in enumerate(step.records)],
                producer_id=producer_id,
                producer_epoch=epoch,
                attributes=TRANSACTIONAL if step.producer else 0,
            )
        )
        shard.partition.append_own(batch)
        self._broker.appends.queued(shard.partition, len(batch))
        producer = (producer_id,) if step.producer else ()
        for record in step.records:
            shard.machine.replay(record, *producer)

    def _await_commit(self, shard: Shard[M], commit: Commit) -> None:
        shard.last = commit
        result = Appended(shard.partition.index, shard.partition)

        def settle() -> None:
            if not shard.ready:
                return
            if result.error_code != ErrorCode.NONE:
                code = ErrorCode(result.error_code)
                self._fail(shard, KafkaError(code, result.error_message or "not committed"))
                return
            if shard.last is commit:
                shard.last = None
            self._deliver(shard, commit)

        self._broker.appends.add(Unacknowledged([result], ACKS_ALL, settle))
        self._broker.appends.finish_soon()

    def _deliver(self, shard: Shard[M], commit: Commit) -> None:
        for ticket, response in commit.replies:
            shard.tickets.pop(ticket, None)
            ticket.resolve(response)
        for effect in commit.effects:
            self._perform(effect)
        for follower in commit.followers:
            self._deliver(shard, follower)

    # -- time ----------------------------------------------------------------------------------------

    def _schedule(self, shard: Shard[M], deadline_ms: int | None) -> None:
        if shard.timer is not None:
            shard.timer.cancel()
            shard.timer = None
        if deadline_ms is not None:
            delay_s = max(deadline_ms - self._broker.uptime_ms(), 0) / 1000
            shard.timer = self._broker.loop.call_later(delay_s, self._tick, shard)

    def _tick(self, shard: Shard[M]) -> None:
        shard.timer = None
        if shard.ready and shard.in_term:
            self.carry_out(shard, shard.machine.tick(self._broker.now()))

    # -- failing -------------------------------------------------------------------------------------

    def _fail(self, shard: Shard[M], error: KafkaError) -> None:
        """The machine is ahead of what is certain: throw it away, and read the log again a little later."""
        if error.code in _TERM_OVER:
            self._let_go(shard, ErrorCode.NOT_COORDINATOR)
        else:
            log.error(
                "an internal partition cannot be written",
                extra={"partition": str(shard.partition), "reason": error.message},
            )
            self._let_go(shard, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._follow_later(_RELOAD_DELAY_S)

    def _let_go(self, shard: Shard[M], error: ErrorCode) -> None:
        if self._is_current(shard):
            del self._shards[shard.partition.index]
            shard.partition.on_marker = None
        shard.ready = False
        self._schedule(shard, None)
        tickets, shard.tickets = shard.tickets, {}
        for ticket in tickets:
            ticket.resolve(self._failure(ticket.request, ticket.info, error))

    def close(self) -> None:
        """Stop all clocks; who still waits is told to find another coordinator."""
        self._closed = True
        if self._again is not None:
            self._again.cancel()
        for shard in list(self._shards.values()):
            self._let_go(shard, ErrorCode.NOT_COORDINATOR)
