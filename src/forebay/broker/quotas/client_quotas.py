"""The client quotas in force on this broker, as the cluster image has them.

A change counts from the moment that the image shows it, for open connections too: `changed` lets others
forget what they decided before, and ends the waits of clients. Requests of other brokers are not limited.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from forebay.broker.live_config import LiveConfig
from forebay.broker.net.request_context import RequestContext
from forebay.broker.signals import Signal
from forebay.broker.telemetry.metrics import Metrics
from forebay.config import QuotaConfig
from forebay.core.cluster.image import ClusterImage
from forebay.core.quotas.keys import QuotaKey
from forebay.core.quotas.limiter import Bursts, ClientLimits, Limiter

log = logging.getLogger(__name__)

_COUNTERS = {
    QuotaKey.PRODUCE: "produce",
    QuotaKey.FETCH: "fetch",
    QuotaKey.REQUEST: "request",
    QuotaKey.MUTATION: "mutation",
    QuotaKey.CONNECTION: "connection",
}


class ClientQuotas:
    def __init__(
        self,
        settings: LiveConfig,
        image: ClusterImage,
        metrics: Metrics,
        *,
        now: Callable[[], float],
        sent_by_broker: Callable[[RequestContext], bool],
    ) -> None:
        """`now`: seconds that only go forward."""
        self.now = now
        self._metrics = metrics
        self._sent_by_broker = sent_by_broker
        bursts = _bursts(settings.current.quotas)
        self._limiter = Limiter(bursts)
        self._wait_s_max = bursts.debt_s_max
        self._image = image
        self.active = False
        """True if any client may be limited. While it is False, nothing has to be asked here."""
        self.changed: Signal[[]] = Signal()
        """There are other quotas now."""
        self._replace(image)

    def follow(self, _before: ClusterImage, after: ClusterImage) -> None:
        before, self._image = self._image.quotas, after
        if after.quotas is not before and after.quotas != before:
            self._replace(after)
            self.changed.send()

    def _replace(self, image: ClusterImage) -> None:
        self._limiter.replace((quota.entity, quota.values) for quota in image.quotas.values())
        self.active = self._limiter.limits_clients

    def limits(self, context: RequestContext) -> ClientLimits | None:
        """The limits of the sender of a request; None if it has none."""
        if not self.active:
            return None
        user = context.connection.principal.partition(":")[2]
        found = self._limiter.of_client(user, context.client_id or "", self.now())
        return None if found is None or self._sent_by_broker(context) else found

    def connection_wait_s(self, host: str) -> float:
        """0 if an address may open another connection now, which counts; else how long until it may."""
        if not self._limiter.limits_connections:
            return 0.0
        now = self.now()
        bucket = self._limiter.of_ip(host, now)
        if bucket is None:
            return 0.0
        taken, wait_s = bucket.take_if_room(1.0, now)
        if taken:
            return 0.0
        self.count(QuotaKey.CONNECTION, wait_s)
        return wait_s

    def mute(self, context: RequestContext, key: QuotaKey, wait_s: float) -> int:
        """Read nothing more from the connection of a request for this time; what to tell its client, in
        milliseconds. The first time on a connection is logged, so that it can be seen who waits."""
        connection, wait_s = context.connection, min(wait_s, self._wait_s_max)
        if not connection.was_muted:
            host, port = connection.peer
            log.warning(
                "a client is over its quota and has to wait",
                extra={
                    "principal": connection.principal,
                    "client": f"{host}:{port}",
                    "client_id": context.client_id or "",
                    "quota": key.value,
                    "wait_ms": throttle_ms(wait_s),
                },
            )
        self.count(key, wait_s)
        connection.mute(wait_s)
        return throttle_ms(wait_s)

    def prolong(self, context: RequestContext, wait_s: float) -> None:
        """Mute the client of a request whose answer is made already. That does not count as another wait."""
        if wait_s:
            context.connection.mute(min(wait_s, self._wait_s_max))

    def count(self, key: QuotaKey, wait_s: float) -> None:
        name, metrics = _COUNTERS[key], self._metrics
        setattr(metrics, f"throttled_{name}", getattr(metrics, f"throttled_{name}") + 1)
        total = f"throttled_{name}_ms"
        setattr(metrics, total, getattr(metrics, total) + throttle_ms(wait_s))


def throttle_ms(wait_s: float) -> int:
    return math.ceil(wait_s * 1000)


def _bursts(config: QuotaConfig) -> Bursts:
    return Bursts(
        burst_s=max(config.windows - 1, 1) * config.window_s,
        mutation_burst_s=config.mutation_windows * config.mutation_window_s,
        debt_s_max=config.throttle_ms_max / 1000,
    )
