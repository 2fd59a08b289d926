"""Members that report as often as the broker tells them to, each at its own time."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from random import Random
from typing import Protocol

from bench.server import BenchError

RUN_S_MAX = 60.0


class Connection(Protocol):
    def fileno(self) -> int: ...


class Paced(Protocol):
    interval_ms: int
    """The time until the next heartbeat, by the last answer."""

    @property
    def client(self) -> Connection: ...

    def post(self) -> None: ...
    def read(self) -> None: ...


class Pace:
    def __init__(self, members: Sequence[Paced]) -> None:
        self._members = members
        self._asking: set[int] = set()
        """Those that wait for an answer, by their number."""
        now_s, random = time.monotonic(), Random(0)
        self._due = [(now_s + random.random() * each.interval_ms / 1000, n) for n, each in enumerate(members)]
        """When each of the others reports."""
        heapify(self._due)

    def run(self, is_over: Callable[[], bool]) -> None:
        """Report until each has had an answer to a heartbeat, and it is over."""
        heard: set[int] = set()
        deadline_s = time.monotonic() + RUN_S_MAX
        with selectors.DefaultSelector() as selector:
            for number, member in enumerate(self._members):
                selector.register(member.client, selectors.EVENT_READ, number)
            while len(heard) < len(self._members) or not is_over():
                self._post_due()
                pause_s = self._due[0][0] - time.monotonic() if self._due else None
                for key, _ in selector.select(pause_s):
                    self._read(key.data)
                    heard.add(key.data)
                if time.monotonic() > deadline_s:
                    raise BenchError(f"a group has not settled within {RUN_S_MAX:.0f} s")

    def end(self) -> None:
        """Read the answers that are still to come."""
        for number in list(self._asking):
            self._read(number)

    def _post_due(self) -> None:
        while self._due and self._due[0][0] <= time.monotonic():
            _, number = heappop(self._due)
            self._members[number].post()
            self._asking.add(number)

    def _read(self, number: int) -> None:
        member = self._members[number]
        member.read()
        self._asking.remove(number)
        heappush(self._due, (time.monotonic() + member.interval_ms / 1000, number))
