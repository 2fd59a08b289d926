"""The audit log: who did what, from where, with what result; and no values."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from forebay.core.acls.bindings import Operation
from forebay.errors import ErrorCode
from forebay.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from forebay.wire.messages.create_acls import AclCreation, CreateAclsRequest
from forebay.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from forebay.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from forebay.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from support.access.principals import ACCESS, KnownClient, add_acls
from support.access.rules import allow, make
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.replicated import until
from support.clients.wire_client import FETCH, PRODUCE, WireClient, batch, create_topic, fetch, produce


def lines(caplog: pytest.LogCaptureFixture, message: str) -> list[dict[str, object]]:
    return [
        vars(record) for record in caplog.records if record.name == "forebay.audit" and message in record.msg
    ]


@pytest.fixture(autouse=True)
def all_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "forebay.audit")


def test_refusals_say_who_wanted_what(
    guarded: LocalBroker, admin: KnownClient, ada: KnownClient, caplog: pytest.LogCaptureFixture
) -> None:
    make(admin, "audited")
    ada.call(produce("audited", batch(b"the message")), PRODUCE)
    ada.call(fetch("audited"), FETCH)
    written, read = lines(caplog, "a request was refused")
    assert (written["principal"], written["api"], written["needs"]) == (
        "User:ada",
        "Produce",
        "WRITE TOPIC:audited",
    )
    assert (read["api"], read["needs"], read["result"]) == ("Fetch", "READ TOPIC:audited", "DENIED")
    host, port = ada.socket.getsockname()
    assert written["client"] == read["client"] == f"{host}:{port}"
    assert "the message" not in caplog.text
    assert guarded.on_loop(lambda node: node.metrics.requests_refused) >= 2


def test_administration_is_logged_with_its_result(
    admin: KnownClient, ada: KnownClient, caplog: pytest.LogCaptureFixture
) -> None:
    make(admin, "to-go")
    add_acls(admin, [allow(Operation.DELETE, "to-go")])
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name="to-go"), DeleteTopicState(name="to-stay")], timeout_ms=10_000
    )
    answer = ada.call(request, 6)
    assert {topic.error_code for topic in answer.responses} == {
        ErrorCode.NONE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    found = [
        (line["api"], line["principal"], line["what"], line["result"]) for line in lines(caplog, "admin")
    ]
    assert found == [
        ("CreateTopics", "User:admin", "to-go", "NONE"),
        ("CreateAcls", "User:admin", "to-go User:ada", "NONE"),
        ("DeleteTopics", "User:ada", "to-go, to-stay", "NONE, TOPIC_AUTHORIZATION_FAILED"),
    ]


def test_values_and_credentials_are_not_logged(admin: KnownClient, caplog: pytest.LogCaptureFixture) -> None:
    make(admin, "valued")
    setting = AlterableConfig(name="retention.ms", config_operation=0, value="4815162342")
    resource = AlterConfigsResource(resource_type=2, resource_name="valued", configs=[setting])
    admin.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    secret = ScramCredentialUpsertion(
        name="carol", mechanism=1, iterations=4096, salt=b"salty-salt", salted_password=b"p4ssw0rd" * 4
    )
    admin.call(AlterUserScramCredentialsRequest(upsertions=[secret]), 0)
    shown = [str(line["what"]) for line in lines(caplog, "admin")]
    assert "valued (retention.ms)" in shown and "carol" in shown
    everything = " ".join(str(line) for line in lines(caplog, ""))
    assert "4815162342" not in everything and "p4ssw0rd" not in everything and "salty" not in everything


def test_administration_is_logged_without_an_authorizer(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with local_broker(tmp_path) as broker, WireClient(broker.bootstrap) as client:
        assert isinstance(broker, LocalBroker)
        client.call(create_topic("open"), 7)
        client.call(fetch("open"), FETCH)
    (line,) = lines(caplog, "")
    assert (line["api"], line["principal"], line["what"]) == ("CreateTopics", "User:ANONYMOUS", "open")


# -- noise -------------------------------------------------------------------------------------------------

NOISE = 400


def refusals(caplog: pytest.LogCaptureFixture, principal: str) -> list[dict[str, object]]:
    return [line for line in lines(caplog, "refused") if line["principal"] == principal]


def told(found: list[dict[str, object]]) -> int:
    """How many requests the lines speak of: themselves, and those that were left out before them."""
    return sum(int(str(line.get("left_out", 0))) + ("api" in line) for line in found)


def test_one_noisy_principal_does_not_hide_the_refusals_of_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        local_broker(tmp_path, ACCESS) as broker,
        KnownClient(broker, "User:noisy") as noisy,
        KnownClient(broker, "User:quiet") as quiet,
    ):
        for _ in range(NOISE):
            noisy.call(fetch("secret"), FETCH)
        quiet.call(fetch("payroll"), FETCH)
    (line,) = refusals(caplog, "User:quiet")
    assert line["needs"] == "READ TOPIC:payroll"
    written = refusals(caplog, "User:noisy")
    assert len(written) < NOISE / 2
    assert told(written) == NOISE, "what was left out is counted, the last of it when the broker stops"
    assert written[-1]["client"] == "127.0.0.1" and "Fetch" in str(written[-1]["apis"])
    assert written[-1]["needs"] == "READ TOPIC:secret"


def test_administrative_requests_that_are_refused_are_limited_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with local_broker(tmp_path, ACCESS) as broker, KnownClient(broker, "User:noisy") as noisy:
        nothing = DeleteTopicsRequest(topics=[], timeout_ms=10_000)
        one = DeleteTopicsRequest(topics=[DeleteTopicState(name="secret")], timeout_ms=10_000)
        for _ in range(NOISE // 2):
            noisy.call(nothing, 6)
            noisy.call(one, 6)
    found = lines(caplog, "")
    assert len(found) < NOISE / 2
    assert told(found) == NOISE


def test_what_was_administered_is_never_left_out(
    admin: KnownClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it was that one principal altered, and however often."""
    make(admin, "often")
    for number in range(120):
        setting = AlterableConfig(name="retention.ms", config_operation=0, value=str(1000 + number))
        resource = AlterConfigsResource(resource_type=2, resource_name="often", configs=[setting])
        admin.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert len([line for line in lines(caplog, "admin") if line["what"] == "often (retention.ms)"]) == 120


