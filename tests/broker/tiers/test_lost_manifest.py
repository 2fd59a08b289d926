"""A manifest that somebody has deleted: nothing is given up, and it can be made anew from its segments."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from forebay.operations.manifest_rebuild import Wishes, rebuild_manifests
from forebay.operations.remote_store import check_store
from forebay.tiers.local_directory import LocalDirectory
from forebay.tiers.object_store import ManifestLost, ObjectStoreError
from forebay.tiers.reading import read_manifest
from forebay.wire.tiers.layout import manifest_key, topic_key
from forebay.wire.tiers.manifest import REBUILT, Manifest, decode_manifest
from support.brokers.forebay_command import forebay
from support.brokers.local_broker import local_broker
from support.brokers.tiered import (
    EARLIEST_LOCAL,
    closed_to,
    copied,
    copied_to,
    create_tiered,
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
from support.clients.wire_client import EARLIEST, LIST_OFFSETS, WireClient, list_offsets, offset_at


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_a_start_without_its_manifest_gives_up_nothing_until_it_is_made_anew(
    tmp_path: Path, store: Path, topic: str
) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker:
        topic_id = copied(broker, store, topic)
    before = manifest_of(store, topic_id)
    lose_manifest(store, topic_id)
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        assert eventually(lambda: "forebay remote rebuild" in failure_of(broker, topic))
        (found,) = client.call(list_offsets(topic, EARLIEST), LIST_OFFSETS).topics
        assert found.partitions[0].error_code == ErrorCode.OFFSET_NOT_AVAILABLE, "not the local start"
        local_start = offset_at(client, topic, EARLIEST_LOCAL)
        fill(client, topic, 60, 60)
        other = create_tiered(client, "other")
        fill(client, "other", 60)
        assert eventually(lambda: copied_to(store, other) > 40), "the store is not taken for one that fails"
        assert offset_at(client, topic, EARLIEST_LOCAL) == local_start, "nothing leaves the disk"
        done = forebay("remote", "rebuild", str(store), "--json")
        assert done.code == 0 and [each["topic"] for each in done.json()] == [topic], done.err
        assert eventually(lambda: is_readable(client, topic))
        assert offset_at(client, topic, EARLIEST) == 0
        assert values_from(client, topic, 0) == [(n, value(n)) for n in range(120)]
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > local_start + 40)
        assert values_from(client, topic, 0) == [(n, value(n)) for n in range(120)]
    after = manifest_of(store, topic_id)
    assert before is not None and after is not None
    listed = [each._replace(copied_ms=0) for each in before.segments]
    assert [each._replace(copied_ms=0) for each in after.segments[: len(listed)]] == listed
    assert check_store(LocalDirectory(str(store)), age_min_ms=0, deep=True).problems == []


def test_one_that_is_lost_under_way_stops_copying_and_not_reading(
    tmp_path: Path, store: Path, topic: str
) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        topic_id = copied(broker, store, topic)
        lose_manifest(store, topic_id)
        fill(client, topic, 60, 60)
        assert eventually(lambda: "forebay remote rebuild" in failure_of(broker, topic))
        assert values_from(client, topic, 0) == [(n, value(n)) for n in range(120)]
        assert forebay("remote", "rebuild", str(store), topic).code == 0
        assert eventually(lambda: copied_to(store, topic_id) > 100)
        assert values_from(client, topic, 0) == [(n, value(n)) for n in range(120)]


def test_a_topic_without_its_manifest_is_not_restored_as_an_empty_one(
    tmp_path: Path, store: Path, topic: str
) -> None:
    with local_broker(tmp_path / "lost", settings(store)) as broker:
        topic_id = copied(broker, store, topic)
    end = copied_to(store, topic_id)
    lose_manifest(store, topic_id)
    listed = forebay("remote", "list", str(store))
    assert listed.code == 0 and manifest_key(topic_id, 0) in listed.err
    with local_broker(tmp_path / "new", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        refused = forebay("topic", "restore", topic, "--yes", bootstrap=broker.bootstrap)
        assert refused.code == 1 and "forebay remote rebuild" in refused.err
        assert forebay("remote", "rebuild", str(store), "--plan").code == 0
        with pytest.raises(ManifestLost):
            read_manifest(LocalDirectory(str(store)), topic_id, 0)
        assert forebay("remote", "rebuild", str(store)).code == 0
        done = forebay("topic", "restore", topic, "--yes", bootstrap=broker.bootstrap)
        assert done.code == 0, done.err
        assert eventually(lambda: is_readable(client, topic))
        assert values_from(client, topic, 0) == [(n, value(n)) for n in range(end)]


def test_a_damaged_segment_is_left_out_only_if_that_is_wanted(
    tmp_path: Path, store: Path, topic: str
) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker:
        topic_id = copied(broker, store, topic)
    before = manifest_of(store, topic_id)
    assert before is not None and len(before.segments) > 3
    objects = LocalDirectory(str(store))
    assert list(rebuild_manifests(objects, Wishes(write=True))) == [], "what can be read is left alone"
    malformed = store / manifest_key(topic_id, 0)
    malformed.write_bytes(b"{")
    damaged = store / before.segments[1].key
    damaged.write_bytes(damaged.read_bytes()[:-1])
    refused = forebay("remote", "rebuild", str(store))
    assert refused.code == 1 and "--accept-loss" in refused.err and before.segments[1].key in refused.err
    assert malformed.read_bytes() == b"{"
    (found,) = rebuild_manifests(objects, Wishes(write=True, accepts_loss=True))
    assert found.written and found.left_out == [before.segments[0].key], "there is a gap behind it"
    assert (found.start_offset, found.next_offset) == (before.segments[2].base_offset, before.next_offset)
    after = manifest_of(store, topic_id)
    assert after is not None and after.segments[-1].sha256 == before.segments[-1].sha256


class Failing(LocalDirectory):
    """One request for a segment fails."""

    def __init__(self, root: Path, key: str) -> None:
        super().__init__(str(root))
        self._key: str | None = key

    def get_range(self, key: str, position: int, length: int) -> bytes:
        if key == self._key:
            self._key = None
            raise ObjectStoreError("timed out")
        return super().get_range(key, position, length)


def test_a_store_that_fails_is_no_reason_to_leave_out_a_segment(
    tmp_path: Path, store: Path, topic: str
) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker:
        topic_id = copied(broker, store, topic)
    before = manifest_of(store, topic_id)
    assert before is not None
    lose_manifest(store, topic_id)
    failing = Failing(store, before.segments[-2].key)
    with pytest.raises(ObjectStoreError, match="timed out"):
        list(rebuild_manifests(failing, Wishes(write=True)))
    (found,) = rebuild_manifests(failing, Wishes(write=True))
    assert found.written and found.segments == len(before.segments)


def test_what_is_left_out_of_a_manifest_is_not_deleted_from_the_local_log(
    tmp_path: Path, store: Path, topic: str
) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        topic_id = create_tiered(client, topic, local_retention_bytes="-2")
        fill(client, topic, 60)
        assert eventually(lambda: copied_to(store, topic_id) == closed_to(broker, topic))
    before = manifest_of(store, topic_id)
    assert before is not None
    lose_manifest(store, topic_id)
    (store / before.segments[-2].key).write_bytes(b"damaged")
    list(rebuild_manifests(LocalDirectory(str(store)), Wishes(write=True, accepts_loss=True)))
    assert copied_to(store, topic_id) == before.next_offset
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        assert eventually(lambda: is_readable(client, topic))
        assert eventually(lambda: (manifest_of(store, topic_id) or before).first_offset == 0), "copied again"
        assert offset_at(client, topic, EARLIEST) == offset_at(client, topic, EARLIEST_LOCAL) == 0
        assert values_from(client, topic, 0) == [(n, value(n)) for n in range(60)]


def test_an_older_one_is_not_believed(tmp_path: Path, store: Path, topic: str) -> None:
    """Neither by the leader that knows better, nor by the next one, whose local log begins behind it."""
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        topic_id = copied(broker, store, topic)
        path = store / manifest_key(topic_id, 0)
        older = path.read_bytes()
        older_end = decode_manifest(older).next_offset
        fill(client, topic, 60, 60)
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > older_end + 5)
        assert eventually(lambda: copied_to(store, topic_id) == closed_to(broker, topic)), "nobody writes it"
        path.unlink()
        path.write_bytes(older)
        fill(client, topic, 20, 120)
        assert eventually(lambda: "it is an older one" in failure_of(broker, topic))
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        assert eventually(lambda: "it is an older one" in failure_of(broker, topic))
        assert forebay("remote", "rebuild", str(store), topic).err == "no manifest is missing\n"
        assert copied_to(store, topic_id) == older_end
        assert forebay("remote", "rebuild", str(store), topic, "--force").code == 0
        assert eventually(lambda: is_readable(client, topic))
        assert values_from(client, topic, 0) == [(n, value(n)) for n in range(140)]


def test_nothing_leaves_the_disk_once_it_is_known_to_be_lost(tmp_path: Path, store: Path, topic: str) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        topic_id = create_tiered(client, topic, local_retention_bytes="8000")
        fill(client, topic, 60)
        assert eventually(lambda: copied_to(store, topic_id) > 45)
        lose_manifest(store, topic_id)
        fill(client, topic, 10, 60)
        assert eventually(lambda: "forebay remote rebuild" in failure_of(broker, topic))
        local_start = offset_at(client, topic, EARLIEST_LOCAL)
        fill(client, topic, 60, 70)
        time.sleep(1.0)  # local logs are looked at four times as often
        assert offset_at(client, topic, EARLIEST_LOCAL) == local_start


def test_an_idle_leader_notices_that_it_is_lost_and_made_anew(
    tmp_path: Path, store: Path, topic: str
) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        topic_id = copied(broker, store, topic)
        lose_manifest(store, topic_id)
        assert eventually(lambda: "forebay remote rebuild" in failure_of(broker, topic))
        list(rebuild_manifests(LocalDirectory(str(store)), Wishes(write=True)))
        assert eventually(
            lambda: (manifest_of(store, topic_id) or Manifest("", b"", 0)).writer not in ("", REBUILT)
        )
        assert values_from(client, topic, 0) == [(n, value(n)) for n in range(60)]


def test_it_is_made_anew_although_the_description_of_the_topic_is_lost_too(
    tmp_path: Path, store: Path, topic: str
) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker:
        topic_id = copied(broker, store, topic)
    segments = {
        each.key for each in LocalDirectory(str(store)).list("topics/") if each.key.endswith(".segment")
    }
    lose_manifest(store, topic_id)
    (store / topic_key(topic_id)).unlink()
    checked = forebay("remote", "check", str(store), "--min-age", "0ms", "--delete-orphans")
    assert checked.code == 1 and "topic.json is missing as well" in checked.out
    assert segments == {each.key for each in LocalDirectory(str(store)).list("topics/")}
    plan = forebay("remote", "rebuild", str(store), topic_id.hex(), "--plan", "--json").json()
    assert [(each["topic"], each["written"]) for each in plan] == [(topic_id.hex(), False)]
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        assert eventually(lambda: (store / topic_key(topic_id)).exists()), "its leader describes it again"
        assert forebay("remote", "rebuild", str(store), topic).code == 0
        assert eventually(lambda: is_readable(client, topic))
        assert values_from(client, topic, 0) == [(n, value(n)) for n in range(60)]


def test_one_of_a_newer_format_is_not_replaced(tmp_path: Path, store: Path, topic: str) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker:
        topic_id = copied(broker, store, topic)
    path = store / manifest_key(topic_id, 0)
    newer = path.read_bytes().replace(b'"format":1', b'"format":2')
    path.write_bytes(newer)
    done = forebay("remote", "rebuild", str(store), topic, "--force")
    assert done.code == 1 and "a newer Forebay has written it" in done.err
    assert path.read_bytes() == newer


def test_a_deletion_under_way_is_noticed(
    tmp_path: Path, store: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the leader, which looks at the manifest again and again, or by whoever makes it anew."""
    with local_broker(tmp_path / "data", settings(store)) as broker:
        topic_id = copied(broker, store, topic)
    before = manifest_of(store, topic_id)
    assert before is not None
    lose_manifest(store, topic_id)
    put = LocalDirectory.put

    def put_and_delete(self: LocalDirectory, key: str, data: bytes, *, replaces: str | None = None) -> str:
        self.delete(before.segments[0].key)  # by the manifest before, which has let go of it
        return put(self, key, data, replaces=replaces)

    monkeypatch.setattr(LocalDirectory, "put", put_and_delete)
    (found,) = rebuild_manifests(LocalDirectory(str(store)), Wishes(write=True))
    assert found.failed and "--force" in found.problems[0]
    monkeypatch.setattr(LocalDirectory, "put", put)
    (found,) = rebuild_manifests(
        LocalDirectory(str(store)), Wishes(frozenset({topic}), write=True, force=True)
    )
    assert found.written and found.start_offset == before.segments[1].base_offset


