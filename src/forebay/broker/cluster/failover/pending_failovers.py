"""Failovers that are under way, so that clients hear of the new leaders in the first answer that they get.

A client that loses its connection to a broker asks another one for metadata, at once. If it is told what was
true before, it believes in the dead leader until it looks again, which librdkafka does once a second. So the
answer waits until others lead. It waits while a broker leads something whose connection has just broken, or
whose registration has just ended. It waits for a second at most: a broken connection need not be a death, and
it may be that nobody else can lead.

librdkafka has another reason to lose a second. When a broker is missing in the answer that names the new
leaders, it dismantles that broker while it moves the partitions away from it, and forgets where they went. So
it is shown brokers for a while after they have gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from forebay.core.cluster.replicas.early_fencing import is_led_by, last_led_by

if TYPE_CHECKING:
    from forebay.coordination.metadata import Metadata
    from forebay.core.cluster.image import ClusterImage
    from forebay.core.cluster.registration import BrokerRegistration
    from forebay.core.topic_partition import TopicPartition

_PATIENCE_S = 1.0
_LOOK_S = 0.05
_SHOWN_S = 5.0


class PendingFailovers:
    def __init__(
        self,
        metadata: Metadata,
        broken_since: Callable[[], Mapping[int, float]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`broken_since`: the brokers that connections were lost to, and when, in the event loop's time."""
        self._metadata = metadata
        self._broken_since = broken_since
        self._loop = loop
        self._gone: dict[int, tuple[BrokerRegistration, float]] = {}
        """Brokers whose registrations ended, and when."""
        self._led: dict[int, TopicPartition] = {}
        """A partition that a broker has led."""
        self._over: asyncio.Future[None] | None = None
        """Done when the answers that wait now may go out; None while none waits."""

    def follow(self, before: ClusterImage, after: ClusterImage) -> None:
        """Notice who has gone. Called when all other parts have taken their roles."""
        if after.brokers is not before.brokers:
            gone = [each for each in before.brokers.values() if each.id not in after.brokers]
            self._gone |= {each.id: (each, self._loop.time()) for each in gone}
            self._gone = {
                broker_id: (each, when)
                for broker_id, (each, when) in self._gone.items()
                if broker_id not in after.brokers and self._is_recent(when, _SHOWN_S)
            }
        if self._over is not None:
            self._look()

    def gone(self) -> list[BrokerRegistration]:
        """Brokers that went a short time ago."""
        return [each for each, when in self._gone.values() if self._is_recent(when, _SHOWN_S)]

    def concern(self, leaders: Callable[[], Iterable[int]]) -> bool:
        """True if one of these leaders may be dead, and be replaced soon."""
        missing = self._missing()
        return bool(missing) and not missing.isdisjoint(leaders())

    async def over(self) -> None:
        """Wait until those that may be dead lead nothing any more, or have had their time. Others whose
        connections break meanwhile do not prolong it."""
        if self._over is None:
            self._over = self._loop.create_future()
            self._loop.call_soon(self._look_again)
        await asyncio.wait({self._over}, timeout=_PATIENCE_S)

    def _look_again(self) -> None:
        """Without a new image, too: a broker may come back, and patience ends."""
        self._look()
        if self._over is not None:
            self._loop.call_later(_LOOK_S, self._look_again)

    def _look(self) -> None:
        image, over = self._metadata.image, self._over
        if over is not None and not any(self._leads(image, broker_id) for broker_id in self._missing()):
            self._over = None
            over.set_result(None)

    def _leads(self, image: ClusterImage, broker_id: int) -> bool:
        """True if a broker leads a partition. There are hundreds of images while others are elected, so the
        partition that was found is looked at first."""
        led = self._led.get(broker_id)
        if led is None or not is_led_by(image, broker_id, led):
            led = last_led_by(image, broker_id)
        if led is None:
            self._led.pop(broker_id, None)
        else:
            self._led[broker_id] = led
        return led is not None

    def _missing(self) -> set[int]:
        missing = {each: when for each, (_, when) in self._gone.items()} | dict(self._broken_since())
        return {each for each, when in missing.items() if self._is_recent(when, _PATIENCE_S)}

    def _is_recent(self, when: float, seconds: float) -> bool:
        return self._loop.time() - when < seconds
