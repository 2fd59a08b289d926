"""DescribeClientQuotas and AlterClientQuotas, and quotas that outlive the broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.errors import ErrorCode
from forebay.wire.messages import alter_client_quotas as altering
from support.access.principals import KnownClient
from support.brokers.local_broker import local_broker
from support.clients.quota_calls import (
    VERSION,
    Entity,
    alteration,
    describe,
    described,
    set_quota,
)

EXACT, DEFAULT, ANY = 0, 1, 2
ADA: Entity = {"user": "ada"}


def test_quotas_are_set_described_altered_and_removed(admin: KnownClient) -> None:
    set_quota(admin, ADA, producer_byte_rate=1000.0, request_percentage=50.5)
    set_quota(admin, {"client-id": None}, consumer_byte_rate=2000.0)
    set_quota(admin, {"client-id": "c", "user": None}, controller_mutation_rate=0.5)
    set_quota(admin, {"ip": "::1"}, connection_creation_rate=3.0)
    everything = described(describe(admin))
    assert everything == [
        ({"client-id": None}, {"consumer_byte_rate": 2000.0}),
        ({"ip": "::1"}, {"connection_creation_rate": 3.0}),
        ({"user": None, "client-id": "c"}, {"controller_mutation_rate": 0.5}),
        (ADA, {"producer_byte_rate": 1000.0, "request_percentage": 50.5}),
    ]
    assert described(describe(admin, ("user", EXACT, "ada"))) == [everything[3]]
    assert described(describe(admin, ("user", ANY, None))) == [everything[2], everything[3]]
    assert described(describe(admin, ("user", ANY, None), strict=True)) == [everything[3]]
    assert described(describe(admin, ("user", DEFAULT, None), ("client-id", EXACT, "c"))) == [everything[2]]
    assert described(describe(admin, ("client-id", DEFAULT, None), strict=True)) == [everything[0]]
    assert described(describe(admin, ("ip", ANY, None))) == [everything[1]]
    set_quota(admin, ADA, producer_byte_rate=None, request_percentage=10.0)
    assert described(describe(admin, ("user", EXACT, "ada"))) == [(ADA, {"request_percentage": 10.0})]
    set_quota(admin, ADA, request_percentage=None)
    assert described(describe(admin, ("user", EXACT, "ada"))) == []


def test_the_client_id_comes_before_the_user(admin: KnownClient) -> None:
    set_quota(admin, {"user": "ada", "client-id": "c"}, producer_byte_rate=1.0)
    (entry,) = describe(admin).entries
    assert [part.entity_type for part in entry.entity] == ["client-id", "user"]


def test_what_is_only_validated_changes_nothing(admin: KnownClient) -> None:
    for value, code in ((1.0, ErrorCode.NONE), (-1.0, ErrorCode.INVALID_REQUEST)):
        request = alteration(ADA, producer_byte_rate=value)
        request.validate_only = True
        (entry,) = admin.call(request, VERSION).entries
        assert entry.error_code == code
    assert described(describe(admin)) == []


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        ({}, {"producer_byte_rate": 1.0}),
        ({"group": "g"}, {"producer_byte_rate": 1.0}),
        ({"user": ""}, {"producer_byte_rate": 1.0}),
        ({"user": "ada", "ip": "10.0.0.1"}, {"connection_creation_rate": 1.0}),
        ({"ip": "no.such.host"}, {"connection_creation_rate": 1.0}),
        ({"ip": "10.0.0.1"}, {"producer_byte_rate": 1.0}),
        ({"user": "ada"}, {"connection_creation_rate": 1.0}),
        ({"user": "ada"}, {"retention_ms": 1.0}),
        ({"user": "ada"}, {"producer_byte_rate": 0.0}),
        ({"user": "ada"}, {"producer_byte_rate": 1.5}),
        ({"user": "ada"}, {"producer_byte_rate": float("nan")}),
    ],
    ids=str,
)
def test_an_entry_that_cannot_be_says_why_and_the_others_are_done(
    admin: KnownClient, entity: Entity, values: dict[str, float]
) -> None:
    bad, good = alteration(entity, **values), alteration({"user": "ok"}, producer_byte_rate=1.0)
    request = altering.AlterClientQuotasRequest(entries=[*bad.entries, *good.entries])
    refused, done = admin.call(request, VERSION).entries
    assert (refused.error_code, done.error_code) == (ErrorCode.INVALID_REQUEST, ErrorCode.NONE)
    assert refused.error_message
    assert {part.entity_type: part.entity_name for part in refused.entity} == entity
    assert described(describe(admin)) == [({"user": "ok"}, {"producer_byte_rate": 1.0})]


def test_an_entity_that_is_named_twice_is_altered_by_neither(admin: KnownClient) -> None:
    one, other = alteration(ADA, producer_byte_rate=1.0), alteration(ADA, producer_byte_rate=2.0)
    request = altering.AlterClientQuotasRequest(entries=[*one.entries, *other.entries])
    codes = [entry.error_code for entry in admin.call(request, VERSION).entries]
    assert codes == [ErrorCode.INVALID_REQUEST] * 2
    assert described(describe(admin)) == []


@pytest.mark.parametrize(
    ("component", "code"),
    [
        (("user", EXACT, None), ErrorCode.INVALID_REQUEST),
        (("user", 7, None), ErrorCode.INVALID_REQUEST),
        (("group", ANY, None), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_filter_that_means_nothing_is_refused(
    admin: KnownClient, component: tuple[str, int, str | None], code: ErrorCode
) -> None:
    answer = describe(admin, component)
    assert (answer.error_code, answer.entries) == (code, None) and answer.error_message


def test_both_versions_are_served(admin: KnownClient) -> None:
    for version in (0, 1):
        (entry,) = admin.call(alteration(ADA, producer_byte_rate=1.0 + version), version).entries
        assert entry.error_code == ErrorCode.NONE
    assert described(describe(admin)) == [(ADA, {"producer_byte_rate": 2.0})]


def test_quotas_are_there_after_a_restart(tmp_path: Path) -> None:
    with local_broker(tmp_path) as broker, KnownClient(broker) as admin:
        set_quota(admin, ADA, producer_byte_rate=1000.0)
    with local_broker(tmp_path) as broker, KnownClient(broker) as admin:
        assert described(describe(admin)) == [(ADA, {"producer_byte_rate": 1000.0})]
        assert broker.on_loop(lambda node: node._base.quotas.active), "and they count"
