"""A function as a worker: `@worker(servers, topic, group=...)`, then `function.run()`.

The function stays a function that can be called and tested. SIGTERM and SIGINT stop `run` after the messages
that are being handled.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from forebay.client.queues.messages import QueueMessage
from forebay.client.queues.queue import Queue
from forebay.client.queues.work import Stop, WorkSummary, check_jobs
from forebay.errors import ConfigError

R = TypeVar("R")

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Worker(Generic[R]):
    """A function for the messages of a queue. `run` handles them."""

    def __init__(self, function: Callable[[QueueMessage], R], queue: Callable[[], Queue], jobs: int) -> None:
        check_jobs(jobs)
        if inspect.iscoroutinefunction(function):
            raise ConfigError("a worker's function must not be async: give an async one to AsyncQueue.work")
        self._function = function
        self._queue = queue
        self._jobs = jobs
        functools.update_wrapper(self, function)

    def __call__(self, message: QueueMessage) -> R:
        return self._function(message)

    def run(self, *, idle_s: float | None = None, stop: Stop | None = None) -> WorkSummary:
        """Handle messages until a signal, `stop`, or `idle_s` without a message."""
        stop = Stop() if stop is None else stop
        with self._queue() as queue, stopping_on_signals(stop):
            return queue.work(self._function, jobs=self._jobs, idle_s=idle_s, stop=stop)


def worker(
    servers: str | Sequence[str], topic: str, *, group: str, jobs: int = 1, **options: Any
) -> Callable[[Callable[[QueueMessage], R]], Worker[R]]:
    """Make a worker of a function that takes a message. `options` are those of `Queue`.

    A return accepts the message, an exception releases it, `Reject` rejects it.
    """
    queue = functools.partial(Queue, servers, topic, group=group, **options)
    queue()  # wrong options are an error here, not in `run`
    return lambda function: Worker(function, queue, jobs)


@contextlib.contextmanager
def stopping_on_signals(
    stop: Stop, *, first: Callable[[], object] = lambda: None, again: Callable[[], object] = lambda: None
) -> Iterator[None]:
    """SIGTERM and SIGINT set `stop`; the second one and later ones call `again`. Only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(_number: int, _frame: object) -> None:
        called = again if stop.is_set() else first
        stop.set()
        called()

    before = {number: signal.signal(number, on_signal) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
