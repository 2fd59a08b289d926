"""One tiered partition whose disk fails is no trouble to the others."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from forebay.storage.disk import FileClosed
from forebay.storage.log.files import LogFiles
from forebay.storage.log.log import Log
from forebay.storage.log.segment.segment_list import LogSlice
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.tiered import (
    copied_to,
    create_tiered,
    eventually,
    fill,
    is_readable,
    settings,
    value,
    values_from,
)
from support.clients.wire_client import WireClient, offset_at

EARLIEST_LOCAL = -4


def failure_of(broker: LocalBroker, topic: str) -> str | None:
    remote = broker.on_loop(lambda node: node.partitions.get(topic, 0).remote)
    assert remote is not None
    return remote.failure


def test_a_disk_that_fails_in_one_partition_ends_nothing_for_the_others(
    tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete_front = Log.delete_front

    def failing(log: Log, count: int) -> None:
        if "bad-0" in log.directory:
            raise OSError(errno.EIO, "the disk does not answer")
        delete_front(log, count)

    monkeypatch.setattr(Log, "delete_front", failing)
    store = tmp_path / "store"
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        bad, good = create_tiered(client, "bad"), create_tiered(client, topic)
        fill(client, "bad", 60)
        assert eventually(lambda: "does not answer" in (failure_of(broker, "bad") or ""))
        fill(client, topic, 60)
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 30)
        fill(client, topic, 60, 60)
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 90)
        assert copied_to(store, good) > 90
        assert eventually(lambda: copied_to(store, bad) > 40), "what can be done for it is done"
        assert values_from(client, "bad", 0) == [(n, value(n)) for n in range(60)]


def test_a_read_whose_file_leaves_the_disk_meanwhile_is_answered_from_the_store(
    tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetch that waits for the disk holds a file that is deleted, and closed once its delay is over."""
    configs = settings(tmp_path / "store")
    with local_broker(tmp_path / "data", configs) as broker, WireClient(broker.bootstrap) as client:
        create_tiered(client, topic)
        fill(client, topic, 60)
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 30)
    warm, waited = LogFiles.warm, list[int]()

    def warm_late(files: LogFiles, found: LogSlice) -> None:
        if not waited:
            waited.append(found.next_offset)
            with WireClient(broker.bootstrap) as other:
                fill(other, topic, 60, 60)
                assert eventually(lambda: offset_at(other, topic, EARLIEST_LOCAL) > 90)
            raise FileClosed(str(tmp_path))  # as it is when its delay is over
        warm(files, found)

    with local_broker(tmp_path / "data", configs) as broker, WireClient(broker.bootstrap) as client:
        assert eventually(lambda: is_readable(client, topic))
        monkeypatch.setattr(LogFiles, "warm", warm_late)
        start = offset_at(client, topic, EARLIEST_LOCAL)
        found = dict(values_from(client, topic, start))
    assert (
        waited
        and found == {n: value(n) for n in range(start, start + len(found))}
        and len(found) >= 60 - start
    )
