"""Metrics of single topics, partitions, groups and certificates: right, bounded in number, made in slices."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.prometheus import group_lag
from forebay.broker.prometheus.catalog import CATALOG
from forebay.broker.prometheus.families import Page, labels
from forebay.errors import ErrorCode
from forebay.wire.messages.delete_topics import DeleteTopicsRequest
from forebay.wire.messages.find_coordinator import FindCoordinatorRequest
from forebay.wire.messages.offset_commit import OffsetCommitRequest
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.local_cluster import LocalCluster, local_cluster, retried
from support.brokers.tls_files import TlsFiles
from support.busy_broker import METRICS, commit, commit_request, scraped
from support.clients.delaying import after, send
from support.clients.share_member import REJECT, ShareMember, ack, configure, join
from support.clients.wire_client import (
    CREATE_TOPICS,
    WireClient,
    append,
    batch,
    create,
    create_topic,
    produce,
    read,
)
from support.scraping import Scraped, scrape

COORDINATOR, COMMIT, PRODUCE = 3, 8, 9
LAG, SECONDS = "kafka_consumergroup_lag", "forebay_consumergroup_lag_seconds"
HOUR_S = 3600
PASSING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalBroker]:
    with local_broker(tmp_path, METRICS) as running:
        yield running


# -- topics --------------------------------------------------------------------------------------------


def test_messages_and_bytes_are_counted_by_topic(local: LocalBroker) -> None:
    with WireClient(local.bootstrap) as client:
        create(client, "a", 2)
        create(client, "b")
        for partition in (0, 1):
            append(client, "a", batch(b"one", b"two"), partition=partition)
        append(client, "b", batch(b"three"))
        fetched = read(client, "a")
        found = scraped(local)
    prefix = "kafka_server_brokertopicmetrics"
    assert found(f"{prefix}_messagesin_total") == 5
    assert found(f"{prefix}_messagesin_total", topic="a") == 4
    assert found(f"{prefix}_messagesin_total", topic="b") == 1
    whole = found(f"{prefix}_bytesin_total")
    assert whole == sum(found(f"{prefix}_bytesin_total", topic=topic) for topic in ("a", "b")) > 0
    assert found("forebay_log_bytes") == whole
    assert found("forebay_topic_log_bytes", topic="a") == found(f"{prefix}_bytesin_total", topic="a")
    assert found(f"{prefix}_bytesout_total", topic="a") == len(fetched.records)
    assert found(f"{prefix}_bytesout_total", topic="b") == 0


def test_a_topic_that_is_gone_is_not_shown_and_a_new_one_begins_at_zero(local: LocalBroker) -> None:
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    with WireClient(local.bootstrap) as client:
        create(client, "a")
        append(client, "a", batch(b"one", b"two"))
        client.call(DeleteTopicsRequest(topic_names=["a"], timeout_ms=60_000), 5)
        assert scraped(local).get(name, topic="a") is None
        create(client, "a")
        append(client, "a", batch(b"three"))
        assert scraped(local)(name, topic="a") == 1


def test_partitions_have_the_metrics_of_kafka_exporter(local: LocalBroker) -> None:
    with WireClient(local.bootstrap) as client:
        create(client, "a", 2)
        append(client, "a", batch(b"one", b"two"), partition=1)
        found = scraped(local)
    prefix, at = "kafka_topic_partition", {"topic": "a", "partition": "1"}
    assert found("kafka_topic_partitions", topic="a") == 2
    shown = {
        name: found(f"{prefix}_{name}", **at)
        for name in (
            "current_offset",
            "oldest_offset",
            "leader",
            "leader_is_preferred",
            "replicas",
            "in_sync_replica",
            "under_replicated_partition",
        )
    }
    assert list(shown.values()) == [2, 0, 1, 1, 1, 1, 0]
    assert found("kafka_log_log_size", **at) == found("forebay_log_bytes") > 0


async def test_only_the_leader_shows_a_partition_and_every_replica_its_size(tmp_path: Path) -> None:
    at = {"topic": "a", "partition": "0"}
    async with local_cluster(tmp_path, METRICS) as cluster:
        await cluster.ask(1, create_topic("a"), CREATE_TOPICS)
        await cluster.knows("a")
        leader = cluster.leader("a")
        await cluster.ask(leader, produce("a", batch(b"one"), acks=-1), PRODUCE)
        pages = {node: await scraped_of(cluster, node) for node in (1, 2, 3)}
    page = pages.pop(leader)
    assert page("kafka_topic_partition_current_offset", **at) == 1
    assert page("kafka_topic_partition_in_sync_replica", **at) == 3
    for follower in pages.values():
        assert follower.get("kafka_topic_partition_current_offset", **at) is None
        assert follower("kafka_log_log_size", **at) == page("kafka_log_log_size", **at)
    out = "kafka_server_brokertopicmetrics_replicationbytesout_total"
    assert page(out) >= 2 * page("kafka_log_log_size", **at)
    assert page("kafka_server_brokertopicmetrics_bytesout_total") == 0, "what followers get is counted apart"


def test_delayed_messages_are_shown_until_they_are_due(local: LocalBroker) -> None:
    with WireClient(local.bootstrap) as client:
        create(client, "later", 1, **{"forebay.delay.enable": "true"})
        for _ in range(3):
            send(client, "later", b"x", after("1h"))
        found = scraped(local)
        deadline = time.monotonic() + 60
        while found("forebay_delayed_pending") != 3:
            assert time.monotonic() < deadline
            found = scraped(local)
    assert found("forebay_topic_delayed_pending", topic="later") == 3
    assert found("forebay_delayed_overdue_seconds") == 0


# -- groups --------------------------------------------------------------------------------------------


def test_the_lag_of_a_group_is_shown_in_messages_and_in_seconds(local: LocalBroker) -> None:
    hour_ago_ms = int((time.time() - HOUR_S) * 1000)
    with WireClient(local.bootstrap) as client:
        create(client, "a")
        append(client, "a", batch(b"done"))
        append(client, "a", batch(b"old", b"older", timestamp=hour_ago_ms))
        commit(client, "readers", "a", 1)
        found = scraped(local)
        name = {"consumergroup": "readers", "topic": "a"}
        assert found(LAG, partition="0", **name) == found(f"{LAG}_sum", **name) == 2
        assert found("kafka_consumergroup_current_offset", partition="0", **name) == 1
        assert found("kafka_consumergroup_members", consumergroup="readers") == 0
        assert HOUR_S <= found(SECONDS, **name) < HOUR_S + 600
        commit(client, "readers", "a", 3)
        found = scraped(local)
        assert (found(LAG, partition="0", **name), found(SECONDS, **name)) == (0, 0)
        assert found("forebay_groups", type="classic", state="Empty") == 1


def test_an_age_is_looked_up_once_while_a_group_stays_where_it_is(
    local: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    by_time = local.node.offsets_by_time
    find = by_time.first_message_from

    async def counted(log: Any, timestamp: int, from_offset: int) -> Any:
        looks.append(from_offset)
        return await find(log, timestamp, from_offset)

    monkeypatch.setattr(by_time, "first_message_from", counted)
    with WireClient(local.bootstrap) as client:
        create(client, "a")
        append(client, "a", batch(b"one", b"two", b"three"))
        commit(client, "readers", "a", 1)
        commit(client, "others", "a", 1)
        scraped(local)
        scraped(local)
        assert looks == [1]
        commit(client, "readers", "a", 2)
        scraped(local)
        assert looks == [1, 2]


def test_a_lag_in_seconds_that_is_unknown_is_left_out(tmp_path: Path) -> None:
    with (
        local_broker(tmp_path, {**METRICS, "forebay.metrics.lag.ages.max": "0"}) as local,
        WireClient(local.bootstrap) as client,
    ):
        create(client, "a")
        append(client, "a", batch(b"one"))
        commit(client, "readers", "a", 0)
        found = scraped(local)
        assert found(f"{LAG}_sum", consumergroup="readers", topic="a") == 1
        assert found.get(SECONDS, consumergroup="readers", topic="a") is None


def test_names_of_groups_cannot_forge_lines(local: LocalBroker) -> None:
    hostile = 'a"} 1\nforebay_ready 0\n\\"\u2028é'
    with WireClient(local.bootstrap) as client:
        create(client, "a")
        append(client, "a", batch(b"one"))
        commit(client, hostile, "a", 0)
        found = scraped(local)
    assert found(LAG, consumergroup=hostile, topic="a", partition="0") == 1
    assert found("forebay_ready") == 1


async def read_by_one_group(cluster: LocalCluster) -> int:
    """Nine partitions that three brokers lead, with messages of an hour ago; the coordinator of the group."""
    await cluster.ask(1, create_topic("a", 9), CREATE_TOPICS)
    await cluster.knows("a")
    old_ms = int((time.time() - HOUR_S) * 1000)
    for index in range(9):
        request = produce("a", batch(b"x", b"y", timestamp=old_ms), partition=index, acks=-1)
        await cluster.ask(cluster.leader("a", index), request, PRODUCE)
    assert len({cluster.leader("a", index) for index in range(9)}) == 3
    found = await retried(partial(find_coordinator, cluster), *PASSING)
    for index in range(9):
        committed = commit_request("readers", "a", 1, index)
        await retried(partial(commit_at, cluster, found.node_id, committed), *PASSING)
    node: int = found.node_id
    return node


async def test_a_coordinator_asks_the_leaders_of_other_brokers(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, METRICS) as cluster:
        coordinator = await read_by_one_group(cluster)
        pages = {node: await scraped_of(cluster, node) for node in (1, 2, 3)}
    name = {"consumergroup": "readers", "topic": "a"}
    page = pages.pop(coordinator)
    assert page(f"{LAG}_sum", **name) == 9
    assert [page(LAG, partition=str(index), **name) for index in range(9)] == [1] * 9
    assert HOUR_S - 60 <= page(SECONDS, **name) < HOUR_S + 600
    assert [other.get(f"{LAG}_sum", **name) for other in pages.values()] == [None, None]


async def test_what_a_leader_does_not_answer_in_time_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: Any, **__: Any) -> Any:
        await asyncio.sleep(3600)

    monkeypatch.setattr(group_lag, "_ASKING_S_MAX", 0.1)
    async with local_cluster(tmp_path, METRICS) as cluster:
        coordinator = await read_by_one_group(cluster)
        monkeypatch.setattr(cluster[coordinator].peers, "ask", silent)
        page = await scraped_of(cluster, coordinator)
        led_here = [str(i) for i in range(9) if cluster.leader("a", i) == coordinator]
    name = {"consumergroup": "readers", "topic": "a"}
    shown = [str(i) for i in range(9) if page.get(LAG, partition=str(i), **name) is not None]
    assert shown == led_here
    assert page.get(f"{LAG}_sum", **name) is None
    assert page.get(SECONDS, **name) is None
    assert page("kafka_consumergroup_current_offset_sum", **name) == 9


async def find_coordinator(cluster: LocalCluster) -> tuple[Any, int]:
    answer = await cluster.ask(1, FindCoordinatorRequest(key="readers"), COORDINATOR)
    return answer, answer.error_code


async def commit_at(cluster: LocalCluster, node: int, request: OffsetCommitRequest) -> tuple[Any, int]:
    answer = await cluster.ask(node, request, COMMIT)
    return answer, answer.topics[0].partitions[0].error_code


async def scraped_of(cluster: LocalCluster, node: int) -> Scraped:
    address = cluster[node].exporter.address
    assert address is not None
    return await asyncio.to_thread(scrape, address)


def test_share_groups_show_what_is_available_locked_and_dead(local: LocalBroker) -> None:
    with WireClient(local.bootstrap) as client:
        topic_id = create(client, "jobs")
        configure(client, "workers")
        append(client, "jobs", batch(*(b"job" for _ in range(10))))
        member = join(client, "workers", "jobs")
        worker = ShareMember(client, "workers", topic_id, member=member)
        worker.fetch(records=4, mode=1)
        worker.acknowledge(ack(0))
        worker.acknowledge(ack(1, None, REJECT))
        found = scraped(local)
    name = {"group": "workers", "topic": "jobs"}
    states = ("available", "acquired", "backoff", "dead_letter")
    assert [found("forebay_share_records", state=state, **name) for state in states] == [6, 2, 0, 0]
    assert found("forebay_share_lag", **name) == 8
    assert found("forebay_groups", type="share", state="Stable") == 1
    assert found("kafka_consumergroup_members", consumergroup="workers") == 1


# -- the machine ---------------------------------------------------------------------------------------


def test_the_disk_and_the_process_are_shown(local: LocalBroker) -> None:
    found = scraped(local)
    assert 0 < found("forebay_disk_free_bytes") < found("forebay_disk_total_bytes")
    assert found("process_resident_memory_bytes") > 1_000_000
    assert 0 < found("process_open_fds") < found("process_max_fds")
    assert found("process_cpu_seconds_total") > 0


def test_the_first_certificate_to_expire_is_shown_and_a_renewed_one_is_noticed(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    name = "forebay_certificate_expiry_timestamp_seconds"
    with local_broker(tmp_path / "data", {**METRICS, **files.broker_settings()}) as local:
        first = scraped(local)(name, listener="SSL", store="keystore")
        assert 0 < first - time.time() <= timedelta(days=2).total_seconds()
        files.issue("broker", "127.0.0.1", days=30)
        renewed = scraped(local)(name, listener="SSL", store="keystore")
        assert renewed - first > timedelta(days=20).total_seconds()


# -- bounds --------------------------------------------------------------------------------------------


def test_series_beyond_the_limit_are_left_out_and_counted(tmp_path: Path) -> None:
    with (
        local_broker(tmp_path, {**METRICS, "forebay.metrics.series.max": "60"}) as local,
        WireClient(local.bootstrap) as client,
    ):
        for number in range(5):
            create(client, f"t{number}", 4)
        found = scraped(local)
        topics = len(found.labels_of("forebay_topic_log_bytes"))
        partitions = len(found.labels_of("kafka_topic_partition_leader"))
    assert topics == 5, "sums by topic come first"
    assert partitions < 20
    details = [each for each in found.families.values() if "topic" in CATALOG_LABELS.get(each.name, ())]
    assert sum(len([s for s in each.samples if s.labels]) for each in details) <= 60
    assert found("forebay_metrics_left_out") > 0
    assert found("kafka_server_replicamanager_partitioncount") == 20


CATALOG_LABELS = {name.removesuffix("_total"): family.labels for name, family in CATALOG.items()}


def test_a_page_of_many_topics_is_made_in_small_steps(local: LocalBroker) -> None:
    with WireClient(local.bootstrap) as client:
        create(client, "many", 400)
        create(client, "more", 400)

    def count(node: Any) -> tuple[int, int]:
        lines: list[int] = []
        written, add = 0, Page.add

        def counted(page: Page, *args: Any) -> None:
            nonlocal written
            written += 1
            add(page, *args)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Page, "add", counted)
            for _ in node.exporter.metrics_page._steps(open_metrics=True):
                lines.append(written)
                written = 0
        return len(lines), max(lines)

    steps, most = local.on_loop(count)
    assert steps > 20
    assert most <= 1000


def test_labels_are_escaped() -> None:
    assert labels(a='x"y\\z\n', b=1) == 'a="x\\"y\\\\z\\n",b="1"'
