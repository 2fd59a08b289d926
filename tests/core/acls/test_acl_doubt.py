"""What holds in place of a stored ACL that cannot be read: it may deny, and never allows."""

from __future__ import annotations

import json

import pytest

from forebay.core.acls.authorizer import Authorizer
from forebay.core.acls.bindings import (
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from forebay.core.acls.doubt import denials
from forebay.core.acls.text import acl_id, decode_acl, encode_acl
from forebay.core.cluster.images.unreadable import Unreadable, UnreadableKeys
from forebay.errors import ProtocolError

ADMIN, ALICE, BOB = "User:admin", "User:alice", "User:bob"
HOST = "10.0.0.1"
DENY = AclBinding(
    ResourceType.TOPIC, PatternType.PREFIXED, "pay", ALICE, "*", Operation.READ, Permission.DENY
)


def allow_all(principal: str, kind: ResourceType, name: str = "*") -> AclBinding:
    return AclBinding(kind, PatternType.LITERAL, name, principal, "*", Operation.ALL, Permission.ALLOW)


def authorizer(data: bytes, *, allow_if_no_acl: bool = False) -> Authorizer:
    found = Unreadable(key="acls/x", revision=1, reason="", denials=denials(data))
    rules = [
        allow_all(user, kind)
        for user in (ALICE, BOB)
        for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID, ResourceType.USER)
    ]
    rules += [allow_all(user, ResourceType.CLUSTER, CLUSTER_NAME) for user in (ALICE, BOB)]
    made = Authorizer(super_users=frozenset({ADMIN}), allow_if_no_acl=allow_if_no_acl)
    made.replace({acl_id(rule): rule for rule in rules} | UnreadableKeys({"acls/x": found}).denials())
    return made


def changed(**parts: object) -> bytes:
    return json.dumps(json.loads(encode_acl(DENY)) | parts).encode()


@pytest.mark.parametrize("data", [b"{}", b"", b"\xff", b"[]", b"7", changed(format=2), b"[" * 100_000])
@pytest.mark.parametrize("allow_if_no_acl", [False, True])
def test_a_rule_of_which_nothing_can_be_read_denies_everything_to_all_but_super_users(
    data: bytes, allow_if_no_acl: bool
) -> None:
    rules = authorizer(data, allow_if_no_acl=allow_if_no_acl)
    for kind, name in (
        (ResourceType.TOPIC, "t"),
        (ResourceType.CLUSTER, CLUSTER_NAME),
        (ResourceType.USER, "u"),
    ):
        for user in (ALICE, BOB, "User:nobody"):
            assert not rules.allows(user, HOST, Operation.DESCRIBE, kind, name)
            assert not rules.allows_some(user, HOST, Operation.DESCRIBE, kind)
            assert not rules.allows_all_with(user, HOST, Operation.DESCRIBE, kind, "a")
        assert rules.allows(ADMIN, HOST, Operation.ALTER, kind, name)


def test_what_can_be_read_of_it_narrows_it_down() -> None:
    rules = authorizer(changed(operation="FLY"))
    assert not rules.allows(ALICE, HOST, Operation.WRITE, ResourceType.TOPIC, "payments")
    assert rules.allows(ALICE, HOST, Operation.WRITE, ResourceType.TOPIC, "other")
    assert rules.allows(BOB, HOST, Operation.WRITE, ResourceType.TOPIC, "payments")
    rules = authorizer(changed(type="GALAXY"))
    assert not rules.allows(ALICE, HOST, Operation.READ, ResourceType.GROUP, "g")
    assert rules.allows(ALICE, HOST, Operation.WRITE, ResourceType.GROUP, "g")
    rules = authorizer(changed(principal=7))
    assert not rules.allows(BOB, HOST, Operation.READ, ResourceType.TOPIC, "payments")


def test_a_rule_that_allowed_is_missed_and_nothing_else() -> None:
    assert denials(changed(permission="ALLOW", operation="FLY")) == ()


@pytest.mark.parametrize("part", [{"type": "ANY"}, {"operation": "UNKNOWN"}, {"pattern": "MATCH"}])
def test_names_that_match_nothing_are_not_rules(part: dict[str, str]) -> None:
    with pytest.raises(ProtocolError):
        decode_acl("acls/x", changed(**part))
    assert not authorizer(changed(**part)).allows(ALICE, HOST, Operation.READ, ResourceType.TOPIC, "payments")
