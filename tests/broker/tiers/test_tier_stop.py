"""A broker stops, and keeps its disk small, although its object store does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.broker.yielding import pace
from forebay.tiers.local_directory import LocalDirectory
from forebay.wire.messages.delete_topics import DeleteTopicsRequest
from support.brokers.held_store import Held
from support.brokers.local_broker import local_broker
from support.brokers.tiered import (
    copied_to,
    create_tiered,
    eventually,
    fill,
    is_readable,
    manifest_of,
    settings,
    value,
    values_from,
)
from support.clients.wire_client import WireClient, fetch, offset_at

EARLIEST_LOCAL = -4


@pytest.fixture
def held() -> Iterator[Held]:
    found = Held()
    yield found
    found.let_go.set()


def test_a_broker_that_stops_gives_up_an_upload_that_hangs(
    tmp_path: Path, topic: str, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    at_once = {**settings(store), "forebay.remote.delete.delay.ms": "0"}
    with local_broker(tmp_path / "data", at_once) as broker, WireClient(broker.bootstrap) as client:
        topic_id = create_tiered(client, topic)
        held.hold(monkeypatch, "upload")
        fill(client, topic, 60)
        assert held.reached.wait(60)
        broker.stop()
        assert not held.let_go.is_set(), "it did not wait for the store"
    found = manifest_of(store, topic_id)
    assert found is not None and found.pending, "the object is named before it is written"
    held.let_go.set()
    with local_broker(tmp_path / "data", at_once) as broker, WireClient(broker.bootstrap) as client:
        assert eventually(lambda: copied_to(store, topic_id) > 40)
        assert values_from(client, topic, 0) == [(n, value(n)) for n in range(60)]

        def is_clean() -> bool:
            manifest = manifest_of(store, topic_id)
            listed = {each.key for each in LocalDirectory(str(store)).list("topics/")}
            objects = {key for key in listed if key.endswith(".segment")}
            return manifest is not None and objects == {segment.key for segment in manifest.segments}

        assert eventually(is_clean), "what was given up is deleted"


def test_a_leader_that_is_replaced_gives_up_its_upload(
    tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or its object would come when the next leader, or whoever removes the topic, has looked for it."""
    store = tmp_path / "store"
    monkeypatch.setattr(pace, "_STRETCH_SECONDS", 0.0)  # the throttle counts from the first batch on
    slow = {**settings(store), "remote.log.manager.copy.max.bytes.per.second": "100"}
    with local_broker(tmp_path / "data", slow) as broker, WireClient(broker.bootstrap) as client:
        create_tiered(client, topic)
        fill(client, topic, 20)
        assert eventually(lambda: bool(list(store.rglob("*.part*"))))
        client.call(DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000), 4)
        assert eventually(lambda: not list(store.rglob("*.part*")))
        assert eventually(lambda: not list(LocalDirectory(str(store)).list("topics/")))


def test_what_was_copied_leaves_the_disk_while_the_next_upload_takes_long(
    tmp_path: Path, topic: str, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        topic_id = create_tiered(client, topic)
        fill(client, topic, 60)
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 30)
        held.hold(monkeypatch, "upload")
        fill(client, topic, 60, 60)
        assert held.reached.wait(60)
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) == copied_to(store, topic_id))
        assert not held.let_go.is_set()


@pytest.mark.parametrize("name", ["get_range", "put"])
def test_a_broker_that_stops_gives_up_other_requests_that_hang(
    tmp_path: Path, topic: str, held: Held, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    store = tmp_path / "store"
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        create_tiered(client, topic)
        fill(client, topic, 60)
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 30)
        held.hold(monkeypatch, name)
        client.post(fetch(topic, 0, max_wait_ms=60_000), 12)
        with WireClient(broker.bootstrap) as other:
            fill(other, topic, 60, 60)
        assert held.reached.wait(60)
        broker.stop()
        assert not held.let_go.is_set()
    held.let_go.set()
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        assert eventually(lambda: is_readable(client, topic))
        assert values_from(client, topic, 0) == [(n, value(n)) for n in range(120)]
