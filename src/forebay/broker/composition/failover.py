"""Noticing that another broker's process has ended, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from forebay.broker.cluster.failover.pending_failovers import PendingFailovers
from forebay.lazy import load

if TYPE_CHECKING:
    from forebay.broker.cluster.failover.failover_times import FailoverTimes
    from forebay.broker.cluster.failover.peer_watch import PeerWatch
    from forebay.broker.composition.foundations import Foundations

_FAILOVER = "forebay.broker.cluster.failover"


class Failover:
    def __init__(self, base: Foundations) -> None:
        self._base = base
        config = base.settings.current
        self.enabled = not config.cluster.embedded and config.controller.verdicts_per_minute_max > 0
        self.pending = PendingFailovers(base.metadata, self._broken_since, base.loop)

    @cached_property
    def times(self) -> FailoverTimes:
        base = self._base
        return load(f"{_FAILOVER}.failover_times:FailoverTimes")(
            node_id=base.node_id,
            metadata=base.metadata,
            store=base.store,
            metrics=base.metrics,
            time=base.time,
            loop=base.loop,
        )

    @cached_property
    def watch(self) -> PeerWatch:
        base = self._base
        verdicts = load(f"{_FAILOVER}.early_fencing:Verdicts")(
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
        return load(f"{_FAILOVER}.peer_watch:PeerWatch")(
            node_id=base.node_id,
            dialing=base.dialing,
            judge=verdicts.consider,
            background=base.background,
            loop=base.loop,
        )

    def close(self) -> None:
        if "watch" in vars(self):
            self.watch.close()

    def _broken_since(self) -> Mapping[int, float]:
        return self.watch.broken_since() if self.enabled else {}
