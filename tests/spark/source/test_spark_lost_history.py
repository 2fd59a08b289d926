"""Rows of a history that an unclean election has lost are not read, though its manifest is still there.

The new leader has not claimed the manifest yet. It knows where leader epochs end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forebay.errors import ErrorCode, KafkaError
from forebay.spark.source.remote import histories
from forebay.spark.source.remote.planning import RemoteRange
from forebay.spark.source.remote_options import ONLY
from forebay.tiers.local_directory import LocalDirectory
from forebay.tiers.object_store import ManifestError
from forebay.wire.tiers.layout import manifest_key
from forebay.wire.tiers.manifest import REBUILT, Manifest, encode_manifest
from support.brokers.broker_process import BrokerProcess
from support.brokers.forebay_command import forebay
from support.brokers.local_broker import local_broker
from support.brokers.tiered import copied, copied_to, settings
from support.clients.wire_client import WireClient, create
from support.spark.reading import add, batch_reader, micro_batch, plan, run, stream_reader, value, values
from support.spark.remote_segments import copy

LOST = 5
"""A leader epoch that the leader has never heard of."""


@pytest.fixture
def store(tmp_path: Path) -> LocalDirectory:
    return LocalDirectory(str(tmp_path / "store"))


def keep(store: LocalDirectory, manifest: Manifest) -> None:
    store.put(manifest_key(manifest.topic_id, manifest.partition), encode_manifest(manifest))


def fill(bootstrap: str, topic: str, *, first: int) -> bytes:
    with WireClient(bootstrap) as client:
        topic_id = create(client, topic)
        for at in range(first, first + 100, 10):
            add(client, topic, 0, 10, at)
    return topic_id


def written_in(manifest: Manifest, epoch: int, start: int) -> Manifest:
    """From this offset on by the leader of a later epoch."""
    segments = [
        each._replace(epochs=((epoch, each.base_offset),)) if each.base_offset >= start else each
        for each in manifest.segments
    ]
    return manifest._replace(segments=tuple(segments), leader_epoch=epoch)


def lost_history(broker: BrokerProcess, store: LocalDirectory, topic: str) -> list[bytes]:
    """Copies what the leader does not have, other messages from offset 50 on; those that it has."""
    topic_id = fill(broker.bootstrap, topic, first=0)
    fill(broker.bootstrap, f"{topic}-lost", first=1000)
    lost = copy(broker.bootstrap, store, f"{topic}-lost", topic_id, end=80, segment_batches=1)
    keep(store, written_in(lost, LOST, 50))
    return sorted(value(0, n) for n in range(100))


def options_of(topic: str, store: LocalDirectory, **options: Any) -> dict[str, Any]:
    return {"subscribe": topic, "remoteUrl": store.url, **options}


def test_brokers_are_read_until_the_leader_has_claimed_the_manifest(
    broker: BrokerProcess, topic: str, store: LocalDirectory
) -> None:
    wanted = lost_history(broker, store, topic)
    reader = batch_reader(broker.bootstrap, **options_of(topic, store))
    assert not any(isinstance(task, RemoteRange) for task in plan(reader))
    assert values(reader) == wanted
    with pytest.raises(ManifestError, match=f"{topic}-0 may list messages of a lost history"):
        values(batch_reader(broker.bootstrap, **options_of(topic, store, readRemote=ONLY)))


@pytest.mark.parametrize("writer", ["", REBUILT], ids=["left", "made-anew"])
def test_a_leader_that_has_less_of_an_epoch_has_lost_the_rest(
    broker: BrokerProcess, topic: str, store: LocalDirectory, writer: str
) -> None:
    topic_id = fill(broker.bootstrap, topic, first=0)
    with WireClient(broker.bootstrap) as client:
        fill(broker.bootstrap, f"{topic}-longer", first=0)
        add(client, f"{topic}-longer", 0, 10, 100)
    longer = copy(broker.bootstrap, store, f"{topic}-longer", topic_id, end=110)
    # One that was made anew has the epoch of the last leader that has copied, which may lead still.
    keep(store, longer._replace(writer=writer, leader_epoch=0 if writer else -1))
    with pytest.raises(ManifestError, match="lost history"):
        values(batch_reader(broker.bootstrap, **options_of(topic, store, readRemote=ONLY)))


def test_a_manifest_of_an_earlier_leader_is_read_if_nothing_was_lost(
    broker: BrokerProcess, topic: str, store: LocalDirectory
) -> None:
    topic_id = fill(broker.bootstrap, topic, first=0)
    copy(broker.bootstrap, store, topic, topic_id, end=80)
    reader = batch_reader(broker.bootstrap, **options_of(topic, store))
    assert any(isinstance(task, RemoteRange) for task in plan(reader))
    assert values(reader) == sorted(value(0, n) for n in range(100))


def test_a_manifest_that_the_leader_has_claimed_is_read_whatever_its_log_knows(
    broker: BrokerProcess, topic: str, store: LocalDirectory
) -> None:
    """The log of a restored topic has nothing of the epochs before."""
    topic_id = fill(broker.bootstrap, topic, first=0)
    with WireClient(broker.bootstrap) as client:
        add(client, topic, 0, 10, 100)
    whole = copy(broker.bootstrap, store, topic, topic_id, end=100)
    keep(store, written_in(whole, LOST, 0)._replace(leader_epoch=0))
    reader = batch_reader(broker.bootstrap, **options_of(topic, store))
    assert any(isinstance(task, RemoteRange) for task in plan(reader))
    assert values(reader) == sorted(value(0, n) for n in range(110))


def test_a_stream_looks_again_in_each_batch(broker: BrokerProcess, topic: str, store: LocalDirectory) -> None:
    topic_id = fill(broker.bootstrap, topic, first=0)
    kept = copy(broker.bootstrap, store, topic, topic_id, end=80, segment_batches=1)
    stream = stream_reader(
        broker.bootstrap,
        **options_of(topic, store, startingOffsets="earliest", maxOffsetsPerTrigger=40),
    )
    found, position = micro_batch(stream, stream.initialOffset())
    fill(broker.bootstrap, f"{topic}-lost", first=1000)
    lost = copy(broker.bootstrap, store, f"{topic}-lost", topic_id, end=80, segment_batches=1, unique="lost")
    keep(store, written_in(lost._replace(segments=kept.segments[:5] + lost.segments[5:]), LOST, 50))
    for _ in range(2):
        rows, position = micro_batch(stream, position)
        found += rows
    assert sorted(found) == sorted(value(0, n) for n in range(100))


def test_a_topic_that_was_restored_is_read_before_it_has_new_messages(tmp_path: Path, topic: str) -> None:
    """Its leader knows no epoch but its own."""
    directory = tmp_path / "store"
    with local_broker(tmp_path / "lost", settings(directory)) as lost:
        topic_id = copied(lost, directory, topic)
    with local_broker(tmp_path / "new", settings(directory)) as started:
        assert forebay("topic", "restore", topic, "--yes", bootstrap=started.bootstrap).code == 0
        for read in ("auto", ONLY):
            reader = batch_reader(started.bootstrap, subscribe=topic, remoteUrl=directory, readRemote=read)
            tasks = reader.partitions()
            assert tasks and all(isinstance(task.value, RemoteRange) for task in tasks)
            table = run(reader, tasks)
            assert table is not None
            assert sorted(table.column("offset").to_pylist()) == list(range(copied_to(directory, topic_id)))


def test_a_leader_that_does_not_tell_is_no_leader_that_agrees(
    broker: BrokerProcess, topic: str, store: LocalDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = fill(broker.bootstrap, topic, first=0)
    copy(broker.bootstrap, store, topic, topic_id, end=80)

    def refuse(*_: Any) -> Any:
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not for you")

    monkeypatch.setattr(histories, "_ask_leaders", refuse)
    reader = batch_reader(broker.bootstrap, **options_of(topic, store))
    assert not any(isinstance(task, RemoteRange) for task in plan(reader))
    with pytest.raises(ManifestError, match=r"do not tell.*not for you"):
        values(batch_reader(broker.bootstrap, **options_of(topic, store, readRemote=ONLY)))
