"""Several workers under one `forebay serve`, as a user starts them."""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from forebay.coordination.sqlite import SqliteStore
from support.brokers.broker_process import running_broker
from support.brokers.forebay_command import forebay, forebay_process
from support.brokers.host_process import HostProcess, running_host, wait_until_gone
from support.brokers.replicated import until
from support.clients.kafka_clients import DEADLINE_SECONDS, confluent_admin

COUNT = 3
METRICS = re.compile(r"metrics are served at=(http://\S+)/metrics\n")
"""Only the parent's line ends there."""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[HostProcess]:
    with running_host(tmp_path / "data", COUNT) as running:
        yield running


def numbers(count: int, first: int = 0) -> str:
    return "".join(f"{number}\n" for number in range(first, first + count))


def produce(host: HostProcess, text: str, topic: str = "t") -> None:
    done = forebay("produce", topic, bootstrap=host.bootstrap, stdin=text)
    assert done.code == 0, done.err


def consume(bootstrap: str, topic: str = "t") -> list[str]:
    done = forebay("consume", topic, "--exit-at-end", bootstrap=bootstrap)
    assert done.code == 0, done.err
    return sorted(done.out.splitlines(), key=int)


def admin(host: HostProcess) -> AdminClient:
    return confluent_admin(host.bootstrap)


def leaders(host: HostProcess, topic: str = "t") -> list[int]:
    parts = admin(host).list_topics(topic, timeout=DEADLINE_SECONDS).topics[topic].partitions
    return [parts[index].leader for index in sorted(parts)]


def ports(host: HostProcess) -> dict[int, int]:
    """Those of the workers that are there; none if none answers."""
    try:
        brokers = admin(host).list_topics(timeout=5).brokers
    except KafkaException:
        return {}
    return {number: broker.port for number, broker in brokers.items()}


def has_others_than(host: HostProcess, killed: list[int]) -> bool:
    pids = host.worker_pids()
    return sorted(pids) == list(range(1, COUNT + 1)) and not set(killed) & set(pids.values())


def test_workers_are_brokers_of_one_cluster_that_share_a_port_and_the_partitions(host: HostProcess) -> None:
    assert forebay("topic", "create", "t", "--partitions", "6", bootstrap=host.bootstrap).code == 0
    assert sorted(leaders(host)) == [1, 1, 2, 2, 3, 3]
    found = ports(host)
    assert sorted(found) == [1, 2, 3]
    assert len({*found.values(), int(host.bootstrap.rpartition(":")[2])}) == COUNT + 1
    produce(host, numbers(300))
    assert consume(host.bootstrap) == numbers(300).split()
    described = forebay("topic", "describe", "t", "--json", bootstrap=host.bootstrap).json()
    assert [len(each["replicas"]) for each in described["partitions"]] == [1] * 6
    assert (host.data / "workers" / "2" / "meta.properties").exists()
    assert host.end() == 0
    assert "Traceback" not in host.log()
    for folder in (host.data, host.data / "workers" / "2", host.data / "workers" / "3"):
        assert (folder / ".kafka_cleanshutdown").exists()


def test_a_worker_that_is_killed_is_started_again_at_the_same_port_with_its_messages(
    host: HostProcess,
) -> None:
    assert forebay("topic", "create", "t", "--partitions", "6", bootstrap=host.bootstrap).code == 0
    produce(host, numbers(300))
    before = ports(host)
    killed = [host.kill_worker(number) for number in (1, 2, 3)]
    until(lambda: has_others_than(host, killed), "all workers run again")
    until(lambda: ports(host) == before, "the workers are back")
    until(lambda: -1 not in leaders(host), "every partition has a leader")
    assert consume(host.bootstrap) == numbers(300).split()
    assert "a worker has ended, and is started again" in host.log()
    assert "reason=SIGKILL" in host.log()


def test_other_workers_lead_at_once_what_has_replicas(tmp_path: Path) -> None:
    """The dead one is kept from coming back, so that nobody else can have been the next leader."""
    settings = ("default.replication.factor=2", "min.insync.replicas=1", "forebay.lease.ttl.ms=60000")
    with running_host(tmp_path / "data", COUNT, *settings) as host:
        assert forebay("topic", "create", "t", "--partitions", "6", bootstrap=host.bootstrap).code == 0
        os.kill(host.pid, signal.SIGSTOP)
        try:
            killed = host.kill_worker(2)
        finally:
            os.kill(host.pid, signal.SIGCONT)
        until(lambda: 2 not in leaders(host) or killed not in host.worker_pids().values(), "2 is replaced")
        produce(host, numbers(100))
        assert consume(host.bootstrap) == numbers(100).split()


def test_when_the_parent_dies_its_workers_end_and_the_next_one_finds_everything(host: HostProcess) -> None:
    assert forebay("topic", "create", "t", "--partitions", "6", bootstrap=host.bootstrap).code == 0
    produce(host, numbers(300))
    pids = list(host.worker_pids().values())
    host.end(signal.SIGKILL)
    host.start()  # it waits for the workers of the first one
    for pid in pids:
        wait_until_gone(pid)
    assert consume(host.bootstrap) == numbers(300).split()


