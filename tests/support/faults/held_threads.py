"""Threads of a broker that can be held, for tests of what goes on meanwhile, and of what must wait."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, TypeVar

WAIT_SECONDS = 120.0

T = TypeVar("T")


class HeldThreads:
    """Makes the pools of a broker (`Ports.executor`); those of one name wait while they are held."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._began = threading.Event()
        self._released = threading.Event()
        self._released.set()

    def __call__(self, workers: int, prefix: str) -> Executor:
        if prefix != self.name:
            return ThreadPoolExecutor(workers, thread_name_prefix=prefix)
        return _HeldPool(self, workers, prefix)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        self._began.clear()
        self._released.clear()
        try:
            yield
        finally:
            self._released.set()

    def has_work(self) -> bool:
        """Whether something was given to the held threads since they were held."""
        return self._began.wait(WAIT_SECONDS)

    def enter(self) -> None:
        self._began.set()
        assert self._released.wait(WAIT_SECONDS), "nobody released the threads"


class _HeldPool(ThreadPoolExecutor):
    def __init__(self, threads: HeldThreads, workers: int, prefix: str) -> None:
        super().__init__(workers, thread_name_prefix=prefix)
        self._held = threads

    def submit(self, fn: Callable[..., T], /, *args: Any, **options: Any) -> Future[T]:
        def work() -> T:
            self._held.enter()
            return fn(*args, **options)

        return super().submit(work)