def test_segments_are_listed_when_the_manifest_is_known_to_be_missing(
    tmp_path: Path, store: Path, topic: str
) -> None:
    """Not before, while another partition is read, and this one is copied on."""
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        first, second = create_tiered(client, "first"), create_tiered(client, "second")
        fill(client, "first", 30)
        fill(client, "second", 60)
        assert eventually(lambda: copied_to(store, first) > 10 and copied_to(store, second) > 45)
        lose_manifest(store, min(first, second))
        later = max(first, second)
        name = "first" if later == first else "second"
        count = 30 if later == first else 60

        class Slow(LocalDirectory):
            was_read = False

            def get_range(self, key: str, position: int, length: int) -> bytes:
                if not self.was_read:
                    self.was_read = True
                    fill(client, name, 60, count)
                    assert eventually(lambda: offset_at(client, name, EARLIEST_LOCAL) > count + 25)
                    lose_manifest(store, later)
                return super().get_range(key, position, length)

        found = list(rebuild_manifests(Slow(str(store)), Wishes(write=True)))
        assert [each.topic_id for each in found] == [min(first, second).hex(), later.hex()]
        assert found[1].next_offset > count + 25
        assert eventually(lambda: is_readable(client, name))
        assert values_from(client, name, 0) == [(n, value(n)) for n in range(count + 60)]


