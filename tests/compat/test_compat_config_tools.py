"""Apache Kafka's own kafka-configs on a Forebay broker: quotas. Users: `test_compat_user_tools.py`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay.local.secure_setup import JAVA_FILE, SecureSetup
from forebay.testing import Broker
from support.java import kafka_tools
from support.java.kafka_tools import CONFIGS, Done, run

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    if reason := kafka_tools.why_not():
        pytest.skip(reason)
    with Broker(process=True) as running:
        yield running.bootstrap_servers


def alter(bootstrap: str, *arguments: str) -> Done:
    return run(CONFIGS, bootstrap, "--alter", *arguments)


def test_quotas_come_and_go(bootstrap: str) -> None:
    users = ("--entity-type", "users", "--entity-name", "ada")
    rates = "producer_byte_rate=1048576,consumer_byte_rate=2097152,request_percentage=12.5"
    done = alter(bootstrap, *users, "--add-config", rates)
    assert done.code == 0, done.errors
    done = alter(bootstrap, *users, "--entity-type", "clients", "--entity-default", "--add-config", rates)
    assert done.code == 0, done.errors
    shown = run(CONFIGS, bootstrap, "--describe", *users)
    (line,) = [line for line in shown.lines if "Quota configs" in line]
    assert "'ada'" in line and "producer_byte_rate=1048576" in line and "request_percentage=12.5" in line
    both = run(CONFIGS, bootstrap, "--describe", *users, "--entity-type", "clients", "--entity-default")
    assert any("the default client-id" in line for line in both.lines), both.out
    done = alter(bootstrap, *users, "--delete-config", "producer_byte_rate,request_percentage")
    assert done.code == 0, done.errors
    left = run(CONFIGS, bootstrap, "--describe", *users)
    assert "consumer_byte_rate=2097152" in left.out and "producer_byte_rate" not in left.out


def test_quotas_of_addresses(bootstrap: str) -> None:
    done = alter(bootstrap, "--ip-defaults", "--add-config", "connection_creation_rate=1000")
    assert done.code == 0, done.errors
    shown = run(CONFIGS, bootstrap, "--describe", "--ip-defaults")
    assert "connection_creation_rate=1000" in shown.out, shown.out + shown.errors


def test_a_quota_that_cannot_be_is_refused(bootstrap: str) -> None:
    done = alter(bootstrap, "--user", "eve", "--add-config", "producer_byte_rate=-5")
    assert done.code != 0
    assert "above 0" in done.out + done.errors
    shown = run(CONFIGS, bootstrap, "--describe", "--user", "eve")
    assert "producer_byte_rate" not in shown.out


def test_tls_of_a_listener_is_changed_while_the_broker_runs() -> None:
    if reason := kafka_tools.why_not():
        pytest.skip(reason)
    with Broker(secure=True, process=True) as broker:
        SecureSetup(broker.data_dir / "security").write_client_files(broker.bootstrap_servers)
        file = ("--command-config", str(broker.data_dir / "security" / JAVA_FILE))
        entity = ("--entity-type", "brokers", "--entity-name", "1")
        key = "listener.name.sasl_ssl.ssl.enabled.protocols"
        done = alter(broker.bootstrap_servers, *file, *entity, "--add-config", f"{key}=TLSv1.3")
        assert done.code == 0, done.out + done.errors
        shown = run(CONFIGS, broker.bootstrap_servers, *file, "--describe", *entity)
        assert f"{key}=TLSv1.3" in shown.out, shown.out + shown.errors
        place = "listener.name.sasl_ssl.ssl.keystore.location=/nowhere.pem"
        refused = alter(broker.bootstrap_servers, *file, *entity, "--add-config", place)
        assert "No such file" in refused.out + refused.errors
        done = alter(broker.bootstrap_servers, *file, *entity, "--delete-config", key)
        assert done.code == 0, done.out + done.errors
