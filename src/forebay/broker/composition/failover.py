"""Noticing that another broker's process has ended, and what follows from it."""

from __future__ import annotations

from forebay.broker.cluster.early_fencing import Verdicts
from forebay.broker.cluster.failover_times import FailoverTimes
from forebay.broker.cluster.peer_watch import PeerWatch
from forebay.broker.cluster.pending_failovers import PendingFailovers
from forebay.broker.composition.foundations import Foundations


class Failover:
    def __init__(self, base: Foundations) -> None:
        config = base.settings.current
        self.enabled = not config.cluster.embedded and config.controller.verdicts_per_minute_max > 0
        self.times = FailoverTimes(
            node_id=base.node_id,
            metadata=base.metadata,
            store=base.store,
            metrics=base.metrics,
            time=base.time,
            loop=base.loop,
        )
        verdicts = Verdicts(
            node_id=base.node_id,
            settings=base.settings,
            metadata=base.metadata,
            store=base.store,
            lease=base.lease,
            times=self.times,
            metrics=base.metrics,
            background=base.background,
            loop=base.loop,
        )
        self.watch = PeerWatch(
            node_id=base.node_id,
            dialing=base.dialing,
            judge=verdicts.consider,
            background=base.background,
            loop=base.loop,
        )
        self.pending = PendingFailovers(base.metadata, self.watch.broken_since, base.loop)
