"""The partitions of this broker, how they are written, and how far they may be read."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from forebay.broker.cluster.departure import Departure
from forebay.broker.fetch.offsets_by_time import OffsetsByTime
from forebay.broker.fetch.topic_delays import TopicDelays
from forebay.broker.partition.assignment.assignment import Assignment
from forebay.broker.partition.log_jobs import LogJobs
from forebay.broker.partition.long_polls import Arrivals
from forebay.broker.partition.opening.partition_opener import PartitionOpener
from forebay.broker.partition.table import PartitionTable
from forebay.broker.produce.flush import SYNC_THREADS, GroupCommit
from forebay.broker.produce.write_cycle import WriteCycle
from forebay.lazy import load

if TYPE_CHECKING:
    from forebay.broker.composition.foundations import Foundations
    from forebay.broker.partition.opening_waits import OpeningWaits

_OPENING_THREADS = 4
_LOG_THREADS = 2
_SEARCHING_THREADS = 2


class LocalPartitions:
    def __init__(self, base: Foundations) -> None:
        ports, loop, metadata, lease_valid = base.ports, base.loop, base.metadata, base.lease.valid
        self.arrivals = Arrivals()
        self.flush = GroupCommit(loop, base.metrics, ports.executor(SYNC_THREADS, "forebay-sync"))
        self.write_cycle = WriteCycle(
            self.flush,
            self.arrivals,
            base.metrics,
            sync_on_ack=base.settings.current.storage.flush_on_ack,
            lease_valid=lease_valid,
        )
        self.table = PartitionTable(metadata, node_id=base.node_id, lease_valid=lease_valid)
        self.departure = Departure(metadata, base.settings, base.node_id)
        self.opener = PartitionOpener(
            base.data,
            ports.disk,
            ports.clock,
            base.settings,
            base.metrics,
            ports.delay_indexes,
            self.flush.sync_soon,
        )
        self.assignment = Assignment(
            self.table,
            node_id=base.node_id,
            settings=base.settings,
            metadata=metadata,
            write_cycle=self.write_cycle,
            data=base.data,
            opener=self.opener,
            opening_pool=lambda: ports.executor(_OPENING_THREADS, "forebay-open"),
            closing_pool=lambda: ports.executor(SYNC_THREADS, "forebay-close"),
            jobs=LogJobs(loop, ports.executor(_LOG_THREADS, "forebay-logs")),
            workers=base.workers,
            background=base.background,
            departure=self.departure,
            time=base.time,
            loop=loop,
        )
        self.offsets_by_time = OffsetsByTime(
            loop, ports.clock, ports.executor(_SEARCHING_THREADS, "forebay-search")
        )
        self._base = base
        self.delays = TopicDelays(self.offsets_by_time, base.time, self.arrivals, base.background, loop)

    @cached_property
    def opening_waits(self) -> OpeningWaits:
        """Made with the first request for a partition."""
        base, make = self._base, load("forebay.broker.partition.opening_waits:OpeningWaits")
        authorization = base.authorization
        may_read = (lambda *_: True) if authorization is None else authorization.may_read
        waits: OpeningWaits = make(
            self.table, base.background, base.loop, self.write_cycle.finish_soon, may_read
        )
        self.assignment.settled.listen(waits.settled)
        return waits
