"""What is read of a log with damage in it: all that is intact, and nothing else."""

from __future__ import annotations

from errno import EIO
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forebay.errors import StorageError
from forebay.storage.log.config import LogConfig
from forebay.storage.log.intact_reads import Unreadable, read_intact
from forebay.storage.log.log import Log
from forebay.storage.log.opening import open_log
from forebay.storage.log.segment import batch_file
from forebay.storage.real_disk import RealDisk, RealFile
from forebay.wire.batch import HEADER_SIZE, assemble, build_batch, read_header
from forebay.wire.records import Record

BATCHES = 10
PAGE = 4096
BASE_OFFSET_AT, LENGTH_AT, EPOCH_AT, MAGIC_AT, ATTRIBUTES_AT, DELTA_AT, COUNT_AT = 0, 8, 12, 16, 21, 23, 57


class BadFile(RealFile):
    __slots__ = ("_bad",)

    def __init__(self, disk: BadDisk, path: str) -> None:
        super().__init__(disk, path)
        self._bad = disk

    def pread(self, length: int, position: int) -> bytes:
        """Ends before a bad page, and fails at one, as the kernel does it."""
        if self.path.endswith(".log"):
            for page in sorted(self._bad.pages):
                if page * PAGE < position + length and position < (page + 1) * PAGE:
                    if position >= page * PAGE:
                        raise OSError(EIO, "the device cannot be read", self.path)
                    length = page * PAGE - position
                    break
        return super().pread(length, position)


class BadDisk(RealDisk):
    def __init__(self) -> None:
        super().__init__()
        self.pages: set[int] = set()

    def open(self, path: str, *, create: bool = False, absent: bool = False) -> BadFile:
        if create:
            super().open(path, create=True)
        return BadFile(self, path)


def make(directory: Path, size: int = 30, *, values: list[bytes] | None = None) -> Log:
    """Ten batches of one record each, unless values are given: one batch for each."""
    log = open_log(BadDisk(), str(directory / "t-0"), LogConfig(segment_bytes=1 << 20))
    for value in values or [b"%d" % n * size for n in range(BATCHES)]:
        data = build_batch([Record(0, 0, b"k", value)])
        whole = assemble(read_header(data)._replace(base_offset=log.end_offset), bytes(data[HEADER_SIZE:]))
        log.append(memoryview(whole), read_header(whole))
    log.write_pending()
    segment = log.read(0, 1 << 20).segment
    assert segment is not None
    segment.trusted_from = segment.size
    return log


def positions(log: Log) -> list[int]:
    return [position for position, _ in log.headers(log.read(0, 1 << 20))]


def overwrite(log: Log, position: int, data: bytes) -> None:
    (path,) = Path(log.directory).glob("*.log")
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def walk(log: Log, max_bytes: int = 1 << 20) -> tuple[list[int], list[Unreadable]]:
    """The offsets that can be read, and what is in their way."""
    offset, intact, damaged = 0, [], []
    while offset < log.end_offset:
        stretches = list(islice(log.files_from(offset), 2))
        found = read_intact(stretches, offset, max_bytes, end=log.end_offset)
        if isinstance(found, Unreadable):
            assert offset <= found.first <= found.last < log.end_offset
            damaged.append(found)
            offset = found.last + 1
        else:
            intact += [header.base_offset for _, header in log.headers(found)]
            assert found.next_offset > offset
            offset = found.next_offset
    return intact, damaged


def others(*damaged: int) -> list[int]:
    return [offset for offset in range(BATCHES) if offset not in damaged]


@pytest.mark.parametrize("number", [0, 4, BATCHES - 1])
@pytest.mark.parametrize(
    ("place", "data"),
    [
        (HEADER_SIZE + 2, b"\xff"),
        (COUNT_AT, bytes(4)),
        (ATTRIBUTES_AT + 1, b"\x20"),
        (DELTA_AT, b"\x00\x00\x00\x07"),
        (MAGIC_AT, b"\x00"),
        (LENGTH_AT, b"\x00\x00\x00\xff"),
        (LENGTH_AT, b"\x7f\xff\xff\xff"),
        (LENGTH_AT, bytes(4)),
        (BASE_OFFSET_AT, b"\xff" * 8),
        (BASE_OFFSET_AT + 5, b"\x01"),
        (BASE_OFFSET_AT + 7, b"\x0a"),
        (0, bytes(HEADER_SIZE)),
    ],
    ids=[
        "record",
        "count",
        "control",
        "delta",
        "magic",
        "length",
        "long",
        "short",
        "offset",
        "far",
        "near",
        "header",
    ],
)
def test_a_damaged_batch_is_lost_alone(tmp_path: Path, number: int, place: int, data: bytes) -> None:
    log = make(tmp_path)
    overwrite(log, positions(log)[number] + place, data)
    for max_bytes in (1 << 20, 1):
        intact, damaged = walk(log, max_bytes)
        assert intact == others(number)
        assert [(each.first, each.last) for each in damaged] == [(number, number)]
        assert isinstance(damaged[0].error, StorageError)
        assert damaged[0].is_lasting


