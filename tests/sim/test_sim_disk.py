"""A simulated disk keeps and loses what a real one keeps and loses."""

from __future__ import annotations

import random
from errno import EIO

import pytest

from forebay.sim.world.disks.disk import SimDisk
from forebay.sim.world.disks.disk_handle import Died, DiskHandle
from forebay.storage.disk import File, FileClosed, Locked


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(random.Random(3))


def handle_of(disk: SimDisk) -> DiskHandle:
    return DiskHandle(disk, random.Random(3))


def with_synced_log(seed: int, content: bytes) -> tuple[SimDisk, DiskHandle, File]:
    """A disk that has this in /data/log for good."""
    disk = SimDisk(random.Random(seed))
    handle = handle_of(disk)
    handle.mkdirs("/data")
    file = handle.open("/data/log", create=True)
    file.appendv([content])
    file.datasync()
    handle.fsync_dir("/data")
    return disk, handle, file


def test_a_kill_loses_nothing_and_frees_the_lock(disk: SimDisk) -> None:
    first = handle_of(disk)
    first.mkdirs("/data")
    first.lock("/data/.lock", "1")
    file = first.open("/data/log", create=True)
    file.appendv([b"one", b"two"])
    first.die()
    with pytest.raises(Died):
        file.appendv([b"three"])
    second = handle_of(disk)
    second.lock("/data/.lock", "2")
    assert second.read_bytes("/data/log") == b"onetwo"
    assert second.boot_id() == first.boot_id()
    with pytest.raises(Locked):
        handle_of(disk).lock("/data/.lock", "3")


def test_power_loss_keeps_what_was_synced_and_some_of_the_rest() -> None:
    left: set[int] = set()
    for seed in range(200):
        disk, handle, file = with_synced_log(seed, b"safe")
        file.appendv([b"unsafe"])
        boot = handle.boot_id()
        handle.die()
        disk.lose_power()
        after = handle_of(disk)
        content = after.read_bytes("/data/log")
        assert content.startswith(b"safe")
        assert len(content) <= 10
        assert after.boot_id() != boot
        left.add(len(content))
    assert left == set(range(4, 11))


def test_power_loss_may_take_names_that_were_not_synced() -> None:
    kept: set[tuple[str, ...]] = set()
    for seed in range(100):
        disk = SimDisk(random.Random(seed))
        handle = handle_of(disk)
        handle.mkdirs("/data")
        handle.fsync_dir("/data")
        handle.open("/data/a", create=True).datasync()
        handle.open("/data/b", create=True).datasync()
        handle.rename("/data/a", "/data/c")
        disk.lose_power()
        kept.add(tuple(handle_of(disk).list("/data")))
    assert kept == {(), ("a",), ("a", "b"), ("b", "c")}


def test_names_in_a_directory_that_was_moved_do_not_turn_up_in_the_next_of_its_name() -> None:
    disk = SimDisk(random.Random(1))
    handle = handle_of(disk)
    handle.mkdirs("/data/log")
    handle.fsync_dir("/data")
    handle.open("/data/log/old", create=True).datasync()
    handle.rename("/data/log", "/data/log-deleted")
    handle.mkdirs("/data/log")
    handle.fsync_dir("/data")
    handle.fsync_dir("/data/log")
    disk.lose_power()
    assert handle_of(disk).list("/data/log") == []


def test_power_loss_may_bring_back_what_was_cut_off() -> None:
    seen: set[bytes] = set()
    for seed in range(50):
        disk, _handle, file = with_synced_log(seed, b"long ago")
        file.truncate(4)
        disk.lose_power()
        seen.add(handle_of(disk).read_bytes("/data/log"))
    assert seen == {b"long", b"long ago"}


def test_a_process_can_die_in_the_middle_of_its_changes(disk: SimDisk) -> None:
    handle = handle_of(disk)
    handle.mkdirs("/data")
    dead: list[bool] = []
    handle.on_death = lambda: dead.append(True)
    handle.lives = 1
    handle.write_atomic("/data/one", b"1")
    with pytest.raises(Died):
        handle.write_atomic("/data/two", b"2")
    assert dead == [True]
    assert handle_of(disk).list("/data") == ["one"]


def test_a_closed_file_stays_closed(disk: SimDisk) -> None:
    handle = handle_of(disk)
    handle.mkdirs("/data")
    file = handle.open("/data/log", create=True)
    file.close()
    with pytest.raises(FileClosed):
        file.appendv([b"x"])


def test_what_is_refused_is_counted_for_each_place_of_a_file() -> None:
    """To read around bytes that the disk does not give is not to try the same again."""
    disk, handle, file = with_synced_log(3, b"content")

    def fail(_operation: str, path: str) -> None:
        raise OSError(EIO, "the device cannot be read", path)

    disk.fault = fail
    for position in (0, 4, 4):
        with pytest.raises(OSError, match="cannot be read"):
            file.pread(2, position)
    with pytest.raises(OSError, match="cannot be read"):
        handle.fsync_dir("/data")
    assert disk.refused == {
        ("read", "/data/log", 0): 1,
        ("read", "/data/log", 4): 2,
        ("sync", "/data", 0): 1,
    }


def test_bits_rot_only_where_a_segment_is_complete(disk: SimDisk) -> None:
    handle = handle_of(disk)
    handle.mkdirs("/data/t-0")
    contents = {f"/data/t-0/{name}": bytes([number]) * 100 for number, name in enumerate(("0.log", "7.log"))}
    for path, content in contents.items():
        handle.open(path, create=True).appendv([content])
    assert disk.rot("/data") == ("/data/t-0/0.log", [])
    assert handle.read_bytes("/data/t-0/0.log") != contents["/data/t-0/0.log"]
    assert handle.read_bytes("/data/t-0/7.log") == contents["/data/t-0/7.log"]


def test_nothing_rots_where_no_segment_is_complete(disk: SimDisk) -> None:
    handle_of(disk).mkdirs("/data/t-0")
    assert disk.rot("/data") is None
