"""The listeners of a broker that speak TLS, and how they get new certificates."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from forebay.broker.telemetry.metrics import Metrics
from forebay.broker.tls.endpoint import TlsEndpoint
from forebay.broker.worker_threads import WorkerThreads
from forebay.config import TlsConfig


class TlsEndpoints:
    def __init__(
        self,
        configs: Mapping[str, TlsConfig],
        metrics: Metrics,
        workers: WorkerThreads,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Reads files; raises ConfigError that says what is wrong with them."""
        self._by_listener = {
            name: TlsEndpoint(name, config, metrics, loop) for name, config in configs.items()
        }
        self._interval_s = min((each.reload_interval_ms for each in configs.values()), default=0) / 1000
        self._workers = workers
        self._wanted = asyncio.Event()

    def get(self, listener: str) -> TlsEndpoint | None:
        return self._by_listener.get(listener)

    def reload(self) -> None:
        """Have all certificates and keys read again, whether the files seem to have changed or not."""
        self._wanted.set()

    async def keep_current(self) -> None:
        """Read certificates and keys again when their files have changed."""
        if not self._by_listener:
            return
        while True:
            try:
                async with asyncio.timeout(self._interval_s):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            always = self._wanted.is_set()
            self._wanted.clear()
            for endpoint in self._by_listener.values():
                await self._workers.run(partial(endpoint.reload, always=always))
