"""The calls on files that differ from system to system, each tried as a system without Linux's has it."""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from forebay.storage import system_calls

F_FULLFSYNC = 51
"""Its number on macOS."""


def loaded_anew() -> ModuleType:
    """The module, as it chooses on the system that the test has made of this one."""
    spec = importlib.util.spec_from_file_location("other_system_calls", system_calls.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def full_syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A system on which only F_FULLFSYNC reaches the drive; the descriptors that were synced by it."""
    synced: list[int] = []
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", F_FULLFSYNC, raising=False)
    monkeypatch.setattr(
        fcntl, "fcntl", lambda fd, command: synced.append(fd) if command == F_FULLFSYNC else None
    )
    return synced


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    return path


def test_where_fsync_ends_in_the_drives_cache_every_sync_goes_further(
    full_syncs: list[int], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "fsync")
    calls = loaded_anew()
    with file.open("r+b") as opened:
        calls.sync_data(opened.fileno())
        calls.sync_file(opened.fileno())
        assert full_syncs == [opened.fileno()] * 2
    calls.sync_directory(str(file.parent))
    assert len(full_syncs) == 3


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY])
def test_a_file_system_that_cannot_flush_its_drive_is_synced_as_far_as_it_goes(
    number: int, full_syncs: list[int], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(fcntl, "fcntl", failing_with(number))
    monkeypatch.setattr(os, "fsync", synced.append)
    with file.open("r+b") as opened:
        loaded_anew().sync_data(opened.fileno())
        assert synced == [opened.fileno()]


def test_a_flush_that_failed_is_not_tried_again_in_another_way(
    full_syncs: list[int], file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may have dropped the bytes: a second sync would find nothing to do, and succeed."""
    monkeypatch.setattr(fcntl, "fcntl", failing_with(errno.EIO))
    with file.open("r+b") as opened, pytest.raises(OSError) as caught:
        loaded_anew().sync_data(opened.fileno())
    assert caught.value.errno == errno.EIO


def failing_with(number: int) -> Callable[[int, int], None]:
    def fail(fd: int, command: int) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_without_fdatasync_the_whole_file_is_synced(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.delattr(os, "fdatasync", raising=False)
    monkeypatch.setattr(os, "fsync", synced.append)
    loaded_anew().sync_data(7)
    assert synced == [7]


def test_without_vectored_writes_buffers_are_written_together(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pwritev", raising=False)
    with file.open("r+b") as opened:
        written = loaded_anew().write_vector(opened.fileno(), [b"ab", memoryview(b"cd"), bytearray(b"e")], 3)
    assert written == 5
    assert file.read_bytes() == b"012abcde89"


def test_where_nobody_can_tell_what_is_in_memory_everything_is_taken_to_be(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "RWF_NOWAIT", raising=False)
    monkeypatch.setattr("sys.platform", "other")
    assert loaded_anew().is_cached(-1, 0, 10)


@pytest.mark.skipif(sys.platform != "linux", reason="no other system has the call")
def test_a_python_without_the_call_asks_the_c_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like those that uv installs."""
    monkeypatch.delattr(os, "RWF_NOWAIT", raising=False)
    calls = loaded_anew()
    asked: list[tuple[int, int]] = []
    errors = {5: errno.EAGAIN, 4096: errno.EAGAIN, 9000: errno.EOPNOTSUPP}

    def read(fd: int, position: int) -> int:
        asked.append((fd, position))
        return errors.get(position, 0)

    with (tmp_path / "file").open("wb+") as file:
        file.write(bytes(10_000))
        file.flush()
        assert calls.is_cached(file.fileno(), 100, 9_900)  # it was just written
    assert calls.is_cached(-1, 0, 10)  # any other error: nobody can tell
    monkeypatch.setattr(calls, "_preadv2", lambda: read)
    assert calls.is_cached(7, 0, 4096)
    assert not calls.is_cached(7, 5, 10)
    assert not calls.is_cached(7, 0, 4097)
    assert calls.is_cached(7, 9000, 1)
    assert asked == [(7, 0), (7, 5), (7, 0), (7, 4096), (7, 9000)]
    monkeypatch.setattr(calls, "_preadv2", lambda: None)
    assert calls.is_cached(7, 5, 10)


def test_a_kernel_without_such_a_value_has_no_boot_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert system_calls.boot_id() == ""


def test_the_boot_id_stays_while_the_machine_runs() -> None:
    assert system_calls.boot_id() == system_calls.boot_id()
