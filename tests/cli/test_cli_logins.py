"""Commands that log in: properties from a file, from the environment, and in Java's words."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.cli.client import Client
from forebay.cli.properties import read_properties
from forebay.errors import ConfigError, KafkaError
from forebay.spark.wire.connections import Cluster
from forebay.transport.security import security
from forebay.wire.messages.metadata import MetadataRequest
from support.brokers.forebay_command import forebay
from support.brokers.local_broker import LocalBroker
from support.brokers.sasl_broker import PASSWORDS, sasl_broker

LIBRDKAFKA = """
# a comment
security.protocol = SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-512
sasl.username=bob
sasl.password=b,=;#c
"""
JAVA = """
security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-256
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
  username="bob" password="b,=;#c";
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with sasl_broker(tmp_path_factory.mktemp("sasl") / "data") as broker:
        yield broker


@pytest.mark.parametrize("text", [LIBRDKAFKA, JAVA], ids=["librdkafka", "Java"])
def test_a_file_of_properties_logs_in(broker: LocalBroker, tmp_path: Path, text: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={broker.bootstrap}\n{text}")
    config = ("--command-config", str(file))
    topic = f"t-{text.count('jaas')}"
    created = forebay("topic", "create", topic, "--config", "forebay.delay.enable=true", *config)
    assert created.code == 0, created.err
    sent = forebay("produce", topic, *config, stdin="hello\n")
    assert sent.code == 0, sent.err
    assert forebay("consume", topic, "-n", "1", *config).out == "hello\n"
    # A request that the client library does not have, on a connection of our own.
    waiting = forebay("delay", "list", topic, "--json", *config)
    assert waiting.code == 0, waiting.err


def test_the_environment_names_the_file(
    broker: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(LIBRDKAFKA)
    monkeypatch.setenv("FOREBAY_CLIENT_CONFIG", str(file))
    found = {each["user"] for each in forebay("user", "list", "--json", bootstrap=broker.bootstrap).json()}
    assert found == {"ada", "bob", "broker"}
    wrong = forebay("delay", "list", "t", "-X", "sasl.password=wrong", bootstrap=broker.bootstrap)
    assert wrong.code == 1 and "invalid credentials" in wrong.err
    assert "wrong" not in wrong.err


def test_what_a_file_cannot_say_is_named_without_its_secrets(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("sasl.username=a\nsecret\n")
    with pytest.raises(ConfigError, match="line 2: write key=value"):
        read_properties(file)
    file.write_text("ssl.truststore.type=JKS\n")
    with pytest.raises(ConfigError, match="must be PEM"):
        read_properties(file)
    with pytest.raises(ConfigError, match="cannot read"):
        read_properties(tmp_path / "missing")


def test_javas_names_become_those_of_librdkafka(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "ssl.truststore.location=/ca.pem\nssl.truststore.type=PEM\nssl.keystore.location=/own.pem\n"
        "ssl.endpoint.identification.algorithm=\n"
    )
    assert read_properties(file) == {
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/own.pem",
        "ssl.key.location": "/own.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "GSSAPI is not supported"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "a login needs"),
        ({"security.protocol": "KERBEROS"}, "is not supported"),
    ],
)
def test_logins_that_cannot_be_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        security(settings)


def test_nothing_shows_a_password() -> None:
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ada",
        "sasl.password": "hush",
    }
    assert "hush" not in repr(security(settings))
    assert "hush" not in repr(Client(bootstrap="a:1", properties=settings))


def spark_options(password: str) -> dict[str, str]:
    return {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": "ada",
        "kafka.sasl.password": password,
        "kafka.default.api.timeout.ms": "1000",
    }


def test_connections_of_spark_log_in(broker: LocalBroker) -> None:
    with Cluster(broker.bootstrap, spark_options(PASSWORDS["ada"])) as cluster:
        assert not cluster.any().closed
    refused = pytest.raises(KafkaError, match="invalid credentials")
    with Cluster(broker.bootstrap, spark_options("wrong")) as cluster, refused:
        cluster.any()


def test_a_blocking_connection_logs_in_again(tmp_path: Path) -> None:
    with (
        sasl_broker(tmp_path / "data", {"connections.max.reauth.ms": "2200"}) as broker,
        Cluster(broker.bootstrap, spark_options(PASSWORDS["ada"])) as cluster,
    ):
        connection = cluster.any()
        time.sleep(1.2)  # more than half of the session
        assert connection.ask(MetadataRequest(topics=None)).brokers
        assert broker.on_loop(lambda node: node.metrics.logins) == 2