def test_nothing_is_lost_when_everything_is_killed_at_once(host: HostProcess) -> None:
    assert forebay("topic", "create", "t", "--partitions", "6", bootstrap=host.bootstrap).code == 0
    produce(host, numbers(300))
    host.kill_all()
    host.start()
    assert consume(host.bootstrap) == numbers(300).split()
    produce(host, numbers(10, 300))
    assert consume(host.bootstrap) == numbers(310).split()


def test_a_second_host_on_the_same_data_is_refused(host: HostProcess) -> None:
    done = forebay_process("serve", "--listen", "127.0.0.1:0", "--data", str(host.data))
    assert done.code == 1
    assert "Traceback" not in done.err


def test_a_worker_that_cannot_start_ends_the_start(tmp_path: Path) -> None:
    done = forebay_process(
        "serve",
        *("--listen", "SSL://127.0.0.1:0", "--data", str(tmp_path / "data"), "--workers", "2"),
        *("--set", "ssl.keystore.location=/nowhere.pem"),
    )
    assert done.code == 1
    assert "/nowhere.pem" in done.err
    assert "did not start" in done.err
    assert "Traceback" not in done.err


def test_from_one_worker_to_several_and_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running_broker(data) as broker:
        assert forebay("topic", "create", "t", "--partitions", "4", bootstrap=broker.bootstrap).code == 0
        text = numbers(200)
        assert forebay("produce", "t", bootstrap=broker.bootstrap, stdin=text).code == 0
        assert broker.stop() == 0
    with running_host(data, 2) as host:
        assert leaders(host) == [1, 1, 1, 1]
        assert consume(host.bootstrap) == numbers(200).split()
        shown = forebay("cluster", "workers", "2", "--dry-run", bootstrap=host.bootstrap)
        assert [line.split()[1:] for line in shown.out.splitlines() if line.startswith("t-")] == [
            ["1", "2"]
        ] * 2
        done = forebay("cluster", "workers", "2", "--yes", bootstrap=host.bootstrap)
        assert done.code == 0, done.err
        assert sorted(leaders(host)) == [1, 1, 2, 2]
        produce(host, numbers(100, 200))
        assert host.end() == 0

        refused = forebay_process("serve", "--listen", "127.0.0.1:0", "--data", str(data))
        assert refused.code == 2, refused.err
        assert "forebay cluster workers 1" in refused.err

        host.start()
        done = forebay("cluster", "workers", "1", "--yes", bootstrap=host.bootstrap)
        assert done.code == 0, done.err
        assert "--workers 1" in done.out
        assert host.end() == 0
    with running_broker(data) as broker:
        assert consume(broker.bootstrap) == numbers(300).split()


async def test_the_store_of_the_workers_is_that_of_a_single_broker(host: HostProcess) -> None:
    assert forebay("topic", "create", "t", bootstrap=host.bootstrap).code == 0
    assert host.end() == 0
    store = await SqliteStore.open(host.data / "forebay.db")
    assert await store.get("/forebay/main/topics/t") is not None
    assert (await store.range("/forebay/main/brokers/"))[0] == []
    await store.close()


def test_the_host_has_one_page_of_metrics_and_one_answer_about_its_health(tmp_path: Path) -> None:
    with running_host(tmp_path / "data", 2, "forebay.metrics.listener=127.0.0.1:0") as host:
        until(lambda: METRICS.search(host.log()) is not None, "the parent says where it serves metrics")
        found = METRICS.search(host.log())
        assert found is not None
        page = scraped(f"{found[1]}/metrics")
        up = [f'forebay_worker_up{{worker="{number}"}} 1' for number in (1, 2)]
        assert set(up) <= set(page.splitlines())
        for number in (1, 2):
            assert f'forebay_lease_valid{{worker="{number}"}} 1' in page
        assert page.count("# TYPE forebay_lease_valid gauge") == 1
        assert scraped(f"{found[1]}/readyz") == "ok\n"
        assert scraped(f"{found[1]}/healthz") == "ok\n"
        shown = forebay("cluster", "workers", "--json", bootstrap=host.bootstrap).json()
        assert [(each["number"], each["broker"]) for each in shown] == [(1, 1), (2, 2)]


def scraped(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
    return text


def test_workers_speak_tls_ask_for_logins_and_know_the_administrator(tmp_path: Path) -> None:
    with running_host(tmp_path / "data", 2, options=("--secure",)) as host:
        login = ("--command-config", str(host.data / "security" / "client.properties"))
        made = forebay("topic", "create", "t", "--partitions", "4", *login, bootstrap=host.bootstrap)
        assert made.code == 0, made.err
        sent = forebay("produce", "t", *login, bootstrap=host.bootstrap, stdin=numbers(100))
        assert sent.code == 0, sent.err
        read = forebay("consume", "t", "--exit-at-end", *login, bootstrap=host.bootstrap)
        assert sorted(read.out.splitlines(), key=int) == numbers(100).split()
        refused = forebay("topic", "list", bootstrap=host.bootstrap)
        assert refused.code != 0
        shown = forebay("cluster", "describe", "--json", *login, bootstrap=host.bootstrap).json()
        assert [each["leaders"] > 0 for each in shown["brokers"]] == [True, True]
        os.kill(host.pid, signal.SIGHUP)  # certificates are read again, by all workers
        assert host.end() == 0
        assert "Traceback" not in host.log()
