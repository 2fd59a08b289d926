"""The endpoint of Produce of a broker that sends spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from forebay.broker.produce.span_export import SpanExport
from forebay.broker.produce.traced_produce import traced
from forebay.broker.worker_threads import LazyThreads

if TYPE_CHECKING:
    from forebay.broker.composition.foundations import Foundations
    from forebay.broker.net.dispatch import Endpoint


def traced_produce(base: Foundations, endpoint: Endpoint) -> Endpoint:
    config = base.settings.current
    export = SpanExport(
        config.tracing,
        node_id=base.node_id,
        unpacked_bytes_max=config.storage.decompress_max_bytes,
        entropy=base.ports.entropy,
        threads=LazyThreads(base.loop, lambda: base.ports.executor(1, "forebay-spans")),
        background=base.background,
        metrics=base.metrics,
        loop=base.loop,
    )
    return traced(
        endpoint,
        export,
        now_ms=base.time.now_ms,
        uptime_s=base.loop.time,
        topic_names=lambda: base.metadata.image.topic_names,
    )
