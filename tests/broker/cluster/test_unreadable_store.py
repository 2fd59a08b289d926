"""Values in the store that brokers cannot read: they go on, and only what depends on the value waits."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from forebay.errors import ErrorCode
from forebay.local.cluster import Cluster
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.clients.wire_client import (
    CREATE_TOPICS,
    WireClient,
    append,
    batch,
    create,
    create_topic,
    read_all,
)
from support.waiting import Patience

ROOT = b"/forebay/local/"
READABLE_AGAIN = "readable again"

BAD = {
    "topics/zz": b"{}",
    "topics/z-no-json": b"\xff\xfe",
    "state/nothing/x": b"{}",
    "configs/topics/other": b'{"retention.ms":"soon"}',
    "configs/topics/zz": b"[]",
    "configs/brokers/default": b'{"log.retention.ms":5}',
    "configs/brokers/1": b"x",
    "configs/groups/g": b'{"share.record.lock.duration.ms":"x"}',
    "acls/zz": b"{}",
    "acls/\udcff": b"{}",
    "quotas/zz": b'{"format":7}',
    "users/zz": b"[1]",
    "users/%ff": b"{}",
    "views/zz": b'{"id":1e999}',
    "brokers/9": b"{}",
    "brokers/x": b"{}",
    "deleted/zz": b"{}",
    "claims/9/0": b"{}",
}
"""A value of each kind that no broker has written."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2, settings={"auto.create.topics.enable": "false"}) as running:
        with client_of(running) as client:
            create(client, "other")
        yield running


@contextmanager
def client_of(cluster: Cluster, node: int = 1) -> Iterator[WireClient]:
    with WireClient(cluster.address(node)) as client:
        yield client


class Stored:
    """The keys of the cluster, as somebody with etcdctl sees them."""

    def __init__(self, cluster: Cluster) -> None:
        self._server = cluster.etcd.servers[0]

    def _ask(self, path: str, key: str, **more: Any) -> dict[str, Any]:
        encoded = b64encode(ROOT + key.encode(errors="surrogateescape")).decode()
        return self._server.ask(f"/v3/kv/{path}", {"key": encoded, **more})

    def put(self, key: str, value: bytes) -> None:
        self._ask("put", key, value=b64encode(value).decode())

    def get(self, key: str) -> bytes | None:
        found = self._ask("range", key).get("kvs", [])
        return b64decode(found[0].get("value", "")) if found else None

    def delete(self, key: str) -> None:
        self._ask("deleterange", key)


def until_logged(
    cluster: Cluster, text: str, before: dict[int, int], nodes: tuple[int, ...] = (1, 2)
) -> None:
    """Until these brokers have logged it since then."""
    patience = Patience(f"{text!r} in the logs")
    for node in nodes:
        while text not in cluster.log(node)[before[node] :]:
            patience.check(cluster.log(node)[before[node] :])
            assert cluster.running == [1, 2], "a broker has ended"


def marks(cluster: Cluster) -> dict[int, int]:
    return {node: len(cluster.log(node)) for node in (1, 2)}


def works(cluster: Cluster, topic: str = "other") -> None:
    leader = cluster.leader(topic)
    with client_of(cluster, leader) as client:
        patience = Patience(f"a message on {topic}")
        while (found := append(client, topic, batch(b"v"), acks=-1).error_code) != ErrorCode.NONE:
            patience.check(found)


def shown(key: str) -> str:
    return ascii(key)[1:-1]


@pytest.mark.parametrize("key", BAD)
def test_brokers_pass_over_a_value_that_they_cannot_read(cluster: Cluster, key: str) -> None:
    stored, before = Stored(cluster), marks(cluster)
    kept = stored.get(key)
    stored.put(key, BAD[key])
    until_logged(cluster, "a value in the store cannot be read", before)
    assert shown(key) in cluster.log(1)[before[1] :]
    works(cluster)
    before = marks(cluster)
    if kept is None:
        stored.delete(key)
    else:
        stored.put(key, kept)
    until_logged(cluster, READABLE_AGAIN, before)
    works(cluster)


