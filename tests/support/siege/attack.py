"""What attacks have in common: a number of connections that repeat the same until they are stopped."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from support.siege.connection import Stream, connect, log_in
from support.siege.target import Target

_PAUSE_S = 0.02
"""After a connection has ended: an attacker that is refused comes again, but not in a busy loop."""
_FAILURES = (OSError, EOFError, TimeoutError)


class Attack:
    """Subclasses say what a connection does, in `once`. `done` counts what was done, for the report."""

    name: ClassVar[str]
    connections: ClassVar[int]
    logged_in: ClassVar[bool] = False
    """Whether it needs a login, and rights or none behind it."""

    def __init__(self, target: Target, done: Counter[str], share: float) -> None:
        """`share`: of its connections; it has one at least."""
        self._count = max(1, round(self.connections * share))
        self.target = target
        self.done = done
        self.tls = target.tls()

    async def run(self) -> None:
        """Until cancelled; `prepare` first."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._count):
                group.create_task(self._go_on(number))

    async def prepare(self) -> None:
        """What has to be there before the first connection is made."""

    async def once(self, number: int) -> None:
        """What one connection does. `number` tells connections apart, of all times."""
        raise NotImplementedError

    async def _go_on(self, number: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        while not task.cancelling():  # a task group within `once` may have hidden that it is cancelled
            try:
                await self.once(number)
            except _FAILURES as problem:
                self.count(f"ended: {type(problem).__name__}")
            await asyncio.sleep(_PAUSE_S)
            number += self._count

    def count(self, what: str, much: int = 1) -> None:
        self.done[f"{self.name}: {what}"] += much

    # -- ways in -----------------------------------------------------------------------------------------

    async def enter(self, number: int, *, receive_buffer: int | None = None) -> Stream:
        """Every second connection by each of the doors."""
        self.count("connections")
        if number % 2:
            return await connect(
                self.target.tls_door(number // 2), number, self.tls, receive_buffer=receive_buffer
            )
        return await connect(self.target.open_door(number // 2), number, receive_buffer=receive_buffer)

    async def enter_as(self, user: str, number: int, *, receive_buffer: int | None = None) -> Stream:
        stream = await self.enter(number, receive_buffer=receive_buffer)
        try:
            await log_in(stream, user)
        except BaseException:
            stream.close()
            raise
        self.count("logins")
        return stream


async def swallow(stream: Stream) -> None:
    """Read and forget until the broker ends the connection, as it does by raising."""
    while True:
        await stream.discard()


@contextlib.contextmanager
def first_problem() -> Iterator[None]:
    """For tasks that end together when their connection does: one error says it as well as a group."""
    try:
        yield
    except* _FAILURES as problems:
        raise problems.exceptions[0] from None
