"""The parts of the broker that the work on tiered partitions needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from forebay.broker.yielding.pace import Pace
from forebay.lazy import dataclass

if TYPE_CHECKING:
    from forebay.broker.broker_time import BrokerTime
    from forebay.broker.live_config import LiveConfig
    from forebay.broker.telemetry.metrics import Metrics
    from forebay.broker.tiers.known_object_store import KnownObjectStore
    from forebay.broker.tiers.store_threads import StoreThreads
    from forebay.clock import Clock
    from forebay.config import TierConfig
    from forebay.tiers.object_store import ObjectStore


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TierHost:
    store: ObjectStore
    known_store: KnownObjectStore
    threads: StoreThreads
    writer: str
    """Names this process in manifests."""
    settings: LiveConfig
    metrics: Metrics
    time: BrokerTime
    clock: Clock
    entropy: Callable[[int], bytes]
    topic_settings: Callable[[str], tuple[int, dict[str, str]]]
    """The number of partitions of a topic, and its own settings."""
    paces: set[Pace]
    """Of the uploads under way: they are stopped with the broker."""

    @property
    def config(self) -> TierConfig:
        return self.settings.current.tiers

    def pace(self) -> Pace:
        return Pace(self.clock, lambda: float(self.config.copy_bytes_per_second_max))
