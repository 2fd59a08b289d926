"""Java's clients on a broker with TLS, logins and ACLs: each mechanism, and logins that are renewed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.local.secure_setup import JAVA_FILE, SecureSetup
from forebay.testing import Broker
from support.java import kafka_tools
from support.java.kafka_tools import command, run

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    if reason := kafka_tools.why_not():
        pytest.skip(reason)
    settings = {"sasl.enabled.mechanisms": ",".join(MECHANISMS), "connections.max.reauth.ms": "2000"}
    with Broker(secure=True, process=True, settings=settings) as running:
        SecureSetup(running.data_dir / "security").write_client_files(running.bootstrap_servers)
        yield running


def properties(broker: Broker, directory: Path, mechanism: str, *, wrong: bool = False) -> str:
    """The file that the broker's first start has made, for another mechanism."""
    text = (broker.data_dir / "security" / JAVA_FILE).read_text().replace("SCRAM-SHA-512", mechanism)
    if mechanism == "PLAIN":
        text = text.replace("scram.ScramLoginModule", "plain.PlainLoginModule")
    if wrong:
        text = text.replace('password="', 'password="x')
    file = directory / "client.properties"
    file.write_text(text)
    return str(file)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_javas_tools_log_in(broker: Broker, tmp_path: Path, mechanism: str) -> None:
    file = properties(broker, tmp_path, mechanism)
    topic = f"by-{mechanism}"
    made = run(
        "TopicCommand", broker.bootstrap_servers, "--create", "--topic", topic, "--command-config", file
    )
    assert made.code == 0, made.errors
    sent = subprocess.run(
        command("ConsoleProducer", broker.bootstrap_servers, "--topic", topic, "--command-config", file),
        input="hello\n",
        capture_output=True,
        text=True,
        timeout=kafka_tools.TOOL_S_MAX,
        check=False,
    )
    assert sent.returncode == 0, sent.stderr
    # For longer than a session lasts: the client logs in again on its connections.
    wait = ("--max-messages", "2", "--timeout-ms", "5000", "--from-beginning")
    read = run(
        "consumer.ConsoleConsumer",
        broker.bootstrap_servers,
        *("--topic", topic, "--command-config", file, *wait),
    )
    assert read.lines == ["hello"], read.errors
    assert "Authentication" not in read.errors


def test_a_wrong_password_is_named_as_such(broker: Broker, tmp_path: Path) -> None:
    file = properties(broker, tmp_path, "SCRAM-SHA-256", wrong=True)
    listed = run("TopicCommand", broker.bootstrap_servers, "--list", "--command-config", file)
    assert listed.code != 0
    assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in listed.errors + listed.out
