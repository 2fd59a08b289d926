"""Connections of Spark's workers: kept, replaced when they break, wrapped in TLS, clear when they fail."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from forebay.errors import ConfigError, ErrorCode, ForebayError, KafkaError
from forebay.spark.wire import connections as connections
from forebay.spark.wire.connections import BrokerConnection, Cluster
from forebay.wire.messages.fetch import FetchRequest
from forebay.wire.messages.metadata import MetadataRequest
from forebay.wire.session import Session
from support.brokers.broker_process import BrokerProcess, StartBroker
from support.clients.wire_client import fetch
from support.faults.certificates import Authority
from support.faults.cutting_proxy import CuttingProxy
from support.faults.tls_proxy import TlsProxy
from support.spark.reading import batch_reader, make_topic, value, values


def connect(broker: BrokerProcess) -> BrokerConnection:
    return BrokerConnection("127.0.0.1", broker.port)


# -- one connection ----------------------------------------------------------------------------------------


def test_several_requests_on_the_way(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 3)
    connection = connect(broker)
    connection.post(MetadataRequest(topics=[]))
    connection.post(fetch(topic, 0), 12)
    assert connection.unanswered == 2
    with pytest.raises(RuntimeError, match="read them"):
        connection.ask(MetadataRequest(topics=[]))
    assert connection.read().brokers
    assert len(connection.read().responses) == 1
    connection.close()
    assert connection.closed


def test_the_highest_version_that_both_sides_speak(broker: BrokerProcess) -> None:
    connection = connect(broker)
    assert connection.version(FetchRequest, 12) == 12
    assert connection.version(FetchRequest) > 12
    with pytest.raises(KafkaError, match="does not serve Fetch") as caught:
        connection.version(FetchRequest, 1)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION
    connection.close()


def test_a_connection_that_broke_is_closed(broker: BrokerProcess) -> None:
    connection = connect(broker)
    connection.close()
    with pytest.raises(KafkaError, match=connection.address) as caught:
        connection.ask(MetadataRequest(topics=[]))
    assert caught.value.code is ErrorCode.NETWORK_EXCEPTION


def test_an_answer_that_was_not_waited_for_is_nobody_elses(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while a notebook waits: what comes later must not be taken for the answer to the next."""
    connection = connect(broker)
    with monkeypatch.context() as patch:
        patch.setattr(Session, "frame_size", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            connection.ask(MetadataRequest(topics=[]))
    assert connection.closed
    with pytest.raises(KafkaError, match="was closed"):
        connection.ask(MetadataRequest(topics=[]))


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


@pytest.fixture
def stranger() -> Iterator[str]:
    """Something that listens and speaks, but not this protocol."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        accepted, _ = listener.accept()
        accepted.recv(1000)
        accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        accepted.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    thread.join(60)
    listener.close()


def test_who_is_no_broker_is_found_out(stranger: str) -> None:
    cluster = Cluster(stranger, {"kafka.default.api.timeout.ms": "1"})
    with pytest.raises(KafkaError, match="is this a Kafka listener"):
        cluster.any()


# -- a cluster ---------------------------------------------------------------------------------------------


def test_nobody_at_home_is_said_with_the_option() -> None:
    cluster = Cluster("127.0.0.1:1,127.0.0.1:2", {"kafka.default.api.timeout.ms": "100"})
    with pytest.raises(KafkaError, match=r"kafka\.bootstrap\.servers=127.*127\.0\.0\.1:2"):
        cluster.attempt(cluster.refresh)


@pytest.mark.parametrize("servers", ["", "localhost", "a:b", ":9092", "a:70000"])
def test_servers_are_host_and_port(servers: str) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers"):
        Cluster(servers)


def test_times_are_milliseconds() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.request\.timeout\.ms=soon"):
        Cluster("a:1", {"kafka.request.timeout.ms": "soon"})


def test_one_server_of_the_list_is_enough(broker: BrokerProcess) -> None:
    with Cluster(f"127.0.0.1:1, {broker.bootstrap}") as cluster:
        assert cluster.any().address == broker.bootstrap


def test_leaders_coordinators_and_what_is_missing(broker: BrokerProcess, topic: str) -> None:
    make_topic(broker.bootstrap, topic, 0, 0)
    cluster = Cluster(broker.bootstrap, {"kafka.default.api.timeout.ms": "100"})
    assert cluster.partitions(topic) == [0, 1]
    assert cluster.leader(topic, 1) is cluster.leader(topic, 0)
    assert cluster.attempt(lambda: cluster.coordinator("some-group")).address == broker.bootstrap
    assert cluster.partitions(f"{topic}-no") == []
    with pytest.raises(KafkaError, match="no partition 2") as caught:
        cluster.attempt(lambda: cluster.leader(topic, 2))
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.close()
    assert cluster.partitions(topic) == [0, 1]
    cluster.close()


def test_a_restarted_broker_is_found_again(start_broker: StartBroker, topic: str) -> None:
    broker = start_broker()
    make_topic(broker.bootstrap, topic, 0)
    with Cluster(broker.bootstrap) as cluster:
        before = cluster.leader(topic, 0)
        broker.kill()
        broker.restart()
        assert cluster.attempt(lambda: cluster.partitions(topic)) == [0]
        assert cluster.leader(topic, 0) is not before


def test_an_error_that_repetition_does_not_help_is_not_repeated(broker: BrokerProcess) -> None:
    tries = []

    def work() -> None:
        tries.append(1)
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no")

    with pytest.raises(KafkaError, match="no"):
        Cluster(broker.bootstrap).attempt(work)
    assert len(tries) == 1


class FakeTime:
    """A clock that goes on when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.mark.parametrize(("unknown", "found"), [(1, True), (30, False)])
def test_a_topic_that_a_broker_does_not_know_at_once_after_an_outage_is_not_missing(
    monkeypatch: pytest.MonkeyPatch, unknown: int, found: bool
) -> None:
    """With failOnDataLoss=false a task would pass over the messages of a topic that is missing."""
    monkeypatch.setattr(connections, "time", FakeTime())
    away, unaware = ErrorCode.NETWORK_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answers = [*[away] * 12, *[unaware] * unknown]

    def work() -> bool:
        if answers:
            raise KafkaError(answers.pop(0), "not now")
        return True

    cluster = Cluster("a:1")
    if found:
        assert cluster.attempt(work)
    else:
        with pytest.raises(KafkaError) as caught:
            cluster.attempt(work)
        assert caught.value.code is unaware


def test_clusters_are_shared_by_tasks_of_a_thread(broker: BrokerProcess) -> None:
    cluster = Cluster.shared(broker.bootstrap)
    assert Cluster.shared(broker.bootstrap, {}) is cluster
    assert Cluster.shared(broker.bootstrap, {"kafka.client.id": "other"}) is not cluster
    elsewhere: list[Cluster] = []
    thread = threading.Thread(target=lambda: elsewhere.append(Cluster.shared(broker.bootstrap)))
    thread.start()
    thread.join(60)
    assert elsewhere[0] is not cluster


def test_a_forked_process_does_not_share_connections(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster.shared(broker.bootstrap)
    child = os.getpid() + 1
    monkeypatch.setattr(os, "getpid", lambda: child)
    assert Cluster.shared(broker.bootstrap) is not cluster


def test_the_pool_is_bounded(broker: BrokerProcess) -> None:
    first = Cluster.shared(broker.bootstrap, {"kafka.client.id": "first"})
    held = first.any()
    for n in range(connections.POOL_CLUSTERS_MAX):
        Cluster.shared(broker.bootstrap, {"kafka.client.id": str(n)})
    assert held.closed


# -- networks that misbehave, and networks that are watched ------------------------------------------------


def test_connections_cut_at_any_point_lose_and_repeat_nothing(start_broker: StartBroker, topic: str) -> None:
    with CuttingProxy(seed=5, cuts=40, bytes_min=10, bytes_max=30_000) as proxy:
        broker = start_broker(f"advertised.listeners=PLAINTEXT://{proxy.address}")
        proxy.target = ("127.0.0.1", broker.port)
        make_topic(broker.bootstrap, topic, 2500, 2500)
        proxy.cutting = True
        reader = batch_reader(proxy.address, subscribe=topic, kafka_max_partition_fetch_bytes=20_000)
        assert values(reader) == sorted(value(p, n) for p in range(2) for n in range(2500))
        assert proxy.cuts_done > 3


def test_tls_with_and_without_a_client_certificate(
    start_broker: StartBroker, topic: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path, "authority")
    certificate, key = authority.issue("server")
    mine, my_key = authority.issue("client")
    with TlsProxy(certificate, key, client_authority=authority.ca_file) as proxy:
        broker = start_broker(f"advertised.listeners=PLAINTEXT://{proxy.address}")
        proxy.target = ("127.0.0.1", broker.port)
        make_topic(broker.bootstrap, topic, 3)
        trust: dict[str, Any] = {
            "kafka_security_protocol": "SSL",
            "kafka_ssl_truststore_location": authority.ca_file,
        }
        files: dict[str, Any] = {"kafka_ssl_keystore_location": mine, "kafka_ssl_key_location": my_key}
        texts: dict[str, Any] = {
            "kafka_ssl_keystore_certificate_chain": mine.read_text(),
            "kafka_ssl_keystore_key": my_key.read_text(),
        }
        for identity in (files, texts):
            reader = batch_reader(proxy.address, subscribe=topic, **trust, **identity)
            assert len(values(reader)) == 3
        impatient: dict[str, Any] = {"kafka_default_api_timeout_ms": 100}
        with pytest.raises(KafkaError):
            batch_reader(proxy.address, subscribe=topic, **trust, **impatient).partitions()


def test_a_certificate_that_nobody_vouches_for(tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path, "authority").issue("server")
    another = Authority(tmp_path, "another")
    with TlsProxy(certificate, key) as proxy:
        trust: dict[str, Any] = {"kafka_security_protocol": "SSL", "kafka_ssl_ca_location": another.ca_file}
        with pytest.raises(ForebayError, match=r"certificate.*kafka\.ssl\.truststore\.location"):
            batch_reader(proxy.address, subscribe="any", **trust).partitions()
