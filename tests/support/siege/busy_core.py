"""No attack: the attackers' core is in use, and nothing else. What good clients wait for then is no broker's.

As with all attacks at once there are two processes on that core.
"""

from __future__ import annotations

import asyncio
import threading
from typing import ClassVar

from support.siege.attack import Attack


class BusyCore(Attack):
    name: ClassVar[str] = "busy core"
    connections: ClassVar[int] = 1

    async def run(self) -> None:
        over = threading.Event()
        work = asyncio.ensure_future(asyncio.to_thread(self._burn, over))
        try:
            await asyncio.shield(work)
        finally:
            over.set()

    def _burn(self, over: threading.Event) -> None:
        while not over.is_set():
            self.count("sums", int(sum(range(10_000)) > 0))


class BusyCoreOfUsers(BusyCore):
    name: ClassVar[str] = "busy core, users"
    logged_in: ClassVar[bool] = True


FLOOR: dict[str, type[Attack]] = {attack.name: attack for attack in (BusyCore, BusyCoreOfUsers)}
