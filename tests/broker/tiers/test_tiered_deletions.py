"""DeleteRecords in a tiered topic while messages come and the object store is slow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.tiers.local_directory import LocalDirectory
from forebay.wire.tiers.layout import manifest_key
from forebay.wire.tiers.manifest import Manifest, encode_manifest
from support.brokers.held_store import Held
from support.brokers.local_broker import local_broker
from support.brokers.tiered import (
    copied_to,
    create_tiered,
    delete_below,
    eventually,
    fill,
    settings,
    value,
    values_from,
)
from support.clients.config_calls import increment
from support.clients.wire_client import EARLIEST, WireClient, offset_at

UP_TO_THE_END = -1


@pytest.fixture
def held() -> Iterator[Held]:
    found = Held()
    yield found
    found.let_go.set()


def test_what_comes_while_the_store_is_asked_is_not_deleted(
    tmp_path: Path, topic: str, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The local log must not begin later than the manifest says: it would begin earlier again when the next
    segment is copied, or no segment would fit any more."""
    store = tmp_path / "store"
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        topic_id = create_tiered(client, topic)
        fill(client, topic, 60)
        assert eventually(lambda: copied_to(store, topic_id) > 50)
        held.hold(monkeypatch, "put")
        client.post(delete_below(topic, UP_TO_THE_END), 2)
        assert held.reached.wait(60)
        with WireClient(broker.bootstrap) as other:
            fill(other, topic, 20, 60)
        held.let_go.set()
        (deleted,) = client.read().topics[0].partitions
        assert (deleted.error_code, deleted.low_watermark) == (0, 60)
        fill(client, topic, 60, 80)
        assert eventually(lambda: copied_to(store, topic_id) > 120)
        assert offset_at(client, topic, EARLIEST) == 60
        assert values_from(client, topic, 60) == [(number, value(number)) for number in range(60, 140)]


def test_a_manifest_without_segments_that_begins_before_the_local_log_is_no_obstacle(
    tmp_path: Path, topic: str
) -> None:
    """A leader wrote it when it had been replaced, and the next one had deleted messages meanwhile."""
    store = tmp_path / "store"
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        topic_id = create_tiered(client, topic, remote_log_copy_disable="true")
        fill(client, topic, 60)
        (deleted,) = client.call(delete_below(topic, 40), 2).topics[0].partitions
        assert deleted.low_watermark == 40
    announced = Manifest(topic, topic_id, 0, version=1, leader_epoch=0, pending=("topics/x.segment",))
    LocalDirectory(str(store)).put(manifest_key(topic_id, 0), encode_manifest(announced))
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        assert increment(client, 2, topic, ("remote.log.copy.disable", 0, "false")).error_code == 0
        fill(client, topic, 60, 60)
        assert eventually(lambda: copied_to(store, topic_id) > 100)
        assert offset_at(client, topic, EARLIEST) == 40
        assert values_from(client, topic, 40) == [(number, value(number)) for number in range(40, 120)]
