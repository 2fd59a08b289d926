"""Decisions by ACLs, against a model that reads every rule for every question."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.acls.authorizer import Authorizer
from forebay.core.acls.bindings import (
    CLUSTER_NAME,
    EVERYONE,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    check_binding,
)
from forebay.core.acls.filters import AclFilter, applies_to
from forebay.core.acls.index import AclIndex, host_matches
from forebay.core.acls.operations import NOT_ASKED, ON_CLUSTER, ON_GROUP, ON_TOPIC
from forebay.core.acls.text import acl_id, decode_acl, encode_acl
from forebay.errors import KafkaError, ProtocolError

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
NAMES = ("a", "ab", "abc", "b", "ba")
PRINCIPALS = ("User:ada", "User:bob")
HOSTS = ("10.0.0.1", "10.0.0.2", "192.168.0.1")
OPERATIONS = (
    Operation.READ,
    Operation.WRITE,
    Operation.DESCRIBE,
    Operation.ALTER_CONFIGS,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALL,
)

rules = st.builds(
    AclBinding,
    st.sampled_from((TOPIC, GROUP)),
    st.sampled_from((LITERAL, PREFIXED)),
    st.sampled_from((*NAMES, "*")),
    st.sampled_from((*PRINCIPALS, EVERYONE)),
    st.sampled_from(("*", "10.0.0.1", "10.0.0.0/24")),
    st.sampled_from(OPERATIONS),
    st.sampled_from((Permission.DENY, Permission.ALLOW)),
)


def allow(principal: str, operation: Operation, name: str, pattern: PatternType = LITERAL) -> AclBinding:
    return AclBinding(TOPIC, pattern, name, principal, "*", operation, Permission.ALLOW)


def deny(principal: str, operation: Operation, name: str, pattern: PatternType = LITERAL) -> AclBinding:
    return AclBinding(TOPIC, pattern, name, principal, "*", operation, Permission.DENY)


def authorizer(acls: object, **options: object) -> Authorizer:
    made = Authorizer(**options)  # type: ignore[arg-type]
    made.replace({acl_id(acl): acl for acl in acls})  # type: ignore[attr-defined]
    return made


# -- the model ---------------------------------------------------------------------------------------------

IMPLIED = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def concerns(acl: AclBinding, principal: str, host: str) -> bool:
    at = acl.host == "*" or (
        ip_address(host) in ip_network(acl.host) if "/" in acl.host else acl.host == host
    )
    return at and acl.principal in (principal, EVERYONE)


def model(
    acls: list[AclBinding],
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
    *,
    otherwise: bool,
) -> bool:
    about = [acl for acl in acls if acl.resource_type is kind and applies_to(acl, name)]
    if not about:
        return otherwise
    mine = [acl for acl in about if concerns(acl, principal, host)]
    denied = {acl.operation for acl in mine if acl.permission is Permission.DENY}
    if denied & {operation, Operation.ALL}:
        return False
    allowed = {acl.operation for acl in mine if acl.permission is Permission.ALLOW}
    return bool(allowed & ({operation, Operation.ALL} | IMPLIED.get(operation, set())))


@given(st.lists(rules, max_size=8), st.booleans())
def test_every_question_is_answered_as_by_the_model(acls: list[AclBinding], otherwise: bool) -> None:
    found = authorizer(acls, allow_if_no_acl=otherwise)
    for question in itertools.product(PRINCIPALS, HOSTS, OPERATIONS[:-1], (TOPIC, GROUP), (*NAMES, "zz")):
        expected = model(acls, *question, otherwise=otherwise)
        assert found.allows(*question) is expected
        assert found.allows(*question) is expected, "the second answer is a remembered one"


@given(st.lists(rules, max_size=8))
def test_some_resource_is_allowed_if_there_is_a_name_for_it(acls: list[AclBinding]) -> None:
    names = {"".join(letters) for n in range(1, 5) for letters in itertools.product("abcz", repeat=n)}
    names.add("*z")  # a prefix * is about names that begin so, and not about all
    found = authorizer(acls)
    for principal, host in itertools.product(PRINCIPALS, HOSTS):
        expected = any(
            model(acls, principal, host, Operation.WRITE, TOPIC, name, otherwise=False) for name in names
        )
        assert found.allows_some(principal, host, Operation.WRITE, TOPIC) is expected


@given(st.lists(rules, max_size=6), st.sampled_from(("a", "ab", "b", "z")))
def test_all_resources_with_a_prefix(acls: list[AclBinding], prefix: str) -> None:
    names = [prefix + "".join(rest) for n in range(4) for rest in itertools.product("abcz", repeat=n)]
    found = authorizer(acls)
    if found.allows_all_with("User:ada", HOSTS[0], Operation.WRITE, TOPIC, prefix):
        assert all(found.allows("User:ada", HOSTS[0], Operation.WRITE, TOPIC, name) for name in names)


@given(st.lists(rules, max_size=6), st.sampled_from(("", "a", "ab", "b", "z", "*")))
def test_a_prefix_is_allowed_if_one_rule_covers_it_and_none_denies_a_part(
    acls: list[AclBinding], prefix: str
) -> None:
    def is_covered(acl: AclBinding) -> bool:
        return prefix.startswith(acl.name) if acl.pattern is PREFIXED else acl.name == "*"

    mine = [
        acl
        for acl in acls
        if acl.resource_type is TOPIC
        and concerns(acl, "User:ada", HOSTS[0])
        and acl.operation in (Operation.WRITE, Operation.ALL)
    ]
    allowed = any(is_covered(acl) for acl in mine if acl.permission is Permission.ALLOW)
    denied = any(
        is_covered(acl) or acl.name.startswith(prefix) for acl in mine if acl.permission is Permission.DENY
    )
    found = authorizer(acls).allows_all_with("User:ada", HOSTS[0], Operation.WRITE, TOPIC, prefix)
    assert found is (allowed and not denied)


def test_many_prefixes_are_asked_about_without_looking_at_all_rules_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[ResourceType] = []
    of_kind = AclIndex._of_kind

    def counted(self: AclIndex, kind: ResourceType, principal: str) -> Iterator[AclBinding]:
        looked_at.append(kind)
        return of_kind(self, kind, principal)

    monkeypatch.setattr(AclIndex, "_of_kind", counted)
    found = authorizer([allow("User:ada", Operation.WRITE, "jobs-", PREFIXED)])
    for number in range(1_000):
        assert found.allows_all_with("User:ada", "::1", Operation.WRITE, TOPIC, f"jobs-{number}")
    assert len(looked_at) == 1
    found.replace({})
    assert not found.allows_all_with("User:ada", "::1", Operation.WRITE, TOPIC, "jobs-1")


def test_a_rule_for_one_name_says_nothing_of_names_that_begin_so() -> None:
    found = authorizer([allow("User:ada", Operation.WRITE, "jobs")])
    assert not found.allows_all_with("User:ada", "::1", Operation.WRITE, TOPIC, "jobs")
    found = authorizer([allow("User:ada", Operation.WRITE, "jobs", PREFIXED)])
    assert found.allows_all_with("User:ada", "::1", Operation.WRITE, TOPIC, "jobs-7")


@given(st.lists(st.lists(rules, max_size=5), max_size=6))
def test_changed_rules_count_at_once(states: list[list[AclBinding]]) -> None:
    found = authorizer([])
    for acls in states:
        found.replace({acl_id(acl): acl for acl in acls})
        for question in itertools.product(PRINCIPALS, HOSTS[:2], OPERATIONS[:3], (TOPIC,), NAMES):
            assert found.allows(*question) is model(acls, *question, otherwise=False)


# -- rules that people rely on -----------------------------------------------------------------------------


def test_super_users_may_do_what_is_denied() -> None:
    found = authorizer([deny(EVERYONE, Operation.ALL, "*")], super_users=frozenset({"User:admin"}))
    assert found.allows("User:admin", "::1", Operation.WRITE, TOPIC, "t")
    assert found.allows_some("User:admin", "::1", Operation.WRITE, TOPIC)
    assert not found.allows("User:ada", "::1", Operation.WRITE, TOPIC, "t")


def test_a_denied_read_leaves_describe() -> None:
    found = authorizer([allow("User:ada", Operation.ALL, "t"), deny("User:ada", Operation.READ, "t")])
    assert found.allows("User:ada", "::1", Operation.DESCRIBE, TOPIC, "t")
    assert not found.allows("User:ada", "::1", Operation.READ, TOPIC, "t")


def test_without_rules_about_a_resource_the_setting_decides() -> None:
    found = authorizer([allow("User:bob", Operation.READ, "t")], allow_if_no_acl=True)
    assert found.allows("User:ada", "::1", Operation.READ, TOPIC, "other")
    assert not found.allows("User:ada", "::1", Operation.READ, TOPIC, "t")


def test_operations_as_bits() -> None:
    found = authorizer([allow("User:ada", Operation.READ, "t")], super_users=frozenset({"User:admin"}))
    assert found.operations("User:ada", "::1", TOPIC, "t") == 1 << Operation.READ | 1 << Operation.DESCRIBE
    assert found.operations("User:admin", "::1", TOPIC, "t") == ON_TOPIC
    assert found.operations("User:admin", "::1", GROUP, "g") == ON_GROUP
    assert found.operations("User:admin", "::1", ResourceType.CLUSTER, CLUSTER_NAME) == ON_CLUSTER
    assert found.operations("User:bob", "::1", TOPIC, "t") == 0 != NOT_ASKED


def test_what_clients_ask_for_does_not_fill_the_memory() -> None:
    found = authorizer([])
    for number in range(50_000):
        found.allows("User:ada", "::1", Operation.READ, TOPIC, f"t{number}")
    assert len(found._decisions) <= 20_000
    found.allows("User:ada", "::1", Operation.READ, TOPIC, "x" * 30_000)
    assert all(len(name) < 1_000 for *_, name in found._decisions)


@pytest.mark.parametrize(
    ("rule", "host", "matches"),
    [
        ("*", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("10.0.0.0/8", "10.200.0.1", True),
        ("10.0.0.0/8", "11.0.0.1", False),
        ("10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("10.1.2.3", "::ffff:10.1.2.3", True),
        ("::ffff:10.1.2.3", "10.1.2.3", True),
        ("::ffff:10.1.2.3", "10.1.2.4", False),
        ("::ffff:10.0.0.0/104", "10.1.2.3", True),
        ("::ffff:10.0.0.0/104", "11.1.2.3", False),
        ("::ffff:0:0/96", "10.1.2.3", True),
        ("::/0", "10.1.2.3", False),
        ("fd00::/8", "fd00::7", True),
        ("fd00::/8", "10.0.0.1", False),
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("10.0.0.0/8", "not-an-address", False),
    ],
)
def test_hosts(rule: str, host: str, matches: bool) -> None:
    assert host_matches(rule, host) is matches


# -- filters -----------------------------------------------------------------------------------------------


def test_match_finds_what_would_apply_to_a_name() -> None:
    acls = [
        allow("User:ada", Operation.READ, "orders"),
        allow("User:ada", Operation.READ, "ord", PREFIXED),
        allow("User:ada", Operation.READ, "*"),
        allow("User:ada", Operation.READ, "orders-2"),
        allow("User:ada", Operation.READ, "orders-", PREFIXED),
    ]
    wanted = AclFilter(name="orders", pattern=PatternType.MATCH)
    assert [acl for acl in acls if wanted.matches(acl)] == acls[:3]
    wanted = AclFilter(name="ord", pattern=PatternType.ANY)
    assert [acl for acl in acls if wanted.matches(acl)] == acls[1:2]
    wanted = AclFilter(pattern=PREFIXED)
    assert [acl for acl in acls if wanted.matches(acl)] == [acls[1], acls[4]]
    assert all(AclFilter().matches(acl) for acl in acls)


@given(rules, st.sampled_from(PRINCIPALS), st.sampled_from((TOPIC, GROUP)))
def test_each_field_of_a_filter_counts(acl: AclBinding, principal: str, kind: ResourceType) -> None:
    wanted = AclFilter(resource_type=kind, principal=principal)
    assert wanted.matches(acl) is (acl.resource_type is kind and acl.principal == principal)


# -- storing -----------------------------------------------------------------------------------------------


@given(rules)
def test_a_stored_rule_is_read_as_it_was(acl: AclBinding) -> None:
    assert decode_acl("key", encode_acl(acl)) == acl


def test_a_rule_has_one_id_and_others_have_others() -> None:
    every = [
        AclBinding(TOPIC, pattern, name, principal, "*", operation, permission)
        for pattern in (LITERAL, PREFIXED)
        for name in NAMES
        for principal in PRINCIPALS
        for operation in OPERATIONS
        for permission in (Permission.DENY, Permission.ALLOW)
    ]
    assert len({acl_id(acl) for acl in every}) == len(every)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"format": 2}', b'{"format": 1, "type": "MOON"}'])
def test_a_stored_rule_that_cannot_be_read_is_an_error(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="stored ACL"):
        decode_acl("acls/1", data)


@pytest.mark.parametrize(
    "acl",
    [
        AclBinding(ResourceType.ANY, LITERAL, "t", "User:a", "*", Operation.READ, Permission.ALLOW),
        AclBinding(TOPIC, PatternType.MATCH, "t", "User:a", "*", Operation.READ, Permission.ALLOW),
        AclBinding(TOPIC, LITERAL, "", "User:a", "*", Operation.READ, Permission.ALLOW),
        AclBinding(TOPIC, LITERAL, "t", "ada", "*", Operation.READ, Permission.ALLOW),
        AclBinding(TOPIC, LITERAL, "t", "User:", "*", Operation.READ, Permission.ALLOW),
        AclBinding(TOPIC, LITERAL, "t", "User:a", "example.org", Operation.READ, Permission.ALLOW),
        AclBinding(TOPIC, LITERAL, "t", "User:a", "10.0.0.1/8", Operation.READ, Permission.ALLOW),
        AclBinding(TOPIC, LITERAL, "t", "User:a", "*", Operation.ANY, Permission.ALLOW),
        AclBinding(TOPIC, LITERAL, "t", "User:a", "*", Operation.READ, Permission.ANY),
        AclBinding(ResourceType.CLUSTER, LITERAL, "x", "User:a", "*", Operation.ALTER, Permission.ALLOW),
    ],
)
def test_rules_that_cannot_be(acl: AclBinding) -> None:
    with pytest.raises(KafkaError):
        check_binding(acl)