def test_an_offset_that_is_too_low_does_not_cost_the_batch_before_it(tmp_path: Path) -> None:
    log = open_log(BadDisk(), str(tmp_path / "t-0"), LogConfig(segment_bytes=1 << 20))
    data = build_batch([Record(delta, 0, b"k", b"value") for delta in range(10)])
    for base_offset in (0, 10, 20, 30):
        whole = assemble(read_header(data)._replace(base_offset=base_offset), bytes(data[HEADER_SIZE:]))
        log.append(memoryview(whole), read_header(whole))
    log.write_pending()
    starts = positions(log)
    overwrite(log, starts[2], (12).to_bytes(8))
    intact, damaged = walk(log)
    assert intact == [0, 10, 30]
    assert [(each.first, each.last) for each in damaged] == [(20, 29)]


@settings(max_examples=60, deadline=None)
@given(
    holes=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 90), st.integers(1, 40)), max_size=4),
)
def test_whatever_is_overwritten_all_that_is_whole_is_found(
    tmp_path_factory: pytest.TempPathFactory, holes: list[tuple[int, int, int]]
) -> None:
    """But for its leader epoch, which no CRC covers and no other batch contradicts."""
    log = make(tmp_path_factory.mktemp("log"))
    starts = positions(log)
    ends = [*starts[1:], starts[-1] + 1_000]
    hit: set[int] = set()
    for number, place, length in holes:
        first = starts[number] + place
        overwrite(log, first, b"\xaa" * length)
        harmed = {
            n: set(range(first, first + length)) & set(range(starts[n], ends[n])) for n in range(BATCHES)
        }
        hit |= {
            n
            for n, bytes_ in harmed.items()
            if bytes_ - set(range(starts[n] + EPOCH_AT, starts[n] + MAGIC_AT))
        }
    log.end_offset = BATCHES
    intact, damaged = walk(log)
    assert intact == others(*hit)
    lost = {offset for each in damaged for offset in range(each.first, each.last + 1)}
    assert lost == hit


@pytest.mark.parametrize("first_base", [0, 5], ids=["a wrong offset", "a hole"])
def test_damage_begins_where_the_reader_stands(tmp_path: Path, first_base: int) -> None:
    """Compaction has left a hole in front of the damaged batch, or its header names a later offset."""
    log = open_log(BadDisk(), str(tmp_path / "t-0"), LogConfig(segment_bytes=1 << 20))
    for base_offset in (first_base, 20):
        data = build_batch([Record(delta, 0, b"k", b"value") for delta in range(10)])
        whole = assemble(read_header(data)._replace(base_offset=base_offset), bytes(data[HEADER_SIZE:]))
        log.append(memoryview(whole), read_header(whole))
    log.write_pending()
    overwrite(log, HEADER_SIZE + 2, b"\xff")
    if not first_base:
        overwrite(log, BASE_OFFSET_AT, (7).to_bytes(8))
    found = read_intact(list(log.files_from(0)), 0, 1 << 20, end=log.end_offset)
    assert isinstance(found, Unreadable)
    assert (found.first, found.last, found.is_lasting) == (0, 19, True)


def test_a_page_that_the_disk_does_not_give_is_lost_alone(tmp_path: Path) -> None:
    log = make(tmp_path, size=3000)
    disk, starts = log._disk, positions(log)
    assert isinstance(disk, BadDisk)
    disk.pages.add(2)
    ends = [*starts[1:], starts[-1] + 3100]
    hit = [n for n in range(BATCHES) if starts[n] < 3 * PAGE and ends[n] > 2 * PAGE]
    assert len(hit) > 1
    intact, damaged = walk(log)
    assert intact == others(*hit)
    assert all(isinstance(each.error, StorageError) and each.is_lasting for each in damaged)
    disk.pages.clear()
    assert walk(log) == (others(), [])


def test_a_disk_that_gives_nothing_is_not_called_damaged(tmp_path: Path) -> None:
    log = make(tmp_path, size=3000)
    stretches = list(log.files_from(0))
    disk = log._disk
    assert isinstance(disk, BadDisk)
    disk.pages.update(range(100))
    found = read_intact(stretches, 3, 1 << 20, end=log.end_offset)
    assert isinstance(found, Unreadable)
    assert not found.is_lasting


def test_a_batch_inside_of_a_message_is_taken_for_one_only_where_its_offset_fits(tmp_path: Path) -> None:
    """The damaged batch holds another one, with a good CRC, whose offset has passed already."""
    inner = build_batch([Record(0, 0, b"k", b"inner")])
    old = assemble(read_header(inner)._replace(base_offset=0), bytes(inner[HEADER_SIZE:]))
    log = make(tmp_path, values=[b"first", bytes(old), b"last"])
    overwrite(log, positions(log)[1] + LENGTH_AT, bytes(4))
    intact, damaged = walk(log)
    assert intact == [0, 2]
    assert [(each.first, each.last) for each in damaged] == [(1, 1)]


def test_a_search_through_what_only_looks_like_batches_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_file, "_SEARCHED_BYTES_MAX", 5_000)
    fake = read_header(build_batch([Record(0, 0, b"k", b"v")]))
    fakes = b"".join(
        bytes(assemble(fake._replace(base_offset=2, batch_length=200), b""))[:HEADER_SIZE] for _ in range(100)
    )
    log = make(tmp_path, values=[b"first", fakes, b"last"])
    overwrite(log, positions(log)[1] + LENGTH_AT, bytes(4))
    intact, damaged = walk(log)
    assert intact[0] == 0
    assert damaged[0].first == 1
