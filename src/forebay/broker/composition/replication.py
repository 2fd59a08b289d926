"""Replication: fetching from the leaders of other brokers, and what is known of the followers here."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from forebay.broker.replication.fetchers import Following
from forebay.broker.replication.follower_tracking import Followers
from forebay.broker.replication.isr import InSyncReplicas
from forebay.broker.replication.throttle import Throttles
from forebay.core.partition.fetch_session import FetchSessions
from forebay.lazy import load

if TYPE_CHECKING:
    from forebay.broker.composition.foundations import Foundations
    from forebay.broker.composition.local_partitions import LocalPartitions
    from forebay.broker.partition.partition import Partition
    from forebay.broker.replication.fetcher import Fetcher
    from forebay.broker.replication.follower_append import FollowerAppend
    from forebay.broker.replication.truncation import RemoteProducers

_REPLICATION = "forebay.broker.replication"


class Replication:
    def __init__(self, base: Foundations, local: LocalPartitions, remote_producers: RemoteProducers) -> None:
        config, entropy = base.settings.current, base.ports.entropy
        heard_ms: dict[int, int] = {}
        self.throttles = Throttles(config.replication)
        self.sessions = FetchSessions(
            config.fetch.session_slots_max,
            new_id=lambda: int.from_bytes(entropy(8)) % (2**31 - 1) + 1,
            partitions_max=config.fetch.session_partitions_max,
        )
        self.isr = InSyncReplicas(
            node_id=base.node_id,
            settings=base.settings,
            metadata=base.metadata,
            partitions=local.table,
            write_cycle=local.write_cycle,
            flush=local.flush,
            lease=base.lease,
            heard_ms=heard_ms,
            background=base.background,
            metrics=base.metrics,
            time=base.time,
            loop=base.loop,
        )
        self.followers = Followers(
            local.write_cycle,
            local.arrivals,
            self.isr,
            self.sessions,
            base.time,
            node_id=base.node_id,
            heard_ms=heard_ms,
            time_s=base.loop.time,
        )
        self._base = base
        self._local = local
        self._remote_producers = remote_producers
        self.following = Following(self._make_fetcher, base.background, node_id=base.node_id)

    def _make_fetcher(self, leader: int, resume: Callable[[Partition], None]) -> Fetcher:
        base = self._base
        return load(f"{_REPLICATION}.fetcher:Fetcher")(
            leader,
            node_id=base.node_id,
            settings=base.settings,
            metadata=base.metadata,
            lease=base.lease,
            dialing=base.dialing,
            appender=self._appender,
            throttle=self.throttles.taking,
            metrics=base.metrics,
            loop=base.loop,
            resume=resume,
        )

    @cached_property
    def _appender(self) -> FollowerAppend:
        base, local = self._base, self._local
        truncation = load(f"{_REPLICATION}.truncation:Truncation")(
            base.data,
            local.assignment.lend,
            base.settings,
            base.background,
            base.time.now_ms,
            self._remote_producers,
        )
        return load(f"{_REPLICATION}.follower_append:FollowerAppend")(
            local.write_cycle, local.arrivals, base.metrics, truncation
        )
