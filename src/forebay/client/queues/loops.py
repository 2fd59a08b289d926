"""Loops over a queue: asking for the next message accepts the one before, leaving the loop releases it.

A message is done when its own loop asks for the next one. A loop that is begun again, by another `for` over
it, was left before: by `break`, by an exception, or because its task was cancelled. So was a loop that was
garbage collected. In CPython that happens at once, when the `for` ends. The exception is a loop inside an
async generator: the event loop closes the generator some turns later.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Self

from forebay.client.errors import QueueEmpty
from forebay.client.queues.messages import AcknowledgeType, QueueMessage

LetGo = Callable[[QueueMessage], None]


class _InHand:
    """The message that a loop is busy with, for the loops of both queues."""

    def __init__(self, let_go: LetGo) -> None:
        """`let_go`: releases a message whose handling has not ended. Any thread may call it."""
        self._let_go = let_go
        self._message: QueueMessage | None = None

    def begin(self, message: QueueMessage) -> QueueMessage:
        self._message = message
        return message

    def end(self) -> QueueMessage | None:
        """The message whose handling has ended."""
        message, self._message = self._message, None
        return message

    def leave(self) -> None:
        message = self.end()
        if message is not None:
            self._let_go(message)


class Loop(Iterator[QueueMessage]):
    """One loop over a `Queue`. It ends when no message came in time, and may be begun again."""

    def __init__(
        self,
        next_message: Callable[[], QueueMessage],
        acknowledge: Callable[[QueueMessage, AcknowledgeType], None],
        let_go: LetGo,
    ) -> None:
        self._next_message = next_message
        self._acknowledge = acknowledge
        self._in_hand = _InHand(let_go)

    def __iter__(self) -> Self:
        self._in_hand.leave()
        return self

    def __next__(self) -> QueueMessage:
        done = self._in_hand.end()
        if done is not None:
            self._acknowledge(done, done.outcome or AcknowledgeType.ACCEPT)
        try:
            return self._in_hand.begin(self._next_message())
        except QueueEmpty:
            raise StopIteration from None

    def close(self) -> None:
        """Leave the loop: its message is released, or rejected if that was decided."""
        self._in_hand.leave()

    def __del__(self) -> None:
        self._in_hand.leave()


class AsyncLoop(AsyncIterator[QueueMessage]):
    """One loop over an `AsyncQueue`. It ends when no message came in time, and may be begun again."""

    def __init__(
        self,
        next_message: Callable[[], Awaitable[QueueMessage]],
        acknowledge: Callable[[QueueMessage, AcknowledgeType], Awaitable[None]],
        let_go: LetGo,
    ) -> None:
        self._in_hand = _InHand(let_go)
        self._next_message = next_message
        self._acknowledge = acknowledge

    def __aiter__(self) -> Self:
        self._in_hand.leave()
        return self

    async def __anext__(self) -> QueueMessage:
        done = self._in_hand.end()
        if done is not None:
            await self._acknowledge(done, done.outcome or AcknowledgeType.ACCEPT)
        try:
            return self._in_hand.begin(await self._next_message())
        except QueueEmpty:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Leave the loop: its message is released, or rejected if that was decided."""
        self._in_hand.leave()

    def __del__(self) -> None:
        self._in_hand.leave()
