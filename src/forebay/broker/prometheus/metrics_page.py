"""The page of metrics, made of what each source adds to it.

With thousands of topics that takes many milliseconds: so it is done in slices, in the line of all large work
(`net/scheduling/slices.py`), and requests pass it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Protocol

from forebay.broker.net.scheduling.slices import Slices
from forebay.broker.prometheus.catalog import CATALOG
from forebay.broker.prometheus.families import Page


class Source(Protocol):
    async def prepare(self) -> None:
        """Ask others for what the samples need. Bounded in time; what is not answered is left out."""

    def add_to(self, page: Page) -> Iterator[None]:
        """Add the samples, in steps that each take a short time."""


class MetricsPage:
    def __init__(self, sources: Sequence[Source], slices: Slices, *, details_max: Callable[[], int]) -> None:
        """`sources`: the first have the first choice of the room for details."""
        self._sources = sources
        self._slices = slices
        self._details_max = details_max
        self._under_way: dict[bool, asyncio.Task[list[bytes]]] = {}
        """Pages that are being made, by whether they are in the format OpenMetrics."""

    async def pieces(self, *, open_metrics: bool) -> list[bytes]:
        making = self._under_way.get(open_metrics)
        if making is None:
            making = asyncio.create_task(self._make(open_metrics=open_metrics))
            self._under_way[open_metrics] = making
            making.add_done_callback(lambda _: self._under_way.pop(open_metrics))
        # A visitor that goes away ends its own wait, and not that of others.
        return await asyncio.shield(making)

    def close(self) -> None:
        for making in list(self._under_way.values()):
            making.cancel()

    def at_once(self) -> str:
        steps = self._steps(open_metrics=False)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return b"".join(end.value).decode()

    async def _make(self, *, open_metrics: bool) -> list[bytes]:
        for source in self._sources:
            await source.prepare()
        return await self._slices.run(self._steps(open_metrics=open_metrics), lambda: True)

    def _steps(self, *, open_metrics: bool) -> Generator[None, None, list[bytes]]:
        page = Page(CATALOG, details_max=self._details_max())
        for source in self._sources:
            yield from source.add_to(page)
        page.add("forebay_metrics_left_out", page.left_out)
        return (yield from page.written(open_metrics=open_metrics))
