"""What partitions cost, counted in system calls: many together cost less than each by itself, and those that
nobody uses cost nothing."""

from __future__ import annotations

import builtins
from collections import Counter
from pathlib import Path

from forebay.broker.node import Node
from forebay.errors import ErrorCode
from forebay.storage.real_disk import RealDisk, RealFile
from forebay.wire.messages import produce as wire
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.wire_client import PRODUCE, WireClient, batch, create

MANY = 200
QUIET = {"log.flush.interval.ms": "3600000"}


class CountedFile(RealFile):
    __slots__ = ()

    def datasync(self) -> None:
        assert isinstance(self._disk, CountingDisk)
        self._disk.calls["datasync", _folder(self.path)] += 1
        super().datasync()


class CountingDisk(RealDisk):
    """Counts what waits for the device, by the directory that it is about."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[tuple[str, str]] = Counter()

    def open(self, path: str, *, create: bool = False, absent: bool = False) -> RealFile:
        super().open(path, create=create, absent=absent)
        return CountedFile(self, path)

    def fsync_dir(self, path: str) -> None:
        self.calls["fsync_dir", Path(path).name] += 1
        super().fsync_dir(path)

    def list(self, path: str) -> builtins.list[str]:
        self.calls["list", Path(path).name] += 1
        return super().list(path)

    def remove(self, path: str) -> None:
        self.calls["remove", _folder(path)] += 1
        super().remove(path)

    def read_bytes(self, path: str) -> bytes:
        self.calls["read", _folder(path)] += 1
        return super().read_bytes(path)

    def count(self, call: str, start: str) -> int:
        return sum(
            number
            for (name, folder), number in self.calls.items()
            if name == call and folder.startswith(start)
        )


def _folder(path: str) -> str:
    return Path(path).parent.name


def disk_of(local: LocalBroker) -> CountingDisk:
    assert isinstance(local.node.disk, CountingDisk)
    return local.node.disk


def send_one_to_each(client: WireClient, topic: str, partitions: range) -> None:
    data = [wire.PartitionProduceData(index=index, records=memoryview(batch(b"one"))) for index in partitions]
    request = wire.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=60_000,
        topic_data=[wire.TopicProduceData(name=topic, partition_data=data)],
    )
    answer = client.call(request, PRODUCE)
    assert {each.error_code for each in answer.responses[0].partition_responses} == {ErrorCode.NONE}


def test_the_first_messages_of_many_partitions_need_few_syncs_of_the_data_directory(tmp_path: Path) -> None:
    with (
        local_broker(tmp_path / "data", QUIET, make_disk=CountingDisk) as local,
        WireClient(local.bootstrap) as client,
    ):
        create(client, "many", partitions=MANY)
        disk = disk_of(local)
        disk.calls.clear()
        send_one_to_each(client, "many", range(MANY))
        assert disk.count("datasync", "many-") == MANY, "each of them is on the disk"
        assert disk.count("fsync_dir", "many-") == MANY, "their names too, and those of their leader epochs"
        assert disk.count("fsync_dir", "data") <= 2


def test_nothing_is_looked_for_in_a_directory_that_was_just_made(tmp_path: Path) -> None:
    with (
        local_broker(tmp_path / "data", QUIET, make_disk=CountingDisk) as local,
        WireClient(local.bootstrap) as client,
    ):
        create(client, "many", partitions=MANY)
        send_one_to_each(client, "many", range(MANY))
        assert disk_of(local).count("list", "many-") == 0
        assert disk_of(local).count("remove", "many-") == 0
        assert disk_of(local).count("read", "many-") == 0


def test_a_stop_syncs_only_what_was_written_since_the_last_one(tmp_path: Path) -> None:
    with local_broker(tmp_path / "data", QUIET) as local, WireClient(local.bootstrap) as client:
        create(client, "many", partitions=MANY)
        send_one_to_each(client, "many", range(MANY))
    with (
        local_broker(tmp_path / "data", QUIET, make_disk=CountingDisk) as local,
        WireClient(local.bootstrap) as client,
    ):
        send_one_to_each(client, "many", range(1))
        disk = disk_of(local)
    synced = {
        folder
        for (call, folder) in disk.calls
        if call in ("datasync", "fsync_dir") and folder.startswith("many-")
    }
    assert synced == {"many-0"}


def test_a_directory_is_listed_once_when_its_log_is_opened(tmp_path: Path) -> None:
    with local_broker(tmp_path / "data", QUIET) as local, WireClient(local.bootstrap) as client:
        create(client, "many", partitions=MANY)
        send_one_to_each(client, "many", range(MANY))
    with local_broker(tmp_path / "data", QUIET, make_disk=CountingDisk) as local:
        assert disk_of(local).count("list", "many-") == MANY


def test_partitions_with_the_same_settings_share_them(tmp_path: Path) -> None:
    def shared(broker: Node) -> tuple[int, int, int]:
        held = [each for each in broker.partitions.all() if each.topic.startswith("alike")]
        configs = {id(each.config) for each in held}
        return (
            len(configs),
            len({id(each.policy) for each in held}),
            len({id(each.log.config) for each in held}),
        )

    with local_broker(tmp_path / "data", QUIET) as local, WireClient(local.bootstrap) as client:
        create(client, "alike", partitions=20)
        create(client, "alike_too", partitions=20)
        assert local.on_loop(shared) == (1, 1, 1)


def test_a_stop_syncs_nothing_of_partitions_that_never_had_a_message(tmp_path: Path) -> None:
    with (
        local_broker(tmp_path / "data", QUIET, make_disk=CountingDisk) as local,
        WireClient(local.bootstrap) as client,
    ):
        create(client, "many", partitions=MANY)
        disk = disk_of(local)
    assert not {
        folder
        for (call, folder) in disk.calls
        if call in ("datasync", "fsync_dir") and folder.startswith("many-")
    }
    with local_broker(tmp_path / "data", QUIET) as local, WireClient(local.bootstrap) as client:
        send_one_to_each(client, "many", range(MANY))