def test_requests_that_only_validate_are_limited_too(
    admin: KnownClient, caplog: pytest.LogCaptureFixture
) -> None:
    make(admin, "tried")
    caplog.clear()
    setting = AlterableConfig(name="retention.ms", config_operation=0, value="1000")
    resource = AlterConfigsResource(resource_type=2, resource_name="tried", configs=[setting])
    for _ in range(NOISE):
        admin.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=True), 1)
    found = lines(caplog, "admin")
    assert found[0]["result"] == "NONE, only validated"
    assert len(found) < NOISE / 2


def test_long_fields_are_cut_and_say_so(
    admin: KnownClient, ada: KnownClient, caplog: pytest.LogCaptureFixture
) -> None:
    with KnownClient(ada._broker, "User:" + "u" * 5_000) as long:
        long.socket.sendall(long.frame(fetch("t" * 249), FETCH, client_id="c" * 32_000))
        long.read()
        settings = [
            AlterableConfig(name=f"{number}" * 500, config_operation=0, value="1") for number in range(3)
        ]
        topics = [
            AlterConfigsResource(resource_type=2, resource_name=f"x{number}" * 100, configs=settings)
            for number in range(50)
        ]
        long.call(IncrementalAlterConfigsRequest(resources=topics), 1)
    found = lines(caplog, "a request was refused")
    assert len(found) == 2
    assert found[0]["client_id"] == "c" * 256 + "...[31744 more]"
    assert str(found[0]["principal"]).endswith("...[4749 more]")
    assert "and 30 more" in str(found[1]["needs"])
    for line in found:
        assert sum(len(str(line[name])) for name in ("client_id", "principal", "needs")) < 8_000


