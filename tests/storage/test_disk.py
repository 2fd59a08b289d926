from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from forebay.storage import real_disk
from forebay.storage.disk import FileClosed, Locked
from forebay.storage.real_disk import RealDisk


def test_descriptors_are_bounded_and_files_open_again(tmp_path: Path) -> None:
    disk = RealDisk(max_open_files=3)
    files = [disk.open(f"{tmp_path}/{n}") for n in range(20)]
    for round_ in range(3):
        for n, file in enumerate(files):
            file.appendv([b"%d" % n, b"-%d" % round_])
            assert disk.open_files() <= 3
    for n, file in enumerate(files):
        assert file.pread(100, 0) == b"".join(b"%d-%d" % (n, round_) for round_ in range(3))
        assert os.pread(file.fileno(), 2, 0) == (b"%d-" % n)[:2]
    assert disk.open_files() == 3


def test_what_is_in_use_stays_open(tmp_path: Path) -> None:
    disk = RealDisk(max_open_files=2)
    busy, *others = [disk.open(f"{tmp_path}/{n}") for n in range(10)]
    descriptor = busy.fileno()
    for other in others:
        other.appendv([b"x"])
        assert busy.fileno() == descriptor


def test_a_closed_file_never_opens_again(tmp_path: Path) -> None:
    disk = RealDisk()
    file = disk.open(f"{tmp_path}/a")
    file.appendv([b"old"])
    file.close()
    disk.open(f"{tmp_path}/a", create=True).appendv([b"new"])
    for use in (lambda: file.pread(1, 0), file.fileno, file.datasync, lambda: file.appendv([b"x"])):
        with pytest.raises(FileClosed):
            use()


def test_a_file_that_has_vanished_is_not_made_again(tmp_path: Path) -> None:
    disk = RealDisk(max_open_files=1)
    file = disk.open(f"{tmp_path}/a")
    file.appendv([b"x"])
    disk.open(f"{tmp_path}/b").appendv([b"x"])  # takes the only descriptor
    (tmp_path / "a").unlink()
    with pytest.raises(FileNotFoundError):
        file.appendv([b"y"])


def test_a_file_can_be_renamed_while_it_has_no_descriptor(tmp_path: Path) -> None:
    disk = RealDisk(max_open_files=1)
    file = disk.open(f"{tmp_path}/a")
    file.appendv([b"mine"])
    disk.open(f"{tmp_path}/b").appendv([b"x"])
    file.rename(f"{tmp_path}/c")
    assert file.pread(10, 0) == b"mine"
    assert file.path == f"{tmp_path}/c"


def test_many_views_are_written_in_order(tmp_path: Path) -> None:
    file = RealDisk().open(f"{tmp_path}/a")
    small = [b"%d," % n for n in range(5000)]
    large = [bytes([n % 256]) * 100 for n in range(3000)]
    file.appendv(small)
    file.appendv([memoryview(view) for view in large])
    file.appendv([b"end"])
    expected = b"".join([*small, *large, b"end"])
    assert (tmp_path / "a").read_bytes() == expected
    assert file.size() == len(expected)


@pytest.mark.parametrize("views", [[bytes(200_000)], [bytes(300)] * 20, [bytes(100)] * 3000])
def test_an_append_that_does_not_fit_leaves_nothing(tmp_path: Path, views: list[bytes]) -> None:
    file = RealDisk().open(f"{tmp_path}/a")
    file.appendv([b"before"])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, hard))  # the kernel writes 4000 bytes, then refuses
    try:
        with pytest.raises(OSError) as caught:
            file.appendv(views)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    assert (tmp_path / "a").read_bytes() == b"before"
    file.appendv([b" after"])
    assert (tmp_path / "a").read_bytes() == b"before after"


def test_other_threads_use_descriptors_of_their_own(tmp_path: Path) -> None:
    disk = RealDisk(max_open_files=2)
    files = [disk.open(f"{tmp_path}/{n}") for n in range(6)]
    for n, file in enumerate(files):
        file.appendv([b"%d" % n * 100])
    problems: list[BaseException | str] = []
    stop = threading.Event()

    def reader() -> None:
        try:
            while not stop.is_set():
                for n, file in enumerate(files):
                    file.datasync()
                    if file.pread(100, 0) != b"%d" % n * 100:
                        problems.append("read another file's bytes")
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=reader)
    thread.start()
    for _ in range(300):
        for file in files:
            file.appendv([b"x"])
    stop.set()
    thread.join()
    assert not problems
    assert disk.open_files() <= 2


