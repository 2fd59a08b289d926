"""Real clients over TLS, with and without certificates of their own, and those that are refused."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from forebay.local.certificates import Authority
from forebay.local.child_broker import ChildBroker
from forebay.wire.messages.api_versions import ApiVersionsRequest
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.sasl_broker import PASSWORDS, sasl_broker
from support.brokers.tls_files import TlsFiles
from support.clients.wire_client import WireClient
from support.waiting import Patience

with warnings.catch_warnings():
    # kafka-python reads its schemas by a deprecated call when it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

RULES = r"RULE:^CN=(\w+),OU=people$/$1/L, DEFAULT"
VALUES = [b"%d" % number * 50 for number in range(100)] + [b"large" * 100_000]
Converse = Callable[[str, TlsFiles, str | None, str], list[bytes]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def broker(files: TlsFiles, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    settings = {
        **files.broker_settings(),
        "listeners": "SSL://127.0.0.1:0,MUTUAL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "listener.security.protocol.map": "MUTUAL:SSL",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": RULES,
    }
    with local_broker(tmp_path_factory.mktemp("data"), settings) as broker:
        yield broker


def address(broker: LocalBroker, listener: str) -> str:
    host, port = broker.on_loop(lambda node: node.server.addresses[listener])
    return f"{host}:{port}"


# -- clients ------------------------------------------------------------------------------------------


def confluent(bootstrap: str, files: TlsFiles, certificate: str | None, topic: str) -> list[bytes]:
    settings = files.librdkafka(bootstrap, certificate)
    producer = Producer(settings)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(30) == 0
    group = {"group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, **group})
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < len(VALUES):
        message = consumer.poll(30)
        assert message is not None and message.error() is None
        content = message.value()
        assert content is not None
        found.append(content)
    consumer.close()
    return found


def kafka_python(bootstrap: str, files: TlsFiles, certificate: str | None, topic: str) -> list[bytes]:
    settings: dict[str, Any] = {
        "bootstrap_servers": bootstrap,
        "security_protocol": "SSL",
        "ssl_cafile": files.ca,
        "ssl_certfile": certificate,
        "ssl_keyfile": certificate,
    }
    producer = kafka.KafkaProducer(**settings)
    for value in VALUES:
        producer.send(topic, value)
    producer.flush(30)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **settings
    )
    found = [next(consumer).value for _ in VALUES]
    consumer.close()
    return found


def aiokafka(bootstrap: str, files: TlsFiles, certificate: str | None, topic: str) -> list[bytes]:
    async def run() -> list[bytes]:
        context = ssl.create_default_context(cafile=files.ca)
        if certificate is not None:
            context.load_cert_chain(certificate)
        settings: dict[str, Any] = {
            "bootstrap_servers": bootstrap,
            "security_protocol": "SSL",
            "ssl_context": context,
        }
        async with AIOKafkaProducer(**settings) as producer:
            for value in VALUES:
                await producer.send(topic, value)
        group = {"group_id": topic, "auto_offset_reset": "earliest"}
        async with AIOKafkaConsumer(topic, **group, **settings) as consumer:
            async with asyncio.timeout(30):
                return [(await consumer.getone()).value for _ in VALUES]

    return asyncio.run(run())


def kcat(bootstrap: str, files: TlsFiles, certificate: str | None, topic: str) -> list[bytes]:
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")
    settings = files.librdkafka(bootstrap, certificate)
    options = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
    command = ["kcat", *options, "-t", topic]
    subprocess.run(
        [*command, "-P", "-D", "\n"], input=b"\n".join(VALUES), check=True, timeout=60, capture_output=True
    )
    found = subprocess.run(
        [*command, "-C", "-o", "beginning", "-c", str(len(VALUES)), "-q"],
        check=True,
        timeout=60,
        capture_output=True,
    )
    return found.stdout.splitlines()


each_client = pytest.mark.parametrize("converse", [confluent, kafka_python, aiokafka, kcat])


@each_client
def test_messages_go_and_come_over_tls(broker: LocalBroker, files: TlsFiles, converse: Converse) -> None:
    topic = f"tls-{converse.__name__}"
    assert converse(address(broker, "SSL"), files, None, topic) == VALUES


@each_client
def test_messages_go_and_come_over_mutual_tls(
    broker: LocalBroker, files: TlsFiles, converse: Converse
) -> None:
    topic = f"mutual-{converse.__name__}"
    assert converse(address(broker, "MUTUAL"), files, files.client, topic) == VALUES


# -- who a client is ----------------------------------------------------------------------------------


def _principal(broker: LocalBroker, files: TlsFiles, listener: str, certificate: str | None) -> str:
    """Who a client is, once a request of it was answered."""
    context = ssl.create_default_context(cafile=files.ca)
    if certificate is not None:
        context.load_cert_chain(certificate)
    with WireClient(address(broker, listener), tls=context) as client:
        assert client.call(ApiVersionsRequest(), 3).error_code == 0
        own = client.socket.getsockname()
        (found,) = broker.on_loop(
            lambda node: [each.principal for each in node.server.connections if each.peer == own]
        )
        return found


def test_a_certificate_says_who_a_client_is(broker: LocalBroker, files: TlsFiles) -> None:
    assert _principal(broker, files, "MUTUAL", files.client) == "User:ada"
    assert _principal(broker, files, "MUTUAL", files.issue("robot")) == "User:CN=robot"
    assert _principal(broker, files, "SSL", None) == "User:ANONYMOUS"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_that_was_here_before_is_who_it_was(
    broker: LocalBroker, files: TlsFiles, version: ssl.TLSVersion
) -> None:
    """Sessions are resumed only where no certificate is asked for."""
    for listener, certificate in (("MUTUAL", files.client), ("SSL", None)):
        context = ssl.create_default_context(cafile=files.ca)
        context.minimum_version = context.maximum_version = version
        if certificate is not None:
            context.load_cert_chain(certificate)
        host, _, port = address(broker, listener).rpartition(":")
        session: ssl.SSLSession | None = None
        for _ in range(2):
            with WireClient(f"{host}:{port}") as client:
                secured = context.wrap_socket(client.socket, server_hostname=host, session=session)
                client.socket = secured
                assert client.call(ApiVersionsRequest(), 3).error_code == 0
                again, session = secured.session_reused, secured.session
                own = secured.getsockname()
                (found,) = broker.on_loop(
                    lambda node, own=own: [  # type: ignore[misc]
                        each.principal for each in node.server.connections if each.peer == own
                    ]
                )
                assert found == ("User:ada" if certificate else "User:ANONYMOUS")
        if certificate is None or version is ssl.TLSVersion.TLSv1_3:
            assert again == (certificate is None)


def test_a_name_that_no_rule_is_for_is_refused(
    files: TlsFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {
        **files.broker_settings(client_auth="required"),
        "ssl.principal.mapping.rules": "RULE:^CN=somebody else$/else/",
    }
    with local_broker(tmp_path, settings) as broker:
        assert _refused(files.librdkafka(broker.bootstrap, files.client))
        assert "no rule of ssl.principal.mapping.rules is for 'CN=ada,OU=people'" in _reasons(caplog)


def test_a_certificate_may_be_requested_and_left_out(files: TlsFiles, tmp_path: Path) -> None:
    with local_broker(tmp_path, files.broker_settings(client_auth="requested")) as broker:
        assert _principal(broker, files, "SSL", None) == "User:ANONYMOUS"
        assert _principal(broker, files, "SSL", files.client) == "User:CN=ada,OU=people"


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_login_over_tls_says_who_a_client_is(files: TlsFiles, tmp_path: Path, mechanism: str) -> None:
    settings = {**files.broker_settings(client_auth="requested"), "listeners": "SASL_SSL://127.0.0.1:0"}
    with sasl_broker(tmp_path / "data", settings) as broker:
        login = {
            **files.librdkafka(broker.bootstrap, files.client),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": "ada",
            "sasl.password": PASSWORDS["ada"],
        }
        producer = Producer(login)
        producer.produce("t", bytes(900_000))
        assert producer.flush(30) == 0
        assert _principals(broker) == {"User:ada"}
        assert _refused({**login, "sasl.password": "wrong"})


def _principals(broker: LocalBroker) -> set[str]:
    return broker.on_loop(lambda node: {each.principal for each in node.server.connections})


# -- refused ------------------------------------------------------------------------------------------


def _refused(settings: dict[str, str]) -> bool:
    try:
        AdminClient({**settings, "log_level": 0}).list_topics(timeout=2)
    except KafkaException:
        return True
    return False


def _reasons(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(str(getattr(record, "reason", "")) for record in caplog.records)


def test_clients_without_a_certificate_are_refused(
    broker: LocalBroker, files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    assert _refused(files.librdkafka(address(broker, "MUTUAL")))
    assert "showed no certificate, and ssl.client.auth=required" in _reasons(caplog)
    assert broker.on_loop(lambda node: node.metrics.tls_handshakes_failed) > 0


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("expired", "certificate has expired"),
        ("early", "certificate is not yet valid"),
        ("stranger", "self-signed certificate in certificate chain"),
    ],
)
def test_certificates_of_clients_that_are_refused(
    broker: LocalBroker, files: TlsFiles, caplog: pytest.LogCaptureFixture, name: str, reason: str
) -> None:
    certificate = {
        "expired": lambda: files.issue(name, begins_in=timedelta(days=-3)),
        "early": lambda: files.issue(name, begins_in=timedelta(days=1)),
        "stranger": lambda: files.issue(name, authority=Authority.create("another authority")),
    }[name]()
    assert _refused(files.librdkafka(address(broker, "MUTUAL"), certificate))
    assert reason in _reasons(caplog)


@pytest.mark.parametrize("name", ["another host", "another authority", "expired"])
def test_certificates_of_brokers_that_clients_refuse(files: TlsFiles, tmp_path: Path, name: str) -> None:
    certificate = {
        "another host": lambda: files.issue("elsewhere", "example.org"),
        "another authority": lambda: files.issue(
            "other", "127.0.0.1", authority=Authority.create("another authority")
        ),
        "expired": lambda: files.issue("late", "127.0.0.1", begins_in=timedelta(days=-3)),
    }[name]()
    settings = {**files.broker_settings(), "ssl.keystore.location": certificate}
    with local_broker(tmp_path, settings) as broker:
        assert _refused(files.librdkafka(broker.bootstrap))
        unchecked = {**files.librdkafka(broker.bootstrap), "enable.ssl.certificate.verification": "false"}
        assert not _refused(unchecked)


def test_a_plain_client_on_a_tls_listener_is_named(
    broker: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    assert _refused({"bootstrap.servers": address(broker, "SSL")})
    (line,) = [record for record in caplog.records if "does not speak TLS" in _reason(record)]
    assert "security.protocol=SSL" in _reason(line)  # and only one, though the client tries again


def test_a_tls_client_on_a_plain_listener_is_named(
    broker: LocalBroker, files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    assert _refused(files.librdkafka(address(broker, "PLAINTEXT")))
    assert "a client speaks TLS, and this listener does not" in _reasons(caplog)


def _reason(record: logging.LogRecord) -> str:
    return str(getattr(record, "reason", ""))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls_are_spoken(
    broker: LocalBroker, files: TlsFiles, version: ssl.TLSVersion
) -> None:
    assert _version(address(broker, "SSL"), files, version) == version.name.replace("_", ".")


def test_a_version_can_be_left_out(files: TlsFiles, tmp_path: Path) -> None:
    settings = {**files.broker_settings(), "ssl.enabled.protocols": "TLSv1.3"}
    with local_broker(tmp_path, settings) as broker:
        assert _version(broker.bootstrap, files, ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
        with pytest.raises(ssl.SSLError):
            _version(broker.bootstrap, files, ssl.TLSVersion.TLSv1_2)


def _version(bootstrap: str, files: TlsFiles, version: ssl.TLSVersion) -> str | None:
    host, _, port = bootstrap.rpartition(":")
    context = ssl.create_default_context(cafile=files.ca)
    context.minimum_version = context.maximum_version = version
    with (
        socket.create_connection((host, int(port)), 10) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        return secured.version()


# -- time and renewal ---------------------------------------------------------------------------------


def test_a_client_that_says_nothing_is_closed(
    files: TlsFiles, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {**files.broker_settings(), "forebay.ssl.handshake.timeout.ms": "200"}
    with local_broker(tmp_path, settings) as broker, WireClient(broker.bootstrap) as client:
        assert client.socket.recv(1) == b""
        assert "took too long" in _reasons(caplog)


def test_new_certificates_are_used_without_a_restart(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path / "tls")
    settings = {**files.broker_settings(), "forebay.ssl.reload.interval.ms": "100"}
    with local_broker(tmp_path / "data", settings) as broker:
        before = _serial(broker.bootstrap, files)
        files.issue("broker", "127.0.0.1")
        _until_new(broker.bootstrap, files, before)
        renewed = _serial(broker.bootstrap, files)
        Path(files.broker).write_text("what is no certificate")
        broker.on_loop(lambda node: node.tls.reload())
        assert _serial(broker.bootstrap, files) == renewed  # the old one stays
        files.issue("broker", "127.0.0.1")
        broker.on_loop(lambda node: node.tls.reload())
        _until_new(broker.bootstrap, files, renewed)


def test_a_broker_reads_its_certificates_again_on_sighup(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path / "tls")
    settings = {**files.broker_settings(), "forebay.ssl.reload.interval.ms": "3600000"}
    broker = ChildBroker()
    bootstrap = broker.start({**settings, "log.dirs": str(tmp_path / "data")})
    try:
        before = _serial(bootstrap, files)
        files.issue("broker", "127.0.0.1")
        os.kill(broker.pid, signal.SIGHUP)
        _until_new(bootstrap, files, before)
    finally:
        broker.stop()


def _until_new(bootstrap: str, files: TlsFiles, old: object) -> None:
    patience = Patience("a new certificate is shown")
    while _serial(bootstrap, files) == old:
        patience.check()
        time.sleep(0.02)


def _serial(bootstrap: str, files: TlsFiles) -> object:
    host, _, port = bootstrap.rpartition(":")
    context = ssl.create_default_context(cafile=files.ca)
    with (
        socket.create_connection((host, int(port)), 10) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        certificate = secured.getpeercert()
        assert certificate is not None
        return certificate["serialNumber"]