def test_a_loss_can_be_accepted(tmp_path: Path, store: Path, topic: str) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        topic_id = copied(broker, store, topic)
        local_start = offset_at(client, topic, EARLIEST_LOCAL)
    before = manifest_of(store, topic_id)
    assert before is not None
    lose_manifest(store, topic_id)
    for segment in before.segments:
        if segment.next_offset >= local_start:
            (store / segment.key).unlink()
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        assert forebay("remote", "rebuild", str(store)).code == 0
        assert eventually(lambda: "--accept-loss" in failure_of(broker, topic))
        done = forebay("remote", "rebuild", str(store), topic, "--force", "--accept-loss")
        assert done.code == 0, done.err
        assert eventually(lambda: is_readable(client, topic))
        assert offset_at(client, topic, EARLIEST) == local_start
        fill(client, topic, 60, 60)
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 90)
        assert values_from(client, topic, local_start) == [(n, value(n)) for n in range(local_start, 120)]


def test_one_without_segments_that_cannot_be_read_can_be_given_up(
    tmp_path: Path, store: Path, topic: str
) -> None:
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        topic_id = copied(broker, store, topic)
        path = store / manifest_key(topic_id, 0)
        path.write_bytes(b"{")
        for segment in store.rglob("*.segment"):
            segment.unlink()
        fill(client, topic, 20, 60)
        assert eventually(lambda: "forebay remote rebuild" in failure_of(broker, topic))
        refused = forebay("remote", "rebuild", str(store), topic)
        assert refused.code == 1 and "there are no segments to make it of" in refused.err
        assert forebay("remote", "rebuild", str(store), topic, "--accept-loss").code == 0
        assert eventually(lambda: is_readable(client, topic) and copied_to(store, topic_id) > 60)
        start = offset_at(client, topic, EARLIEST)
        assert values_from(client, topic, start) == [(n, value(n)) for n in range(start, 80)]