@pytest.mark.parametrize("ended", ["evicted", "closed", "closed by another thread"])
def test_a_descriptor_stays_open_while_a_thread_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ended: str
) -> None:
    disk = RealDisk(max_open_files=1)
    file, other = disk.open(f"{tmp_path}/a"), disk.open(f"{tmp_path}/b")
    file.appendv([b"a"])
    fd, in_use, go_on, valid = file.fileno(), threading.Event(), threading.Event(), []

    def sync(borrowed: int) -> None:
        in_use.set()
        assert go_on.wait(60)
        valid.append(os.path.samestat(os.fstat(borrowed), os.stat(file.path)))  # noqa: PTH116

    monkeypatch.setattr(real_disk, "sync_data", sync)
    thread = threading.Thread(target=file.datasync)
    thread.start()
    assert in_use.wait(60)
    if ended == "closed by another thread":
        closing = threading.Thread(target=file.close)
        closing.start()
        closing.join()
    elif ended == "closed":
        file.close()
    other.appendv([b"b"])
    go_on.set()
    thread.join()
    assert valid == [True]
    if ended == "evicted":
        assert file.pread(1, 0) == b"a"
    other.appendv([b"b"])
    disk.open(f"{tmp_path}/c").appendv([b"c"])
    assert disk.open_files() == 1
    with suppress(OSError):  # the number may mean another file by now
        assert not os.path.samestat(os.fstat(fd), os.stat(file.path))  # noqa: PTH116


def test_only_the_owner_may_have_a_descriptor(tmp_path: Path) -> None:
    disk = RealDisk()
    file = disk.open(f"{tmp_path}/a")
    problems: list[BaseException] = []

    def stranger() -> None:
        try:
            file.fileno()
        except RuntimeError as error:
            problems.append(error)
        disk.adopt()
        file.fileno()

    thread = threading.Thread(target=stranger)
    thread.start()
    thread.join()
    assert len(problems) == 1


def test_a_file_that_another_thread_closes_keeps_its_descriptor_until_the_owner_opens_the_next(
    tmp_path: Path,
) -> None:
    """The owner may hold the number in its hands: it must not come to mean another file."""
    disk = RealDisk()
    file = disk.open(f"{tmp_path}/a")
    file.appendv([b"mine"])
    descriptor = file.fileno()
    other = threading.Thread(target=file.close)
    other.start()
    other.join()
    assert os.pread(descriptor, 4, 0) == b"mine"
    with pytest.raises(FileClosed):
        file.fileno()
    disk.open(f"{tmp_path}/b").appendv([b"x"])
    assert disk.open_files() == 1


def test_cached(tmp_path: Path) -> None:
    file = RealDisk().open(f"{tmp_path}/a")
    file.appendv([bytes(100_000)])
    assert file.cached(0, 100_000)
    assert file.cached(50_000, 1)


@pytest.mark.parametrize("step", ["_write_rest", "sync_file", "os.replace"])
def test_write_atomic_leaves_no_traces_where_the_disk_is_full(
    tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk()
    disk.write_atomic(f"{tmp_path}/a", b"one")

    def full(fd: int | str, *_: object) -> None:
        if isinstance(fd, int):
            os.pwrite(fd, b"tw", 0)
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(f"{real_disk.__name__}.{step}", full)
    for name in ("a", "b"):
        with pytest.raises(OSError, match="no space left"):
            disk.write_atomic(f"{tmp_path}/{name}", b"two")
    assert disk.list(str(tmp_path)) == ["a"]
    assert disk.read_bytes(f"{tmp_path}/a") == b"one"


def test_write_atomic_leaves_no_traces(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.write_atomic(f"{tmp_path}/a", b"one")
    disk.write_atomic(f"{tmp_path}/a", b"two", sync=False)
    assert disk.read_bytes(f"{tmp_path}/a") == b"two"
    assert disk.list(str(tmp_path)) == ["a"]
    total, free = disk.usage(str(tmp_path))
    assert 0 < free <= total


def test_a_lock_names_its_holder(tmp_path: Path) -> None:
    first = RealDisk().lock(f"{tmp_path}/.lock", "4711")
    with pytest.raises(Locked) as caught:
        RealDisk().lock(f"{tmp_path}/.lock", "4712")
    assert caught.value.holder == "4711"
    first.release()
    RealDisk().lock(f"{tmp_path}/.lock", "4712").release()


THOUSANDS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
sys.path[:0] = sys.argv[2:]
from support.machines.storing import add, bytes_of, fill, read_all
from forebay.storage.real_disk import RealDisk
from forebay.storage.log.config import LogConfig
from forebay.storage.log.opening import open_log
disk = RealDisk(max_open_files=64)
config = LogConfig(segment_bytes=300, index_interval_bytes=100)
logs = [open_log(disk, f"{sys.argv[1]}/t-{n}", config) for n in range(600)]
made = {}
for log in logs:
    made[log] = fill(log, 8)
    assert len(log.segments()) == 4
held = [log.read(0, 1 << 20).range for log in logs]
for log in logs:
    made[log] += fill(log, 1)
    assert disk.open_files() <= 64
for log, part in zip(logs, held):
    assert bytes_of(part) == b"".join(made[log][:2])
    assert read_all(log) == b"".join(made[log])
    log.files.datasync()
    log.files.close()
again = [open_log(disk, f"{sys.argv[1]}/t-{n}", config, clean=True) for n in range(600)]
assert all(log.end_offset == 9 for log in again)
print("ok", disk.open_files())
"""


def test_thousands_of_segments_under_a_small_ulimit(tmp_path_factory: pytest.TempPathFactory) -> None:
    """In memory, if may be: it is about descriptors, and a disk takes its time for so many files."""
    tests, folder = Path(__file__).parent.parent, tmp_path_factory.mktemp("thousands")
    ran = subprocess.run(
        [sys.executable, "-c", THOUSANDS, str(folder), str(tests), str(tests.parent / "src")],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("ok")
