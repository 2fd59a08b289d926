"""Ending waits for acks=all in time: requests whose timeout is over are answered with an error."""

from __future__ import annotations

import asyncio

from forebay.broker.produce.write_cycle import WriteCycle
from forebay.broker.telemetry.stalls import StallWatch

_INTERVAL_S = 0.5


class AckExpiry:
    def __init__(self, write_cycle: WriteCycle, stalls: StallWatch, loop: asyncio.AbstractEventLoop) -> None:
        """`stalls` is given how late the timer here fired: the loop was blocked for that time."""
        self._write_cycle = write_cycle
        self._stalls = stalls
        self._loop = loop

    async def run(self) -> None:
        """Look for waits that are over, until cancelled."""
        loop = self._loop
        while True:
            due_s = loop.time() + _INTERVAL_S
            await asyncio.sleep(_INTERVAL_S)
            self._stalls.woken(loop.time() - due_s)
            self._write_cycle.expire()