def test_what_the_stored_manifest_does_not_have_stays_on_the_disk(
    tmp_path: Path, store: Path, topic: str
) -> None:
    """Whatever the leader knows: it is looked at before each deletion."""
    with local_broker(tmp_path / "data", settings(store)) as broker, WireClient(broker.bootstrap) as client:
        topic_id = copied(broker, store, topic)
        before = manifest_of(store, topic_id)
        assert before is not None and before.segments[-1].base_offset >= offset_at(
            client, topic, EARLIEST_LOCAL
        )
        lose_manifest(store, topic_id)
        (store / before.segments[-1].key).write_bytes(b"damaged")
        wishes = Wishes(frozenset({topic}), write=True, accepts_loss=True)
        (found,) = rebuild_manifests(LocalDirectory(str(store)), wishes)
        assert found.next_offset == before.segments[-1].base_offset
        for start in range(60, 160, 20):
            fill(client, topic, 20, start)
        assert eventually(lambda: offset_at(client, topic, EARLIEST_LOCAL) > 130)
        assert values_from(client, topic, 0) == [(n, value(n)) for n in range(160)]


def test_a_topic_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    done = forebay("remote", "rebuild", str(tmp_path), "nothing")
    assert done.code == 1 and "has no segments of a topic nothing" in done.err
