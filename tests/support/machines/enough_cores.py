"""A machine with a core for everybody: nobody is made to rest."""

from __future__ import annotations

import asyncio

from forebay.broker.yielding.core_shortage import CoreShortage
from forebay.broker.yielding.stranger_work import StrangerWork


def no_shortage(loop: asyncio.AbstractEventLoop) -> CoreShortage:
    return CoreShortage(loop.time, lambda: 0.0)


def stranger_work(loop: asyncio.AbstractEventLoop) -> StrangerWork:
    return StrangerWork(loop, loop.time, no_shortage(loop), is_open=True)
