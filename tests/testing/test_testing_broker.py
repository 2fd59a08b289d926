"""The embedded broker: its life, its manners in somebody else's process, and what it says when it fails."""

from __future__ import annotations

import gc
import logging
import resource
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from forebay.client import Admin, Consumer, Producer, Record
from forebay.errors import ConfigError
from forebay.testing import Broker, BrokerFailed
from forebay.testing.embedded import BrokerThread

EACH_KIND = pytest.mark.parametrize("process", [False, True], ids=["thread", "child"])


def write(broker: Broker, topic: str, value: str) -> None:
    with Producer(broker.bootstrap_servers, delivery="at-most-once", acks=1, profile="latency") as producer:
        producer.send_and_wait(Record(topic=topic, value=value))


def first_value(broker: Broker, topic: str) -> bytes | None:
    with Consumer(broker.bootstrap_servers, topic, group="check", profile="latency") as consumer:
        return next(consumer).value


@EACH_KIND
def test_a_secure_broker_takes_only_clients_with_a_login(process: bool) -> None:
    with Broker(process=process, secure=True) as broker:
        settings = {"log_level": 0, **broker.client_settings}
        del settings["bootstrap.servers"]
        with Producer(broker.bootstrap_servers, settings=settings) as producer:
            producer.send_and_wait(Record(topic="news", value="hello"))
        broker.restart()
        with Consumer(broker.bootstrap_servers, "news", group="check", settings=settings) as consumer:
            assert next(consumer).value == b"hello"
        stranger = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        with pytest.raises(KafkaException):
            stranger.list_topics(timeout=2)


async def test_a_secure_broker_can_be_started_by_a_coroutine() -> None:
    with Broker(secure=True) as broker:
        assert broker.client_settings["security.protocol"] == "SASL_SSL"


@EACH_KIND
def test_serves_inside_the_block_and_leaves_nothing(process: bool) -> None:
    with Broker(process=process) as broker:
        write(broker, "news", "hello")
        assert first_value(broker, "news") == b"hello"
        data, (host, port) = broker.data_dir, broker.bootstrap_servers.split(":")
        assert (data / "news-0").is_dir()
    assert not data.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 1).close()


@EACH_KIND
def test_comes_back_with_its_data_at_the_same_address(process: bool) -> None:
    with Broker(process=process) as broker:
        write(broker, "news", "kept")
        address = broker.bootstrap_servers
        assert broker.restart().bootstrap_servers == address
        assert first_value(broker, "news") == b"kept"


def test_a_killed_child_comes_back_with_what_was_acknowledged() -> None:
    with Broker(process=True) as broker:
        write(broker, "news", "kept")
        broker.kill()
        assert not broker.running
        broker.start()
        assert first_value(broker, "news") == b"kept"


def test_a_thread_cannot_be_killed() -> None:
    with Broker() as broker, pytest.raises(BrokerFailed, match="process=True"):
        broker.kill()


def test_two_brokers_in_one_process_do_not_meet() -> None:
    with Broker() as one, Broker() as other:
        write(one, "news", "one")
        write(other, "news", "other")
        assert first_value(one, "news") == b"one"
        assert first_value(other, "news") == b"other"
        Admin(one.bootstrap_servers).create_topic("only-here")
        assert "only-here" not in Admin(other.bootstrap_servers).topics()


def test_a_directory_of_the_users_is_kept(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        write(broker, "news", "kept")
    assert (tmp_path / "data" / "news-0").is_dir()
    with Broker(data_dir=tmp_path / "data") as broker:
        assert first_value(broker, "news") == b"kept"


@EACH_KIND
def test_settings_have_kafkas_names_and_python_values(process: bool) -> None:
    with Broker(
        process=process, settings={"num.partitions": 3, "auto.create.topics.enable": False}
    ) as broker:
        admin = Admin(broker.bootstrap_servers)
        admin.create_topic("news")
        assert admin.topics() == {"news": 3}


@EACH_KIND
def test_a_wrong_setting_is_one_clear_error(process: bool) -> None:
    with pytest.raises((ConfigError, BrokerFailed), match=r"num\.partitions"):
        Broker(process=process, settings={"num.partitons": 3}).start()


@EACH_KIND
def test_a_directory_in_use_is_one_clear_error(process: bool, tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path), pytest.raises(BrokerFailed, match="in use by another process"):
        Broker(process=process, data_dir=tmp_path).start()


def test_a_broker_that_could_not_start_can_be_stopped_whatever_its_thread_has_done_already(
    tmp_path: Path,
) -> None:
    with Broker(data_dir=tmp_path):
        late = BrokerThread()
        with pytest.raises(BrokerFailed, match="in use"):
            late.start({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)})
        late.kill()
        late.begin_to_stop()


def test_leaves_the_process_it_lives_in_alone() -> None:
    def surroundings() -> list[object]:
        return [
            signal.getsignal(signal.SIGTERM),
            signal.getsignal(signal.SIGINT),
            list(logging.getLogger().handlers),
            logging.getLogger().level,
            list(logging.getLogger("forebay").handlers),
            resource.getrlimit(resource.RLIMIT_NOFILE),
            gc.get_threshold(),
        ]

    before, threads = surroundings(), threading.active_count()
    with Broker() as broker:
        write(broker, "news", "hello")
        assert surroundings() == before
    assert threading.active_count() == threads


def test_what_went_wrong_in_the_block_is_what_is_raised() -> None:
    with pytest.raises(ZeroDivisionError), Broker(process=True) as broker:
        broker.kill()
        raise ZeroDivisionError


PARENT = """
import sys, time
from forebay.testing import Broker
broker = Broker(process=True).start()
print(broker.bootstrap_servers, flush=True)
time.sleep(60)
"""


def test_a_child_ends_with_its_parent_even_if_that_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        host, port = parent.stdout.readline().decode().split(":")
        connection = socket.create_connection((host, int(port)), 20)
    finally:
        parent.kill()
        parent.communicate()
    with connection:
        assert connection.recv(1) == b"", "the broker closes its connections when it ends"
