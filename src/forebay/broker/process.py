"""A broker as a process of its own: limits, signals, exit."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
from collections.abc import Callable

from forebay.broker.background import BrokerEnded
from forebay.broker.broker import Broker
from forebay.broker.ports import Address
from forebay.broker.telemetry import log_format
from forebay.config import BrokerConfig

log = logging.getLogger(__name__)


def run(config: BrokerConfig, on_ready: Callable[[str, int], None]) -> int:
    """Serve until SIGTERM or SIGINT; the exit code. SIGHUP has certificates read again."""
    handler = log_format.configure(config.node.log_format)
    try:
        return _serve(config, on_ready)
    finally:
        handler.close()


def _serve(config: BrokerConfig, on_ready: Callable[[str, int], None]) -> int:
    _raise_descriptor_limit()
    if config.without_effect:
        log.warning("these settings have no effect in Forebay: %s", ", ".join(config.without_effect))
    try:
        asyncio.run(_run(config, on_ready))
    except ExceptionGroup as group:
        # One is enough to say what is wrong, and best the one that says what the broker ended for.
        raise min(group.exceptions, key=lambda each: not isinstance(each, BrokerEnded)) from group
    return 0


async def _run(config: BrokerConfig, on_ready: Callable[[str, int], None]) -> None:
    broker = Broker(config)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, broker.stop)
    loop.add_signal_handler(signal.SIGHUP, broker.reload_certificates)

    def ready(address: Address) -> None:
        _calm_garbage_collection()
        on_ready(*address)

    await broker.run(ready)
    log.info("stopped")


def _raise_descriptor_limit() -> None:
    """Sockets and segments share the limit; the soft one is often far below what the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _calm_garbage_collection() -> None:
    """What was made at start lives for ever, and the data path makes few cycles: look for them rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
