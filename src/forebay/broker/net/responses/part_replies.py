"""The answers to the pieces of a request that was cut. They are put together before a client gets them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from forebay.broker.net.responses.deferred_replies import RepliesInOrder, Reply
from forebay.wire.parts import Part


class PartReply(Reply):
    """The reply that `context.defer()` gives for a piece, or for a request that is encoded in steps."""

    __slots__ = ("_complete", "answer")

    def __init__(
        self,
        connection: RepliesInOrder,
        loop: asyncio.AbstractEventLoop,
        complete: Callable[[Any], Any] | None,
    ) -> None:
        super().__init__(connection, (0, 0, 0), pipelined=False)
        self._complete = complete
        self.answer: asyncio.Future[Any] = loop.create_future()

    def resolve(self, response: Any) -> None:
        self._set(response if self._complete is None else self._complete(response))

    def resolve_soon(self, response: Any) -> None:
        self.resolve(response)

    def give_up(self) -> None:
        self._set(None)

    def abort(self) -> None:
        super().abort()
        self._set(None)

    def abandon(self) -> None:
        """The client has gone."""
        if self.on_abandoned is not None:
            self.on_abandoned()
        self._set(None)

    def fill(self, _parts: list[Part]) -> None:
        raise AssertionError("the response to a piece is encoded with the others")

    def _set(self, response: Any) -> None:
        if not self.answer.done():
            self.answer.set_result(response)
