"""Fetches that wait for the same partition, when the answer to one of them is the end of another."""

from __future__ import annotations

import asyncio

from forebay.broker.partition.long_polls import Arrivals, FetchWait, Waiter


class Partition:
    def __init__(self) -> None:
        self.waiters: dict[Waiter, None] = {}


async def test_a_fetch_that_another_one_has_ended_looks_at_nothing_any_more() -> None:
    """A share fetch that looks locks records: after its answer nobody would get them."""
    partition, arrivals, loop = Partition(), Arrivals(), asyncio.get_running_loop()
    looked: list[str] = []
    ended: list[str] = []

    def wait(name: str, other: str) -> FetchWait:
        def recount(*_: object) -> int:
            looked.append(name)
            return 0

        def complete() -> None:
            ended.append(name)
            waits[other].finish()

        return FetchWait(
            [partition], bytes_missing=1, complete=complete, loop=loop, timeout_s=60, recount=recount
        )

    waits = {"one": wait("one", "two"), "two": wait("two", "one")}
    arrivals.note(partition, 1)
    arrivals.wake()
    assert looked == ["one"]
    assert ended == ["one", "two"]
