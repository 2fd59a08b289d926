"""A log is not taken for an unused partition if it could not be opened when its turn came."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.partition.opening.partition_opener import PartitionOpener
from forebay.coordination.store import Delete, Put
from forebay.errors import ErrorCode
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.wire_client import (
    LATEST,
    LIST_OFFSETS,
    WireClient,
    append,
    batch,
    create,
    list_offsets,
    read_all,
)
from support.waiting import Patience

TOPIC = "wide"
USED = 20
"""More than are opened at once."""
LAST = USED - 1
FEW = {"forebay.open.before.ready.max": "10"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with local_broker(tmp_path / "data", FEW) as local, WireClient(local.bootstrap) as client:
        create(client, TOPIC, partitions=60)
        for index in range(USED):
            append(client, TOPIC, batch(b"kept"), partition=index)
    return tmp_path / "data"


def key_of(kind: str, node: Any) -> str:
    keys, topic = node.metadata.keys, node.metadata.image.topics[TOPIC]
    return str(keys.topic(TOPIC) if kind == "topic" else keys.state(topic.topic_id, LAST))


def stored(local: LocalBroker, key: str) -> bytes | None:
    def find(node: Any) -> bytes | None:
        item = node.store._keyspace._items.get(key)
        return None if item is None else bytes(item.value)

    return local.on_loop(find)


def write(local: LocalBroker, key: str, value: bytes | None) -> None:
    """None: as the states of partitions are that have not changed since their topic was made."""
    puts = [] if value is None else [Put(key=key, value=value)]
    deletes = [Delete(key=key)] if value is None else []

    def begin(node: Any) -> None:
        node.background.spawn(node.store.txn(puts=puts, deletes=deletes), "writing a value")

    local.on_loop(begin)
    patience = Patience("the value is stored")
    while stored(local, key) != value:
        patience.check(None)


def check_it_is_shown(client: WireClient) -> None:
    patience = Patience("ListOffsets answers with the end")
    question = list_offsets(TOPIC, LATEST, partition=LAST)
    while (found := client.call(question, LIST_OFFSETS).topics[0].partitions[0]).error_code != ErrorCode.NONE:
        patience.check(found)
    assert found.offset == 1
    assert read_all(client, TOPIC, partition=LAST) == [(0, b"kept")]


@pytest.mark.parametrize("kind", ["topic", "state"])
def test_one_that_cannot_be_read_in_the_store_at_the_start(data: Path, kind: str) -> None:
    with local_broker(data, FEW) as local:
        key = local.on_loop(lambda node: key_of(kind, node))
        value = stored(local, key)
        write(local, key, b"?")
    with local_broker(data, FEW) as local, WireClient(local.bootstrap) as client:
        write(local, key, value)
        check_it_is_shown(client)


@pytest.mark.parametrize("kind", ["topic", "state"])
def test_one_that_cannot_be_read_in_the_store_in_its_turn(
    data: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, really_open = threading.Event(), PartitionOpener.open

    def open_(self: PartitionOpener, image: Any, topic: Any, state: Any) -> Any:
        if topic.name == TOPIC:
            go_on.wait()
        return really_open(self, image, topic, state)

    monkeypatch.setattr(PartitionOpener, "open", open_)
    try:
        with local_broker(data, FEW) as local, WireClient(local.bootstrap) as client:
            key = local.on_loop(lambda node: key_of(kind, node))
            value = stored(local, key)
            write(local, key, b"?")
            patience = Patience("it cannot be read")
            while not local.on_loop(lambda node: len(node.image.unreadable)):
                patience.check(None)
            go_on.set()
            patience = Patience("its turn has come")
            while local.node.assignment.later.has_unchecked:
                patience.check(None)
            write(local, key, value)
            check_it_is_shown(client)
    finally:
        go_on.set()
