"""All work for strangers shares one line, and rests where cores are short."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from forebay.broker.yielding.stranger_work import StrangerWork
from support.machines.crowded_loop import CrowdedLoop

PIECE_S = 0.002


class Kind:
    """A kind of work with so many pieces left."""

    def __init__(self, loop: CrowdedLoop, work: StrangerWork, name: str, done: list[str], left: int) -> None:
        self._loop, self._name, self._done = loop, name, done
        self.left = left
        self.begin: Callable[[], None] = work.kind(self._do_some)

    def _do_some(self) -> bool:
        self._loop.now += PIECE_S
        self._done.append(self._name)
        self.left -= 1
        return self.left > 0


def stranger_work(loop: Any) -> StrangerWork:
    return StrangerWork(loop, loop.thread_cpu, loop.shortage(), is_open=False)


def test_each_kind_does_a_piece_in_each_turn_of_a_loop_that_has_its_core() -> None:
    loop, done = CrowdedLoop(1.0), list[str]()
    work = stranger_work(loop)
    for name, left in {"accepting": 2, "handshakes": 3}.items():
        Kind(loop, work, name, done, left).begin()
    loop.turn()
    assert done == ["accepting", "handshakes"]
    loop.turn()
    assert done == ["accepting", "handshakes"] * 2
    loop.turn()
    assert done[4:] == ["handshakes"]
    assert not loop.ready and not loop.later


def test_all_kinds_rest_after_a_piece_of_one_where_cores_are_short() -> None:
    loop, done = CrowdedLoop(0.5), list[str]()
    work = stranger_work(loop)
    kinds = [Kind(loop, work, name, done, 3) for name in ("accepting", "handshakes")]
    for kind in kinds:
        kind.begin()
    loop.turn()
    assert done == ["accepting"]
    while loop.later:
        assert not loop.ready, "the loop sleeps"
        for kind in kinds:
            if kind.left:
                kind.begin()
        assert not loop.ready, "what comes meanwhile waits, too"
        slept_from = loop.now
        loop.wake()
        assert loop.now - slept_from - PIECE_S >= 10 * PIECE_S, "much longer than the piece took"
    assert done == ["accepting", "handshakes"] * 3


def test_who_comes_alone_is_served_at_once_however_short_cores_are() -> None:
    loop, done = CrowdedLoop(0.1), list[str]()
    work = stranger_work(loop)
    kind = Kind(loop, work, "accepting", done, 3)
    for left in (1, 1, 1):
        kind.left = left
        kind.begin()
        loop.turn()
    assert done == ["accepting"] * 3
    assert not loop.later


def test_strangers_rest_less_where_nobody_logs_in() -> None:
    rests = []
    for is_open in True, False:
        loop: Any = CrowdedLoop(0.5)
        work = StrangerWork(loop, loop.thread_cpu, loop.shortage(), is_open=is_open)
        Kind(loop, work, "accepting", [], 2).begin()
        loop.turn()
        before_s = loop.now
        loop.wake()
        rests.append(loop.now - PIECE_S - before_s)
    assert 0 < rests[0] < rests[1] / 10


def test_a_piece_is_over_sooner_where_cores_are_short() -> None:
    for part, is_over in (1.0, False), (0.5, True):
        loop = CrowdedLoop(part)
        work = stranger_work(loop)
        seen: list[bool] = []

        def look(loop: CrowdedLoop = loop, work: StrangerWork = work, seen: list[bool] = seen) -> bool:
            seen.append(work.piece_is_over)
            loop.now += PIECE_S
            seen.append(work.piece_is_over)
            return False

        work.kind(look)()
        loop.turn()
        assert seen == [False, is_over]


def test_a_kind_that_fails_is_tried_again_and_others_have_their_turns() -> None:
    loop, done = CrowdedLoop(1.0), list[str]()
    work = stranger_work(loop)
    tries = []

    def fail_once() -> bool:
        tries.append(loop.now)
        if len(tries) == 1:
            raise OSError("once")
        return False

    work.kind(fail_once)()
    other = Kind(loop, work, "other", done, 1)
    other.begin()
    with pytest.raises(OSError, match="once"):
        loop.turn()
    while loop.ready:
        loop.turn()
    assert len(tries) == 2 and done == ["other"]
