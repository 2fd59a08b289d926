"""Clients over their quota: they are answered, then nothing is read from them, and nothing is lost."""

from __future__ import annotations

import re
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from forebay.broker.cluster.peers.peer_connection import PeerConnection
from forebay.broker.net.connection import Connection
from forebay.broker.net.sockets import SocketNetwork
from forebay.broker.node import Node
from forebay.core.acls.bindings import (
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from forebay.errors import ErrorCode, KafkaError
from forebay.wire.messages.api_versions import ApiVersionsRequest
from forebay.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from forebay.wire.messages.create_topics import CreateTopicsRequest
from forebay.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.access.principals import ACCESS, KnownClient, add_acls
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.local_cluster import local_cluster
from support.brokers.tls_files import TlsFiles
from support.clients.quota_calls import alteration, set_quota
from support.clients.share_member import ShareMember, ack, configure, held, join
from support.clients.wire_client import (
    CLIENT_ID,
    CREATE_TOPICS,
    FETCH,
    PRODUCE,
    WireClient,
    append,
    batch,
    create,
    create_topic,
    fetch,
    only_partition,
    produce,
    read_all,
    values_of,
)
from support.waiting import Patience

ADA: dict[str, str | None] = {"user": "ada"}
WAIT_MS_MAX = 30_000
BIG = b"x" * 20_000
"""Twice what a quota of 1000 bytes per second allows at once."""


def muted(broker: LocalBroker, client: WireClient) -> bool:
    port = client.socket.getsockname()[1]

    def look(node: Node) -> bool:
        (found,) = [each for each in node.server.connections if each.peer[1] == port]
        return found._muted is not None

    return broker.on_loop(look)


def metric(broker: LocalBroker, name: str) -> int:
    return broker.on_loop(lambda node: int(getattr(node.metrics, name)))


def settled(broker: LocalBroker, client: WireClient, *, is_muted: bool) -> None:
    patience = Patience("the connection is muted" if is_muted else "the connection is read again")
    while muted(broker, client) != is_muted:
        patience.check()


# -- bytes that are sent -----------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [1, -1])
def test_a_producer_over_its_quota_is_answered_and_then_not_read(
    broker: LocalBroker, admin: KnownClient, ada: KnownClient, acks: int
) -> None:
    create(admin, "t")
    set_quota(admin, ADA, producer_byte_rate=1000.0)
    first = ada.call(produce("t", batch(b"small"), acks=acks), PRODUCE)
    assert first.throttle_time_ms == 0, "a burst is allowed"
    over = ada.call(produce("t", batch(BIG), acks=acks), PRODUCE)
    assert only_partition(over).error_code == ErrorCode.NONE
    assert 0 < over.throttle_time_ms <= WAIT_MS_MAX
    assert muted(broker, ada)
    for number in range(3):
        ada.post(produce("t", batch(b"later %d" % number), acks=acks), PRODUCE)
    assert ada.is_silent()
    assert (metric(broker, "throttled_produce"), metric(broker, "throttled_produce_ms")) == (
        1,
        over.throttle_time_ms,
    )
    set_quota(admin, ADA, producer_byte_rate=None)
    for _ in range(3):
        later = ada.read()
        assert (only_partition(later).error_code, later.throttle_time_ms) == (ErrorCode.NONE, 0)
    values = [value for _, value in read_all(admin, "t")]
    assert values == [b"small", BIG, b"later 0", b"later 1", b"later 2"], "each once, in order"


def test_it_is_logged_who_waits_once_for_a_connection(
    broker: LocalBroker, admin: KnownClient, ada: KnownClient, caplog: pytest.LogCaptureFixture
) -> None:
    create(admin, "t")
    for rate in (1000.0, 1001.0):
        set_quota(admin, ADA, producer_byte_rate=rate)
        assert ada.call(produce("t", batch(BIG)), PRODUCE).throttle_time_ms > 0
    (line,) = [vars(each) for each in caplog.records if "over its quota" in each.message]
    assert (line["principal"], line["client_id"], line["quota"]) == ("User:ada", "test", "producer_byte_rate")


def test_a_producer_that_wants_no_answer_is_not_read_either(
    broker: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    create(admin, "t")
    set_quota(admin, ADA, producer_byte_rate=1000.0)
    ada.post(produce("t", batch(BIG), acks=0), PRODUCE)
    settled(broker, ada, is_muted=True)
    ada.post(produce("t", batch(b"later"), acks=0), PRODUCE)
    assert ada.is_silent()
    set_quota(admin, ADA, producer_byte_rate=1e9)
    append(ada, "t", batch(b"last"))
    assert [value for _, value in read_all(admin, "t")] == [BIG, b"later", b"last"]


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "tls"])
def test_what_was_on_its_way_is_read_after_the_wait(tmp_path: Path, is_secure: bool) -> None:
    """More than the broker receives at a time, behind the request that is over the quota."""
    tls = TlsFiles(tmp_path)
    settings = tls.broker_settings() if is_secure else {"listeners": "PLAINTEXT://127.0.0.1:0"}
    trust = ssl.create_default_context(cafile=tls.ca) if is_secure else None
    settings |= {"listeners": f"{settings['listeners']},ADMIN://127.0.0.1:0"}
    protocols = "PLAINTEXT:PLAINTEXT,SSL:SSL,ADMIN:PLAINTEXT"
    settings |= {"listener.security.protocol.map": protocols, "inter.broker.listener.name": "ADMIN"}
    values = [BIG, *(b"%d" % number * 50 for number in range(400)), b"y" * 150_000, b"last"]
    with local_broker(tmp_path / "data", settings) as broker:
        host, port = broker.on_loop(lambda node: node.server.addresses["ADMIN"])
        with WireClient(f"{host}:{port}") as admin, WireClient(broker.bootstrap, tls=trust) as client:
            create(admin, "t")
            set_quota(admin, {"user": "ANONYMOUS"}, producer_byte_rate=1000.0)
            frames = [client.frame(produce("t", batch(value)), PRODUCE) for value in values]
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            client.socket.sendall(b"".join(frames))
            first = client.read()
            assert first.throttle_time_ms > 0 and muted(broker, client)
            set_quota(admin, {"user": "ANONYMOUS"}, producer_byte_rate=None)
            for _ in values[1:]:
                answer = client.read()
                assert (only_partition(answer).error_code, answer.throttle_time_ms) == (ErrorCode.NONE, 0)
            assert [value for _, value in read_all(admin, "t")] == values