def test_a_broker_starts_with_values_that_it_cannot_read(cluster: Cluster) -> None:
    stored, before = Stored(cluster), marks(cluster)
    for key, value in BAD.items():
        stored.put(key, value)
    until_logged(cluster, shown("brokers/x"), before)
    before = marks(cluster)
    cluster.kill(2)
    cluster.start(2)
    for key in BAD:
        assert shown(key) in cluster.log(2)[before[2] :], "logged once more by a process that starts"
    works(cluster)
    for key in BAD:
        stored.delete(key)
    until_logged(cluster, READABLE_AGAIN, before, (2,))
    works(cluster)


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("kind", ["topic", "state"])
def test_a_topic_that_cannot_be_read_keeps_its_name_and_its_messages(
    cluster: Cluster, kind: str, is_restarted: bool
) -> None:
    name = f"t-{kind}-{is_restarted}"
    stored = Stored(cluster)
    with client_of(cluster) as client:
        topic_id = create(client, name)
    works(cluster, name)
    moved = f"state/{b64encode(topic_id, altchars=b'-_').rstrip(b'=').decode()}/0"
    if kind == "state":
        # There is a state from the first change on.
        leader = cluster.leader(name)
        cluster.kill(leader)
        cluster.start(leader)
        cluster.wait_until_ready()
        assert stored.get(moved) is not None
    key = f"topics/{name}" if kind == "topic" else moved
    good, before = stored.get(key), marks(cluster)
    assert good is not None
    stored.put(key, b"{}")
    until_logged(cluster, shown(key), before)
    with client_of(cluster) as client:
        answer = client.call(create_topic(name), CREATE_TOPICS)
        assert answer.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        (topic,) = client.call(asked, 12).topics
        codes = {topic.error_code, *(each.error_code for each in topic.partitions)}
        assert ErrorCode.LEADER_NOT_AVAILABLE in codes
        assert append(client, name, batch(b"no")).error_code != ErrorCode.NONE
    works(cluster)
    before = marks(cluster)
    if is_restarted:
        for node in (1, 2):
            cluster.kill(node)
            cluster.start(node)
        works(cluster)
        assert stored.get(key) == b"{}", "no election was written"
    directories = [cluster.broker_data_dir(node) / f"{name}-0" for node in (1, 2)]
    assert all(each.is_dir() for each in directories)
    stored.put(key, good)
    until_logged(cluster, READABLE_AGAIN, before)
    works(cluster, name)
    with client_of(cluster, cluster.leader(name)) as client:
        assert [value for _, value in read_all(client, name)] == [b"v", b"v"]


def test_without_a_readable_counter_only_producer_ids_are_not_given_out(cluster: Cluster) -> None:
    stored = Stored(cluster)
    good = stored.get("producer-ids")
    stored.put("producer-ids", b"many")
    for node in (1, 2):
        cluster.kill(node)
        cluster.start(node)
    works(cluster)
    assert all("no producer ids can be given out" in cluster.log(node) for node in (1, 2))
    if good is None:
        stored.delete("producer-ids")
    else:
        stored.put("producer-ids", good)


@pytest.mark.parametrize("is_running", [True, False])
def test_a_marker_of_a_restore_that_cannot_be_read_is_replaced(cluster: Cluster, is_running: bool) -> None:
    """In-sync sets are not believed before brokers have said what they hold."""
    stored = Stored(cluster)
    works(cluster)
    before = json.loads(stored.get("restored") or b'{"generation":0}')["generation"]
    if not is_running:
        for node in (1, 2):
            cluster.kill(node)
    stored.put("restored", b"{}")
    if not is_running:
        for node in (1, 2):
            cluster.start(node)
    patience = Patience("a new marker")
    while json.loads(stored.get("restored") or b"{}").get("generation", 0) <= before:
        patience.check(stored.get("restored"))
    works(cluster)


def test_a_broker_whose_registration_is_written_over_registers_again(cluster: Cluster) -> None:
    stored, before = Stored(cluster), marks(cluster)
    stored.put("brokers/2", b"{}")
    until_logged(cluster, "joined the cluster again", before, (2,))
    cluster.wait_until_ready()
    works(cluster)


def test_a_controller_whose_key_is_written_over_is_elected_anew(cluster: Cluster) -> None:
    stored = Stored(cluster)
    stored.put("controller", b"nobody")
    patience = Patience("a controller")
    while stored.get("controller") not in (b"1", b"2"):
        patience.check(stored.get("controller"))
    cluster.wait_until_ready()
    works(cluster)
