"""A load in threads that goes on while something is done to the brokers."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer


class BackgroundLoad(ABC):
    """`with` runs it. What runs in a thread ends when `_stopping` is set."""

    def __init__(self, consumer: Consumer, work: Sequence[Callable[[], None]]) -> None:
        self._consumer = consumer
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=each) for each in work]

    @abstractmethod
    def _warm_up(self) -> None:
        """What is done once before the threads begin."""

    def __enter__(self) -> Self:
        self._warm_up()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self._consumer.close()
