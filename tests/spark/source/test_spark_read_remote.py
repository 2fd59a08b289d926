"""Rows from an object store are those that brokers have: readers without Spark, against a real broker."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from forebay.client import Admin
from forebay.errors import ConfigError, ErrorCode, KafkaError
from forebay.spark.arrow.schema import spark_schema
from forebay.spark.source import offset_ranges
from forebay.spark.source.batch_reader import TopicReader
from forebay.spark.source.data_loss import DataLoss
from forebay.spark.source.options import batch_options, stream_options
from forebay.spark.source.remote import planning
from forebay.spark.source.remote.access import Place
from forebay.spark.source.remote.planning import RemoteRange
from forebay.spark.source.remote_options import ONLY
from forebay.tiers.local_directory import LocalDirectory
from forebay.tiers.object_store import ObjectStore, ObjectStoreError
from forebay.tiers.reading import RemoteTopic, encode_topic
from forebay.wire.tiers.layout import manifest_key, topic_key
from forebay.wire.tiers.manifest import REBUILT, Manifest, encode_manifest
from support.brokers.broker_process import BrokerProcess, StartBroker
from support.clients.wire_client import WireClient, create
from support.scraping import free_port, scrape
from support.spark.object_store import running_object_store
from support.spark.reading import add, batch_reader, micro_batch, plan, run, stream_reader, value, values
from support.spark.remote_segments import copy

UNCOMMITTED: dict[str, Any] = {}
COMMITTED: dict[str, Any] = {"kafka_isolation_level": "read_committed"}


def make(bootstrap: str, topic: str, *counts: int) -> bytes:
    with WireClient(bootstrap) as client:
        topic_id = create(client, topic, len(counts))
        for partition, count in enumerate(counts):
            for first in range(0, count, 10):
                add(client, topic, partition, min(10, count - first), first)
    return topic_id


def table(reader: Any, tasks: Any = None) -> pa.Table:
    found = run(reader, reader.partitions() if tasks is None else tasks)
    assert found is not None
    return found.sort_by([("partition", "ascending"), ("offset", "ascending")]).combine_chunks()


def mixed_messages(bootstrap: str, topic: str, seed: int) -> int:
    """Batches of transactions of two producers, some of them aborted, between others; the end of the log."""
    chance = random.Random(seed)
    plain = Producer({"bootstrap.servers": bootstrap, "compression.type": "lz4", "linger.ms": 0})
    writers = [
        Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-{n}", "linger.ms": 0})
        for n in range(2)
    ]
    for writer in writers:
        writer.init_transactions(60)
        writer.begin_transaction()
    for n in range(120):
        writer = chance.choice([plain, *writers])
        headers: Any = [("h", b"%d" % n), ("null", None)] if n % 4 == 0 else None
        key = None if n % 3 == 0 else b"key-%d" % n
        content = None if n % 7 == 0 else b"%d" % n * chance.randint(1, 40)
        writer.produce(topic, content, key, 0, timestamp=1_700_000_000_000 + n, headers=headers)
        writer.flush()
        if n % 10 == 9 and writer is not plain:
            chance.choice([writer.commit_transaction, writer.abort_transaction])(60)
            writer.begin_transaction()
    for writer in writers:
        chance.choice([writer.commit_transaction, writer.abort_transaction])(60)
    with Admin(bootstrap) as admin:
        return admin.end_offsets(topic)[0]


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_the_same_from_brokers_and_from_segments(
    broker: BrokerProcess, topic: str, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap, chance = broker.bootstrap, random.Random(seed)
    monkeypatch.setattr(planning, "TASK_BYTES", chance.choice([300, 2000, 1 << 20]))
    with WireClient(bootstrap) as client:
        topic_id = create(client, topic)
    end = mixed_messages(bootstrap, topic, seed)
    shape: dict[str, Any] = {
        "segment_batches": chance.randint(1, 30),
        "chunk_bytes": chance.choice([1, 500, 5000]),
    }
    store = LocalDirectory(str(tmp_path))
    for isolation in (UNCOMMITTED, COMMITTED):
        options: dict[str, Any] = {
            "subscribe": topic,
            "includeHeaders": "true",
            "remoteUrl": str(tmp_path),
            **isolation,
        }
        wanted = table(batch_reader(bootstrap, **options, readRemote="never"))
        for until in (end, end // 2):
            copied = copy(bootstrap, store, topic, topic_id, end=until, **shape)
            assert table(batch_reader(bootstrap, **options)) == wanted
            remote = table(batch_reader(bootstrap, **options, readRemote="only"))
            assert remote == wanted.filter(pa.compute.less(wanted["offset"], copied.next_offset))
            parts = batch_reader(bootstrap, **options, maxRecordsPerPartition=chance.randint(1, 50))
            assert table(parts) == wanted
            low, high = sorted(chance.sample(range(end), 2))
            narrow: dict[str, Any] = {"minOffset": low, "maxOffset": high}
            assert run_values(batch_reader(bootstrap, **options, **narrow)) == run_values(
                batch_reader(bootstrap, **options, **narrow, readRemote="never")
            )


def run_values(reader: Any) -> list[Any]:
    found = run(reader, reader.partitions())
    return [] if found is None else sorted(found.to_pylist(), key=lambda row: row["offset"])


def test_a_batch_has_tasks_for_segments_and_for_what_brokers_have(
    broker: BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap = broker.bootstrap
    topic_id = make(bootstrap, topic, 100, 30)
    store = LocalDirectory(str(tmp_path))
    manifest = copy(bootstrap, store, topic, topic_id, 0, end=80, segment_batches=2)
    options: dict[str, Any] = {"subscribe": topic, "remoteUrl": str(tmp_path)}
    together: list[Any] = plan(batch_reader(bootstrap, **options))
    assert [_edges(task) for task in together] == [(0, 80, 4), (80, 100, 0), (0, 30, 0)]
    monkeypatch.setattr(planning, "TASK_BYTES", -(-manifest.data_bytes // 4))
    single: list[Any] = plan(batch_reader(bootstrap, **options))
    assert [_edges(task) for task in single] == [
        *[(at, at + 20, 1) for at in range(0, 80, 20)],
        (80, 100, 0),
        (0, 30, 0),
    ]
    only: list[Any] = plan(batch_reader(bootstrap, **options, readRemote="only"))
    assert [_edges(task)[:2] for task in only] == [(at, at + 20) for at in range(0, 80, 20)]
    assert len(values(batch_reader(bootstrap, **options))) == 130
    assert len(values(batch_reader(bootstrap, **options, refreshOffsets="true"))) == 130


def _edges(task: Any) -> tuple[int, int, int]:
    if isinstance(task, RemoteRange):
        return task.range.start, task.range.end, len(task.segments)
    return task.start, task.end, 0


def test_brokers_send_nothing_of_what_is_remote(
    start_broker: StartBroker, topic: str, tmp_path: Path
) -> None:
    address = ("127.0.0.1", free_port())
    broker = start_broker(f"forebay.metrics.listener=127.0.0.1:{address[1]}")
    topic_id = make(broker.bootstrap, topic, 200, 100)
    store = LocalDirectory(str(tmp_path))
    for partition, end in enumerate((200, 100)):
        copy(broker.bootstrap, store, topic, topic_id, partition, end=end)
    before = _bytes_out(address)
    options: dict[str, Any] = {"subscribe": topic, "remoteUrl": str(tmp_path)}
    assert len(values(batch_reader(broker.bootstrap, **options))) == 300
    assert _bytes_out(address) == before
    assert len(values(batch_reader(broker.bootstrap, **options, readRemote="never"))) == 300
    assert _bytes_out(address) > before


def _bytes_out(address: tuple[str, int]) -> float:
    return scrape(address)("kafka_server_brokertopicmetrics_bytesout_total")


# -- while the store changes ---------------------------------------------------------------------------------


def test_segments_that_were_replaced_since_the_plan_are_found_again(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    bootstrap, store = broker.bootstrap, LocalDirectory(str(tmp_path))
    topic_id = make(bootstrap, topic, 100)
    before = copy(bootstrap, store, topic, topic_id, end=100, segment_batches=2)
    reader = batch_reader(bootstrap, subscribe=topic, remoteUrl=tmp_path, readRemote=ONLY)
    tasks = reader.partitions()
    copy(bootstrap, store, topic, topic_id, end=100, segment_batches=3, unique="2")
    for segment in before.segments:
        store.delete(segment.key)
    assert len(values(reader, tasks)) == 100


def test_segments_that_are_gone_are_lost_data_as_brokers_say(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    bootstrap, store = broker.bootstrap, LocalDirectory(str(tmp_path))
    topic_id = make(bootstrap, topic, 100)
    manifest = copy(bootstrap, store, topic, topic_id, end=100, segment_batches=2)
    auto = batch_reader(bootstrap, subscribe=topic, remoteUrl=tmp_path)
    tasks = auto.partitions()
    for segment in manifest.segments[:2]:
        store.delete(segment.key)
    _keep(store, manifest._replace(segments=manifest.segments[2:], start_offset=40))
    assert len(values(auto, tasks)) == 100, "the broker still has them"
    delete_records(bootstrap, topic, 40)
    with pytest.raises(DataLoss, match="the log now starts at 40"):
        values(auto, tasks)
    careless = batch_reader(bootstrap, subscribe=topic, remoteUrl=tmp_path, failOnDataLoss="false")
    assert len(values(careless, tasks)) == 60
    only = batch_reader(bootstrap, subscribe=topic, remoteUrl=tmp_path, readRemote=ONLY)
    with pytest.raises(DataLoss, match=r"offsets 0 to 39 .* are not in the object store any more"):
        values(only, tasks)


def test_messages_that_were_deleted_are_not_read_from_segments_that_still_hold_them(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    bootstrap, store = broker.bootstrap, LocalDirectory(str(tmp_path))
    topic_id = make(bootstrap, topic, 100)
    copy(bootstrap, store, topic, topic_id, end=100, segment_batches=5, start_offset=33)
    delete_records(bootstrap, topic, 33)
    assert len(values(batch_reader(bootstrap, subscribe=topic, remoteUrl=tmp_path))) == 67
    old: dict[str, Any] = {"startingOffsets": json.dumps({topic: {"0": 10}}), "remoteUrl": tmp_path}
    with pytest.raises(DataLoss, match="the log now starts at 33"):
        values(batch_reader(bootstrap, subscribe=topic, **old))
    careless = batch_reader(bootstrap, subscribe=topic, failOnDataLoss="false", **old)
    assert values(careless) == sorted(value(0, n) for n in range(33, 100))


def test_a_damaged_segment_is_read_from_the_brokers(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    bootstrap, store = broker.bootstrap, LocalDirectory(str(tmp_path))
    topic_id = make(bootstrap, topic, 100)
    manifest = copy(bootstrap, store, topic, topic_id, end=100, segment_batches=2)
    damaged = manifest.segments[2]
    content = bytearray(store.get(damaged.key).data)
    content[damaged.data_bytes - 3] ^= 1
    store.put(damaged.key, bytes(content))
    wanted = sorted(value(0, n) for n in range(100))
    assert values(batch_reader(bootstrap, subscribe=topic, remoteUrl=tmp_path)) == wanted
    with pytest.raises(ObjectStoreError, match="fails its CRC"):
        values(batch_reader(bootstrap, subscribe=topic, remoteUrl=tmp_path, readRemote=ONLY))


def test_a_manifest_that_no_leader_has_claimed_is_read_where_brokers_are_not(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """It was made anew from the segments, of which some may be of a lost history."""
    bootstrap, store = broker.bootstrap, LocalDirectory(str(tmp_path))
    topic_id = make(bootstrap, topic, 100)
    manifest = copy(bootstrap, store, topic, topic_id, end=80)
    _keep(store, manifest._replace(writer=REBUILT))
    wanted = sorted(value(0, n) for n in range(100))
    both = batch_reader(bootstrap, subscribe=topic, remoteUrl=tmp_path)
    assert values(both) == wanted
    assert not any(isinstance(task, RemoteRange) for task in plan(both))
    assert len(values(batch_reader(bootstrap, subscribe=topic, remoteUrl=tmp_path, readRemote=ONLY))) == 80


def test_a_manifest_made_anew_since_the_plan_is_left_to_the_brokers(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    bootstrap, store = broker.bootstrap, LocalDirectory(str(tmp_path))
    topic_id = make(bootstrap, topic, 100)
    manifest = copy(bootstrap, store, topic, topic_id, end=80)
    wanted = values(batch_reader(bootstrap, subscribe=topic, readRemote="never"))
    reader = batch_reader(bootstrap, subscribe=topic, remoteUrl=tmp_path)
    tasks = reader.partitions()
    for segment in manifest.segments:
        store.delete(segment.key)
    make(bootstrap, f"{topic}-lost", 0, 100)  # the values tell their partition
    with WireClient(bootstrap) as client:
        add(client, f"{topic}-lost", 0, 80, 1000)
    lost = copy(bootstrap, store, f"{topic}-lost", topic_id, end=80, unique="lost")
    _keep(store, lost._replace(writer=REBUILT))
    assert values(reader, tasks) == wanted


def test_a_segment_with_fewer_messages_than_its_manifest_says_is_read_from_the_brokers(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    bootstrap, store = broker.bootstrap, LocalDirectory(str(tmp_path))
    topic_id = make(bootstrap, topic, 100)
    manifest = copy(bootstrap, store, topic, topic_id, end=80, segment_batches=20)
    (whole,) = manifest.segments
    _keep(store, manifest._replace(segments=(whole._replace(next_offset=95),)))
    assert len(values(batch_reader(bootstrap, subscribe=topic, remoteUrl=tmp_path))) == 100
    with pytest.raises(ObjectStoreError, match="ends at offset 80, before 95"):
        values(batch_reader(bootstrap, subscribe=topic, remoteUrl=tmp_path, readRemote=ONLY))


def test_what_an_object_holds_beyond_its_segment_is_not_read(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """It may be of a history that was lost: the next segment begins before the object ends."""
    bootstrap, store = broker.bootstrap, LocalDirectory(str(tmp_path))
    lost = f"{topic}-lost"
    whole: dict[str, Any] = {"end": 100, "segment_batches": 10, "chunk_bytes": 1 << 20}
    longer = copy(bootstrap, store, lost, make(bootstrap, lost, 100), **whole)
    topic_id = make(bootstrap, topic, 40)
    with WireClient(bootstrap) as client:
        for first in range(1000, 1060, 10):
            add(client, topic, 0, 10, first)
    kept = copy(bootstrap, store, topic, topic_id, end=100, segment_batches=2)
    cut = longer.segments[0]._replace(next_offset=40)
    _keep(store, kept._replace(segments=(cut, *kept.segments[2:])))
    wanted = sorted(value(0, n) for n in (*range(40), *range(1000, 1060)))
    for mode in ("auto", "only", "never"):
        options: dict[str, Any] = {"subscribe": topic, "remoteUrl": tmp_path, "readRemote": mode}
        assert values(batch_reader(bootstrap, **options)) == wanted, mode


def test_partitions_are_read_that_the_description_in_the_store_does_not_count(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """The last one to write it was a broker that did not know yet of a new partition."""
    store = LocalDirectory(str(tmp_path))
    topic_id = make(broker.bootstrap, topic, 20, 30)
    for partition, end in enumerate((20, 30)):
        copy(broker.bootstrap, store, topic, topic_id, partition, end=end)
    store.put(topic_key(topic_id), encode_topic(RemoteTopic(topic, topic_id, 1, {})))
    for name in (topic, topic_id.hex()):
        alone = {"subscribe": name, "remoteUrl": str(tmp_path), "readRemote": ONLY}
        assert len(values(TopicReader(batch_options(alone), spark_schema(headers=False)))) == 50


def test_a_topic_made_anew_has_nothing_of_the_old_one(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap
    topic_id = make(bootstrap, topic, 100)
    copy(bootstrap, LocalDirectory(str(tmp_path)), topic, topic_id, end=100)
    with Admin(bootstrap) as admin:
        admin.delete_topic(topic)
    make(bootstrap, topic, 7)
    assert len(values(batch_reader(bootstrap, subscribe=topic, remoteUrl=tmp_path))) == 7
    assert values(batch_reader(bootstrap, subscribe=topic, remoteUrl=tmp_path, readRemote=ONLY)) == []


def delete_records(bootstrap: str, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_records([TopicPartition(topic, 0, before)]).values():
        deleted.result(60)


def _keep(store: ObjectStore, manifest: Manifest) -> None:
    store.put(manifest_key(manifest.topic_id, manifest.partition), encode_manifest(manifest))


# -- streams -------------------------------------------------------------------------------------------------


def test_a_stream_reads_what_is_remote_and_then_the_brokers(
    broker: BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap = broker.bootstrap
    topic_id = make(bootstrap, topic, 100)
    copy(bootstrap, LocalDirectory(str(tmp_path)), topic, topic_id, end=80)
    looks: list[str] = []
    look = LocalDirectory.get

    def counted(store: LocalDirectory, key: str) -> Any:
        looks.append(key)
        return look(store, key)

    monkeypatch.setattr(LocalDirectory, "get", counted)
    reader = stream_reader(
        bootstrap, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=30, remoteUrl=tmp_path
    )
    start = reader.initialOffset()
    found: list[bytes] = []
    remote = []
    for _ in range(4):
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        tasks = reader.partitions(start, end)
        remote.append([isinstance(task.value, RemoteRange) for task in tasks])
        found += values(reader, tasks)
        start = end
    assert remote == [[True], [True], [True], [False]]
    assert sorted(found) == sorted(value(0, n) for n in range(100))
    with WireClient(bootstrap) as client:
        add(client, topic, 0, 5, 100)
    assert len(micro_batch(reader, start)[0]) == 5
    assert looks == [manifest_key(topic_id, 0)] * 4, "a stream at the end of a topic does not ask the store"


def test_a_stream_comes_back_to_a_store_that_has_failed(
    broker: BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap = broker.bootstrap
    topic_id = make(bootstrap, topic, 100)
    copy(bootstrap, LocalDirectory(str(tmp_path)), topic, topic_id, end=100)
    now, fails, looks = [1000.0], [True], [0]
    look = LocalDirectory.get

    def failing(store: LocalDirectory, key: str) -> Any:
        looks[0] += 1
        if fails[0]:
            raise ObjectStoreError("the store is away")
        return look(store, key)

    monkeypatch.setattr(LocalDirectory, "get", failing)
    reader = stream_reader(
        bootstrap, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=10, remoteUrl=tmp_path
    )
    reader._remote = planning.StreamPlans(reader._options.fetching.remote, lambda: now[0])
    start, found = reader.initialOffset(), list[bytes]()

    def is_remote(*, after_s: float) -> bool:
        nonlocal start, found
        now[0] += after_s
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        (task,) = tasks = reader.partitions(start, end)
        found += values(reader, tasks)
        start = end
        return isinstance(task.value, RemoteRange)

    pause_s = planning.PAUSE_S_MIN
    assert [is_remote(after_s=0), is_remote(after_s=pause_s - 1), looks[0]] == [False, False, 1]
    assert [is_remote(after_s=1), is_remote(after_s=2 * pause_s - 1), looks[0]] == [False, False, 2]
    fails[0] = False
    assert [is_remote(after_s=1), is_remote(after_s=0), looks[0]] == [True, True, 4]
    fails[0] = True
    assert [is_remote(after_s=0), looks[0]] == [False, 5]
    fails[0] = False
    assert [is_remote(after_s=pause_s), looks[0]] == [True, 6], "the pauses begin anew"
    assert sorted(found) == sorted(value(0, n) for n in range(80))


def test_a_stream_asks_brokers_again_that_did_not_say_where_the_store_is(
    broker: BrokerProcess, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bootstrap = broker.bootstrap
    topic_id = make(bootstrap, topic, 100)
    copy(bootstrap, LocalDirectory(str(tmp_path)), topic, topic_id, end=100)
    now = [1000.0]

    def asked(*_: object) -> Place:
        if now[0] == 1000.0:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no broker answers")
        return Place(str(tmp_path), frozenset([offset_ranges.TopicPartition(topic, 0)]))

    monkeypatch.setattr(planning, "place_of", asked)
    reader = stream_reader(bootstrap, subscribe=topic, startingOffsets="earliest")
    reader._remote = planning.StreamPlans(reader._options.fetching.remote, lambda: now[0])
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    (before,) = reader.partitions(start, end)
    now[0] += planning.PAUSE_S_MIN
    (after,) = reader.partitions(start, end)
    assert [isinstance(task.value, RemoteRange) for task in (before, after)] == [False, True]


def test_a_stream_whose_topic_is_made_anew_reads_nothing_of_the_old_segments(
    broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    bootstrap = broker.bootstrap
    topic_id = make(bootstrap, topic, 100)
    copy(bootstrap, LocalDirectory(str(tmp_path)), topic, topic_id, end=100)
    reader = stream_reader(
        bootstrap, subscribe=topic, startingOffsets="earliest", failOnDataLoss="false", remoteUrl=tmp_path
    )
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert len(values(reader, reader.partitions(start, end))) == 100
    with Admin(bootstrap) as admin:
        admin.delete_topic(topic)
    with WireClient(bootstrap) as client:
        create(client, topic)
        add(client, topic, 0, 3, first=500)
    later = reader.latestOffset(end, reader.getDefaultReadLimit())
    assert values(reader, reader.partitions(end, later)) == [value(0, n) for n in (500, 501, 502)]


# -- where it is ---------------------------------------------------------------------------------------------


def test_a_store_that_cannot_be_reached(broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    make(broker.bootstrap, topic, 10)
    (tmp_path / "file").write_text("no directory")
    options: dict[str, Any] = {"subscribe": topic, "remoteUrl": tmp_path / "file"}
    assert len(values(batch_reader(broker.bootstrap, **options))) == 10
    with pytest.raises(ObjectStoreError):
        values(batch_reader(broker.bootstrap, **options, readRemote=ONLY))
    with pytest.raises(ConfigError, match="give its place as remoteUrl"):
        values(batch_reader(broker.bootstrap, subscribe=topic, readRemote=ONLY))


def test_options_that_cannot_be_used() -> None:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    with pytest.raises(ConfigError, match="readRemote=no: give auto or never or only"):
        batch_options({**given, "readRemote": "no"})
    with pytest.raises(ConfigError, match="readRemote=only is for batches"):
        stream_options({**given, "readRemote": "only"})
    with pytest.raises(ConfigError, match="must not contain credentials"):
        batch_options({**given, "remoteUrl": "s3://key:secret@bucket/x"})
    found = batch_options({**given, "remote.access_key_id": "a", "remoteUrl": "s3://bucket/x"})
    assert found.fetching.remote.settings == {"access_key_id": "a"}


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    with running_object_store() as server:
        yield {
            "remoteUrl": f"{server.location()}/remote",
            "remote.endpoint": server.environment()["AWS_ENDPOINT_URL"],
            "remote.access_key_id": "test",
            "remote.secret_access_key": "test",
            "remote.region": "us-east-1",
        }


def test_segments_on_s3_with_credentials_of_their_own(
    broker: BrokerProcess, topic: str, s3: dict[str, str]
) -> None:
    bootstrap = broker.bootstrap
    topic_id = make(bootstrap, topic, 100)
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **s3}
    remote = batch_options(given).fetching.remote
    copy(bootstrap, remote.open(remote.url), topic, topic_id, end=90)
    only = TopicReader(batch_options({**given, "readRemote": ONLY}), spark_schema(headers=False))
    assert values(only) == sorted(value(0, n) for n in range(90))
    assert len(values(TopicReader(batch_options(given), spark_schema(headers=False)))) == 100
