"""Apache Kafka's kafka-configs for users: their SCRAM credentials are added, shown, used and deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.local.secure_setup import JAVA_FILE, SecureSetup
from forebay.testing import Broker
from support.java import kafka_tools
from support.java.kafka_tools import CONFIGS, Done, run

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]

USER, PASSWORD = "java-user", "correct-horse"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    if reason := kafka_tools.why_not():
        pytest.skip(reason)
    with Broker(secure=True, process=True) as running:
        SecureSetup(running.data_dir / "security").write_client_files(running.bootstrap_servers)
        yield running


def configs(broker: Broker, *arguments: str) -> Done:
    file = str(broker.data_dir / "security" / JAVA_FILE)
    user = ("--entity-type", "users", "--entity-name", USER)
    return run(CONFIGS, broker.bootstrap_servers, "--command-config", file, *user, *arguments)


def logs_in(broker: Broker, directory: Path) -> bool:
    """Whether the user may ask for something by its password; ACLs let it see nothing."""
    text = (broker.data_dir / "security" / JAVA_FILE).read_text()
    lines = [line for line in text.splitlines() if not line.startswith("sasl.jaas.config")]
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    lines.append(f'sasl.jaas.config={module} required username="{USER}" password="{PASSWORD}";')
    file = directory / "user.properties"
    file.write_text("\n".join(lines) + "\n")
    done = run("TopicCommand", broker.bootstrap_servers, "--list", "--command-config", str(file))
    assert done.code == 0 or "invalid credentials" in done.errors + done.out, done.errors
    return done.code == 0


def test_users_come_and_go(broker: Broker, tmp_path: Path) -> None:
    assert not logs_in(broker, tmp_path)
    added = configs(
        broker,
        "--alter",
        "--add-config",
        f"SCRAM-SHA-512=[iterations=8192,password={PASSWORD}],SCRAM-SHA-256=[password={PASSWORD}]",
    )
    assert added.code == 0, added.errors
    shown = configs(broker, "--describe")
    assert shown.code == 0, shown.errors
    assert "SCRAM-SHA-256=iterations=4096, SCRAM-SHA-512=iterations=8192" in shown.out
    assert logs_in(broker, tmp_path)
    for mechanism in ("SCRAM-SHA-512", "SCRAM-SHA-256"):
        deleted = configs(broker, "--alter", "--delete-config", mechanism)
        assert deleted.code == 0, deleted.errors
    assert not logs_in(broker, tmp_path)
    again = configs(broker, "--alter", "--delete-config", "SCRAM-SHA-512")
    assert "does not exist" in again.out + again.errors
