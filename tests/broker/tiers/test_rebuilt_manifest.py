"""What a manifest that was made anew, or an older one, must not make anybody believe."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from forebay.broker.tiers.adoption import _adopted
from forebay.broker.tiers.remote_producers import producers_at
from forebay.operations.manifest_rebuild import Wishes, rebuild_manifests
from forebay.operations.remote_store import check_store
from forebay.tiers.local_directory import LocalDirectory
from forebay.tiers.object_store import Conflict, ManifestError, ManifestLost
from forebay.wire.tiers.layout import manifest_key, topic_key
from forebay.wire.tiers.manifest import (
    LOSS_ACCEPTED,
    REBUILT,
    Manifest,
    RemoteSegment,
    decode_manifest,
    encode_manifest,
)
from support.brokers.forebay_command import forebay
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
    lose_manifest,
    manifest_of,
    settings,
    value,
    values_from,
)
from support.clients.wire_client import EARLIEST, WireClient, offset_at

DELETE_RECORDS = 2


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def segment_from(store: Path, topic_id: bytes, offset: int) -> RemoteSegment:
    """The first that begins at this offset or later."""
    manifest = manifest_of(store, topic_id)
    assert manifest is not None
    return next(each for each in manifest.segments if each.base_offset >= offset)


# -- a segment that is missing too ---------------------------------------------------------------------------


def test_what_lies_before_a_gap_is_kept_if_the_leader_has_the_rest(
    tmp_path: Path, store: Path, topic: str
) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        topic_id = copied(broker, store, topic)
        gone = segment_from(store, topic_id, offset_at(client, topic, EARLIEST_LOCAL))
        assert gone.next_offset < copied_to(store, topic_id)
        lose_manifest(store, topic_id)
        (store / gone.key).unlink()
        refused = forebay("remote", "rebuild", str(store), topic)
        assert refused.code == 1 and "--before-gap" in refused.err
        assert f"messages {gone.base_offset} to {gone.next_offset - 1} are in no segment" in refused.err
        with pytest.raises(ManifestLost):
            manifest_of(store, topic_id)
        done = forebay("remote", "rebuild", str(store), topic, "--before-gap")
        assert done.code == 0, done.err
        assert eventually(lambda: copied_to(store, topic_id) == closed_to(broker, topic))
        assert offset_at(client, topic, EARLIEST) == 0
        assert values_from(client, topic, 0) == [(n, value(n)) for n in range(60)]


def test_what_lies_before_a_gap_is_given_up_only_if_that_is_accepted(
    tmp_path: Path, store: Path, topic: str
) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker:
        topic_id = copied(broker, store, topic)
    gone = segment_from(store, topic_id, 10)
    behind = segment_from(store, topic_id, gone.next_offset)
    lose_manifest(store, topic_id)
    (store / gone.key).unlink()
    objects = {each.key for each in LocalDirectory(str(store)).list("topics/")}
    (refused,) = rebuild_manifests(LocalDirectory(str(store)), Wishes(write=True))
    assert refused.failed and not refused.written and "are in no segment" in refused.problems[0]
    assert forebay("remote", "rebuild", str(store), topic, "--before-gap").code == 0
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        assert eventually(lambda: "--accept-loss" in failure_of(broker, topic)), "its log begins behind it"
        checked = forebay("remote", "check", str(store), "--min-age", "0ms", "--delete-orphans")
        assert checked.code == 0, checked.out
        left = {each.key for each in LocalDirectory(str(store)).list("topics/")}
        assert objects <= left, "nothing is an orphan before a leader has claimed it"
        done = forebay("remote", "rebuild", str(store), topic, "--force", "--accept-loss")
        assert done.code == 0, done.err
        assert eventually(lambda: is_readable(client, topic))
        assert offset_at(client, topic, EARLIEST) == behind.base_offset
        wanted = [(n, value(n)) for n in range(behind.base_offset, 60)]
        assert values_from(client, topic, behind.base_offset) == wanted


def test_a_loss_cannot_be_accepted_and_avoided(store: Path) -> None:
    refused = forebay("remote", "rebuild", str(store), "t", "--before-gap", "--accept-loss")
    assert refused.code == 2 and "say one of them" in refused.err


# -- others than its leader ----------------------------------------------------------------------------------


def remote(base: int, end: int) -> RemoteSegment:
    return RemoteSegment("k", base, end, 10, 20, 1, ((1, base),), 0, "", 1)


@pytest.mark.parametrize(
    ("manifest", "error"),
    [
        (Manifest("t", bytes(16), 0, 3, 1, "a", 0, (remote(0, 40),)), ManifestLost),
        (Manifest("t", bytes(16), 0, 0, 1, REBUILT, 0, (remote(80, 99),)), ManifestError),
        (Manifest("t", bytes(16), 0, 0, 1, LOSS_ACCEPTED, 0, (remote(0, 99),)), ManifestError),
    ],
)
def test_replicas_do_not_take_producers_for_unknown(
    tmp_path: Path, manifest: Manifest, error: type[Exception]
) -> None:
    """An older manifest says nothing of them, and neither does one that nobody has claimed."""
    objects = LocalDirectory(str(tmp_path))
    objects.put(manifest_key(bytes(16), 0), encode_manifest(manifest))
    with pytest.raises(error):
        producers_at(objects, bytes(16), 0, 60)
    begun = manifest._replace(writer="a", start_offset=60, segments=())
    objects.put(manifest_key(bytes(16), 0), encode_manifest(begun))
    assert producers_at(objects, bytes(16), 0, 60) == b""


@pytest.mark.parametrize("writer", [REBUILT, LOSS_ACCEPTED])
def test_a_restore_skips_the_epochs_of_one_that_may_have_come_before_it(writer: str) -> None:
    plain = Manifest("t", bytes(16), 0, leader_epoch=5, writer="a", segments=(remote(0, 10),))
    anew = _adopted(plain._replace(writer=writer))
    assert anew.leader_epoch > _adopted(plain).leader_epoch


def test_the_description_of_the_topic_is_written_again_by_a_leader_that_lives(
    tmp_path: Path, store: Path, topic: str
) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        topic_id = copied(broker, store, topic)
        (store / topic_key(topic_id)).unlink()
        lose_manifest(store, topic_id)
        assert forebay("remote", "rebuild", str(store), topic_id.hex()).code == 0, "it may go by the id"
        assert eventually(lambda: (manifest_of(store, topic_id) or Manifest("", b"", 0)).topic == topic)
        lose_manifest(store, topic_id)
        fill(client, topic, 20, 60)
        assert eventually(lambda: (store / topic_key(topic_id)).exists())
        assert forebay("remote", "rebuild", str(store), topic).code == 0


def test_a_description_that_cannot_be_read_is_no_obstacle(tmp_path: Path, store: Path, topic: str) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        malformed = copied(broker, store, topic)
        other = create_tiered(client, "other")
        fill(client, "other", 60)
        assert eventually(lambda: copied_to(store, other) > 40)
    (store / topic_key(malformed)).write_bytes(b"")
    lose_manifest(store, malformed)
    lose_manifest(store, other)
    assert forebay("remote", "rebuild", str(store), "other").code == 0
    assert forebay("remote", "rebuild", str(store), malformed.hex()).code == 0


# -- a leader that lives -------------------------------------------------------------------------------------


def test_a_leader_says_all_the_time_that_it_is_lost(tmp_path: Path, store: Path, topic: str) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker:
        topic_id = copied(broker, store, topic)
        lose_manifest(store, topic_id)
        assert eventually(lambda: failure_of(broker, topic) != "")
        for _ in range(100):  # of which each round of 100 ms has several
            assert "forebay remote rebuild" in failure_of(broker, topic)
            time.sleep(0.03)


def test_an_older_one_of_its_own_undoes_no_deletion(tmp_path: Path, store: Path, topic: str) -> None:
    slow = {**settings(store), "forebay.remote.delete.delay.ms": "0"}
    with local_broker(tmp_path / "data", slow) as broker, WireClient(broker.bootstrap) as client:
        topic_id = create_tiered(client, topic, local_retention_bytes="-2")
        fill(client, topic, 60)
        assert eventually(lambda: copied_to(store, topic_id) == closed_to(broker, topic))
        path = store / manifest_key(topic_id, 0)
        older = path.read_bytes()
        fill(client, topic, 60, 60)
        assert eventually(lambda: copied_to(store, topic_id) == closed_to(broker, topic))
        client.post(delete_below(topic, 40), DELETE_RECORDS)
        assert client.read().topics[0].partitions[0].low_watermark == 40
        first = decode_manifest(older).segments[0]
        assert eventually(lambda: not (store / first.key).exists())
        assert eventually(lambda: not (manifest_of(store, topic_id) or Manifest("", b"", 0)).doomed)
        path.unlink()
        path.write_bytes(older)
        assert eventually(lambda: "it is an older one" in failure_of(broker, topic))
        assert forebay("remote", "rebuild", str(store), topic, "--force").code == 0
        assert eventually(lambda: failure_of(broker, topic) == "" and copied_to(store, topic_id) > 100)
        assert offset_at(client, topic, EARLIEST) == 40, "nor does one made anew"
        assert values_from(client, topic, 40) == [(n, value(n)) for n in range(40, 120)]


def test_one_that_lists_nothing_is_not_believed_while_segments_are_there(
    tmp_path: Path, store: Path, topic: str
) -> None:
    """A leader with a longer log has claimed one made anew, and was replaced before it copied what that
    lacked."""
    with local_broker(tmp_path / "data", settings(store)) as broker:
        topic_id = copied(broker, store, topic)
    claimed = Manifest(topic, topic_id, 0, version=2, leader_epoch=0, writer="another")
    (store / manifest_key(topic_id, 0)).write_bytes(encode_manifest(claimed))
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        assert eventually(lambda: "--force" in failure_of(broker, topic))
        assert forebay("remote", "rebuild", str(store), topic, "--force").code == 0
        assert eventually(lambda: is_readable(client, topic))
        assert values_from(client, topic, 0) == [(n, value(n)) for n in range(60)]
    assert check_store(LocalDirectory(str(store)), age_min_ms=0, deep=True).problems == []


def test_one_of_a_newer_format_holds_up_its_own_partition_only(
    tmp_path: Path, store: Path, topic: str
) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker:
        topic_id = copied(broker, store, topic)
    path = store / manifest_key(topic_id, 0)
    path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":2'))
    patient = dict.fromkeys(
        ("remote.log.manager.task.retry.backoff.ms", "remote.log.manager.task.retry.backoff.max.ms"), "600000"
    )
    with local_broker(tmp_path / "data", {**settings(store), **patient}) as broker:
        assert eventually(lambda: "a newer Forebay" in failure_of(broker, topic))
        with WireClient(broker.bootstrap) as client:
            other = create_tiered(client, "other")
            fill(client, "other", 60)
            assert eventually(lambda: copied_to(store, other) > 40), (
                "the store is not taken for one that fails"
            )


# -- making it -----------------------------------------------------------------------------------------------


class Retrying(LocalDirectory):
    """The answer of each first put is lost; it is sent again, and refused."""

    def put(self, key: str, data: bytes, *, replaces: str | None = None) -> str:
        super().put(key, data, replaces=replaces)
        raise Conflict(f"{key} was changed")


def test_an_answer_that_was_lost_is_no_other_writer(tmp_path: Path, store: Path, topic: str) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker:
        topic_id = copied(broker, store, topic)
    lose_manifest(store, topic_id)
    (found,) = rebuild_manifests(Retrying(str(store)), Wishes(write=True))
    assert found.written and not found.failed


class Overtaken(LocalDirectory):
    """Somebody else is faster."""

    def put(self, key: str, data: bytes, *, replaces: str | None = None) -> str:
        super().put(key, data.replace(b"rebuilt", b"another"), replaces=replaces)
        return super().put(key, data, replaces=replaces)


def test_another_writer_ends_the_work_on_one_partition_only(tmp_path: Path, store: Path, topic: str) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        lose_manifest(store, copied(broker, store, topic))
        other = create_tiered(client, "other")
        fill(client, "other", 60)
        assert eventually(lambda: copied_to(store, other) > 40)
    lose_manifest(store, other)
    found = list(rebuild_manifests(Overtaken(str(store)), Wishes(write=True)))
    assert len(found) == 2 and all(each.failed and not each.written for each in found)
    assert all("somebody else" in each.problems[0] for each in found)
