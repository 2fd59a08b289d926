"""`serve --secure`, and a secure cluster: TLS, logins and ACLs from the first start on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from forebay.local.cluster import Cluster
from support.brokers.forebay_command import Done, forebay
from support.brokers.secure_broker import admin, secure_broker
from support.clients.kafka_clients import DEADLINE_SECONDS


def as_ada(data: Path, *arguments: str, stdin: str = "") -> Done:
    return admin(data, *arguments, "-X", "sasl.username=ada", "-X", "sasl.password=ada's", stdin=stdin)


def test_a_producer_that_ends_before_its_first_line_says_why(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with secure_broker(data):
        assert admin(data, "user", "add", "ada", "--password-file", "-", stdin="ada's\n").code == 0
        command = [sys.executable, "-m", "forebay", "produce", "orders"]
        command += ["--command-config", str(data / "security" / "client.properties")]
        command += ["-X", "sasl.username=ada", "-X", "sasl.password=ada's"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            while b"FATAL" not in process.stderr.readline():
                assert process.poll() is None
            _, errors = process.communicate(b"one\n", timeout=60)
        assert process.returncode == 1
        assert b"AUTHORIZATION" in errors.splitlines()[-1].upper()


def test_a_secure_broker_lets_in_whom_it_knows_and_allows_what_was_allowed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with secure_broker(data) as broker:
        assert admin(data, "topic", "create", "orders").code == 0
        assert admin(data, "user", "add", "ada", "--password-file", "-", stdin="ada's\n").code == 0
        refused = as_ada(data, "produce", "orders", stdin="one\n")
        assert refused.code == 1 and "AUTHORIZATION" in refused.err.upper()
        allowed = admin(data, "acl", "add", "User:ada", "write", "topic", "orders")
        assert allowed.code == 0, allowed.err
        written = as_ada(data, "produce", "orders", stdin="two\n")
        assert written.code == 0, written.err
        broker.stop()
        secrets = (data / "security" / "client.properties").read_text()
        password = secrets.partition("sasl.password=")[2].strip()
        assert password and password not in broker.log() and "ada's" not in broker.log()
        broker.restart()  # with what was made at the first start
        assert admin(data, "consume", "orders", "-n", "1").out == "two\n"
        assert (data / "security" / "client.properties").read_text() == secrets


def test_no_password_is_among_the_settings_that_are_shown(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with secure_broker(data):
        shown = admin(data, "config", "get", "broker", "1")
        assert shown.code == 0 and "forebay.sasl.password" in shown.out
        for password in json.loads((data / "security" / "passwords.json").read_text()).values():
            assert password not in shown.out


def test_what_is_made_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with secure_broker(data) as broker:
        directory = data / "security"
        assert directory.stat().st_mode & 0o077 == 0
        for name in (
            "client.properties",
            "client-java.properties",
            "broker.pem",
            "ca.key.pem",
            "passwords.json",
        ):
            assert (directory / name).stat().st_mode & 0o077 == 0, name
        java = (directory / "client-java.properties").read_text()
        assert "ScramLoginModule required" in java and "ssl.truststore.type=PEM" in java
        nobody = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        with pytest.raises(confluent_kafka.KafkaException):
            nobody.list_topics(timeout=2)


@pytest.mark.parametrize(
    "arguments", [("--cluster", "etcd://127.0.0.1:1/x"), ("--listen", "PLAINTEXT://127.0.0.1:1")]
)
def test_what_secure_is_not_for_is_said(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = forebay("serve", "--secure", "--data", str(tmp_path / "data"), *arguments)
    assert done.code == 2 and "--secure" in done.err


def test_a_secure_cluster_replicates(tmp_path: Path) -> None:
    with Cluster(2, secure=True, data_dir=tmp_path / "cluster") as cluster:
        settings: dict[str, Any] = {**cluster.client_settings, "log_level": 0}
        client = AdminClient(settings)
        client.create_topics([NewTopic("t", 1, 2)])["t"].result(DEADLINE_SECONDS)
        producer = confluent_kafka.Producer({**settings, "acks": "all"})
        failed: list[Any] = []
        producer.produce("t", b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
        assert producer.flush(DEADLINE_SECONDS) == 0 and not failed
        assert cluster.client_file is not None
        listed = forebay("topic", "list", "--command-config", str(cluster.client_file))
        assert listed.code == 0 and "t" in listed.out


def test_reading_needs_no_right_on_a_group(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with secure_broker(data):
        assert admin(data, "topic", "create", "orders").code == 0
        assert admin(data, "produce", "orders", stdin="one\n").code == 0
        assert admin(data, "user", "add", "ada", "--password-file", "-", stdin="ada's\n").code == 0
        assert admin(data, "acl", "add", "User:ada", "read", "topic", "orders").code == 0
        done = as_ada(data, "consume", "orders", "-e", "--timeout", "20")
        assert (done.code, done.out) == (0, "one\n"), done.err


@pytest.mark.parametrize("command", [("topic", "list"), ("group", "list"), ("user", "list")])
def test_a_failed_login_and_a_missing_authority_are_not_called_a_wrong_address(
    tmp_path: Path, command: tuple[str, str]
) -> None:
    data = tmp_path / "data"
    with secure_broker(data):
        refused = admin(data, *command, "-X", "sasl.password=wrong")
        assert refused.code == 1 and "refuses the login" in refused.err and "sasl.password" in refused.err
        properties = (data / "security" / "client.properties").read_text().splitlines()
        file = tmp_path / "without-authority.properties"
        file.write_text("\n".join(line for line in properties if not line.startswith("ssl.ca.")))
        refused = forebay(*command, "--command-config", str(file))
        assert refused.code == 1 and "ssl.ca.location" in refused.err and "verify failed" in refused.err
