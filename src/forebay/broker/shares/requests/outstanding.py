"""The writes and reads that a response to a member of a share group waits for.

A share coordinator that cannot be reached must not hold a client for ever. After a timeout its writes are
given up: the response reports an error, and the next leader or a later write decides about the records. The
wait for a disk may be longer. Records that were to be delivered are released after the duration of a lock,
and do not count as delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from forebay.errors import ErrorCode, KafkaError

Done: TypeAlias = Callable[[KafkaError | None], None]
"""Called when a write or a read is done, with its error."""


class Outstanding:
    def __init__(self, loop: asyncio.AbstractEventLoop, nothing_left: Callable[[], None]) -> None:
        """`nothing_left` is called each time the last one is done."""
        self._loop = loop
        self._nothing_left = nothing_left
        self._pending: dict[object, tuple[Done, bool]] = {}
        """The function to call when it is done, and True for a write."""
        self._timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self._pending)

    def add(self, then: Done, *, is_write: bool) -> Done:
        """Wait until the returned function is called; a write can be given up before."""
        token = object()
        self._pending[token] = then, is_write

        def done(error: KafkaError | None) -> None:
            if self._pending.pop(token, None) is not None:  # else it is given up
                then(error)
                self._one_less()

        return done

    def limit_writes(self, timeout_s: float) -> None:
        """Give up writes that are not done after this time; the first limit counts."""
        if self._timer is None and any(is_write for _, is_write in self._pending.values()):
            self._timer = self._loop.call_later(timeout_s, self._give_up)

    def close(self) -> None:
        """End the wait. This breaks the reference cycle through the call, so the garbage collector is not
        needed."""
        self._nothing_left = _nothing
        if self._timer is not None:
            self._timer.cancel()

    def _give_up(self) -> None:
        self._timer = None
        late = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the share coordinator does not answer")
        for token, (then, is_write) in list(self._pending.items()):
            if is_write and self._pending.pop(token, None) is not None:
                then(late)
        self._one_less()

    def _one_less(self) -> None:
        if not self:
            self._nothing_left()


def _nothing() -> None:
    """The callback of an answered call."""
