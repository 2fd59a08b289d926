"""Pauses of the event loop between pieces of work that can wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from forebay.broker.yielding.pauses import PausedWork
from support.machines.crowded_loop import CrowdedLoop

PIECES = 5
PIECE_S = 0.002


class Pieces:
    def __init__(self, loop: CrowdedLoop, left: int) -> None:
        self._loop = loop
        self.left = left

    def do_some(self) -> bool:
        if self.left:
            self._loop.now += PIECE_S
            self.left -= 1
        return self.left > 0


def paused_work(loop: Any, do_some: Callable[[], bool]) -> PausedWork:
    return PausedWork(loop, loop.thread_cpu, do_some)


def test_a_loop_that_has_its_core_does_a_piece_in_each_turn() -> None:
    loop = CrowdedLoop(1.0)
    pieces = Pieces(loop, PIECES)
    paused_work(loop, pieces.do_some).begin()
    for left in reversed(range(PIECES)):
        loop.turn()
        assert pieces.left == left
    assert not loop.ready and not loop.later


def test_a_loop_that_waits_for_a_core_sleeps_after_each_piece_and_comes_to_an_end() -> None:
    loop = CrowdedLoop(0.25)
    pieces = Pieces(loop, PIECES)
    work = paused_work(loop, pieces.do_some)
    work.begin()
    loop.turn()
    assert pieces.left == PIECES - 1
    while loop.later:
        assert not loop.ready, "it sleeps"
        work.begin()
        assert not loop.ready, "what comes meanwhile waits, too"
        slept_from = loop.now
        loop.wake()
        assert loop.now - slept_from >= 0.75 * PIECE_S, "for as long as it has waited, at least"
    assert not pieces.left
    pieces.left = 1
    work.begin()
    loop.turn()
    assert not pieces.left


async def test_a_piece_that_fails_does_not_keep_the_others_from_being_done() -> None:
    loop, done = asyncio.get_running_loop(), list[int]()
    problems: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, problem: problems.append(problem))

    def do_some() -> bool:
        done.append(len(done))
        if len(done) == 2:
            raise ValueError("the second")
        return len(done) < PIECES

    PausedWork(loop, loop.time, do_some).begin()
    for _ in range(2 * PIECES):
        await asyncio.sleep(0)
    assert len(done) == PIECES
    assert len(problems) == 1


@pytest.mark.parametrize("part", [0.0, 0.01])
def test_no_pause_is_long(part: float) -> None:
    loop = CrowdedLoop(part)

    def do_some() -> bool:
        loop.now += 10
        return False

    paused_work(loop, do_some).begin()
    loop.turn()
    ((due_s, _),) = loop.later
    assert due_s - loop.now < 0.06
