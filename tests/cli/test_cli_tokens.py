"""`forebay token`, and rights to tokens by `forebay acl`; clients of librdkafka that log in with a token."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from forebay.spark.wire.connections import Cluster
from forebay.wire.messages.metadata import MetadataRequest
from support.brokers.forebay_command import Done, forebay
from support.brokers.local_broker import LocalBroker
from support.brokers.sasl_broker import BROKER_PASSWORD, PASSWORDS, sasl_broker

ACCESS = {"authorizer.class.name": "acl", "super.users": "User:broker"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with sasl_broker(tmp_path_factory.mktemp("tokens") / "data", ACCESS) as started:
        yield started


def login(user: str, password: str | None = None) -> dict[str, str]:
    secret = {**PASSWORDS, "broker": BROKER_PASSWORD}.get(user, "") if password is None else password
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": secret,
    }


def as_user(broker: LocalBroker, user: str, *words: str, password: str | None = None) -> Done:
    options = [part for pair in login(user, password).items() for part in ("-X", "=".join(pair))]
    return forebay(*words, *options, bootstrap=broker.bootstrap)


def test_a_token_is_created_listed_renewed_and_ended(broker: LocalBroker) -> None:
    created = as_user(broker, "ada", "token", "create", "--renewer", "bob", "--lifetime", "2h", "--json")
    assert created.code == 0, created.err
    made = created.json()
    assert made["owner"] == "User:ada"
    assert len(made["secret"]) == 88
    (listed,) = as_user(broker, "bob", "token", "list", "--owner", "User:ada", "--json").json()
    assert (listed["token"], listed["renewers"]) == (made["token"], ["User:bob"])
    assert listed["renewable_until_ms"] - listed["issued_ms"] == 2 * 3_600_000
    assert "secret" not in listed
    table = as_user(broker, "ada", "token", "list")
    assert made["token"] in table.out
    assert made["secret"] not in table.out
    renewed = as_user(broker, "bob", "token", "renew", made["token"], "--for", "30m")
    assert renewed.out.startswith("it expires at "), renewed.err
    (listed,) = as_user(broker, "ada", "token", "list", "--json").json()
    assert listed["expires_ms"] < made["expires_ms"]
    ended = as_user(broker, "ada", "token", "expire", made["secret"], "--yes")
    assert ended.out.startswith("token 1 ends at "), ended.err
    assert made["secret"] not in ended.out
    assert as_user(broker, "ada", "token", "list", "--json").json() == []


def test_the_table_of_a_new_token_says_what_a_client_needs(broker: LocalBroker) -> None:
    shown = as_user(broker, "ada", "token", "create")
    assert shown.code == 0, shown.err
    facts = dict(line.split(None, 1) for line in shown.out.splitlines())
    logged_in = as_user(
        broker, facts["sasl.username"], "acl", "list", password=facts["sasl.password"].strip()
    )
    assert "CLUSTER_AUTHORIZATION_FAILED" in logged_in.err, "ada may not see ACLs, so it has logged in"
    refused = as_user(broker, facts["sasl.username"], "token", "create", password=facts["sasl.password"])
    assert (refused.code, "not with a token" in refused.err) == (1, True)
    ended = as_user(broker, "broker", "token", "expire", "--owner", "ada", "--yes")
    assert ended.out.startswith(facts["sasl.username"]), ended.err


def test_what_goes_wrong_says_what_to_do(broker: LocalBroker) -> None:
    assert "see `forebay token list`" in as_user(broker, "ada", "token", "renew", "nonsense").err
    assert as_user(broker, "ada", "token", "expire", "--yes").code == 2
    assert as_user(broker, "ada", "token", "expire", "x").code == 2, "nobody can be asked"
    assert "is no time" in as_user(broker, "ada", "token", "create", "--lifetime", "soon").err
    other = as_user(broker, "ada", "token", "create", "--owner", "bob")
    assert "create-tokens" in other.err
    huge = as_user(broker, "ada", "token", "create", "--lifetime", "999999999999d", "--json")
    assert as_user(broker, "ada", "token", "expire", huge.json()["token"], "--yes").code == 0


def test_rights_to_tokens_are_given_shown_and_taken(broker: LocalBroker) -> None:
    rule = ("User:bob", "create-tokens,describe-tokens", "user", "User:carol")
    added = as_user(broker, "broker", "acl", "add", *rule)
    assert added.code == 0, added.err
    listed = as_user(broker, "broker", "acl", "list", "--resource", "user", "--json").json()
    assert {(each["operation"], each["name"]) for each in listed} == {
        ("create-tokens", "User:carol"),
        ("describe-tokens", "User:carol"),
    }
    may = ("acl", "test", "User:bob", "create-tokens", "user", "User:carol")
    assert as_user(broker, "broker", *may).code == 0
    made = as_user(broker, "bob", "token", "create", "--owner", "carol", "--json").json()
    assert made["owner"] == "User:carol"
    assert as_user(broker, "broker", "acl", "delete", *rule).code == 0
    assert as_user(broker, "bob", "token", "create", "--owner", "carol").code == 1
    assert as_user(broker, "bob", "token", "expire", made["token"], "--yes").code == 0
    token = ("User:bob", "describe", "delegation-token", "*")
    assert as_user(broker, "broker", "acl", "add", *token).code == 0
    assert as_user(broker, "broker", "acl", "delete", *token).code == 0
    wrong = as_user(broker, "broker", "acl", "add", "User:bob", "create-tokens", "user", "carol")
    assert "write User:carol" in wrong.err


def test_clients_of_librdkafka_and_spark_log_in_with_a_token(broker: LocalBroker, tmp_path: Path) -> None:
    for rule in (("all", "topic", "t"), ("read", "group", "g")):
        assert as_user(broker, "broker", "acl", "add", "User:ada", *rule).code == 0
    made = as_user(broker, "ada", "token", "create", "--json").json()
    settings = {"bootstrap.servers": broker.bootstrap, **login(made["token"], made["secret"])}
    producer = Producer(settings)
    producer.produce("t", b"by token")
    assert producer.flush(60) == 0
    consumer = Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    message = consumer.poll(60)
    assert message is not None
    assert message.value() == b"by token"
    consumer.close()
    java = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{made["token"]}" password="{made["secret"]}" tokenauth="true";',
    }
    with Cluster(broker.bootstrap, {f"kafka.{name}": value for name, value in java.items()}) as cluster:
        assert cluster.any().ask(MetadataRequest(topics=[])).error_code == 0
    file = tmp_path / "client.properties"
    file.write_text("\n".join("=".join(pair) for pair in java.items()))
    topics = forebay("topic", "list", "--command-config", str(file), bootstrap=broker.bootstrap)
    assert topics.code == 0, topics.err
    assert as_user(broker, "ada", "token", "expire", made["token"], "--yes").code == 0
