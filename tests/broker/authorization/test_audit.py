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
from forebay.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from forebay.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from support.access.principals import KnownClient, add_acls
from support.access.rules import allow, make
from support.brokers.local_broker import LocalBroker, local_broker
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
    written, read = lines(caplog, "refused")
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
