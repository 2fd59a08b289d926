"""Apache Kafka's kafka-delegation-tokens, and Java clients that log in with `tokenauth="true"`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from forebay.local.secure_setup import JAVA_FILE, SecureSetup
from forebay.testing import Broker
from support.java import kafka_tools
from support.java.kafka_tools import CONFIGS, Done, run

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]

TOKENS = "DelegationTokenCommand"
OWNER, PASSWORD = "java-owner", "correct-horse"
KEY = "a key of all brokers"


@pytest.fixture(scope="module", params=["", KEY], ids=["random secrets", "derived secrets"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    if reason := kafka_tools.why_not():
        pytest.skip(reason)
    settings = {"delegation.token.secret.key": request.param} if request.param else {}
    with Broker(settings=settings, secure=True, process=True) as running:
        SecureSetup(running.data_dir / "security").write_client_files(running.bootstrap_servers)
        yield running


def admin_file(broker: Broker) -> str:
    return str(broker.data_dir / "security" / JAVA_FILE)


def login_file(broker: Broker, file: Path, login: str) -> str:
    """The administrator's properties with another login."""
    lines = Path(admin_file(broker)).read_text().splitlines()
    kept = [line for line in lines if not line.startswith("sasl.jaas.config")]
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    file.write_text("\n".join([*kept, f"sasl.jaas.config={module} required {login};"]) + "\n")
    return str(file)


def tokens(broker: Broker, file: str, *arguments: str) -> Done:
    done = run(TOKENS, broker.bootstrap_servers, "--command-config", file, *arguments)
    assert done.code == 0, done.out + done.errors
    return done


def created(broker: Broker, file: str, *arguments: str) -> tuple[str, str]:
    """Id and secret, in base64."""
    shown = tokens(broker, file, "--create", "--max-life-time-period", "-1", *arguments).out
    found = re.search(r"^([\w-]{22})\s+(\S{88})\s", shown, re.MULTILINE)
    assert found is not None, shown
    return found[1], found[2]


def topics(broker: Broker, file: str) -> Done:
    return run("TopicCommand", broker.bootstrap_servers, "--list", "--command-config", file)


@pytest.fixture(scope="module")
def owner_file(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> str:
    added = run(
        CONFIGS,
        broker.bootstrap_servers,
        *("--command-config", admin_file(broker), "--entity-type", "users", "--entity-name", OWNER),
        *(
            "--alter",
            "--add-config",
            f"SCRAM-SHA-512=[password={PASSWORD}],SCRAM-SHA-256=[password={PASSWORD}]",
        ),
    )
    assert added.code == 0, added.errors
    file = tmp_path_factory.mktemp("owner") / "owner.properties"
    return login_file(broker, file, f'username="{OWNER}" password="{PASSWORD}"')


def test_a_token_of_javas_tool_logs_in_and_ends(broker: Broker, owner_file: str, tmp_path: Path) -> None:
    token, secret = created(broker, owner_file, "--renewer-principal", "User:somebody")
    login = f'username="{token}" password="{secret}" tokenauth="true"'
    by_token = login_file(broker, tmp_path / "token.properties", login)
    assert topics(broker, by_token).code == 0
    shown = tokens(broker, owner_file, "--describe", "--owner-principal", f"User:{OWNER}").out
    assert token in shown
    assert "User:somebody" in shown
    described = re.search(rf"^{token}\s+(\S+)\s", shown, re.MULTILINE)
    assert described is not None, shown
    renewed = tokens(broker, owner_file, "--renew", "--hmac", described[1], "--renew-time-period", "-1").out
    assert "Completed renew operation" in renewed
    tokens(broker, owner_file, "--expire", "--hmac", secret, "--expiry-time-period", "-1")
    refused = topics(broker, by_token)
    assert "invalid credentials" in refused.out + refused.errors
    assert token not in tokens(broker, owner_file, "--describe").out


def test_the_administrator_creates_tokens_of_others_and_ends_what_it_has_listed(
    broker: Broker, tmp_path: Path
) -> None:
    admin = admin_file(broker)
    token, secret = created(broker, admin, "--owner-principal", "User:job")
    login = f'username="{token}" password="{secret}" tokenauth="true"'
    by_token = login_file(broker, tmp_path / "job.properties", login)
    assert topics(broker, by_token).code == 0
    shown = tokens(broker, admin, "--describe", "--owner-principal", "User:job").out
    described = re.search(rf"^{token}\s+(\S+)\s", shown, re.MULTILINE)
    assert described is not None, shown
    tokens(broker, admin, "--expire", "--hmac", described[1], "--expiry-time-period", "-1")
    assert topics(broker, by_token).code != 0


def test_a_client_with_a_token_creates_none(broker: Broker, owner_file: str, tmp_path: Path) -> None:
    token, secret = created(broker, owner_file)
    login = f'username="{token}" password="{secret}" tokenauth="true"'
    by_token = login_file(broker, tmp_path / "token.properties", login)
    refused = run(
        TOKENS,
        broker.bootstrap_servers,
        *("--command-config", by_token, "--create", "--max-life-time-period", "-1"),
    )
    assert "requests are not allowed" in refused.out + refused.errors
