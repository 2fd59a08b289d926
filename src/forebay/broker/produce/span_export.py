"""Sends spans to a collector, from a thread, once a second. What is too much is left out and counted."""

from __future__ import annotations

import asyncio
import json
import logging
import urllib.request
from collections.abc import Callable

from forebay import __version__
from forebay.broker.background import Background
from forebay.broker.produce.spans import Span, TracedBatches, otlp, spans_of
from forebay.broker.telemetry.metrics import Metrics
from forebay.broker.worker_threads import LazyThreads
from forebay.config import TracingConfig

log = logging.getLogger(__name__)

_EVERY_S = 1.0
_ANSWER_S = 5.0
_SILENT_S = 60.0
"""A collector that does not answer is named in the log this often at most."""


class SpanExport:
    def __init__(
        self,
        config: TracingConfig,
        *,
        node_id: int,
        unpacked_bytes_max: int,
        entropy: Callable[[int], bytes],
        threads: LazyThreads,
        background: Background,
        metrics: Metrics,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        assert config.endpoint is not None
        self._endpoint = config.endpoint
        self._config = config
        self._node_id = node_id
        self._unpacked_bytes_max = unpacked_bytes_max
        self._entropy = entropy
        self._threads = threads
        self._background = background
        self._metrics = metrics
        self._loop = loop
        self._waiting: list[TracedBatches] = []
        self._waiting_bytes = 0
        self._sending = False
        self._named_s = -_SILENT_S

    def add(self, batches: TracedBatches) -> None:
        """Have the traces of these found, and their spans sent."""
        size = len(batches.data)
        if self._waiting_bytes + size > self._config.queue_bytes_max:
            self._metrics.spans_left_out += 1  # at least: they were not looked at
            return
        self._waiting.append(batches)
        self._waiting_bytes += size
        if not self._sending:
            self._sending = True
            self._loop.call_later(_EVERY_S, self._begin)

    def _begin(self) -> None:
        self._background.spawn(self._send(), "sending spans")

    async def _send(self) -> None:
        taken, self._waiting, self._waiting_bytes = self._waiting, [], 0
        try:
            sent, left_out = await self._threads.run(lambda: self._find_and_post(taken))
        except OSError as error:
            now_s = self._loop.time()
            if now_s - self._named_s >= _SILENT_S:
                self._named_s = now_s
                log.warning(
                    "spans are not taken: see forebay.tracing.endpoint",
                    extra={"endpoint": self._endpoint, "reason": str(error)},
                )
            self._metrics.spans_left_out += len(taken)
        else:
            self._metrics.spans += sent
            self._metrics.spans_left_out += left_out
        self._sending = bool(self._waiting)
        if self._sending:
            self._loop.call_later(_EVERY_S, self._begin)

    # -- in a thread -----------------------------------------------------------------------------------

    def _find_and_post(self, taken: list[TracedBatches]) -> tuple[int, int]:
        spans: list[Span] = []
        left_out = 0
        for batches in taken:
            for span in spans_of(batches, lambda: self._entropy(8).hex(), self._unpacked_bytes_max):
                if len(spans) < self._config.spans_per_second_max:
                    spans.append(span)
                else:
                    left_out += 1
        if spans:
            self._post(json.dumps(otlp(spans, self._node_id, __version__)).encode())
        return len(spans), left_out

    def _post(self, body: bytes) -> None:
        request = urllib.request.Request(
            self._endpoint, body, {"content-type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:
            answer.read(4096)
