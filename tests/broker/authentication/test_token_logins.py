"""Delegation tokens on a broker: asked for over sockets, and logged in with by the true SCRAM exchange."""

from __future__ import annotations

import logging
import ssl
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from forebay.core.acls.bindings import AclBinding, Operation, PatternType, Permission, ResourceType
from forebay.core.security.delegation_tokens import derived_secret
from forebay.errors import ErrorCode
from forebay.wire.messages import alter_user_scram_credentials as credentials
from forebay.wire.messages import create_delegation_token as creation
from forebay.wire.messages import describe_delegation_token as description
from forebay.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from forebay.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from forebay.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from forebay.wire.messages.sasl_handshake import SaslHandshakeRequest
from support.access.principals import add_acls
from support.brokers.local_broker import LocalBroker, local_broker
from support.brokers.sasl_broker import log_in, sasl_broker
from support.brokers.settable_clock import SettableClock
from support.brokers.tls_files import TlsFiles
from support.clients.wire_client import FETCH, PRODUCE, WireClient, batch, create_topic, fetch, produce
from support.waiting import Patience, readable

ACCESS = {"authorizer.class.name": "acl", "super.users": "User:broker"}
HOUR_MS = 3_600_000
LATEST = {38: 3, 39: 2, 40: 2, 41: 3}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBroker]:
    with sasl_broker(tmp_path_factory.mktemp("tokens"), ACCESS) as started:
        yield started


class TokenClient(WireClient):
    """A client that has logged in, by its password or with a token."""

    def __init__(self, broker: LocalBroker, user: str = "ada", **how: Any) -> None:
        super().__init__(broker.bootstrap)
        password = "broker-secret" if user == "broker" else None
        self.login = log_in(self, user=user, **{"password": password, **how})

    def __enter__(self) -> Self:
        return self

    def create(
        self, *renewers: str, owner: str | None = None, lifetime_ms: int = -1, version: int = 3
    ) -> Any:
        request = creation.CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else "User",
            owner_principal_name=owner,
            renewers=[
                creation.CreatableRenewers(principal_type="User", principal_name=name) for name in renewers
            ],
            max_lifetime_ms=lifetime_ms,
        )
        return self.call(request, version)

    def renew(self, secret: bytes, period_ms: int = -1, version: int = 2) -> Any:
        return self.call(RenewDelegationTokenRequest(hmac=secret, renew_period_ms=period_ms), version)

    def expire(self, secret: bytes, period_ms: int = -1, version: int = 2) -> Any:
        return self.call(ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period_ms), version)

    def describe(self, *owners: str, everybody: bool = False, version: int = 3) -> Any:
        asked = [
            description.DescribeDelegationTokenOwner(principal_type="User", principal_name=name)
            for name in owners
        ]
        return self.call(
            description.DescribeDelegationTokenRequest(owners=None if everybody else asked), version
        )


def with_token(broker: LocalBroker, token: Any, **how: Any) -> TokenClient:
    password = b64encode(token.hmac).decode()
    return TokenClient(broker, token.token_id, **{"password": password, "is_token": True, **how})


def principal_of(broker: LocalBroker, client: WireClient) -> str:
    port = client.socket.getsockname()[1]
    return broker.on_loop(
        lambda node: next(each.principal for each in node.server.connections if each.peer[1] == port)
    )


def allow(admin: WireClient, operation: Operation, kind: ResourceType, name: str, user: str) -> None:
    rule = AclBinding(kind, PatternType.LITERAL, name, f"User:{user}", "*", operation, Permission.ALLOW)
    add_acls(admin, [rule])


