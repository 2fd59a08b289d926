"""A full disk: what a tiered topic has in the object store leaves the disk, though nothing can be written."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from support.brokers.local_broker import local_broker
from support.brokers.tiered import copied_to, create_tiered, eventually, fill, settings, value, values_from
from support.clients.config_calls import increment
from support.clients.wire_client import WireClient, append, batch, offset_at
from support.faults.faulty_disk import FaultyDisk

EARLIEST_LOCAL = -4


@pytest.mark.parametrize("copied", ["before", "meanwhile"])
def test_what_is_copied_leaves_a_disk_that_is_full(tmp_path: Path, topic: str, copied: str) -> None:
    store = tmp_path / "store"
    with (
        local_broker(tmp_path / "data", settings(store), make_disk=FaultyDisk) as broker,
        WireClient(broker.bootstrap) as client,
    ):
        copies_none = "true" if copied == "meanwhile" else "false"
        topic_id = create_tiered(
            client, topic, local_retention_bytes="1000000", remote_log_copy_disable=copies_none
        )
        fill(client, topic, 60)
        if copied == "before":
            assert eventually(lambda: copied_to(store, topic_id) > 40)
        assert offset_at(client, topic, EARLIEST_LOCAL) == 0
        disk = broker.node.disk
        assert isinstance(disk, FaultyDisk)
        disk.break_path("append", f"{topic}-0", errno.ENOSPC)
        refused = append(client, topic, batch(bytes(10)))
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert increment(client, 2, topic, ("remote.log.copy.disable", 0, "false")).error_code == 0
        assert increment(client, 2, topic, ("local.retention.bytes", 0, "1000")).error_code == 0
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 30)
        assert broker.on_loop(lambda node: node.partitions.get(topic, 0).log.offline)
        disk.repair()
        assert eventually(lambda: append(client, topic, batch(value(60))).error_code == 0)
        assert values_from(client, topic, 0)[:61] == [
            *((number, value(number)) for number in range(60)),
            (60, value(60)),
        ]
