"""`forebay acl`: rules come and go, and it says who may do what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.brokers.broker_process import BrokerProcess, running_broker
from support.brokers.forebay_command import Done, forebay

SETTINGS = ("authorizer.class.name=acl", "super.users=User:ANONYMOUS;User:root")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with ACLs, on which whoever has not logged in may do everything."""
    data: Path = tmp_path_factory.mktemp("acls") / "data"
    with running_broker(data, *SETTINGS) as broker:
        yield broker


def acl(broker: BrokerProcess, *arguments: str) -> Done:
    return forebay("acl", *arguments, bootstrap=broker.bootstrap)


def test_rules_come_and_go(guarded: BrokerProcess) -> None:
    added = acl(guarded, "add", "User:ada", "read,write", "topic", "orders")
    assert added.out.splitlines() == [
        "allow User:ada read topic orders",
        "allow User:ada write topic orders",
    ], added.err
    assert acl(guarded, "add", "User:ada", "all", "group", "o", "--prefix", "--host", "10.0.0.0/8").code == 0
    assert acl(guarded, "add", "User:ada", "alter", "cluster", "--deny").out == (
        "deny User:ada alter cluster\n"
    )
    listed = acl(guarded, "list", "--principal", "User:ada", "--json").json()
    assert [(each["permission"], each["operation"], each["name"]) for each in listed] == [
        ("allow", "read", "orders"),
        ("allow", "write", "orders"),
        ("allow", "all", "o"),
        ("deny", "alter", "kafka-cluster"),
    ]
    assert listed[2]["host"] == "10.0.0.0/8" and listed[2]["pattern"] == "prefixed"
    assert "orders" in acl(guarded, "list", "--resource", "topic", "--name", "orders").out
    gone = acl(guarded, "delete", "User:ada", "write", "topic", "orders")
    assert gone.out == "deleted: allow User:ada write topic orders\n"
    again = acl(guarded, "delete", "User:ada", "write", "topic", "orders")
    assert (again.code, "there is no such rule" in again.err) == (1, True)


def test_who_may_do_what(guarded: BrokerProcess) -> None:
    acl(guarded, "add", "User:*", "read", "topic", "t-", "--prefix")
    acl(guarded, "add", "User:eve", "read", "topic", "t-secret", "--deny")
    allowed = acl(guarded, "test", "User:bob", "read", "topic", "t-secret")
    assert (allowed.code, allowed.out) == (0, "yes: allow User:* read topic t-*\n")
    denied = acl(guarded, "test", "User:eve", "read", "topic", "t-secret")
    assert (denied.code, denied.out) == (1, "no: deny User:eve read topic t-secret\n")
    implied = acl(guarded, "test", "User:eve", "describe", "topic", "t-secret", "--json")
    assert implied.json()["allowed"] is True
    without = acl(guarded, "test", "User:bob", "write", "topic", "else")
    assert (without.code, "there is no rule for it" in without.out) == (1, True)
    above = acl(guarded, "test", "User:root", "alter", "cluster")
    assert (above.code, "super.users" in above.out) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("add", "ada", "read", "topic", "t"), "no principal"),
        (("add", "User:ada", "fly", "topic", "t"), "no operation"),
        (("add", "User:ada", "read", "topic"), "Give a NAME"),
        (("add", "User:ada", "read", "cluster"), "has no operation read"),
        (("add", "User:ada", "write", "group", "g"), "has no operation write"),
        (("add", "User:ada", "read", "topic", "t", "--host", "example.org"), "no host"),
        (("add", "User:ada ", "read", "topic", "t"), "white space"),
        (("add", "User:*", "write", "topic", " audit", "--deny"), "white space"),
        (("test", "User:ada", "all", "topic", "t"), "one operation"),
    ],
)
def test_what_cannot_be_a_rule(guarded: BrokerProcess, arguments: tuple[str, ...], problem: str) -> None:
    refused = acl(guarded, *arguments)
    assert refused.code == 2
    assert problem in refused.err


def test_without_an_authorizer_it_says_so(broker: BrokerProcess) -> None:
    refused = acl(broker, "add", "User:ada", "read", "topic", "t")
    assert (refused.code, "No Authorizer is configured" in refused.err) == (1, True)
    answer = acl(broker, "test", "User:ada", "read", "topic", "t")
    assert (answer.code, "no authorizer" in answer.out) == (0, True)
