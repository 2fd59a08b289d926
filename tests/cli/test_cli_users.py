"""`forebay user` through a broker and offline, and what other clients see of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ScramMechanism, UserScramCredentialDeletion

from support.brokers.broker_process import BrokerProcess, running_broker
from support.brokers.forebay_command import forebay
from support.clients.kafka_clients import DEADLINE_SECONDS, confluent_admin

BOTH = {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}


def users(bootstrap: str) -> dict[str, dict[str, int]]:
    found = forebay("user", "list", "--json", bootstrap=bootstrap).json()
    return {each["user"]: each["mechanisms"] for each in found}


def test_users_come_and_go(broker: BrokerProcess) -> None:
    add = ("user", "add", "ada", "--password-file", "-")
    added = forebay(*add, bootstrap=broker.bootstrap, stdin="secret\n")
    assert added.out == "added user ada\n", added.err
    only = ("--mechanism", "SCRAM-SHA-512", "--iterations", "8192")
    assert forebay("user", "add", "b/ü", *only, "--generate", bootstrap=broker.bootstrap).code == 0
    assert users(broker.bootstrap) == {"ada": BOTH, "b/ü": {"SCRAM-SHA-512": 8192}}
    gone = forebay(
        "user", "delete", "ada", "--yes", "--mechanism", "SCRAM-SHA-256", bootstrap=broker.bootstrap
    )
    assert gone.out == "deleted user ada\n"
    assert users(broker.bootstrap)["ada"] == {"SCRAM-SHA-512": 4096}
    gone = forebay("user", "delete", "ada", "nobody", "--yes", bootstrap=broker.bootstrap)
    assert (gone.code, gone.out) == (1, "deleted user ada\n")
    assert "there is no user nobody" in gone.err
    assert set(users(broker.bootstrap)) == {"b/ü"}
    assert "secret" not in broker.log()


def test_a_generated_password_is_the_only_output(broker: BrokerProcess) -> None:
    one, other = (forebay("user", "add", "g", "--generate", bootstrap=broker.bootstrap) for _ in range(2))
    assert len(one.out.strip()) >= 24 and one.out.count("\n") == 1
    assert one.out != other.out


@pytest.mark.parametrize("stdin", ["", "\n"])
def test_no_password_is_an_error(broker: BrokerProcess, stdin: str) -> None:
    empty = forebay("user", "add", "x", "--password-file", "-", bootstrap=broker.bootstrap, stdin=stdin)
    assert (empty.code, "empty" in empty.err) == (2, True)
    assert forebay("user", "add", "x", bootstrap=broker.bootstrap).code == 2


def test_the_first_user_is_made_before_the_broker(tmp_path: Path) -> None:
    data = tmp_path / "data"
    place = ("--offline", "--data", str(data))
    assert forebay("user", "add", "first", "--generate", *place).code == 0
    with running_broker(data) as broker:
        assert users(broker.bootstrap) == {"first": BOTH}
        refused = forebay("user", "list", *place)
        assert refused.code == 1 and "another process" in refused.err
        broker.stop()
        assert forebay("user", "delete", "first", "--yes", *place).code == 0
        broker.restart()
        assert users(broker.bootstrap) == {}


def test_no_user_is_added_with_white_space_around_its_name(broker: BrokerProcess, tmp_path: Path) -> None:
    through_broker = forebay("user", "add", "admin ", "--generate", bootstrap=broker.bootstrap)
    offline = forebay("user", "add", " admin", "--generate", "--offline", "--data", str(tmp_path / "data"))
    for refused in (through_broker, offline):
        assert refused.code == 1 and "white space" in refused.err


def test_a_place_without_offline_is_an_error() -> None:
    assert "add --offline" in forebay("user", "list", "--data", "somewhere").err


def test_a_client_is_told_who_is_not_there(broker: BrokerProcess) -> None:
    admin: AdminClient = confluent_admin(broker.bootstrap)
    described = admin.describe_user_scram_credentials(["nobody"])
    assert isinstance(described, dict)
    with pytest.raises(KafkaException, match="does not exist"):
        described["nobody"].result(DEADLINE_SECONDS)
    deleted = admin.alter_user_scram_credentials(
        [UserScramCredentialDeletion("nobody", ScramMechanism.SCRAM_SHA_256)]
    )
    with pytest.raises(KafkaException, match="does not exist"):
        deleted["nobody"].result(DEADLINE_SECONDS)
