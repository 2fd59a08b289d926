"""The queue for asyncio: librdkafka's calls in a separate thread.

A message that a cancelled task has waited for stays in the queue, locked, and is handed out by the next call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Self

from forebay.client.aio.call_thread import CallThread
from forebay.client.errors import ClientError, QueueEmpty
from forebay.client.messages import Headers, Message
from forebay.client.queues.loops import AsyncLoop
from forebay.client.queues.messages import AcknowledgeType, QueueMessage
from forebay.client.queues.queue import Queue
from forebay.client.queues.receiver import POLL_SECONDS
from forebay.client.queues.work import (
    WAIT_SECONDS,
    Progress,
    WorkSummary,
    acknowledged,
    check_jobs,
    logged_outcome_of,
    outcome_of,
    tell,
)

log = logging.getLogger("forebay.client")

_CLOSING_TURNS = 10

AsyncHandler = Callable[[QueueMessage], Awaitable[object]]


class AsyncQueue:
    """Like `Queue`, awaited: `async with queue.receive() as message`. For one task at a time."""

    def __init__(
        self, servers: str | Sequence[str], topic: str, *, group: str | None = None, **options: Any
    ) -> None:
        """`options` are those of `Queue`."""
        self._loop = asyncio.get_running_loop()
        self._new_sync = partial(Queue, servers, topic, group=group, **options)
        self._sync = self._new_sync()
        self._calls = CallThread("queue")
        self._closing: asyncio.Future[None] | None = None

    @property
    def topic(self) -> str:
        return self._sync.topic

    @property
    def group(self) -> str | None:
        return self._sync.group

    # -- receiving -------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def receive(self, timeout_s: float | None = None) -> AsyncIterator[QueueMessage]:
        """The next message, like `Queue.receive`. A cancelled block releases it."""
        message = await self._next(timeout_s)
        try:
            yield message
        except BaseException as error:
            await self._undo(message, error)
            raise
        await self._acknowledge(message, message.outcome or AcknowledgeType.ACCEPT)

    def __aiter__(self) -> AsyncLoop:
        """Messages for ever. Asking for the next one accepts the one before."""
        return self.messages()

    def messages(self, idle_s: float | None = None) -> AsyncLoop:
        """Messages until none came for `idle_s`. A loop that is left or begun again releases its message."""
        return AsyncLoop(partial(self._next, idle_s), self._acknowledge, self._let_go)

    def _let_go(self, message: QueueMessage) -> None:
        """Called where nothing can be awaited, by any thread, the garbage collector's included."""
        self._sync.receiver.let_go(message)
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._tell_left)

    def _tell_left(self) -> None:
        with contextlib.suppress(ClientError):  # closed: that has told
            self._calls.start(self._sync.receiver.tell_left)

    async def _next(self, timeout_s: float | None) -> QueueMessage:
        await self._let_loops_end()
        deadline_s = None if timeout_s is None else self._loop.time() + timeout_s
        while True:
            left_s = POLL_SECONDS if deadline_s is None else deadline_s - self._loop.time()
            if (message := await self.try_next(max(0.0, min(left_s, POLL_SECONDS)))) is not None:
                return message
            if left_s <= 0:
                raise QueueEmpty(f"no message of {self.topic} came in {timeout_s:g} s", retriable=True)

    async def _let_loops_end(self) -> None:
        """An async generator with a loop inside that was left is closed by the event loop, turns later."""
        for _ in range(_CLOSING_TURNS):
            if not self._sync.is_holding:
                return
            await asyncio.sleep(0)

    async def try_next(self, wait_s: float) -> QueueMessage | None:
        """A message that waits, or that comes within this time, which should be short.

        The caller acknowledges it; programs use `receive`.
        """
        await self._calls.run(lambda: self._sync.receiver.fill(wait_s))
        return self._sync.receiver.take()

    async def _acknowledge(self, message: QueueMessage, outcome: AcknowledgeType) -> None:
        await self._calls.run_to_end(lambda: self._sync.receiver.acknowledge(message, outcome))

    async def _undo(self, message: QueueMessage, error: BaseException) -> None:
        try:
            await self._acknowledge(message, outcome_of(message, error))
        except ClientError as failure:
            log.warning("%s", failure)

    # -- working ---------------------------------------------------------------------------------------

    async def work(self, handle: AsyncHandler, *, jobs: int = 1, idle_s: float | None = None) -> WorkSummary:
        """Await `handle` for each message, in `jobs` tasks, each with its own member of the group.

        A return accepts the message, an exception releases it, `Reject` rejects it. Ends if nothing came for
        `idle_s`, or if it is cancelled: messages being handled are then released.
        """
        check_jobs(jobs)
        progress = Progress(idle_s)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(jobs):
                    group.create_task(self._job(handle, progress))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None  # the others failed likewise, or were cancelled
        return progress.summary

    async def _job(self, handle: AsyncHandler, progress: Progress) -> None:
        async with self._another() as queue:
            while not progress.is_idle():
                if (message := await queue.try_next(WAIT_SECONDS)) is not None:
                    await queue._handle_one(handle, progress, message)

    def _another(self) -> AsyncQueue:
        options = self._new_sync.keywords
        return AsyncQueue(*self._new_sync.args, **options)

    async def _handle_one(self, handle: AsyncHandler, progress: Progress, message: QueueMessage) -> None:
        progress.begin()
        try:
            outcome = await self._outcome(handle, message)
            is_known = await self._calls.run_to_end(
                lambda: acknowledged(self._sync.receiver, message, outcome)
            )
        finally:
            progress.end()
        tell(progress.summary, outcome if is_known else None)

    async def _outcome(self, handle: AsyncHandler, message: QueueMessage) -> AcknowledgeType:
        try:
            await handle(message)
        except Exception as error:
            return logged_outcome_of(message, error)
        except BaseException as error:
            await self._undo(message, error)
            raise
        return message.outcome or AcknowledgeType.ACCEPT

    # -- sending ---------------------------------------------------------------------------------------

    async def send(
        self, value: str | bytes | None = None, *, key: str | bytes | None = None, headers: Headers = ()
    ) -> Message:
        """Send a message and wait until all replicas have it; the returned message has its offset."""
        return await asyncio.to_thread(self._sync.send_and_wait, value, key=key, headers=headers)

    # -- life ------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Leave the group. Messages that were not acknowledged are released."""
        if self._closing is None:
            self._closing = self._calls.start(self._sync.close)
        await asyncio.shield(self._closing)
        self._calls.shut()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()
