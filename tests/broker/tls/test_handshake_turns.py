"""Handshakes take turns with everything else on the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from forebay.broker.tls.handshakes import HandshakeTurns
from support.machines.enough_cores import stranger_work


def handshake_turns(per_turn: int) -> HandshakeTurns:
    return HandshakeTurns(stranger_work(asyncio.get_running_loop()), per_turn)


def step(done: list[Any], number: Any, *, is_gone: bool = False) -> Callable[[], bool]:
    def do() -> bool:
        done.append(number)
        return not is_gone

    return do


async def test_only_some_steps_are_done_in_a_turn_of_the_loop() -> None:
    turns, done = handshake_turns(4), list[int]()
    for number in range(10):
        turns.begin("a", step(done, number))
    seen = []
    while len(turns):
        await asyncio.sleep(0)  # where other connections have their turn
        seen.append(len(done))
    assert seen == [4, 8, 10]
    assert done == list(range(10))


async def test_a_step_that_leads_to_another_waits_for_its_turn() -> None:
    turns, done = handshake_turns(1), list[str]()

    def first() -> bool:
        done.append("first")
        turns.begin("a", step(done, "again"))
        return True

    turns.begin("a", first)
    turns.begin("a", step(done, "second"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert done == ["first", "second", "again"]


async def test_addresses_take_turns() -> None:
    turns, done = handshake_turns(2), list[str]()
    for sender in ("many",) * 100 + ("one",):
        turns.begin(sender, step(done, sender))
    await asyncio.sleep(0)
    assert done == ["many", "one"]


async def test_clients_that_are_gone_take_nobodys_turn() -> None:
    turns, done = handshake_turns(4), list[int]()
    for number in range(40):
        turns.begin("a", step(done, number, is_gone=number < 30))
    await asyncio.sleep(0)
    assert done == list(range(34))
    for number in range(1000):
        turns.begin("a", step(done, number, is_gone=True))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(done) < 300, "but others have their turn between them"
