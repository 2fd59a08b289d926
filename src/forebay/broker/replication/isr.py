"""The in-sync replicas of what this broker leads: what it proposes is written to the store.

A leader proposes: a follower that has caught up joins, one that lags leaves. Which ones these are is decided
in `core/partition/leadership.py`. Each proposal is a write that succeeds only if the partition is as
the leader knows it, the leader is still the broker it was, and so is each follower that joins. What the store
then says comes back with the image, like every other change.

When the outcome of a write is not known, a join goes on counting for the high watermark until a later write
has settled the matter.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from forebay.coordination.store import Compare, StoreError
from forebay.core.cluster.image_changes import Change, PartitionPut
from forebay.core.cluster.replicas.controller import hand_over
from forebay.core.cluster.replicas.isr_changes import with_isr
from forebay.errors import KafkaError, StorageError

if TYPE_CHECKING:
    from forebay.broker.background import Background
    from forebay.broker.broker_time import BrokerTime
    from forebay.broker.cluster.held_lease import HeldLease
    from forebay.broker.live_config import LiveConfig
    from forebay.broker.partition.partition import Partition
    from forebay.broker.partition.table import PartitionTable
    from forebay.broker.produce.flush import GroupCommit, Syncable
    from forebay.broker.produce.write_cycle import WriteCycle
    from forebay.broker.telemetry.metrics import Metrics
    from forebay.coordination.metadata import Metadata
    from forebay.core.cluster.partition_state import PartitionState
    from forebay.core.partition.leadership import Leadership

log = logging.getLogger(__name__)

_RETRY_S = 0.2
_CHECKS_PER_LIMIT = 4
_PARTITIONS_PER_STEP = 100


class InSyncReplicas:
    def __init__(
        self,
        *,
        node_id: int,
        settings: LiveConfig,
        metadata: Metadata,
        partitions: PartitionTable,
        write_cycle: WriteCycle,
        flush: GroupCommit,
        lease: HeldLease,
        heard_ms: dict[int, int],
        background: Background,
        metrics: Metrics,
        time: BrokerTime,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`heard_ms`: when each broker last fetched from this one, in uptime; `Followers` keeps it."""
        self._node_id = node_id
        self._settings = settings
        self._metadata = metadata
        self._partitions = partitions
        self._write_cycle = write_cycle
        self._flush = flush
        self._lease = lease
        self._heard_ms = heard_ms
        self._background = background
        self._metrics = metrics
        self._time = time
        self._loop = loop
        self._wanted: dict[Partition, None] = {}
        """Partitions whose in-sync set should be looked at."""
        self._work = asyncio.Event()

    def consider(self, partition: Partition) -> None:
        """A replica may join or leave: have the in-sync set looked at soon."""
        self._wanted[partition] = None
        self._work.set()

    def flush_failed(self, files: Syncable) -> None:
        """A log that is offline is a reason to let other replicas lead, without waiting for the next check.

        A log that may be flushed later is considered then: its leader, when alone, would at once flush it
        again. It is flushed with the others, at their next turn.
        """
        for partition in self._partitions.all():
            if partition.log.files is files:
                if partition.log.offline is not None:
                    self.consider(partition)
                if not partition.log.offline_for_good:
                    self._write_cycle.unsynced[partition] = None

    async def check_lag(self) -> None:
        """Look at every leadership now and then, for followers that fall behind without a sound."""
        interval_s = self._settings.current.replication.lag_ms_max / _CHECKS_PER_LIMIT / 1000
        while True:
            await asyncio.sleep(interval_s)
            led = [each for each in self._partitions.all() if each.leadership and each.leadership.has_others]
            for number, partition in enumerate(led):
                if self._may_propose(partition):
                    self.consider(partition)
                if number % _PARTITIONS_PER_STEP == 0:
                    await asyncio.sleep(0)

    async def run(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            partitions, self._wanted = list(self._wanted), {}
            try:
                await self._propose([each for each in partitions if self._may_propose(each)])
            except StoreError as error:
                log.warning("the in-sync replicas could not be written", extra={"reason": str(error)})
                for partition in partitions:
                    self.consider(partition)
                await asyncio.sleep(_RETRY_S)

    def _may_propose(self, partition: Partition) -> bool:
        """True if there is something to propose. An error over one partition must not hold up all others."""
        try:
            return self._proposal(partition) is not None
        except Exception as error:
            self._background.failed(f"looking at the in-sync replicas of {partition}", error)
            return False

    # -- proposing -----------------------------------------------------------------------------------

    async def _propose(self, partitions: list[Partition]) -> None:
        changes: list[Change] = []
        guards = [Compare.created(self._key(self._node_id), self._lease.epoch)]
        joined: dict[int, int] = {}
        for partition, state in await self._proposals(partitions):
            self._count(partition, state)
            joined.update(self._join(partition, state))
            changes.append(PartitionPut(topic_id=partition.topic_id, state=state))
        guards += [Compare.created(self._key(node), epoch) for node, epoch in joined.items()]
        failed = await self._metadata.change_all(changes, guards) if changes else []
        self._metrics.isr_updates_failed += len(failed)
        self.note_outcome(changes, failed)

    async def _proposals(self, partitions: list[Partition]) -> list[tuple[Partition, PartitionState]]:
        """The states to write for partitions, once that is safe; all wait for their syncs together."""
        found = [(partition, state) for partition in partitions if (state := self._proposal(partition))]
        safe = await asyncio.gather(*(self._safe_alone(partition, state) for partition, state in found))
        ready: list[tuple[Partition, PartitionState]] = []
        for (partition, state), is_safe in zip(found, safe, strict=True):
            now = self._proposal(partition)
            if is_safe and now == state:
                ready.append((partition, state))
            elif now is not None and now != state:
                self.consider(partition)  # something has happened meanwhile
        return ready

    def _count(self, partition: Partition, state: PartitionState) -> None:
        leadership, metrics = partition.leadership, self._metrics
        before = set(leadership.isr) if leadership is not None else set()
        metrics.isr_shrinks += bool(before - set(state.isr))
        metrics.isr_expands += bool(set(state.isr) - before)

    def _proposal(self, partition: Partition) -> PartitionState | None:
        """The state as it should be; None when it is so already, or this broker has no say."""
        leadership, image = partition.leadership, self._metadata.image
        state = image.partition(partition.topic, partition.index)
        if leadership is None or state is None or partition.closed:
            return None
        if state.leader != self._node_id or state.leader_epoch != leadership.leader_epoch:
            return None
        minimum = partition.config.min_insync_replicas
        if partition.log.offline is not None:
            # A broker that has lost its disk is registered until its lease ends. If it led, it would be the
            # only one in sync, and all would be lost with it: so only those take over that fetch from here.
            heard = [node for node in image.brokers if self._heard_of_lately(node)]
            return hand_over(state, self._node_id, heard, minimum=minimum)
        is_plain = state.isr == leadership.isr and not (state.eligible or state.synced)
        if is_plain and leadership.stays(
            end_offset=partition.log.end_offset,
            now_ms=self._time.uptime_ms(),
            lag_ms_max=self._settings.current.replication.lag_ms_max,
            heard_ms=self._heard_ms,
        ):
            return None
        after = with_isr(state, self._isr(partition, leadership), minimum)
        # While it is unknown whether a replica has joined, the same state is written again to find out.
        if after != state or leadership.joining:
            return after
        return replace(state, synced=True) if self._should_sync(state) else None

    def _should_sync(self, state: PartitionState) -> bool:
        """A leader that is left alone says when its disk has all that is committed: nothing more will be."""
        return bool(state.eligible) and state.isr == (self._node_id,) and not state.synced

    def _isr(self, partition: Partition, leadership: Leadership) -> tuple[int, ...]:
        late = leadership.lagging(
            end_offset=partition.log.end_offset,
            now_ms=self._time.uptime_ms(),
            lag_ms_max=self._settings.current.replication.lag_ms_max,
            heard_ms=self._heard_ms,
        )
        caught_up = [
            node
            for node, follower in leadership.followers.items()
            if node not in late
            and leadership.has_caught_up(node, partition.high_watermark)
            and self._heard_of_lately(node)
            and self._is_registered(node, follower.broker_epoch)
        ]
        stay = leadership.isr_without(late)
        return (*stay, *(node for node in caught_up if node not in stay))

    def _heard_of_lately(self, node: int) -> bool:
        """A follower that left because it was silent must not join again for what it had before."""
        heard_ms = self._heard_ms.get(node)
        lag_ms_max = self._settings.current.replication.lag_ms_max
        return heard_ms is not None and self._time.uptime_ms() - heard_ms <= lag_ms_max

    def _is_registered(self, node: int, epoch: int) -> bool:
        registration = self._metadata.image.brokers.get(node)
        return registration is not None and registration.epoch == epoch

    def _join(self, partition: Partition, state: PartitionState) -> dict[int, int]:
        """Count the replicas that are about to join; returns their broker epochs."""
        leadership = partition.leadership
        assert leadership is not None
        if state.leader != self._node_id:
            return {}  # it is handed over, to a replica that has everything already
        new = [node for node in state.isr if node not in leadership.isr]
        leadership.joining = tuple(dict.fromkeys((*leadership.joining, *new)))
        partition.count_replicas()
        return {node: leadership.followers[node].broker_epoch for node in new}

    async def _safe_alone(self, partition: Partition, state: PartitionState) -> bool:
        """Before this broker is the only one with the committed messages, they are synced to its disk."""
        alone = state.isr == (self._node_id,) and self._settings.current.storage.flush_on_ack
        if not alone and not state.synced:
            return True
        synced: asyncio.Future[StorageError | None] = self._loop.create_future()

        def done(error: StorageError | None) -> None:
            if not synced.done():
                synced.set_result(error)

        self._flush.wait(partition.log.files, done)
        return await synced is None

    def note_outcome(self, changes: list[Change], failed: list[Change]) -> None:
        """The image shows what was written; what was not is looked at again.

        The outcome of an earlier write may be unknown. A refused write settles it only if the partition has
        changed since. Otherwise the earlier write may still take effect, so the replicas that join by it
        still count.
        """
        refused = {id(change) for change in failed}
        for change in changes:
            assert isinstance(change, PartitionPut)
            try:
                topic = self._metadata.image.topic_names[change.topic_id]
                partition = self._partitions.held(topic, change.state.index)
            except (KeyError, KafkaError):
                continue
            leadership = partition.leadership
            if leadership is not None:
                if id(change) not in refused or self._is_overtaken(topic, change.state):
                    leadership.joining = ()
                partition.count_replicas()
                self._write_cycle.advance(partition)
                if id(change) in refused:
                    self._loop.call_later(_RETRY_S, self.consider, partition)
        if changes:
            self._write_cycle.finish_soon()

    def _is_overtaken(self, topic: str, state: PartitionState) -> bool:
        now = self._metadata.image.partition(topic, state.index)
        return now is None or now.partition_epoch != state.partition_epoch

    def _key(self, node: int) -> str:
        return self._metadata.keys.broker(node)
