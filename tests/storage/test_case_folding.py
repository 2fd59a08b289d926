"""On a file system that takes Orders and orders for one name, as macOS has it, no topic harms another."""

from __future__ import annotations

from pathlib import Path
from threading import Thread

import pytest

from forebay.errors import StorageError
from forebay.storage.datadir import DataDir
from forebay.storage.log.config import LogConfig
from forebay.storage.real_disk import RealDisk, RealFile
from support.machines.storing import fill, headers, read_all

FIRST, SECOND = bytes(range(16)), bytes(range(1, 17))


class CaseFoldingDisk(RealDisk):
    """Every path means the file whose name differs in capital letters only, if there is one."""

    def open(self, path: str, *, create: bool = False, absent: bool = False) -> RealFile:
        return super().open(_there(path), create=create, absent=absent)

    def list(self, path: str) -> list[str]:
        return super().list(_there(path))

    def mkdirs(self, path: str) -> bool:
        return super().mkdirs(_there(path))

    def exists(self, path: str) -> bool:
        return super().exists(_there(path))

    def rename(self, path: str, new_path: str) -> None:
        super().rename(_there(path), _there(new_path))

    def remove(self, path: str) -> None:
        super().remove(_there(path))

    def read_bytes(self, path: str) -> bytes:
        return super().read_bytes(_there(path))

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, sync_name: bool = True) -> None:
        super().write_atomic(_there(path), data, sync=sync, sync_name=sync_name)

    def write_new(self, path: str, data: bytes) -> None:
        super().write_new(_there(path), data)


def _there(path: str) -> str:
    found = Path("/")
    for part in Path(path).parts[1:]:
        same = (
            [each.name for each in found.iterdir() if each.name.lower() == part.lower()]
            if found.is_dir()
            else []
        )
        found /= part if part in same or not same else same[0]
    return str(found)


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    return DataDir.open(CaseFoldingDisk(), str(tmp_path))


def test_a_topic_whose_directory_would_be_another_topics_is_refused(data: DataDir) -> None:
    log = data.open_log("Orders", 0, LogConfig(), topic_id=FIRST)
    fill(log, 5)
    with pytest.raises(StorageError, match=r"orders-0.*capital letters"):
        data.open_log("orders", 0, LogConfig(), topic_id=SECOND)
    assert data.partitions() == [("Orders", 0)]
    assert data.topic_id("Orders", 0) == FIRST
    fill(log, 5)
    assert len(headers(read_all(log))) == 10


def test_the_same_topic_comes_back_and_others_are_beside_it(data: DataDir) -> None:
    data.open_log("Orders", 0, LogConfig(), topic_id=FIRST).files.close()
    data.open_log("Orders", 0, LogConfig(), topic_id=FIRST).files.close()
    data.open_log("Orders", 1, LogConfig(), topic_id=FIRST).files.close()
    data.open_log("invoices", 0, LogConfig(), topic_id=SECOND).files.close()
    assert sorted(data.partitions()) == [("Orders", 0), ("Orders", 1), ("invoices", 0)]


def test_of_topics_that_are_made_at_the_same_time_one_gets_the_directory(data: DataDir) -> None:
    refused: list[str] = []

    def make(topic: str, topic_id: bytes) -> None:
        try:
            data.open_log(topic, 0, LogConfig(), topic_id=topic_id)
        except StorageError:
            refused.append(topic)

    names = ["Orders", "orders", "ORDERS", "oRders"]
    threads = [Thread(target=make, args=(name, bytes([n] * 16))) for n, name in enumerate(names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (made,) = data.partitions()
    assert sorted([*refused, made[0]]) == sorted(names)
    assert data.topic_id(*made) == bytes([names.index(made[0])] * 16)


def test_where_capital_letters_count_both_topics_are_kept(tmp_path: Path) -> None:
    data = DataDir.open(RealDisk(), str(tmp_path))
    fill(data.open_log("Orders", 0, LogConfig(), topic_id=FIRST), 3)
    fill(data.open_log("orders", 0, LogConfig(), topic_id=SECOND), 4)
    assert sorted(data.partitions()) == [("Orders", 0), ("orders", 0)]
