"""What is besieged: one secure broker, or a secure cluster of three, with its users, rules and topics.

Each broker has two doors, both of which ask for a login: one with TLS, by which good clients and brokers
come, and one without, which costs attackers less.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from forebay.config import broker_config
from forebay.local.child_broker import ChildBroker
from forebay.local.cluster import Cluster
from forebay.local.ports import ReservedPort
from forebay.local.secure_setup import SecureSetup
from forebay.local.settings import KEPT, TEST_SETTINGS
from support.siege.target import (
    ANALYST,
    BOMBS,
    GOOD,
    HOST,
    ORDERS,
    PASSWORDS,
    SHOWN_ORDERS,
    TEXTS,
    VIEWS,
    Target,
)

_TIMEOUT_S = 60.0
_ITERATIONS = 4096
_SETTINGS = TEST_SETTINGS | KEPT
PARTITIONS = 3


@dataclass(frozen=True, kw_only=True)
class Place:
    """`pids` and `metrics` (host:port) are those of the brokers, in the order of the target's doors."""

    target: Target
    client_settings: dict[str, str]
    pids: tuple[int, ...]
    metrics: tuple[str, ...]
    logs: tuple[Path, ...]


class _Ports:
    """The ports of one broker."""

    def __init__(self) -> None:
        self.tls, self.open, self.metrics = ReservedPort(), ReservedPort(), ReservedPort()

    def settings(self) -> dict[str, str]:
        return {
            "listeners": f"SASL_SSL://{HOST}:{self.tls.number},SASL_PLAINTEXT://{HOST}:{self.open.number}",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN",
            "forebay.metrics.listener": f"{HOST}:{self.metrics.number}",
        }

    def close(self) -> None:
        for port in (self.tls, self.open, self.metrics):
            port.close()


@contextlib.contextmanager
def one_broker(directory: Path) -> Iterator[Place]:
    setup, ports = SecureSetup(directory / "security"), _Ports()
    data = {"log.dirs": str(directory / "data")}
    setup.make_files([HOST])
    setup.add_users(broker_config(data))
    log = directory / "broker.log"
    child = ChildBroker(log)
    with contextlib.closing(ports):
        try:
            address = child.start({**_SETTINGS, **setup.settings(), **data, **ports.settings()})
            client_settings = setup.client_settings(address)
            yield _prepared(client_settings, [ports], [child.pid], [log])
        finally:
            child.kill()


@contextlib.contextmanager
def three_brokers(directory: Path) -> Iterator[Place]:
    cluster = _SiegeCluster(directory)
    with contextlib.ExitStack() as stack:
        for ports in cluster.ports:  # also when the cluster does not start
            stack.enter_context(contextlib.closing(ports))
        stack.enter_context(cluster)
        pids = [cluster.pid(node) for node in cluster.node_ids]
        logs = [cluster.log_path(node) for node in cluster.node_ids]
        yield _prepared(cluster.client_settings, cluster.ports, pids, logs)


class _SiegeCluster(Cluster):
    def __init__(self, directory: Path) -> None:
        super().__init__(3, data_dir=directory, secure=True, settings=_SETTINGS)
        self.ports = [_Ports() for _ in range(3)]

    def broker_settings(self, node_id: int) -> dict[str, str]:
        return super().broker_settings(node_id) | self.ports[node_id - 1].settings()


# -- users, rules and topics -------------------------------------------------------------------------------


def _prepared(
    client_settings: dict[str, str], ports: list[_Ports], pids: list[int], logs: list[Path]
) -> Place:
    admin = AdminClient({**client_settings})
    _add_topics(admin, len(ports))
    _add_users(admin)
    _add_rules(admin)
    return Place(
        target=Target(
            tls_doors=tuple((HOST, each.tls.number) for each in ports),
            open_doors=tuple((HOST, each.open.number) for each in ports),
            ca_file=client_settings["ssl.ca.location"],
        ),
        client_settings=client_settings | {"sasl.username": GOOD, "sasl.password": PASSWORDS[GOOD]},
        pids=tuple(pids),
        metrics=tuple(f"{HOST}:{each.metrics.number}" for each in ports),
        logs=tuple(logs),
    )


def _add_topics(admin: AdminClient, brokers: int) -> None:
    durable = {"min.insync.replicas": "2"} if brokers > 1 else {}
    topics = [NewTopic(ORDERS, PARTITIONS, brokers, config=durable)]
    topics += [NewTopic(name, brokers, 1) for name in (TEXTS, BOMBS)]
    view = {"forebay.view.source": ORDERS, "forebay.view.where": "value >= 0"}
    for wanted in (topics, [NewTopic(SHOWN_ORDERS, config=view)]):
        for made in admin.create_topics(wanted).values():
            made.result(_TIMEOUT_S)


def _add_users(admin: AdminClient) -> None:
    users: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(name, ScramCredentialInfo(mechanism, _ITERATIONS), password.encode())
        for name, password in PASSWORDS.items()
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    ]
    for added in admin.alter_user_scram_credentials(users).values():
        added.result(_TIMEOUT_S)


def _add_rules(admin: AdminClient) -> None:
    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    topic, group = ResourceType.TOPIC, ResourceType.GROUP
    wanted = [
        (GOOD, topic, ORDERS, literal),
        (GOOD, topic, SHOWN_ORDERS, literal),
        (GOOD, group, GOOD, prefixed),
        (ANALYST, topic, TEXTS, literal),
        (ANALYST, topic, BOMBS, literal),
        (ANALYST, topic, VIEWS, prefixed),
    ]
    rules = [
        AclBinding(kind, name, pattern, f"User:{user}", "*", AclOperation.ALL, AclPermissionType.ALLOW)
        for user, kind, name, pattern in wanted
    ]
    for added in admin.create_acls(rules).values():
        added.result(_TIMEOUT_S)
