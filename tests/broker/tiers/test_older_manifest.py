"""A manifest that somebody else has written or brought back: nothing is deleted by what was known before."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from forebay.wire.tiers.layout import manifest_key
from forebay.wire.tiers.manifest import decode_manifest, encode_manifest
from support.brokers.forebay_command import forebay
from support.brokers.held_store import Held
from support.brokers.local_broker import local_broker
from support.brokers.tiered import (
    EARLIEST_LOCAL,
    closed_to,
    copied,
    copied_to,
    create_tiered,
    delete_below,
    eventually,
    failure_of,
    fill,
    is_readable,
    manifest_of,
    settings,
    value,
    values_from,
)
from support.clients.wire_client import WireClient, offset_at


def test_a_replaced_leader_deletes_and_writes_nothing(
    tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hears of its successor's manifest while an upload is under way, and objects are due for deletion."""
    store, held = tmp_path / "store", Held()
    config = {**settings(store), "forebay.remote.delete.delay.ms": "1000"}
    with local_broker(tmp_path / "data", config) as broker, WireClient(broker.bootstrap) as client:
        topic_id = create_tiered(client, topic)
        fill(client, topic, 60)
        assert eventually(lambda: copied_to(store, topic_id) == closed_to(broker, topic))
        held.hold(monkeypatch, "upload")
        client.post(delete_below(topic, 20), 2)
        assert client.read().topics[0].partitions[0].low_watermark == 20
        fill(client, topic, 20, 60)
        assert held.reached.wait(60)
        known = manifest_of(store, topic_id)
        assert known is not None and known.doomed
        time.sleep(1.1)  # they are due now
        theirs = known._replace(
            version=known.version + 1, leader_epoch=known.leader_epoch + 1, writer="9-successor", pending=()
        )
        (store / manifest_key(topic_id, 0)).write_bytes(encode_manifest(theirs))
        client.post(delete_below(topic, 22), 2)
        assert client.read().topics[0].partitions[0].error_code
        held.let_go.set()
        time.sleep(1.0)
        assert manifest_of(store, topic_id) == theirs
        assert all((store / doomed.key).exists() for doomed in theirs.doomed)


def test_what_lies_behind_an_older_one_is_no_orphan(tmp_path: Path, topic: str) -> None:
    store = tmp_path / "store"
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        topic_id = copied(broker, store, topic)
        path = store / manifest_key(topic_id, 0)
        older = path.read_bytes()
        end = decode_manifest(older).next_offset
        fill(client, topic, 60, 60)
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > end + 20)
        assert eventually(lambda: copied_to(store, topic_id) == closed_to(broker, topic))
        path.unlink()
        path.write_bytes(older)
        fill(client, topic, 20, 120)
        assert eventually(lambda: "it is an older one" in failure_of(broker, topic))
        done = forebay("remote", "check", str(store), "--min-age", "0ms", "--delete-orphans")
        assert done.code == 0 and "lie behind its end" in done.out, done.out
        assert "deleted:" not in done.out
        assert forebay("remote", "rebuild", str(store), topic, "--force").code == 0
        assert eventually(lambda: is_readable(client, topic))
        assert values_from(client, topic, 0) == [(n, value(n)) for n in range(140)]


def test_a_leader_whose_epoch_went_back_says_so(tmp_path: Path, topic: str) -> None:
    """It would wait for ever for news of the leader that has claimed the manifest."""
    store, again = tmp_path / "store", f"{topic}-again"
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        topic_id = copied(broker, store, topic)
        path = store / manifest_key(topic_id, 0)
        known = decode_manifest(path.read_bytes())
        later = known._replace(version=known.version + 1, leader_epoch=known.leader_epoch + 7, writer="9-x")
        path.write_bytes(encode_manifest(later))
        fill(client, topic, 20, 60)
        assert eventually(lambda: "leader epochs went back" in failure_of(broker, topic))
        described = forebay("topic", "describe", topic, bootstrap=broker.bootstrap)
        assert "forebay topic restore --new-offsets --as NEW" in " ".join(described.err.split())
        answer = client.call(delete_below(topic, 30), 2).topics[0].partitions[0]
        assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert manifest_of(store, topic_id) == later

        restore = ("topic", "restore", topic, "--new-offsets", "--as", again, "--remote", str(store), "--yes")
        done = forebay(*restore, bootstrap=broker.bootstrap)
        assert done.code == 0, done
        messages = [value(number) for number in range(later.next_offset)]
        assert [text for _, text in values_from(client, again, 0)] == messages

        path.write_bytes(encode_manifest(later._replace(leader_epoch=known.leader_epoch)))
        assert eventually(lambda: failure_of(broker, topic) == "")
        fill(client, topic, 20, 80)
        assert eventually(lambda: copied_to(store, topic_id) == closed_to(broker, topic) > 80)