def test_a_wait_ends_by_itself(broker: LocalBroker, admin: KnownClient, ada: KnownClient) -> None:
    create(admin, "t")
    set_quota(admin, ADA, producer_byte_rate=100_000.0)
    total, told_ms = 0, 0
    while not told_ms:
        answer = ada.call(produce("t", batch(b"x" * 100_000)), PRODUCE)
        total, told_ms = total + 100_000, answer.throttle_time_ms
    assert total > 900_000, "ten seconds' worth is free"
    again = ada.call(produce("t", batch(b"after the wait")), PRODUCE)
    assert only_partition(again).error_code == ErrorCode.NONE
    assert not muted(broker, ada) or again.throttle_time_ms


def test_clients_of_a_user_share_its_quota_and_others_do_not_feel_it(
    broker: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    create(admin, "t")
    set_quota(admin, ADA, producer_byte_rate=1000.0)
    ada.call(produce("t", batch(BIG)), PRODUCE)
    with KnownClient(broker, "User:ada") as other:
        assert other.call(produce("t", batch(b"v")), PRODUCE).throttle_time_ms > 0
    with KnownClient(broker, "User:bob") as bob:
        for _ in range(3):
            assert bob.call(produce("t", batch(BIG)), PRODUCE).throttle_time_ms == 0


def test_only_clients_without_a_quota_have_the_fast_path(
    broker: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    def has_fast_path(client: WireClient) -> bool:
        for _ in range(4):
            append(client, "t", batch(b"v"))
        port = client.socket.getsockname()[1]

        def look(node: Node) -> list[Connection]:
            return [
                each for each in node.server.connections if each.peer[1] == port and each.memo is not None
            ]

        return bool(broker.on_loop(look))

    create(admin, "t")
    assert has_fast_path(ada)
    set_quota(admin, ADA, producer_byte_rate=1e9)
    assert not has_fast_path(ada)
    assert has_fast_path(admin)
    set_quota(admin, ADA, producer_byte_rate=None)
    assert has_fast_path(ada)
    assert broker.on_loop(lambda node: node._dispatcher.meter is None), "nothing is asked any more"


# -- bytes that are fetched --------------------------------------------------------------------------------


def filled(client: KnownClient, *values: bytes) -> None:
    create(client, "t")
    for value in values:
        append(client, "t", batch(value))


def test_a_consumer_over_its_quota_waits_and_gets_everything_in_the_end(
    broker: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    values = [b"%d" % number * 4_000 for number in range(6)]
    filled(admin, *values)
    set_quota(admin, ADA, consumer_byte_rate=1000.0)
    first = ada.call(fetch("t"), FETCH)
    got = values_of(only_partition(first).records)
    assert first.throttle_time_ms == 0 and len(got) == 2, "no more than a burst"
    over = ada.call(fetch("t", 2), FETCH)
    got += values_of(only_partition(over).records)
    assert len(got) == 3, "what is left of the burst, and one batch at least"
    assert 0 < over.throttle_time_ms <= WAIT_MS_MAX and muted(broker, ada)
    assert metric(broker, "throttled_fetch") == 1
    ada.post(fetch("t", 3), FETCH)
    assert ada.is_silent()
    set_quota(admin, ADA, consumer_byte_rate=1e9)
    got += values_of(only_partition(ada.read()).records)
    assert [value for _, value in got] == values


def use_up(broker: LocalBroker, topic: str, offset: int = 0) -> None:
    """Have another connection of ada fetch until it has to wait."""
    with KnownClient(broker, "User:ada") as other:
        while not other.call(fetch(topic, offset), FETCH).throttle_time_ms:
            pass


def test_another_connection_gets_an_empty_answer_and_waits_too(
    broker: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    filled(admin, b"a" * 8_000)
    set_quota(admin, ADA, consumer_byte_rate=1000.0)
    use_up(broker, "t")
    over = ada.call(fetch("t"), FETCH)
    assert (over.responses, over.session_id) == ([], 0)
    assert 0 < over.throttle_time_ms <= WAIT_MS_MAX and muted(broker, ada)


def test_a_fetch_session_goes_on_after_an_empty_answer(
    broker: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    filled(admin, b"a" * 8_000, b"b" * 8_000)
    set_quota(admin, ADA, consumer_byte_rate=1000.0)
    begun = ada.call(fetch("t", session_epoch=0), FETCH)
    assert begun.session_id and len(values_of(only_partition(begun).records)) == 1
    use_up(broker, "t", 1)
    over = ada.call(fetch("t", 1, session_id=begun.session_id, session_epoch=1), FETCH)
    assert (over.session_id, over.responses) == (begun.session_id, []) and over.throttle_time_ms > 0
    set_quota(admin, ADA, consumer_byte_rate=None)
    rest = ada.call(fetch("t", partitions=(), session_id=begun.session_id, session_epoch=2), FETCH)
    assert values_of(only_partition(rest).records) == [(1, b"b" * 8_000)]


def test_an_empty_answer_begins_no_session(broker: LocalBroker, admin: KnownClient, ada: KnownClient) -> None:
    filled(admin, b"a" * 9_000, b"b" * 9_000)
    set_quota(admin, ADA, consumer_byte_rate=1000.0)
    use_up(broker, "t")
    over = ada.call(fetch("t", 1, session_epoch=0), FETCH)
    assert (over.session_id, over.responses) == (0, []) and over.throttle_time_ms > 0
    assert broker.on_loop(lambda node: len(node.replication.sessions)) == 0


def test_a_fetch_that_waited_is_measured_by_the_quota_of_now(
    broker: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    filled(admin, BIG)
    create(admin, "later")
    set_quota(admin, ADA, consumer_byte_rate=100.0)
    use_up(broker, "t")
    ada.post(fetch("later", max_wait_ms=120_000), FETCH)
    assert ada.is_silent()
    set_quota(admin, ADA, consumer_byte_rate=None)
    append(admin, "later", batch(b"v"))
    answer = ada.read()
    assert values_of(only_partition(answer).records) == [(0, b"v")]
    assert answer.throttle_time_ms == 0 and not muted(broker, ada)


def test_a_batch_larger_than_any_burst_arrives(
    broker: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    filled(admin, BIG, b"next")
    set_quota(admin, ADA, consumer_byte_rate=1000.0)
    answer = ada.call(fetch("t", partition_max_bytes=100), FETCH)
    assert values_of(only_partition(answer).records) == [(0, BIG)]
    assert answer.throttle_time_ms > 0 and muted(broker, ada)


def test_a_fetch_that_waits_is_not_held_up_by_a_quota(
    broker: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    create(admin, "t")
    set_quota(admin, ADA, consumer_byte_rate=10.0)
    ada.post(fetch("t", max_wait_ms=120_000, min_bytes=1 << 20), FETCH)
    append(admin, "t", batch(b"x" * 200))
    assert values_of(only_partition(ada.read()).records) == [(0, b"x" * 200)], "min_bytes is within the burst"


def test_a_share_consumer_gets_what_it_has_acquired_and_waits_afterwards(
    broker: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    topic_id = create(admin, "t")
    configure(admin, "sharers")
    member = ShareMember(ada, "sharers", topic_id, member=join(admin, "sharers", "t"))
    for number in range(4):
        append(admin, "t", batch(b"%d" % number * 8_000))
    assert len(member.take(records=1)) == 1
    set_quota(admin, ADA, consumer_byte_rate=1000.0)
    first = member.fetch(acks={0: [ack(0)]})
    assert len(held(first)) == 1 and first.throttle_time_ms == 0, "no more than a burst at a time"
    second = member.fetch(acks={0: [ack(1)]})
    assert len(held(second)) == 1 and second.throttle_time_ms > 0
    assert muted(broker, ada)
    member.post_fetch(acks={0: [ack(2)]})
    assert ada.is_silent()
    set_quota(admin, ADA, consumer_byte_rate=None)
    assert [each.offset for each in held(ada.read())] == [3]


# -- time --------------------------------------------------------------------------------------------------


def test_a_client_that_takes_too_much_time_waits_and_what_it_owes_beyond_that_is_not_forgotten(
    tmp_path: Path,
) -> None:
    with (
        local_broker(tmp_path, {"forebay.quota.throttle.max.ms": "300"}) as broker,
        KnownClient(broker) as admin,
        KnownClient(broker, "User:ada") as ada,
        KnownClient(broker, "User:ada") as other,
    ):
        set_quota(admin, ADA, request_percentage=1e-6)
        answer = ada.call(MetadataRequest(topics=[]), 9)
        assert answer.throttle_time_ms == 300
        for client in (ada, other):
            client.post(MetadataRequest(topics=[]), 9)
        settled(broker, ada, is_muted=False)
        assert ada.is_silent() and other.is_silent(), "what is owed is owed on every connection"
        assert metric(broker, "throttled_request") == 1, "nothing was done for them"
        set_quota(admin, ADA, request_percentage=None)
        assert ada.read().throttle_time_ms == other.read().throttle_time_ms == 0


def test_a_request_that_waited_for_a_quota_that_is_gone_is_answered_as_others_are(
    broker: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    """The versions of the protocol are encoded once for all clients that no quota limits."""
    set_quota(admin, ADA, request_percentage=1e-6)
    ada.call(MetadataRequest(topics=[]), 9)
    with KnownClient(broker, "User:ada") as other:
        other.post(ApiVersionsRequest(), 3)
        assert other.is_silent()
        set_quota(admin, ADA, request_percentage=None)
        assert other.read().error_code == ErrorCode.NONE
        assert other.call(MetadataRequest(topics=[]), 9).brokers


def test_versions_of_requests_count_too(broker: LocalBroker, admin: KnownClient, ada: KnownClient) -> None:
    set_quota(admin, ADA, request_percentage=1e-6)
    ada.socket.sendall(struct.pack(">ihhihx", 11, ApiVersionsRequest.API_KEY, 99, 1, -1))
    patience = Patience("a version that is not known is not for nothing either")
    while metric(broker, "throttled_request") != 1:
        patience.check()


def owed_s(broker: LocalBroker) -> float:
    """How long ada would have to wait for its requests."""

    def look(node: Node) -> float:
        quotas = node._base.quotas
        limits = quotas._limiter.of_client("ada", CLIENT_ID, quotas.now())
        assert limits is not None and limits.request is not None
        return limits.request.wait_s(quotas.now())

    return broker.on_loop(look)


def test_what_is_done_after_a_long_poll_counts(
    broker: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    """The broker reads and encodes when the wait is over, which may be more work than all before."""
    create(admin, "t")
    set_quota(admin, ADA, request_percentage=1e-4)
    ada.post(fetch("t", max_wait_ms=60_000, min_bytes=1), FETCH)
    patience = Patience("the fetch waits")
    while not (before := owed_s(broker)):
        patience.check()
    append(admin, "t", batch(b"x"))
    assert values_of(only_partition(ada.read()).records) == [(0, b"x")]
    assert owed_s(broker) > before


# -- partitions --------------------------------------------------------------------------------------------

Call = Callable[[str], tuple[CreateTopicsRequest | DeleteTopicsRequest | CreatePartitionsRequest, int]]


def _code(answer: Any) -> int:
    for field in ("topics", "responses", "results"):
        if hasattr(answer, field):
            return int(getattr(answer, field)[0].error_code)
    raise AssertionError(answer)


def _more(name: str) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=5, assignments=None)])


CALLS: list[tuple[Call, Call]] = [
    (lambda name: (create_topic(name + "-new", 3), 7), lambda name: (create_topic(name + "-new", 3), 5)),
    (
        lambda name: (DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]), 6),
        lambda name: (DeleteTopicsRequest(topic_names=[name]), 4),
    ),
    (lambda name: (_more(name), 3), lambda name: (_more(name), 2)),
]


def test_a_topic_with_many_partitions_counts_for_longer_than_anybody_waits(
    broker: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    set_quota(admin, ADA, controller_mutation_rate=1.0)
    assert _code(ada.call(create_topic("large", 100), 7)) == ErrorCode.NONE
    refused = ada.call(create_topic("small", 1), 7)
    assert _code(refused) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    seconds = re.search(r"try again in ([\d.]+) s", refused.topics[0].error_message)
    assert seconds is not None and float(seconds[1]) > 60
    assert refused.throttle_time_ms == WAIT_MS_MAX


@pytest.mark.parametrize(("strict", "lenient"), CALLS, ids=["create", "delete", "more"])
def test_who_knows_the_error_is_refused_and_others_wait(
    broker: LocalBroker, admin: KnownClient, strict: Call, lenient: Call
) -> None:
    for name in ("a", "b"):
        create(admin, name, 3)
    set_quota(admin, ADA, controller_mutation_rate=0.1)

    def ask(call: Call, name: str) -> Any:
        with KnownClient(broker, "User:ada") as client:  # each may be made to wait
            return client.call(*call(name))

    used_up = ask(strict, "a")
    assert (_code(used_up), used_up.throttle_time_ms) == (ErrorCode.NONE, 0), "the last one may be over it"
    refused = ask(strict, "b")
    assert _code(refused) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert 0 < refused.throttle_time_ms <= WAIT_MS_MAX
    done = ask(lenient, "b")
    assert _code(done) == ErrorCode.NONE and done.throttle_time_ms > 0
    assert metric(broker, "throttled_mutation") == 2


def test_what_fails_or_is_only_validated_is_not_counted(
    broker: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    create(admin, "there")
    set_quota(admin, ADA, controller_mutation_rate=0.1)
    wanted = create_topic("t", 50)
    wanted.validate_only = True
    for request in (wanted, create_topic("there", 50), wanted):
        assert ada.call(request, 7).throttle_time_ms == 0
    assert _code(ada.call(create_topic("t", 50), 7)) == ErrorCode.NONE


def test_a_topic_that_is_made_on_demand_counts(
    broker: LocalBroker, admin: KnownClient, ada: KnownClient
) -> None:
    set_quota(admin, ADA, controller_mutation_rate=0.01)
    answer = ada.call(
        MetadataRequest(topics=[MetadataRequestTopic(name="wanted")], allow_auto_topic_creation=True), 9
    )
    assert answer.topics[0].error_code == ErrorCode.NONE and answer.throttle_time_ms > 0
    assert muted(broker, ada)


# -- connections -------------------------------------------------------------------------------------------


def test_an_address_that_opens_too_many_connections_is_kept_waiting(
    broker: LocalBroker, admin: KnownClient
) -> None:
    set_quota(admin, {"ip": None}, connection_creation_rate=1.0)
    clients = [WireClient(broker.bootstrap) for _ in range(30)]
    try:
        served = []
        for client in clients:
            try:
                client.call(ApiVersionsRequest(), 0)
                served.append(client)
            except ConnectionError:
                continue
        throttled = metric(broker, "throttled_connection")
        assert len(served) >= 10 and throttled > 0, "a burst is allowed, and no more"
        assert throttled + len(served) == 30
    finally:
        for client in clients:
            client.close()
    set_quota(admin, {"ip": None}, connection_creation_rate=None)
    for _ in range(30):
        with WireClient(broker.bootstrap) as client:
            client.call(ApiVersionsRequest(), 0)


def test_another_address_has_its_own_quota(broker: LocalBroker, admin: KnownClient) -> None:
    set_quota(admin, {"ip": "127.0.0.9"}, connection_creation_rate=1.0)
    for _ in range(30):
        with WireClient(broker.bootstrap) as client:
            client.call(ApiVersionsRequest(), 0)
    assert metric(broker, "throttled_connection") == 0


# -- who is not limited ------------------------------------------------------------------------------------

BROKER = "forebay-broker-7"


def _throttled_as_broker(client: KnownClient) -> bool:
    client.socket.sendall(client.frame(produce("t", batch(BIG)), PRODUCE, BROKER))
    answer = client.read()
    assert only_partition(answer).error_code == ErrorCode.NONE
    return bool(answer.throttle_time_ms)


def test_brokers_are_not_limited(broker: LocalBroker, admin: KnownClient, ada: KnownClient) -> None:
    create(admin, "t")
    set_quota(admin, {"user": None}, producer_byte_rate=1.0)
    assert not _throttled_as_broker(ada)


def test_who_may_not_act_as_a_broker_is_limited_whatever_its_client_id_says(tmp_path: Path) -> None:
    with local_broker(tmp_path, ACCESS) as broker, KnownClient(broker) as admin:
        create(admin, "t")
        write, action = (
            AclBinding(kind, PatternType.LITERAL, name, "User:ada", "*", operation, Permission.ALLOW)
            for kind, name, operation in (
                (ResourceType.TOPIC, "t", Operation.WRITE),
                (ResourceType.CLUSTER, CLUSTER_NAME, Operation.CLUSTER_ACTION),
            )
        )
        add_acls(admin, [write])
        set_quota(admin, ADA, producer_byte_rate=1.0)
        with KnownClient(broker, "User:ada") as ada:
            assert _throttled_as_broker(ada)
        add_acls(admin, [action])
        with KnownClient(broker, "User:ada") as ada:
            assert not _throttled_as_broker(ada)


# -- a cluster ---------------------------------------------------------------------------------------------


async def test_a_quota_counts_on_every_broker_and_ends_on_every_broker(tmp_path: Path) -> None:
    async with local_cluster(tmp_path, {}, brokers=2) as cluster:
        (made,) = (await cluster.ask(1, create_topic("t", 2), CREATE_TOPICS)).topics
        assert made.error_code == ErrorCode.NONE

        async def becomes(node: int, *, throttled: bool) -> None:
            patience = Patience(f"broker {node} {'limits' if throttled else 'does not limit'} the client")
            while True:
                answer = await cluster.ask(node, produce("t", batch(BIG), partition=0), PRODUCE)
                if bool(answer.throttle_time_ms) == throttled:
                    return
                patience.check(answer)

        for value in (1900.0, None):
            (entry,) = (
                await cluster.ask(1, alteration({"client-id": None}, producer_byte_rate=value), 1)
            ).entries
            assert entry.error_code == ErrorCode.NONE
            for node in (1, 2):
                await becomes(node, throttled=value is not None)


async def test_a_quota_of_connections_keeps_no_broker_out(tmp_path: Path) -> None:
    async def opened(node: int, client_id: str) -> PeerConnection | None:
        """A client that has been served once; None if it was refused."""
        try:
            connection = await PeerConnection.open(
                SocketNetwork().connect,
                *cluster.address(node),
                client_id=client_id,
                response_bytes_max=1 << 20,
            )
            await connection.ask(MetadataRequest(topics=[]), 9, timeout_s=60)
        except KafkaError:
            return None
        return connection

    async with local_cluster(tmp_path, {}, brokers=2) as cluster, AsyncExitStack() as open_ones:
        (entry,) = (await cluster.ask(1, alteration({"ip": None}, connection_creation_rate=1.0), 1)).entries
        assert entry.error_code == ErrorCode.NONE
        patience = Patience("a client is refused")
        while (client := await opened(1, "greedy")) is not None:
            open_ones.callback(client.close)
            patience.check()
        broker = await opened(1, BROKER)
        assert broker is not None
        open_ones.callback(broker.close)
