"""A broker as a process of its own: limits, signals, exit."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable

from forebay.broker.background import BrokerEnded
from forebay.broker.broker import Broker
from forebay.broker.ports import Address, Ports
from forebay.broker.system_ports import real_ports
from forebay.broker.telemetry import log_format
from forebay.broker.warm_up import AFTER_S, WarmUp, used_libraries
from forebay.config import BrokerConfig

log = logging.getLogger(__name__)

GARBAGE_THRESHOLDS = (10_000, 100, 50)
_SWITCH_S = 0.0005
"""How long the loop waits for a thread that computes, ten times less than Python's default: filters of views
and decompression run in threads."""
_DESCRIPTORS_TRIED = (1 << 20, 1 << 16, 10_240)
"""Limits that are tried where the hard one cannot be had; the last one is macOS's OPEN_MAX."""


def run(
    config: BrokerConfig,
    on_ready: Callable[[str, int], None],
    ports: Callable[[BrokerConfig], Ports] = real_ports,
) -> int:
    """Serve until SIGTERM or SIGINT; the exit code. SIGHUP has certificates read again."""
    handler = log_format.configure(config.node.log_format, worker=config.workers.number)
    try:
        leaves_threads = _serve(config, on_ready, ports)
    finally:
        handler.close()
    if leaves_threads:
        _exit_at_once()
    return 0


def _exit_at_once() -> None:
    """Everything is closed, but the interpreter would wait for its threads."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _serve(
    config: BrokerConfig,
    on_ready: Callable[[str, int], None],
    ports: Callable[[BrokerConfig], Ports],
) -> bool:
    """Run the broker; True if threads were left behind that may go on for long."""
    _raise_descriptor_limit()
    sys.setswitchinterval(_SWITCH_S)
    if config.without_effect:
        log.warning("these settings have no effect in Forebay: %s", ", ".join(config.without_effect))
    try:
        return asyncio.run(_run(config, on_ready, ports))
    except ExceptionGroup as group:
        # One is enough to say what is wrong, and best the one that says what the broker ended for.
        raise min(group.exceptions, key=lambda each: not isinstance(each, BrokerEnded)) from group


async def _run(
    config: BrokerConfig,
    on_ready: Callable[[str, int], None],
    ports: Callable[[BrokerConfig], Ports],
) -> bool:
    broker, warm_up = Broker(config, ports(config)), WarmUp()
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | None = None

    def stop() -> None:
        if timer is not None:
            timer.cancel()  # a broker that is being stopped needs no more parts
        broker.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, broker.reload_certificates)

    def ready(address: Address) -> None:
        nonlocal timer
        _calm_garbage_collection()
        on_ready(*address)
        if config.values["forebay.warm.up.enable"]:
            timer = loop.call_later(AFTER_S, warm)

    def warm() -> None:
        if broker.node is not None:
            warm_up.start(used_libraries(config, broker.node.image))

    try:
        await broker.run(ready)
    finally:
        warm_up.stop()
    log.info("stopped")
    return broker.leaves_threads


def _raise_descriptor_limit() -> None:
    """Sockets and segments share the limit; the soft one is often far below what the system allows.

    On macOS the hard limit says that there is none, and the system refuses to set the soft one to that.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, *_DESCRIPTORS_TRIED):
        if soft != resource.RLIM_INFINITY and (wanted > soft or wanted == resource.RLIM_INFINITY):
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                return


def _calm_garbage_collection() -> None:
    """Collect garbage rarely: objects made at start stay for ever, and the data path makes few cycles.

    The young ones are collected in small lots: while large requests are decoded all of them are in use, and
    50,000 at a time took 42 ms of CPU, in which nobody is served.
    """
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
