"""Brokers need ClusterAction of each other: to replicate, and to write where others lead."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.authorization.audit import AuditLog
from forebay.broker.authorization.authorization import Authorization
from forebay.broker.live_config import LiveConfig
from forebay.broker.telemetry.metrics import Metrics
from forebay.config import broker_config
from forebay.core.acls.bindings import (
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from forebay.core.acls.doubt import denials
from forebay.core.acls.text import acl_id
from forebay.core.cluster.image import ClusterImage
from forebay.core.cluster.images.acl_image import AclDeleted, AclPut
from forebay.core.cluster.images.unreadable import Unreadable, UnreadablePut
from forebay.core.security.users import Upsertion, UserAlteration, alter_user
from forebay.errors import ErrorCode
from forebay.wire.messages.create_acls import AclCreation, CreateAclsRequest
from forebay.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from forebay.wire.messages.fetch import ReplicaState
from forebay.wire.sasl.scram import ScramMechanism
from support.brokers.local_cluster import LocalCluster, eventually, local_cluster
from support.clients.wire_client import (
    CREATE_TOPICS,
    PRODUCE,
    batch,
    create_topic,
    fetch,
    only_partition,
    produce,
)
from support.waiting import Patience

BROKERS = "User:ANONYMOUS"
"""Brokers that have not logged in, and the client of this test."""
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "replica.lag.time.max.ms": "60000",
    "replica.fetch.wait.max.ms": "50",
    "replica.fetch.backoff.ms": "50",
}


def rule(operation: Operation, kind: ResourceType, name: str) -> AclBinding:
    return AclBinding(kind, PatternType.LITERAL, name, BROKERS, "127.0.0.0/8", operation, Permission.ALLOW)


ACTION = rule(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)


async def add(cluster: LocalCluster, *acls: AclBinding) -> None:
    await cluster[1].metadata.change_all([AclPut(id=acl_id(acl), acl=acl) for acl in acls])


def refused_fetches(caplog: pytest.LogCaptureFixture) -> list[object]:
    return [record for record in caplog.records if vars(record).get("api") == "Fetch"]


async def test_brokers_replicate_once_they_may(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with local_cluster(tmp_path, SETTINGS, brokers=2) as cluster:
        await add(
            cluster,
            rule(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME),
            rule(Operation.WRITE, ResourceType.TOPIC, "t"),
        )
        (made,) = (await cluster.ask(1, create_topic("t"), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        leader = cluster.leader("t")
        answer = await cluster.ask(leader, produce("t", batch(b"v"), acks=1), PRODUCE)
        assert only_partition(answer).error_code == ErrorCode.NONE
        # The follower tells what to do, not only the leader that it was asked in vain.
        await eventually(
            lambda: any("cluster-action" in str(vars(record).get("reason")) for record in caplog.records)
        )
        partition = cluster[leader].partitions.get("t", 0)
        asked = len(refused_fetches(caplog))
        await eventually(lambda: len(refused_fetches(caplog)) > asked)
        assert partition.high_watermark == 0, "no follower may have it"
        await add(cluster, ACTION)
        await eventually(lambda: partition.high_watermark == 1)
        answer = await cluster.ask(leader, produce("t", batch(b"w"), acks=-1), PRODUCE)
        assert only_partition(answer).error_code == ErrorCode.NONE


async def test_a_rule_counts_on_every_broker_and_ends_on_every_broker(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, SETTINGS, brokers=2) as cluster:
        await add(cluster, ACTION, rule(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME))
        (made,) = (await cluster.ask(1, create_topic("t"), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        leader = cluster.leader("t")
        writing = rule(Operation.WRITE, ResourceType.TOPIC, "t")

        async def becomes(code: ErrorCode) -> None:
            patience = Patience(f"a producer is answered {code.name}")
            while True:
                answer = await cluster.ask(leader, produce("t", batch(b"v"), acks=1), PRODUCE)
                if only_partition(answer).error_code == code:
                    return
                patience.check(answer)

        await becomes(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        other = cluster[3 - leader].metadata  # the rule is made at the other broker
        await other.change_all([AclPut(id=acl_id(writing), acl=writing)])
        await becomes(ErrorCode.NONE)
        await other.change_all([AclDeleted(id=acl_id(writing))])
        await becomes(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


async def test_a_broker_that_hears_late_neither_makes_nor_deletes_a_rule_in_vain(tmp_path: Path) -> None:
    """Its image has a rule that was deleted since, and lacks one that was made."""
    settings = SETTINGS | {"super.users": BROKERS}
    gone, new = (rule(Operation.WRITE, ResourceType.TOPIC, name) for name in ("gone", "new"))
    creation = AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name="gone",
        principal=BROKERS,
        host="127.0.0.0/8",
        operation=Operation.WRITE,
        permission_type=Permission.ALLOW,
    )
    deletion = DeleteAclsFilter(
        resource_type_filter=ResourceType.TOPIC,
        resource_name_filter="new",
        principal_filter=None,
        host_filter=None,
        operation=Operation.WRITE,
        permission_type=Permission.ALLOW,
    )
    async with local_cluster(tmp_path, settings, brokers=2) as cluster:
        await add(cluster, gone)
        await eventually(lambda: acl_id(gone) in cluster[2].image.acls)
        with cluster.uninformed(2):
            await cluster[1].metadata.change_all([AclDeleted(id=acl_id(gone))])
            assert acl_id(gone) in cluster[2].image.acls
            created = asyncio.create_task(cluster.ask(2, CreateAclsRequest(creations=[creation]), 3))
            await eventually(lambda: acl_id(gone) in cluster[1].image.acls)
        assert (await created).results[0].error_code == ErrorCode.NONE
        with cluster.uninformed(2):
            await add(cluster, new)
            assert acl_id(new) not in cluster[2].image.acls
            deleted = asyncio.create_task(cluster.ask(2, DeleteAclsRequest(filters=[deletion]), 3))
            await eventually(lambda: acl_id(new) not in cluster[1].image.acls)
        assert len((await deleted).filter_results[0].matching_acls) == 1


async def test_brokers_that_log_in_are_super_users_and_clients_are_not(tmp_path: Path) -> None:
    settings = SETTINGS | {
        "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "forebay.sasl.username": "broker",
        "forebay.sasl.password": "secret",
        "super.users": "User:broker",
    }
    mechanism = ScramMechanism.SHA_512
    user = Upsertion(
        mechanism=mechanism.code,
        iterations=4096,
        salt=b"salt",
        salted_password=mechanism.salted_password("secret", b"salt", 4096),
    )
    async with local_cluster(tmp_path, settings, brokers=2) as cluster:
        alteration = UserAlteration(name="broker", deletions=(), upsertions=(user,))
        await cluster[1].metadata.change(lambda image: alter_user(image, alteration))
        await add(
            cluster,
            rule(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME),
            rule(Operation.WRITE, ResourceType.TOPIC, "t"),
        )
        (made,) = (await cluster.ask(1, create_topic("t"), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE
        await cluster.in_sync("t")
        leader = cluster.leader("t")
        answer = await cluster.ask(leader, produce("t", batch(b"v"), acks=-1), PRODUCE)
        assert only_partition(answer).error_code == ErrorCode.NONE
        follower = fetch("t")
        follower.replica_state = ReplicaState(replica_id=3 - leader, replica_epoch=1)
        refused = await cluster.ask(leader, follower, 15)
        assert only_partition(refused).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def quiet_audit() -> AuditLog:
    """Of which nothing is asked."""

    def never(*_: object) -> Any:
        raise AssertionError("nothing was refused")

    return AuditLog(LiveConfig(broker_config(SETTINGS), 1), now=never, call_later=never)


@pytest.mark.parametrize(
    ("settings", "principal"),
    [
        ({"super.users": "User:admin"}, BROKERS),
        (
            {
                "super.users": "User:admin",
                "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
                "forebay.sasl.username": "broker",
                "forebay.sasl.password": "secret",
            },
            "User:broker",
        ),
        ({"super.users": BROKERS}, None),
    ],
)
def test_a_broker_says_at_its_start_that_others_would_refuse_it(
    settings: dict[str, str], principal: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    config = broker_config(SETTINGS | {"forebay.cluster": "etcd://127.0.0.1:1/c"} | settings)
    Authorization(LiveConfig(config, 1), ClusterImage(cluster_id="c"), Metrics(), quiet_audit())
    warned = [vars(record)["principal"] for record in caplog.records if "ClusterAction" in record.message]
    assert warned == ([] if principal is None else [principal])


def test_a_broker_says_at_its_start_that_nobody_may_do_anything(caplog: pytest.LogCaptureFixture) -> None:
    Authorization(
        LiveConfig(broker_config(SETTINGS), 1), ClusterImage(cluster_id="c"), Metrics(), quiet_audit()
    )
    assert "nobody may do anything" in caplog.text


def test_an_acl_that_cannot_be_read_takes_effect_at_once_and_ends_with_its_repair() -> None:
    settings = LiveConfig(broker_config({**SETTINGS, "super.users": "User:admin"}), 1)
    allowed = rule(Operation.WRITE, ResourceType.TOPIC, "t")
    before = ClusterImage(cluster_id="c").apply([AclPut(id=acl_id(allowed), acl=allowed)])
    found = Unreadable(key="acls/zz", revision=1, reason="", denials=denials(b"{}"))
    during = before.apply([UnreadablePut(value=found)])
    authorization = Authorization(settings, before, Metrics(), quiet_audit())
    changes: list[int] = []
    authorization.changed.listen(lambda: changes.append(authorization.revision))

    def may_write(principal: str) -> bool:
        return authorization._authorizer.allows(
            principal, "127.0.0.1", Operation.WRITE, ResourceType.TOPIC, "t"
        )

    assert may_write(BROKERS)
    authorization.follow(before, during)
    assert not may_write(BROKERS)
    assert may_write("User:admin")
    authorization.follow(during, before)
    assert may_write(BROKERS)
    assert len(changes) == 2, "fast paths and waiting fetches are forgotten each time"
