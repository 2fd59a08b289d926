"""What waits for its time outlives retention and compaction, and the log still becomes small."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.broker.node import Node
from forebay.broker.partition.partition import Partition
from forebay.wire.messages.alter_delays import FIRE, AlterDelaysRequest
from forebay.wire.state.delay_notes import is_note
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.delaying import (
    after,
    at,
    batch_of,
    delivered,
    describe,
    eventually,
    named,
    now_ms,
    pending,
    send,
    values,
)
from support.clients.wire_client import EARLIEST, WireClient, append, create, offset_at

OFTEN = {"log.retention.check.interval.ms": "50"}
EAGER = {"log.cleaner.backoff.ms": "20", "log.cleaner.min.cleanable.ratio": "0"}
SMALL = {"segment_bytes": "2000", "file_delete_delay_ms": "0", "forebay_delay_enable": "true"}
COMPACTED = {**SMALL, "cleanup_policy": "compact", "delete_retention_ms": "0"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path, {**OFTEN, **EAGER}) as broker:
        yield broker


@pytest.fixture
def client(broker: LocalBroker) -> Iterator[WireClient]:
    with WireClient(broker.bootstrap) as client:
        yield client


def led(broker: LocalBroker, topic: str) -> Partition:
    return broker.on_loop(lambda node: node.partitions.get(topic, 0))


def notes(broker: LocalBroker, topic: str) -> int:
    """How many notes are in the log."""

    def count(node: Node) -> int:
        stretches = list(node.partitions.get(topic, 0).log.stretches(0))
        return sum(is_note(header) for part in stretches for _, header in part.batches())

    return broker.on_loop(count)


def test_retention_by_size_carries_on_what_waits(broker: LocalBroker, client: WireClient) -> None:
    create(client, "t", 1, **SMALL, retention_bytes="4000")
    waiting = [send(client, "t", b"far", [*after("1h", schedule_key="k"), ("own", b"1")])]
    waiting.append(send(client, "t", b"gone", after("1h", schedule_key="gone")))
    waiting.append(send(client, "t", b"soon", at(now_ms() + 4_000)))
    send(client, "t", None, named(schedule_key="gone"))
    for _ in range(40):
        send(client, "t", b"x" * 500)
    eventually(lambda: offset_at(client, "t", EARLIEST) > waiting[-1], "nothing was deleted")
    found = describe(client, "t", values=True).messages
    assert [(each.id, each.value, each.schedule_key) for each in found if each.value == b"far"] == [
        (waiting[0], b"far", b"k")
    ]
    eventually(lambda: values(client, "t")[-1] == b"soon", "what was carried on was not delivered")
    assert values(client, "t").count(b"soon") == 1
    assert pending(client, "t") == 1
    send(client, "t", b"again", at(now_ms() + 100, schedule_key="k"))
    eventually(lambda: values(client, "t")[-1] == b"again", "what was carried on was not replaced")
    assert pending(client, "t") == 0


def test_retention_by_time_deletes_nothing_that_waits(broker: LocalBroker, client: WireClient) -> None:
    create(client, "t", 1, **SMALL, retention_ms="200")
    ids = [send(client, "t", b"%d" % number + b"x" * 300, after("1h")) for number in range(30)]
    for _ in range(20):
        send(client, "t", b"y" * 500)
    start = offset_at(client, "t", EARLIEST)
    eventually(lambda: offset_at(client, "t", EARLIEST) > start, "nothing was deleted")
    eventually(lambda: values(client, "t") == [], "messages that do not wait are past their retention")
    assert [each.id for each in describe(client, "t").messages] == ids
    assert led(broker, "t").log.size < 60_000, "what waits was written again and again"


def test_an_index_made_anew_from_a_compacted_log_is_the_same(tmp_path: Path) -> None:
    """Delivered, cancelled and replaced messages do not come back, whatever of their notes was removed."""
    with local_broker(tmp_path, EAGER) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t", 1, **COMPACTED)
        kept = [send(client, "t", b"far", after("1h"))]
        for number in range(30):
            send(client, "t", b"%d" % number, at(now_ms() + 50, schedule_key=f"k{number % 3}"))
            send(client, "t", b"cancelled", after("1h", schedule_key="gone"))
        send(client, "t", None, named(schedule_key="gone"))
        eventually(lambda: pending(client, "t") == 1, "not all were delivered")
        kept.append(send(client, "t", b"far, too", after("2h", schedule_key="k0")))
        partition = led(broker, "t")

        def is_cleaned() -> bool:
            broker.on_loop(lambda _: partition.log.roll())
            send(client, "t", b"more")
            return notes(broker, "t") < 10

        eventually(is_cleaned, f"there are still many of {notes(broker, 't')} notes")
        assert [each.id for each in describe(client, "t").messages] == kept
    files = list(tmp_path.glob("t-0/delays.sqlite*"))
    assert files
    for file in files:
        file.unlink()
    with local_broker(tmp_path, EAGER) as broker, WireClient(broker.bootstrap) as client:
        eventually(lambda: describe(client, "t").error_code == 0, "the index is not ready")
        assert [each.id for each in describe(client, "t").messages] == kept
        assert b"far" not in values(client, "t")


def test_an_older_index_finds_nothing_that_compaction_has_removed(tmp_path: Path) -> None:
    """A loss of power takes what SQLite has not synced: messages wait by what is left that were delivered."""
    file = tmp_path / "t-0" / "delays.sqlite"
    with local_broker(tmp_path, EAGER) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t", 1, **COMPACTED)
        kept = [send(client, "t", b"far", after("1h"))]
        fired = [send(client, "t", b"%d" % number, after("1h")) for number in range(5)]
        assert pending(client, "t") == 6
        with contextlib.closing(sqlite3.connect(file)) as other:
            other.execute("PRAGMA wal_checkpoint(FULL)")
        answer = client.call(AlterDelaysRequest(topic="t", action=FIRE, ids=fired), 0)
        assert [each.error_code for each in answer.results] == [0] * 5
        partition = led(broker, "t")

        def is_cleaned() -> bool:
            broker.on_loop(lambda _: partition.log.roll())
            send(client, "t", b"more")
            return notes(broker, "t") < 3

        eventually(is_cleaned, "the notes are still there")
        left = file.read_bytes()
    for each in file.parent.glob("delays.sqlite*"):
        each.unlink()
    file.write_bytes(left)
    with local_broker(tmp_path, EAGER) as broker, WireClient(broker.bootstrap) as client:
        eventually(lambda: describe(client, "t").error_code == 0, "the index is not ready")
        assert [each.id for each in describe(client, "t").messages] == kept


def test_compaction_keeps_the_notes_that_something_needs(tmp_path: Path) -> None:
    """Too much waits to be carried on, so it stays where it is, and with it what others have ended."""
    with local_broker(tmp_path, EAGER) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t", 1, **COMPACTED)
        kept = []
        for number in range(10):
            kept.append(send(client, "t", b"x" * 3_000, after("1h")))
            send(client, "t", b"%d" % number, at(now_ms() + 50, schedule_key="k"))
            send(client, "t", b"cancelled", after("1h", schedule_key="gone"))
        send(client, "t", None, named(schedule_key="gone"))
        eventually(lambda: pending(client, "t") == len(kept), "not all were delivered")
        partition = led(broker, "t")
        broker.on_loop(lambda _: partition.log.roll())
        end = partition.log.end_offset
        eventually(
            lambda: broker.on_loop(lambda node: node.data.first_dirty_offset("t", 0)) >= end,
            "the log is not cleaned",
        )
    for file in tmp_path.glob("t-0/delays.sqlite*"):
        file.unlink()
    with local_broker(tmp_path, EAGER) as broker, WireClient(broker.bootstrap) as client:
        eventually(lambda: describe(client, "t").error_code == 0, "the index is not ready")
        assert [each.id for each in describe(client, "t").messages] == kept
        assert values(client, "t") == [b"9"]


def test_a_delayed_tombstone_removes_its_key(broker: LocalBroker, client: WireClient) -> None:
    create(client, "t", 1, **COMPACTED)
    append(client, "t", batch_of((b"value", ()), key=b"expires"))
    append(client, "t", batch_of((None, at(now_ms() + 300)), key=b"expires"))
    partition = led(broker, "t")

    def gone() -> bool:
        broker.on_loop(lambda _: partition.log.roll())
        append(client, "t", batch_of((b"z", ()), key=b"other"))
        return {record.key for record in delivered(client, "t")} == {b"other"}

    eventually(gone, "the key is still there")
