"""Delays whose index is made anew from the log: of which the beginning was deleted, or a part is damaged."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka

from support.brokers.local_broker import local_broker
from support.clients.delaying import (
    DEADLINE_SECONDS,
    after,
    append_note_alone,
    at,
    describe,
    eventually,
    eventually_values,
    now_ms,
    pending,
    send,
)
from support.clients.wire_client import EARLIEST, WireClient, create, offset_at

OFTEN = {"log.retention.check.interval.ms": "50"}
SMALL = {"segment_bytes": "2000", "file_delete_delay_ms": "0", "retention_bytes": "4000"}
FILLING = b"x" * 500


def lose_index(data: Path) -> None:
    files = list(data.glob("t-0/delays.sqlite*"))
    assert files
    for file in files:
        file.unlink()


def test_what_a_transaction_has_cancelled_stays_cancelled_without_its_beginning(tmp_path: Path) -> None:
    """The transaction began before the message was sent: the log is cut between them."""
    with local_broker(tmp_path, OFTEN) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t", 1, **SMALL, forebay_delay_enable="true")
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.bootstrap, "transactional.id": "t", "log_level": 0}
        )
        producer.init_transactions(DEADLINE_SECONDS)
        producer.begin_transaction()
        producer.produce("t", None, b"key", headers=[("forebay-schedule-key", b"k")])
        assert producer.flush(DEADLINE_SECONDS) == 0
        for _ in range(8):
            send(client, "t", FILLING)
        id_ = send(client, "t", b"gone", after("1h", schedule_key="k"))
        kept = send(client, "t", b"kept", after("1h", schedule_key="l"))
        assert pending(client, "t") == 2
        producer.commit_transaction(DEADLINE_SECONDS)
        eventually(lambda: pending(client, "t") == 1, "the transaction has cancelled nothing")
        for _ in range(4):
            send(client, "t", FILLING)
        eventually(lambda: offset_at(client, "t", EARLIEST) > 1, "nothing was deleted")
        assert offset_at(client, "t", EARLIEST) <= id_ - 1, "the note of the message must be there"
    lose_index(tmp_path)
    with local_broker(tmp_path, OFTEN) as broker, WireClient(broker.bootstrap) as client:
        eventually(lambda: describe(client, "t").error_code == 0, "the index is not ready")
        assert [each.id for each in describe(client, "t").messages] == [kept]


def test_a_damaged_note_stops_no_other_message(tmp_path: Path) -> None:
    with local_broker(tmp_path) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t", 1, forebay_delay_enable="true")
        send(client, "t", b"damaged", after("1h"))
        kept = send(client, "t", b"kept", after("1h"))
        assert pending(client, "t") == 2
    lose_index(tmp_path)
    (file,) = tmp_path.glob("t-0/*.log")
    data = file.read_bytes()
    assert data.count(b"damaged") == 1
    file.write_bytes(data.replace(b"damaged", b"demaged"))
    with local_broker(tmp_path) as broker, WireClient(broker.bootstrap) as client:
        eventually(lambda: describe(client, "t").error_code == 0, "the index is not ready")
        assert [each.id for each in describe(client, "t").messages] == [kept]
        assert broker.on_loop(lambda node: node.metrics.unreadable_batches) == 1
        send(client, "t", b"new", at(now_ms() + 50))
        eventually(lambda: pending(client, "t") == 1, "it was not delivered")
        assert broker.on_loop(lambda node: node.metrics.delayed_fired) == 1


def test_a_note_whose_batch_was_lost_stops_no_other_message(tmp_path: Path) -> None:
    """The leader died between the two, and nobody sends anything that would follow the note."""
    with local_broker(tmp_path) as broker, WireClient(broker.bootstrap) as client:
        create(client, "t", 1, forebay_delay_enable="true")
        send(client, "t", b"kept", at(now_ms() + 3_000))
        broker.on_loop(append_note_alone)
    with local_broker(tmp_path) as broker, WireClient(broker.bootstrap) as client:
        eventually_values(client, "t", [b"kept"])
        eventually(lambda: pending(client, "t") == 0, "something still waits")