def test_the_rate_of_refusals_can_be_set(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rate = {"forebay.audit.refusals.burst": "3", "forebay.audit.refusals.per.second": "0.001"}
    with (
        local_broker(tmp_path, {**ACCESS, **rate}) as broker,
        KnownClient(broker, "User:noisy") as noisy,
    ):
        for _ in range(10):
            noisy.call(fetch("secret"), FETCH)
    assert [line.get("left_out") for line in refusals(caplog, "User:noisy")] == [None, None, None, 7]


# -- requests with much in them ----------------------------------------------------------------------------


def asked_for(line: dict[str, object]) -> tuple[list[str], int]:
    """The resources that a line names, and how many more it tells of."""
    named, _, more = str(line["needs"]).partition(" and ")
    return named.split(", "), int(more.removesuffix(" more") or 0)


def test_a_request_that_is_handled_in_pieces_hides_nothing_of_what_it_was_refused(
    guarded: LocalBroker, ada: KnownClient, caplog: pytest.LogCaptureFixture
) -> None:
    before = guarded.on_loop(lambda node: node.metrics.requests_refused)
    topics = [MetadataRequestTopic(name=f"secret-{number}") for number in range(3_000)]
    ada.call(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12)
    (line,) = lines(caplog, "a request was refused")
    named, more = asked_for(line)
    assert named == [f"DESCRIBE TOPIC:secret-{number}" for number in range(20)]
    assert more == 2_980
    assert guarded.on_loop(lambda node: node.metrics.requests_refused) == before + 1


def test_what_every_piece_was_refused_is_named_once(
    ada: KnownClient, caplog: pytest.LogCaptureFixture
) -> None:
    rules = [
        AclCreation(
            resource_type=2,
            resource_name=f"t{number}",
            resource_pattern_type=3,
            principal="User:ada",
            host="*",
            operation=3,
            permission_type=3,
        )
        for number in range(3_000)
    ]
    answer = ada.call(CreateAclsRequest(creations=rules), 3)
    assert {result.error_code for result in answer.results} == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
    (line,) = lines(caplog, "a request was refused")
    assert line["needs"] == "ALTER CLUSTER:kafka-cluster"


def test_a_client_that_goes_away_does_not_hide_what_its_large_request_was_refused(
    guarded: LocalBroker, admin: KnownClient, caplog: pytest.LogCaptureFixture
) -> None:
    topics = [MetadataRequestTopic(name=f"secret-{number}") for number in range(50_000)]
    before = guarded.on_loop(lambda node: node.metrics.requests_refused)
    with KnownClient(guarded, "User:hasty") as hasty:
        hasty.post(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12)
        until(lambda: guarded.on_loop(lambda node: node.metrics.requests_refused) > before, "a refusal")
    until(lambda: bool(refusals(caplog, "User:hasty")), "a line about it")
    (line,) = refusals(caplog, "User:hasty")
    named, _ = asked_for(line)
    assert named[0] == "DESCRIBE TOPIC:secret-0"


def test_a_fetch_of_many_topics_hides_none_of_those_that_it_was_refused(
    ada: KnownClient, caplog: pytest.LogCaptureFixture
) -> None:
    topics = [
        FetchTopic(topic=f"secret-{number}", partitions=[FetchPartition(partition=0)])
        for number in range(100)
    ]
    ada.call(FetchRequest(topics=topics, max_wait_ms=0), 12)
    until(lambda: len(lines(caplog, "a request was refused")) == 2, "a line about the others")
    first, others = map(asked_for, lines(caplog, "a request was refused"))
    assert first == (["READ TOPIC:secret-0"], 0)
    assert others == ([f"READ TOPIC:secret-{number}" for number in range(1, 21)], 79)
