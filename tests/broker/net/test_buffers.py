"""The pool of receive buffers: bounded, and still of use when frames are large and many."""

from __future__ import annotations

import resource
from pathlib import Path

from forebay.broker.net.buffers import Buffer, BufferPool

MB = 1 << 20


def receive(pool: BufferPool, wanted: int) -> list[Buffer]:
    """Borrow as a connection does while a frame arrives: larger and larger, until the frame fits."""
    made: list[Buffer] = []
    buffer = pool.take(wanted, 64 * 1024)
    made.append(buffer)
    while len(buffer) < wanted:
        larger = pool.take(wanted, len(buffer))
        pool.give(buffer)
        buffer = larger
        made.append(buffer)
    return made


def test_a_frame_that_only_was_announced_gets_little() -> None:
    assert len(BufferPool().take(4 * MB, 4)) <= MB


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_a_very_large_frame_has_room_for_all_of_it_and_takes_what_has_come() -> None:
    pool = BufferPool()
    before = resident_bytes()
    buffers = [pool.take(100 * MB, 4) for _ in range(20)]
    assert {len(buffer) for buffer in buffers} == {100 * MB}
    for buffer in buffers:
        buffer[:MB] = bytes(MB)
    assert 20 * MB <= resident_bytes() - before < 60 * MB
    while buffers:
        pool.give(buffers.pop())
    del buffer
    assert resident_bytes() - before < 10 * MB


def test_many_large_frames_at_once_come_to_reuse_the_same_buffers() -> None:
    pool = BufferPool(keep_bytes=6 * MB)
    for _ in range(20):
        last = [receive(pool, MB)[-1] for _ in range(4)]
        for buffer in last:
            pool.give(buffer)
    known = {id(buffer) for buffer in last}
    again = [receive(pool, MB) for _ in range(4)]
    assert all(len(steps) == 1 for steps in again)
    assert {id(steps[0]) for steps in again} == known


def test_what_is_kept_stays_within_the_bound_and_the_small_go_first() -> None:
    pool = BufferPool(keep_bytes=MB)
    large = bytearray(768 * 1024)
    for _ in range(10):
        pool.give(bytearray(256 * 1024))
    pool.give(large)
    assert pool.take(700 * 1024, 700 * 1024) is large
    assert len(pool.take(256 * 1024)) == 256 * 1024


def test_a_buffer_beyond_the_bound_is_not_kept() -> None:
    pool = BufferPool(keep_bytes=MB)
    huge = bytearray(2 * MB)
    pool.give(huge)
    assert pool.take(2 * MB, MB) is not huge
