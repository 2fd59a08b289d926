"""The listeners of a broker that speak TLS, and how they get new certificates and settings."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from forebay.lazy import load

if TYPE_CHECKING:
    from forebay.broker.telemetry.metrics import Metrics
    from forebay.broker.tls.endpoint import PreparedTls, TlsEndpoint
    from forebay.broker.worker_threads import WorkerThreads
    from forebay.broker.yielding.stranger_work import StrangerWork
    from forebay.config import TlsConfig

log = logging.getLogger(__name__)

_ENDPOINT = "forebay.broker.tls.endpoint"


class TlsEndpoints:
    def __init__(
        self,
        configs: Mapping[str, TlsConfig],
        metrics: Metrics,
        workers: WorkerThreads,
        loop: asyncio.AbstractEventLoop,
        strangers: StrangerWork,
    ) -> None:
        """Reads files; raises ConfigError that says what is wrong with them."""
        self._by_listener: dict[str, TlsEndpoint] = {
            name: load(f"{_ENDPOINT}:TlsEndpoint")(name, config, metrics, loop, strangers)
            for name, config in configs.items()
        }
        self._interval_s = min((each.reload_interval_ms for each in configs.values()), default=0) / 1000
        self._workers = workers
        self._wanted = asyncio.Event()
        self._offered: list[tuple[str, PreparedTls]] = []
        """The contexts that were read for settings that are being stored, by listener."""

    def get(self, listener: str) -> TlsEndpoint | None:
        return self._by_listener.get(listener)

    # -- settings ------------------------------------------------------------------------------------

    async def prepare(self, configs: Mapping[str, TlsConfig]) -> list[tuple[str, PreparedTls]]:
        """Reads the files of settings that differ from those in force. Raises ConfigError."""
        return [
            (name, await self._workers.run(partial(load(f"{_ENDPOINT}:prepare"), name, config)))
            for name, config in configs.items()
            if config != self._by_listener[name].config
        ]

    @contextlib.contextmanager
    def offering(self, prepared: list[tuple[str, PreparedTls]]) -> Iterator[None]:
        """Within it, settings that come to be in force use what was read for them."""
        self._offered += prepared
        try:
            yield
        finally:
            for each in prepared:
                self._offered.remove(each)

    def apply(self, configs: Mapping[str, TlsConfig]) -> None:
        """Other settings are stored for this broker. The old ones are in force until files were read."""
        for name, config in configs.items():
            endpoint = self._by_listener[name]
            if config == endpoint.config:
                continue
            ready = next(
                (each for listener, each in self._offered if listener == name and each.config == config), None
            )
            if ready is None:
                endpoint.want(config)
                self._wanted.set()
            else:
                self._take(name, ready)

    def _take(self, name: str, prepared: PreparedTls) -> None:
        endpoint = self._by_listener[name]
        changed = prepared.config != endpoint.in_force
        endpoint.take(prepared)
        what = "settings of TLS are in force" if changed else "certificates were read again"
        log.info(what, extra={"listener": name})

    # -- certificates --------------------------------------------------------------------------------

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
            for name, endpoint in self._by_listener.items():
                prepared = await self._workers.run(partial(endpoint.read_again, always=always))
                if prepared is not None and prepared.config == endpoint.config:
                    self._take(name, prepared)
