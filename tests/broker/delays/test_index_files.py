"""Index files: few are open at a time, and one that was closed for another opens again when it is asked."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from forebay.errors import StorageError
from forebay.storage.delays.files import FILE_NAME, DelayIndexFiles
from forebay.storage.delays.index import DelayIndex, Noted
from forebay.wire.state.delay_notes import NoMore, Waiting

TOPIC_ID = b"i" * 16
OPEN_MAX = 4
PER_FILE = 3


def open_descriptors() -> int:
    """Of index files, in this process."""
    count = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            count += FILE_NAME in str(each.readlink())
    return count


def made(files: DelayIndexFiles, directory: Path, count: int) -> list[DelayIndex]:
    indexes = []
    for number in range(count):
        place = directory / str(number)
        place.mkdir()
        index = files.of(str(place))
        index.load(TOPIC_ID)
        index.apply([Noted(0, [Waiting(1 + number, 1, 1, 0, None, b"body")])], 10, 1)
        indexes.append(index)
    return indexes


def ids(index: DelayIndex) -> list[int]:
    return [each.id for each in index.due(2, count_max=10, bytes_max=1000)]


def test_few_of_many_indexes_are_open(tmp_path: Path) -> None:
    before = open_descriptors()
    files = DelayIndexFiles(OPEN_MAX)
    indexes = made(files, tmp_path, 20)
    for _ in range(2):
        for number, index in enumerate(indexes):
            assert ids(index) == [1 + number]
            assert open_descriptors() - before <= OPEN_MAX * PER_FILE
    assert indexes[0].apply([Noted(10, [NoMore((1,))])], 12, 1).pending == 0
    for index in indexes:
        index.close()
    assert open_descriptors() == before
    assert files.of(str(tmp_path / "0")).load(TOPIC_ID).position == 12


def test_an_index_that_is_another_when_it_is_opened_again_is_not_believed(tmp_path: Path) -> None:
    files = DelayIndexFiles(OPEN_MAX)
    first, *others = made(files, tmp_path, 1 + OPEN_MAX)
    for file in (tmp_path / "0").glob(f"{FILE_NAME}*"):
        file.unlink()
    with pytest.raises(StorageError, match="somebody else"):
        ids(first)
    assert first.load(TOPIC_ID).position == 0, "it is made anew from the log"
    for index in (first, *others):
        index.close()


def test_how_many_wait_is_known_without_counting_them(tmp_path: Path) -> None:
    """Also after a message was ended, or lay before the start of the log."""
    index = DelayIndexFiles().of(str(tmp_path))
    index.load(TOPIC_ID)
    index.apply([Noted(home, [Waiting(home + 1, 1, 1, 0, None, b"")]) for home in range(0, 20, 2)], 20, 1)
    index.apply([Noted(20, [NoMore((5, 7, 99))])], 22, 1)
    assert index.forget_below(2).pending == 7
    index.close()
    again = DelayIndexFiles().of(str(tmp_path))
    assert again.load(TOPIC_ID).pending == len(again.due(2, count_max=100, bytes_max=1000)) == 7
    again.close()
