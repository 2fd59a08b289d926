"""Apache Kafka's own kafka-acls on a Forebay broker, and what the Java clients are told that lack a right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay.testing import Broker
from support.java import kafka_tools
from support.java.kafka_tools import run

pytestmark = [pytest.mark.compat, pytest.mark.timeout(300)]

ACLS = "AclCommand"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    if reason := kafka_tools.why_not():
        pytest.skip(reason)
    with Broker(settings=SETTINGS, process=True) as running:
        yield running.bootstrap_servers


def test_rules_come_and_go(bootstrap: str) -> None:
    grant = ("--add", "--allow-principal", "User:ada", "--allow-host", "10.0.0.1")
    added = run(ACLS, bootstrap, *grant, "--producer", "--topic", "orders")
    assert added.code == 0, added.errors
    denied = run(
        ACLS,
        bootstrap,
        *("--add", "--deny-principal", "User:eve", "--operation", "Read"),
        *("--topic", "ord", "--resource-pattern-type", "prefixed"),
    )
    assert denied.code == 0, denied.errors
    listed = run(ACLS, bootstrap, "--list", "--topic", "orders", "--resource-pattern-type", "match")
    rules = [line.strip() for line in listed.lines if "principal=" in line]
    assert {_operation(rule) for rule in rules} == {
        ("User:ada", "10.0.0.1", "WRITE", "ALLOW"),
        ("User:ada", "10.0.0.1", "DESCRIBE", "ALLOW"),
        ("User:ada", "10.0.0.1", "CREATE", "ALLOW"),
        ("User:eve", "*", "READ", "DENY"),
    }
    gone = run(ACLS, bootstrap, "--remove", "--force", "--topic", "orders")
    assert gone.code == 0, gone.errors
    left = run(ACLS, bootstrap, "--list", "--topic", "orders", "--resource-pattern-type", "match")
    assert [_operation(line.strip())[0] for line in left.lines if "principal=" in line] == ["User:eve"]


def _operation(rule: str) -> tuple[str, str, str, str]:
    """Of (principal=User:ada, host=*, operation=READ, permissionType=ALLOW)."""
    fields = dict(part.split("=", 1) for part in rule.strip("() ").split(", "))
    return fields["principal"], fields["host"], fields["operation"], fields["permissionType"]


def test_java_clients_without_rights_are_told(bootstrap: str) -> None:
    assert bootstrap, "the tools are there"
    with Broker(settings=SETTINGS | {"super.users": "User:somebody"}, process=True) as closed:
        listed = run(ACLS, closed.bootstrap_servers, "--list")
        made = run("TopicCommand", closed.bootstrap_servers, "--create", "--topic", "t")
    assert listed.code != 0 and "ClusterAuthorizationException" in listed.errors + listed.out
    assert made.code != 0 and "Topic authorization failed" in made.out
