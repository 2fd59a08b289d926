"""How long the steps of a failover take: measured by the broker that passed the verdict, logged and kept."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import asdict

from forebay.broker.broker_time import BrokerTime
from forebay.broker.telemetry.metrics import Metrics
from forebay.coordination.metadata import Metadata
from forebay.coordination.store import Compare, Put, Store, StoreError
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.replicas.early_fencing import is_led_by, led_by
from forebay.core.cluster.replicas.failover_times import (
    KEPT_MAX,
    Failover,
    decode_failovers,
    encode_failovers,
)
from forebay.core.topic_partition import TopicPartition
from forebay.errors import ProtocolError

log = logging.getLogger(__name__)

_ELECTION_S_MAX = 10.0
_ATTEMPTS_MAX = 5


class FailoverTimes:
    def __init__(
        self,
        *,
        node_id: int,
        metadata: Metadata,
        store: Store,
        metrics: Metrics,
        time: BrokerTime,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._store = store
        self._metrics = metrics
        self._time = time
        self._loop = loop

    async def measure(
        self, broker_id: int, before: ClusterImage, *, broken_at: float, proven_at: float, fenced_at: float
    ) -> None:
        """Wait until others lead, and write down how long everything took. `before`: the image on which the
        verdict was passed."""
        at_ms, led = self._time.now_ms(), led_by(before, broker_id)
        partitions = len(led)
        elected_at, announced_at = await self._elections(broker_id, led)
        failover = Failover(
            broker=broker_id,
            by=self._node_id,
            at_ms=at_ms,
            partitions=partitions,
            detect_ms=_ms(broken_at, proven_at),
            fence_ms=_ms(proven_at, fenced_at),
            elect_ms=_ms(fenced_at, elected_at),
            announce_ms=_ms(elected_at, announced_at),
        )
        metrics = self._metrics
        metrics.failover_detect_ms += failover.detect_ms
        metrics.failover_fence_ms += failover.fence_ms
        metrics.failover_elect_ms += failover.elect_ms
        metrics.failover_announce_ms += failover.announce_ms
        log.warning("a failover is over", extra=asdict(failover))
        await self._keep(failover)

    async def _elections(self, broker_id: int, led: list[TopicPartition]) -> tuple[float, float]:
        """When the first, and when all of its partitions were seen to have another leader. A broker that
        registers again may lead on.

        `led` loses those that have another. Elections come in hundreds of images, so of those that are left
        one is looked at, and no more before it has its leader.
        """
        elected_at: float | None = None
        try:
            async with asyncio.timeout(_ELECTION_S_MAX):
                image = self._metadata.image
                while broker_id not in image.brokers:
                    if elected_at is None and not all(is_led_by(image, broker_id, key) for key in led):
                        elected_at = self._loop.time()
                    while led and not is_led_by(image, broker_id, led[-1]):
                        led.pop()
                    if not led:
                        break
                    image = await self._metadata.wait_for(image.revision + 1)
        except (StoreError, TimeoutError):
            pass
        now = self._loop.time()
        return now if elected_at is None else elected_at, now

    # -- keeping ---------------------------------------------------------------------------------------

    async def last(self) -> list[Failover]:
        """The last failovers of the cluster, the newest last. Raises StoreError."""
        return (await self._read())[0]

    async def _read(self) -> tuple[list[Failover], int]:
        item = await self._store.get(self._metadata.keys.failovers)
        if item is None:
            return [], 0
        try:
            return decode_failovers(item.value), item.mod_revision
        except ProtocolError:
            return [], item.mod_revision

    async def _keep(self, failover: Failover) -> None:
        key = self._metadata.keys.failovers
        try:
            for _ in range(_ATTEMPTS_MAX):
                kept, revision = await self._read()
                value = encode_failovers([*kept, failover][-KEPT_MAX:])
                guard, put = Compare.unchanged(key, revision), Put(key=key, value=value)
                if (await self._store.txn([guard], [put])).ok:
                    return
        except StoreError as error:
            log.info("a failover is not kept", extra={"reason": str(error)})


def _ms(begin: float, end: float) -> int:
    return round(1000 * (end - begin))
