"""A broker whose object store is another one copies nothing there, and gives up nothing that is elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from support.brokers.local_broker import local_broker
from support.brokers.tiered import copied_to, create_tiered, eventually, fill, manifest_of, settings
from support.clients.wire_client import WireClient


def _was_refused(caplog: pytest.LogCaptureFixture) -> bool:
    return any("is not the object store" in getattr(record, "reason", "") for record in caplog.records)


def test_an_empty_volume_in_its_place_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, aside = tmp_path / "store", tmp_path / "aside"
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        topic_id = create_tiered(client, "t")
        fill(client, "t", 60)
        # All of it, or an upload that is under way ends in the new one.
        closed_to = broker.on_loop(lambda node: node.partitions.get("t", 0).log.segments()[-1].base_offset)
        assert eventually(lambda: copied_to(store, topic_id) == closed_to > 40)
        store.rename(aside)
        before = copied_to(aside, topic_id)
        fill(client, "t", 60, start=60)
        assert eventually(lambda: _was_refused(caplog))
        assert not [*store.rglob("*.segment"), *store.rglob("manifest.json")]
        shutil.rmtree(store, ignore_errors=True)  # not even the directory is made again
        aside.rename(store)
        assert eventually(lambda: copied_to(store, topic_id) > before)
        manifest = manifest_of(store, topic_id)
    assert manifest is not None
    assert manifest.first_offset == 0


def test_another_store_is_used_only_if_an_administrator_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, first, second = tmp_path / "data", tmp_path / "first", tmp_path / "second"
    with local_broker(data, settings(first)) as broker, WireClient(broker.bootstrap) as client:
        topic_id = create_tiered(client, "t")
        fill(client, "t", 60)
        assert eventually(lambda: copied_to(first, topic_id) > 40)
    with local_broker(data, settings(second)) as broker, WireClient(broker.bootstrap) as client:
        assert eventually(lambda: _was_refused(caplog))
        assert not second.exists()
    accepted = {**settings(second), "forebay.remote.store.id": "second"}
    with local_broker(data, accepted) as broker, WireClient(broker.bootstrap) as client:
        fill(client, "t", 60, start=60)
        assert eventually(lambda: copied_to(second, topic_id) > 100)
    with local_broker(data, settings(second)) as broker, WireClient(broker.bootstrap) as client:
        fill(client, "t", 60, start=120)
        assert eventually(lambda: copied_to(second, topic_id) > 160)
