"""DescribeRemoteLogs: leaders tell what of their tiered partitions is in the object store, and what waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forebay.operations.client import Client
from forebay.operations.remote_logs import WAITING_SEGMENTS_MAX, is_behind
from forebay.operations.wire import WireConnection
from forebay.wire.messages.describe_remote_logs import (
    DescribedRemoteLog,
    DescribeRemoteLogsRequest,
    DescribeRemoteLogsResponse,
)
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.tiered import create_tiered, eventually, fill, manifest_of, settings
from support.clients.config_calls import increment
from support.clients.wire_client import WireClient, create


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def broker(tmp_path: Path, store: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path / "data", settings(store)) as broker:
        yield broker


def described(bootstrap: str, *topics: str) -> list[DescribedRemoteLog]:
    with WireConnection.open(Client(bootstrap=bootstrap)) as connection:
        assert connection.serves(DescribeRemoteLogsRequest)
        request = DescribeRemoteLogsRequest(topics=list(topics) or None)
        return connection.ask(request, DescribeRemoteLogsResponse).partitions


def test_a_leader_tells_what_its_manifest_has(broker: LocalBroker, store: Path) -> None:
    with WireClient(broker.bootstrap) as client:
        topic_id = create_tiered(client, "old")
        create(client, "plain", 1)
        fill(client, "old", 60)
        fill(client, "plain", 3)
    assert eventually(lambda: described(broker.bootstrap)[0].local_start_offset > 30)
    assert eventually(lambda: not described(broker.bootstrap)[0].waiting_segments)
    (log,) = described(broker.bootstrap)
    manifest = manifest_of(store, topic_id)
    assert manifest is not None
    assert (log.topic, log.partition_index, log.is_known, log.copies) == ("old", 0, True, True)
    assert (log.remote_start_offset, log.remote_end_offset) == (0, manifest.next_offset)
    assert (log.remote_bytes, log.remote_segments) == (manifest.data_bytes, len(manifest.segments))
    assert log.problem == "" and not is_behind(log)
    assert described(broker.bootstrap, "plain", "none") == []
    assert described(broker.bootstrap, "old") == [log]


def test_closed_segments_that_are_not_copied_are_counted(broker: LocalBroker) -> None:
    with WireClient(broker.bootstrap) as client:
        create_tiered(client, "old", segment_bytes="400", remote_log_copy_disable="true")
        fill(client, "old", 60)
        assert eventually(lambda: described(broker.bootstrap)[0].is_known)
        (log,) = described(broker.bootstrap)
        assert (log.copies, log.remote_start_offset, log.remote_end_offset, log.remote_bytes) == (
            False,
            -1,
            -1,
            0,
        )
        assert log.waiting_segments >= WAITING_SEGMENTS_MAX and log.waiting_bytes > 50 * 200
        changed = increment(client, 2, "old", ("remote.log.copy.disable", 0, "false"))
        assert changed.error_code == 0
    assert eventually(lambda: not described(broker.bootstrap)[0].waiting_segments)
    assert described(broker.bootstrap)[0].copies


@pytest.mark.parametrize(
    ("of", "is_late"),
    [
        ({}, True),
        ({"waiting_segments": WAITING_SEGMENTS_MAX - 1}, False),
        ({"copies": False}, False),
        ({"is_known": False}, False),
    ],
)
def test_copying_is_behind_if_it_should_go_on_and_does_not(of: dict[str, Any], is_late: bool) -> None:
    late: dict[str, Any] = {"waiting_segments": WAITING_SEGMENTS_MAX, "copies": True, "is_known": True}
    assert is_behind(DescribedRemoteLog(topic="old", **{**late, **of})) is is_late
