"""Handshakes take turns with everything else on the loop."""

from __future__ import annotations

import asyncio

from forebay.broker.tls.handshakes import HandshakeTurns


async def test_only_some_steps_are_done_in_a_turn_of_the_loop() -> None:
    turns = HandshakeTurns(asyncio.get_running_loop(), asyncio.get_running_loop().time, 4)
    done: list[int] = []
    for number in range(10):
        turns.begin(lambda number=number: done.append(number))  # type: ignore[misc]
    seen = []
    while len(turns):
        await asyncio.sleep(0)  # where other connections have their turn
        seen.append(len(done))
    assert seen == [4, 8, 10]
    assert done == list(range(10))


async def test_a_step_that_leads_to_another_waits_for_its_turn() -> None:
    turns = HandshakeTurns(asyncio.get_running_loop(), asyncio.get_running_loop().time, 1)
    done: list[str] = []

    def first() -> None:
        done.append("first")
        turns.begin(lambda: done.append("again"))

    turns.begin(first)
    turns.begin(lambda: done.append("second"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert done == ["first", "second", "again"]
