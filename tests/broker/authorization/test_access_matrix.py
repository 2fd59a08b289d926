"""Every API, asked by clients that may, that may not, and that may do it with something else.

Whoever lacks one of the rights that a request needs gets the code that docs/acls.md names, and nothing in the
broker has changed: neither the cluster's metadata nor any log, those of groups and transactions included.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from forebay.broker.node import Node
from forebay.core.acls.bindings import (
    CLUSTER_NAME,
    EVERYONE,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from forebay.core.guards.table import RULES
from forebay.errors import ErrorCode
from forebay.wire.api_keys import ApiKey
from forebay.wire.fields import Struct
from forebay.wire.messages import api_name
from forebay.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from support.access.principals import ACCESS, KnownClient, add_acls, delete_acl
from support.access.sample_requests import GROUP, SHARE_APIS, SHARE_GROUP, TOPIC, TRANSACTION, request_of
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.served_apis import ENDPOINTS
from support.waiting import Patience

T, G, C = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
X = ResourceType.TRANSACTIONAL_ID
NAMES = {T: TOPIC, G: GROUP, C: CLUSTER_NAME, X: TRANSACTION}
CODES = {
    T: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    G: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    C: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    X: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
O = Operation  # noqa: E741
Need = tuple[Operation, ResourceType]

ALTER, DESCRIBE, ACTION = (O.ALTER, C), (O.DESCRIBE, C), (O.CLUSTER_ACTION, C)
NEEDS: dict[int, list[Need]] = {
    ApiKey.PRODUCE: [(O.WRITE, T)],
    ApiKey.FETCH: [(O.READ, T)],
    ApiKey.LIST_OFFSETS: [(O.DESCRIBE, T)],
    ApiKey.METADATA: [(O.DESCRIBE, T)],
    ApiKey.OFFSET_COMMIT: [(O.READ, G), (O.READ, T)],
    ApiKey.OFFSET_FETCH: [(O.DESCRIBE, G), (O.DESCRIBE, T)],
    ApiKey.FIND_COORDINATOR: [(O.DESCRIBE, G)],
    ApiKey.JOIN_GROUP: [(O.READ, G)],
    ApiKey.HEARTBEAT: [(O.READ, G)],
    ApiKey.LEAVE_GROUP: [(O.READ, G)],
    ApiKey.SYNC_GROUP: [(O.READ, G)],
    ApiKey.DESCRIBE_GROUPS: [(O.DESCRIBE, G)],
    ApiKey.CREATE_TOPICS: [(O.CREATE, T)],
    ApiKey.DELETE_TOPICS: [(O.DELETE, T)],
    ApiKey.DELETE_RECORDS: [(O.DELETE, T)],
    ApiKey.INIT_PRODUCER_ID: [(O.WRITE, X)],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: [(O.DESCRIBE, T)],
    ApiKey.ADD_PARTITIONS_TO_TXN: [(O.WRITE, X), (O.WRITE, T)],
    ApiKey.ADD_OFFSETS_TO_TXN: [(O.WRITE, X), (O.READ, G)],
    ApiKey.END_TXN: [(O.WRITE, X)],
    ApiKey.WRITE_TXN_MARKERS: [ACTION],
    ApiKey.TXN_OFFSET_COMMIT: [(O.WRITE, X), (O.READ, G), (O.READ, T)],
    ApiKey.DESCRIBE_ACLS: [DESCRIBE],
    ApiKey.CREATE_ACLS: [ALTER],
    ApiKey.DELETE_ACLS: [ALTER],
    ApiKey.DESCRIBE_CONFIGS: [(O.DESCRIBE_CONFIGS, T)],
    ApiKey.ALTER_CONFIGS: [(O.ALTER_CONFIGS, T)],
    ApiKey.ALTER_REPLICA_LOG_DIRS: [ALTER],
    ApiKey.DESCRIBE_LOG_DIRS: [DESCRIBE],
    ApiKey.CREATE_PARTITIONS: [(O.ALTER, T)],
    ApiKey.DELETE_GROUPS: [(O.DELETE, G)],
    ApiKey.ELECT_LEADERS: [ALTER],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: [(O.ALTER_CONFIGS, T)],
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: [ALTER],
    ApiKey.LIST_PARTITION_REASSIGNMENTS: [DESCRIBE],
    ApiKey.OFFSET_DELETE: [(O.DELETE, G), (O.READ, T)],
    ApiKey.DESCRIBE_CLIENT_QUOTAS: [(O.DESCRIBE_CONFIGS, C)],
    ApiKey.ALTER_CLIENT_QUOTAS: [(O.ALTER_CONFIGS, C)],
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: [DESCRIBE],
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: [ALTER],
    ApiKey.DESCRIBE_QUORUM: [DESCRIBE],
    ApiKey.UPDATE_FEATURES: [ALTER],
    ApiKey.DESCRIBE_PRODUCERS: [(O.READ, T)],
    ApiKey.UNREGISTER_BROKER: [ALTER],
    ApiKey.DESCRIBE_TRANSACTIONS: [(O.DESCRIBE, X)],
    ApiKey.CONSUMER_GROUP_HEARTBEAT: [(O.READ, G), (O.DESCRIBE, T)],
    ApiKey.CONSUMER_GROUP_DESCRIBE: [(O.DESCRIBE, G), (O.DESCRIBE, T)],
    ApiKey.LIST_CONFIG_RESOURCES: [(O.DESCRIBE_CONFIGS, C)],
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: [(O.DESCRIBE, T)],
    ApiKey.SHARE_GROUP_HEARTBEAT: [(O.READ, G), (O.DESCRIBE, T)],
    ApiKey.SHARE_GROUP_DESCRIBE: [(O.DESCRIBE, G), (O.DESCRIBE, T)],
    ApiKey.SHARE_FETCH: [(O.READ, G), (O.READ, T)],
    ApiKey.SHARE_ACKNOWLEDGE: [
        (O.READ, G)
    ],  # and READ of the topic, once there is a session: see test_access.py
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: [ACTION],
    ApiKey.READ_SHARE_GROUP_STATE: [ACTION],
    ApiKey.WRITE_SHARE_GROUP_STATE: [ACTION],
    ApiKey.DELETE_SHARE_GROUP_STATE: [ACTION],
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: [ACTION],
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: [(O.DESCRIBE, G), (O.DESCRIBE, T)],
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: [(O.READ, G), (O.READ, T)],
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: [(O.DELETE, G), (O.READ, T)],
    ApiKey.MOVE_JOURNAL: [ACTION],
    ApiKey.RESUME_DEAD_LETTERS: [ACTION],
    ApiKey.DESCRIBE_DELAYS: [(O.READ, T)],
    ApiKey.ALTER_DELAYS: [(O.WRITE, T)],
    ApiKey.FOLDED_PRODUCE: [ACTION],
    ApiKey.FOLDED_PRODUCERS: [ACTION],
    ApiKey.APPEND_COPIES: [ACTION],
    ApiKey.HAND_OVER_NUMBERS: [ACTION],
    ApiKey.DESCRIBE_FAILOVERS: [DESCRIBE],
    ApiKey.DESCRIBE_FILLS: [(O.DESCRIBE, T)],
    ApiKey.DESCRIBE_DISK: [DESCRIBE],
    ApiKey.DESCRIBE_POSITIONS: [(O.DESCRIBE, T)],
    ApiKey.DESCRIBE_ACTIVITY: [DESCRIBE],
    ApiKey.DESCRIBE_REMOTE_LOGS: [DESCRIBE],
}
"""What each API needs, and therefore which code it answers with."""
NEVER_REFUSED = {
    ApiKey.LIST_GROUPS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.API_VERSIONS,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.DESCRIBE_SHARE_WINDOWS,
}
"""They leave out what a client may not see; `test_access.py` has them."""
OF_TOKENS = {38, 39, 40, 41}
"""It matters how a client has logged in; `test_token_logins.py` has them."""
VERSIONS = {24: 3}
BETWEEN_BROKERS = {
    ApiKey.FOLDED_PRODUCE,
    ApiKey.FOLDED_PRODUCERS,
    ApiKey.APPEND_COPIES,
    ApiKey.HAND_OVER_NUMBERS,
}
"""They are refused to those who do not even say that they are brokers."""
BROKER = "forebay-broker-1.1.1"
SERVED = sorted(key for key in ENDPOINTS if key not in NEVER_REFUSED | OF_TOKENS)


class Stage(NamedTuple):
    broker: LocalBroker
    admin: KnownClient
    client: KnownClient
    users: Iterator[int]

    def user(self) -> str:
        """A principal that no rule is about yet."""
        name = f"User:u{next(self.users)}"
        self.client.log_in(name)
        return name

    def call(self, key: int) -> Any:
        self.admin.call(
            CreateTopicsRequest(
                topics=[CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)], timeout_ms=10_000
            ),
            7,
        )
        topic_id = self.broker.on_loop(lambda node: node.image.topics[TOPIC].topic_id)
        version = VERSIONS.get(key, ENDPOINTS[key].max_version)
        client_id = BROKER if key in BETWEEN_BROKERS else "client"
        self.client.socket.sendall(self.client.frame(request_of(key, topic_id), version, client_id))
        return self.client.read()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    data: Path = tmp_path_factory.mktemp("access")
    settings = ACCESS | {"group.initial.rebalance.delay.ms": "0"}
    with (
        local_broker(data, settings) as broker,
        KnownClient(broker) as admin,
        KnownClient(broker) as client,
    ):
        made = Stage(broker, admin, client, itertools.count())
        made.call(10)
        for key in (68, 76):  # the groups are there, with a member that is assigned the topic
            patience = Patience("the coordinator takes a member")
            while (answer := made.call(key)).error_code != ErrorCode.NONE:
                patience.check(answer)
        yield made


def rule(
    principal: str,
    need: Need,
    *,
    name: str | None = None,
    pattern: PatternType = PatternType.LITERAL,
    permission: Permission = Permission.ALLOW,
) -> AclBinding:
    operation, kind = need
    return AclBinding(kind, pattern, name or NAMES[kind], principal, "*", operation, permission)


def rules(key: int, principal: str, needs: list[Need]) -> list[AclBinding]:
    """That allow what an API needs, and no more."""
    group = SHARE_GROUP if key in SHARE_APIS else GROUP
    return [rule(principal, need, name=group if need[1] is G else None) for need in needs]


def refusals(response: Any) -> set[int]:
    """The codes in a response that say that something was denied."""
    return {code for code in codes(response) if code in CODES.values()}


def codes(value: Any) -> Iterator[int]:
    if isinstance(value, list):
        for item in value:
            yield from codes(item)
    elif isinstance(value, Struct):
        for name in value.FIELDS:
            inner = getattr(value, name)
            if name.endswith("error_code"):
                yield inner
            else:
                yield from codes(inner)


def state(node: Node) -> Any:
    """Everything that a request could change."""
    image = node.image
    logs = {(p.topic, p.index): (p.log.start_offset, p.log.end_offset) for p in node.partitions.all()}
    return (
        image.topics,
        image.topic_configs,
        image.broker_configs,
        image.group_configs,
        image.views,
        image.users,
        image.acls,
        image.quotas,
        logs,
    )


def test_the_matrix_has_every_api() -> None:
    assert ENDPOINTS.keys() <= NEEDS.keys() | NEVER_REFUSED | OF_TOKENS
    assert NEEDS.keys() | NEVER_REFUSED | OF_TOKENS == RULES.keys()


@pytest.mark.parametrize("key", SERVED, ids=api_name)
def test_a_client_without_rights_changes_nothing(stage: Stage, key: int) -> None:
    stage.user()
    stage.call(key)  # what it takes to ask, such as a topic, is there now
    before = stage.broker.on_loop(state)
    assert refusals(stage.call(key)) == {CODES[NEEDS[key][0][1]]}
    assert stage.broker.on_loop(state) == before


@pytest.mark.parametrize("key", SERVED, ids=api_name)
def test_each_right_is_needed(stage: Stage, key: int) -> None:
    """All others are there, and the one that is missing is there for another resource."""
    for missing in NEEDS[key]:
        user = stage.user()
        add_acls(stage.admin, rules(key, user, [need for need in NEEDS[key] if need != missing]))
        if missing[1] is not C:
            add_acls(stage.admin, [rule(user, missing, name="matrix")])
        before = stage.broker.on_loop(state)
        assert refusals(stage.call(key)) == {CODES[missing[1]]}
        assert stage.broker.on_loop(state) == before


@pytest.mark.parametrize("key", SERVED, ids=api_name)
def test_what_is_denied_is_denied_to_who_may_do_all(stage: Stage, key: int) -> None:
    for denied in NEEDS[key]:
        user = stage.user()
        everything = [rule(user, (Operation.ALL, kind), name="*") for kind in (T, G, X)]
        (denying,) = rules(key, user, [denied])
        if denied[1] is C:
            everything.append(denying)
        add_acls(stage.admin, [*everything, replace(denying, permission=Permission.DENY)])
        before = stage.broker.on_loop(state)
        assert refusals(stage.call(key)) == {CODES[denied[1]]}
        assert stage.broker.on_loop(state) == before


@pytest.mark.parametrize("key", SERVED, ids=api_name)
@pytest.mark.parametrize("by", ["name", "prefix", "everyone"])
def test_who_has_the_rights_is_let_through(stage: Stage, key: int, by: str) -> None:
    user = stage.user()
    if by == "prefix":
        needed = [
            rule(user, need, name="matr", pattern=PatternType.PREFIXED)
            for need in NEEDS[key]
            if need[1] is not C
        ]
        needed += rules(key, user, [need for need in NEEDS[key] if need[1] is C])
    else:
        needed = rules(key, EVERYONE if by == "everyone" else user, NEEDS[key])
    add_acls(stage.admin, needed)
    try:
        assert refusals(stage.call(key)) == set()
    finally:
        for acl in needed:
            delete_acl(stage.admin, acl)