# -- creating, and logging in ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_token_tells_all_about_itself(broker: LocalBroker, version: int) -> None:
    with TokenClient(broker) as ada:
        made = ada.create("bob", lifetime_ms=HOUR_MS, version=version)
        assert made.error_code == ErrorCode.NONE
        assert (made.principal_type, made.principal_name) == ("User", "ada")
        if version >= 3:
            assert (made.token_requester_principal_type, made.token_requester_principal_name) == (
                "User",
                "ada",
            )
        assert made.max_timestamp_ms == made.expiry_timestamp_ms == made.issue_timestamp_ms + HOUR_MS
        assert len(made.token_id) == 22
        assert len(made.hmac) == 64
        assert ada.expire(bytes(made.hmac)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("is_token", [True, False])
def test_a_client_with_a_token_has_the_principal_of_its_owner(
    broker: LocalBroker, mechanism: str, is_token: bool
) -> None:
    """Also a client that does not say that it is a token, as librdkafka."""
    with TokenClient(broker) as ada:
        made = ada.create()
        with with_token(broker, made, mechanism=mechanism, is_token=is_token) as client:
            assert client.login.error_code == ErrorCode.NONE
            left_ms = made.expiry_timestamp_ms - made.issue_timestamp_ms
            assert left_ms - 120_000 < client.login.session_lifetime_ms <= left_ms
            assert principal_of(broker, client) == "User:ada"
            topics = [MetadataRequestTopic(name="x")]
            assert client.call(MetadataRequest(topics=topics), 12).topics[0].error_code == 29
        assert ada.expire(made.hmac).error_code == ErrorCode.NONE


def test_neither_another_secret_nor_another_name_logs_in(broker: LocalBroker) -> None:
    failed = ErrorCode.SASL_AUTHENTICATION_FAILED
    with TokenClient(broker) as ada:
        made = ada.create()
        shown = b64encode(made.token_id.encode()).decode()
        for how in (
            {"password": "wrong"},
            {"password": shown},
            {"password": b64encode(bytes(64)).decode()},
            {"mechanism": "PLAIN"},
        ):
            with with_token(broker, made, **how) as client:
                assert client.login.error_code == failed
        with TokenClient(broker, is_token=True) as client:
            assert client.login.error_code == failed, "a user's name is no token"
        assert ada.expire(made.hmac).error_code == ErrorCode.NONE


def test_a_client_with_a_token_may_do_nothing_with_tokens(broker: LocalBroker) -> None:
    not_allowed = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    with TokenClient(broker) as ada:
        made = ada.create()
        with with_token(broker, made) as client:
            for answer in (
                client.create(),
                client.create(owner="bob"),
                client.renew(made.hmac),
                client.expire(made.hmac),
                client.describe(everybody=True),
            ):
                assert answer.error_code == not_allowed
        assert ada.expire(made.hmac).error_code == ErrorCode.NONE


def test_who_has_not_logged_in_may_do_nothing_with_tokens(tmp_path: Path) -> None:
    with local_broker(tmp_path) as plain, WireClient(plain.bootstrap) as client:
        for request in (
            creation.CreateDelegationTokenRequest(max_lifetime_ms=-1),
            RenewDelegationTokenRequest(hmac=b"x"),
            ExpireDelegationTokenRequest(hmac=b"x"),
            description.DescribeDelegationTokenRequest(owners=None),
        ):
            answer = client.call(request, LATEST[request.API_KEY])
            assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.mark.parametrize(
    "settings", [{"forebay.delegation.tokens.enable": "false"}, {"sasl.enabled.mechanisms": "PLAIN"}]
)
def test_tokens_can_be_turned_off_and_need_scram(tmp_path: Path, settings: dict[str, str]) -> None:
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    other = {"sasl.mechanism.inter.broker.protocol": "PLAIN"} if "sasl.enabled.mechanisms" in settings else {}
    with (
        sasl_broker(tmp_path, {**settings, **other}) as broker,
        TokenClient(broker, mechanism="PLAIN") as ada,
    ):
        for answer in (ada.create(), ada.renew(b"x"), ada.expire(b"x"), ada.describe(everybody=True)):
            assert answer.error_code == disabled


# -- renewing and ending -----------------------------------------------------------------------------------


def test_a_renewer_renews_and_ends_a_token_and_others_do_not(broker: LocalBroker) -> None:
    mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    with TokenClient(broker) as ada, TokenClient(broker, "bob") as bob:
        mine, shared = ada.create(), ada.create("bob")
        assert bob.renew(mine.hmac).error_code == bob.expire(mine.hmac).error_code == mismatch
        for version in (1, 2):
            renewed = bob.renew(shared.hmac, HOUR_MS, version)
            assert renewed.error_code == ErrorCode.NONE
            assert renewed.expiry_timestamp_ms < shared.expiry_timestamp_ms
        assert bob.expire(shared.hmac).error_code == ErrorCode.NONE
        assert bob.renew(shared.hmac).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert ada.expire(mine.token_id.encode()).error_code == ErrorCode.NONE, "its id ends it, too"
        assert ada.expire(mine.hmac).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def test_an_administrator_ends_the_token_of_another(broker: LocalBroker) -> None:
    with TokenClient(broker) as ada, TokenClient(broker, "broker") as admin:
        made = ada.create()
        assert admin.renew(made.hmac).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        (seen,) = admin.describe("ada").tokens
        assert admin.expire(seen.hmac).error_code == ErrorCode.NONE
        assert ada.describe("ada").tokens == []


def test_the_connections_of_a_token_end_with_it(broker: LocalBroker) -> None:
    with TokenClient(broker) as ada:
        made, other = ada.create(), ada.create()
        with (
            with_token(broker, made) as one,
            with_token(broker, made) as two,
            with_token(broker, other) as kept,
        ):
            assert ada.expire(made.hmac).error_code == ErrorCode.NONE
            assert one.is_closed()
            assert two.is_closed()
            assert kept.call(MetadataRequest(topics=[]), 12).error_code == ErrorCode.NONE
        with with_token(broker, made) as late:
            assert late.login.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert ada.expire(other.hmac).error_code == ErrorCode.NONE


def test_a_session_ends_when_its_token_is_made_to_end_sooner(broker: LocalBroker) -> None:
    with TokenClient(broker) as ada:
        made = ada.create()
        with with_token(broker, made) as client:
            assert ada.expire(made.hmac, 10).error_code == ErrorCode.NONE
            patience = Patience("the session has ended")
            while not _is_refused(client):
                patience.check()
        assert ada.renew(made.hmac).error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED
        assert ada.expire(made.hmac).error_code == ErrorCode.NONE


def test_a_shorter_token_makes_no_session_longer(tmp_path: Path) -> None:
    with sasl_broker(tmp_path, {"connections.max.reauth.ms": "1500"}) as broker, TokenClient(broker) as ada:
        made = ada.create()
        with with_token(broker, made) as client:
            assert client.login.session_lifetime_ms == 1500
            assert ada.expire(made.hmac, HOUR_MS).error_code == ErrorCode.NONE
            patience = Patience("the session has ended", 20)
            while not _is_refused(client):
                patience.check()


def test_a_fetch_that_waits_gets_nothing_after_the_end_of_its_token(broker: LocalBroker) -> None:
    with TokenClient(broker) as ada, TokenClient(broker, "broker") as admin:
        admin.call(create_topic("awaited"), 7)
        allow(admin, Operation.READ, ResourceType.TOPIC, "awaited", "ada")
        made = ada.create()
        with with_token(broker, made) as client:
            client.post(fetch("awaited", max_wait_ms=600_000), FETCH)
            assert ada.expire(made.hmac, 300).error_code == ErrorCode.NONE
            patience = Patience("the fetch is answered", 20)
            while not readable([client.socket], 0.1):
                patience.check()
            admin.call(produce("awaited", batch(b"too late")), PRODUCE)
            assert b"too late" not in bytes(client.read().responses[0].partitions[0].records or b"")
        assert ada.expire(made.hmac).error_code == ErrorCode.NONE


def _is_refused(client: WireClient) -> bool:
    try:
        client.call(MetadataRequest(topics=[]), 12)
    except ConnectionError:
        return True
    return False


def test_an_expired_token_neither_logs_in_nor_is_renewed(tmp_path: Path) -> None:
    clock = SettableClock()
    with sasl_broker(tmp_path, clock=clock) as broker, TokenClient(broker) as ada:
        made = ada.create(lifetime_ms=HOUR_MS)
        with with_token(broker, made) as client:
            assert client.login.error_code == ErrorCode.NONE
        clock.step_ms = HOUR_MS
        with with_token(broker, made) as client:
            assert client.login.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        expired = ErrorCode.DELEGATION_TOKEN_EXPIRED
        assert ada.renew(made.hmac).error_code == ada.expire(made.hmac, 5).error_code == expired


def test_expired_tokens_are_removed_from_the_store_and_connections_closed(tmp_path: Path) -> None:
    settings = {"delegation.token.expiry.time.ms": "2000", "delegation.token.expiry.check.interval.ms": "20"}
    with sasl_broker(tmp_path, settings) as broker, TokenClient(broker) as ada:
        made = ada.create()
        with with_token(broker, made) as client:
            patience = Patience("the token is removed")
            while broker.on_loop(lambda node: node.image.tokens):
                patience.check()
            assert client.is_closed()


def test_a_connection_is_logged_in_again_with_a_token_of_the_same_owner(tmp_path: Path) -> None:
    clock = SettableClock()
    with (
        sasl_broker(tmp_path, clock=clock) as broker,
        TokenClient(broker) as ada,
        TokenClient(broker, "bob") as bob,
    ):
        first, second, other = ada.create(), ada.create(), bob.create()
        with with_token(broker, first) as client:
            clock.step_ms = 2000
            again = log_in(client, "SCRAM-SHA-256", second.token_id, b64encode(second.hmac).decode())
            assert again.error_code == ErrorCode.NONE
            assert ada.expire(first.hmac).error_code == ErrorCode.NONE
            assert client.call(MetadataRequest(topics=[]), 12).error_code == ErrorCode.NONE
            clock.step_ms = 4000
            refused = log_in(client, "SCRAM-SHA-256", other.token_id, b64encode(other.hmac).decode())
            assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        with TokenClient(broker) as by_password:
            handshake = by_password.call(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
            assert handshake.error_code == ErrorCode.ILLEGAL_SASL_STATE, "its session has no end"


# -- of other users ----------------------------------------------------------------------------------------


def test_tokens_of_another_user_are_created_with_the_right_to_do_so(broker: LocalBroker) -> None:
    with TokenClient(broker, "bob") as bob, TokenClient(broker, "broker") as admin:
        denied = bob.create(owner="carol")
        assert denied.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert (denied.principal_name, denied.token_requester_principal_name) == ("carol", "bob")
        allow(admin, Operation.CREATE_TOKENS, ResourceType.USER, "User:carol", "bob")
        made = bob.create(owner="carol")
        assert made.error_code == ErrorCode.NONE
        assert bob.create(owner="dave").error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        with with_token(broker, made) as client:
            assert principal_of(broker, client) == "User:carol"
        (seen,) = bob.describe("carol").tokens
        assert (seen.principal_name, seen.token_requester_principal_name) == ("carol", "bob")
        assert bob.expire(made.hmac).error_code == ErrorCode.NONE


def test_only_users_are_owners_and_renewers(broker: LocalBroker) -> None:
    with TokenClient(broker, "broker") as admin:
        wrong = creation.CreatableRenewers(principal_type="Group", principal_name="x")
        for request in (
            creation.CreateDelegationTokenRequest(renewers=[wrong]),
            creation.CreateDelegationTokenRequest(owner_principal_type="Group", owner_principal_name="x"),
        ):
            assert admin.call(request, 3).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_a_client_sees_its_own_tokens_and_those_that_it_may_describe(broker: LocalBroker) -> None:
    with (
        TokenClient(broker) as ada,
        TokenClient(broker, "bob") as bob,
        TokenClient(broker, "broker") as admin,
    ):
        mine, shared = ada.create(), ada.create("bob")

        def seen(client: TokenClient, *owners: str, everybody: bool = False) -> set[str]:
            answer = client.describe(*owners, everybody=everybody)
            assert answer.error_code == ErrorCode.NONE
            return {each.token_id for each in answer.tokens}

        both = {mine.token_id, shared.token_id}
        assert seen(ada, everybody=True) == seen(ada, "ada") == seen(admin, "ada") == both
        assert seen(ada) == set(), "no owner was asked for"
        assert seen(bob, everybody=True) == seen(bob, "ada") == {shared.token_id}
        assert seen(bob, "carol") == set()
        allow(admin, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, mine.token_id, "bob")
        assert seen(bob, "ada") == both
        third = ada.create()
        assert third.token_id not in seen(bob, "ada")
        allow(admin, Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:ada", "bob")
        assert third.token_id in seen(bob, everybody=True)
        for each in (mine, shared, third):
            assert ada.expire(each.hmac).error_code == ErrorCode.NONE


def test_nobody_is_shown_a_secret_that_is_not_derived_from_a_key(broker: LocalBroker) -> None:
    with TokenClient(broker) as ada:
        made = ada.create()
        for version in (1, 2, 3):
            (seen,) = ada.describe("ada", version=version).tokens
            assert bytes(seen.hmac) == made.token_id.encode()
        assert ada.expire(seen.hmac).error_code == ErrorCode.NONE


def test_with_a_key_the_secret_is_that_of_kafka_and_shown_to_the_owner_only(tmp_path: Path) -> None:
    settings = {"delegation.token.master.key": "a key", **ACCESS}
    with (
        sasl_broker(tmp_path, settings) as broker,
        TokenClient(broker) as ada,
        TokenClient(broker, "bob") as bob,
        TokenClient(broker, "broker") as admin,
    ):
        made = ada.create("bob")
        assert bytes(made.hmac) == derived_secret("a key", made.token_id)
        shown = [bytes(each.describe("ada").tokens[0].hmac) for each in (ada, bob, admin)]
        assert shown == [bytes(made.hmac), made.token_id.encode(), made.token_id.encode()]
        with with_token(broker, made) as client:
            assert client.login.error_code == ErrorCode.NONE


# -- limits, and the end of users --------------------------------------------------------------------------


def test_a_user_has_only_so_many_tokens(tmp_path: Path) -> None:
    settings = {"forebay.delegation.tokens.per.owner.max": "2", "forebay.delegation.tokens.max": "3"}
    with (
        sasl_broker(tmp_path, settings) as broker,
        TokenClient(broker) as ada,
        TokenClient(broker, "bob") as bob,
    ):
        first, _ = ada.create(), ada.create()
        assert ada.create().error_code == ErrorCode.POLICY_VIOLATION
        assert bob.create().error_code == ErrorCode.NONE
        assert bob.create().error_code == ErrorCode.POLICY_VIOLATION
        assert ada.expire(first.hmac).error_code == ErrorCode.NONE
        assert bob.create().error_code == ErrorCode.NONE


def test_whoever_was_deleted_has_no_tokens_and_makes_none(tmp_path: Path) -> None:
    with (
        sasl_broker(tmp_path, ACCESS) as broker,
        TokenClient(broker) as ada,
        TokenClient(broker, "broker") as admin,
    ):
        made = ada.create()
        with with_token(broker, made) as client:
            gone = [credentials.ScramCredentialDeletion(name="ada", mechanism=code) for code in (1, 2)]
            answer = admin.call(credentials.AlterUserScramCredentialsRequest(deletions=gone), 0)
            assert [each.error_code for each in answer.results] == [0]
            assert client.is_closed()
        assert broker.on_loop(lambda node: dict(node.image.tokens)) == {}
        assert ada.create().error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_whoever_was_deleted_renews_no_token_of_another(tmp_path: Path) -> None:
    with (
        sasl_broker(tmp_path, ACCESS) as broker,
        TokenClient(broker) as ada,
        TokenClient(broker, "bob") as bob,
        TokenClient(broker, "broker") as admin,
    ):
        made = ada.create("bob")
        assert bob.renew(made.hmac).error_code == ErrorCode.NONE
        gone = [credentials.ScramCredentialDeletion(name="bob", mechanism=code) for code in (1, 2)]
        admin.call(credentials.AlterUserScramCredentialsRequest(deletions=gone), 0)
        assert bob.renew(made.hmac).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert ada.renew(made.hmac).error_code == ErrorCode.NONE


def test_tokens_survive_a_restart_and_no_secret_is_on_the_disk(tmp_path: Path) -> None:
    with sasl_broker(tmp_path) as broker, TokenClient(broker) as ada:
        made = ada.create()
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert made.token_id.encode() in stored
    assert bytes(made.hmac) not in stored
    assert b64encode(made.hmac) not in stored
    with sasl_broker(tmp_path) as broker, with_token(broker, made) as client:
        assert client.login.error_code == ErrorCode.NONE


def test_a_client_with_a_certificate_creates_a_token_and_one_without_does_not(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    settings = {
        **files.broker_settings(client_auth="requested"),
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
    }
    request = creation.CreateDelegationTokenRequest(max_lifetime_ms=-1)
    with sasl_broker(tmp_path / "data", settings) as broker:
        host, port = broker.on_loop(lambda node: node.server.addresses["SSL"])
        tls = ssl.create_default_context(cafile=files.ca)
        with WireClient(f"{host}:{port}", tls=tls) as stranger:
            assert stranger.call(request, 3).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        tls.load_cert_chain(files.client)
        with WireClient(f"{host}:{port}", tls=tls) as known:
            made = known.call(request, 3)
        assert made.principal_name == "CN=ada,OU=people"
        with with_token(broker, made) as client:
            assert principal_of(broker, client) == "User:CN=ada,OU=people"


# -- the audit log -----------------------------------------------------------------------------------------


def test_the_audit_log_says_whose_tokens_were_created_renewed_and_ended_and_no_secret(
    broker: LocalBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "forebay.audit")
    with TokenClient(broker, "broker") as admin, TokenClient(broker, "bob") as bob:
        made = admin.create(owner="ada")
        admin.renew(made.hmac)
        assert bob.expire(made.hmac).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        admin.expire(made.hmac)
    found = [
        (line["api"], line["principal"], line["what"], line["result"])
        for line in (vars(record) for record in caplog.records if record.name == "forebay.audit")
    ]
    what = f"token of User:ada, {made.token_id}"
    assert found == [
        ("CreateDelegationToken", "User:broker", what, "NONE"),
        ("RenewDelegationToken", "User:broker", what, "NONE"),
        ("ExpireDelegationToken", "User:bob", what, "DELEGATION_TOKEN_OWNER_MISMATCH"),
        ("ExpireDelegationToken", "User:broker", what, "NONE"),
    ]
