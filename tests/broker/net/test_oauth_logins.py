"""OAUTHBEARER: tokens of a server of keys, right ones and forged ones, with real clients."""

from __future__ import annotations

import hashlib
import hmac
import http.server
import json
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import confluent_kafka
import jwt
import pytest
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from forebay.config import broker_config
from forebay.errors import ConfigError, ErrorCode
from forebay.wire.messages.metadata import MetadataRequest
from forebay.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from forebay.wire.messages.sasl_handshake import SaslHandshakeRequest
from support.brokers.local_broker import LocalBroker
from support.brokers.sasl_broker import sasl_broker
from support.clients.kafka_clients import DEADLINE_SECONDS
from support.clients.wire_client import WireClient

ISSUER = "https://issuer.example"


class KeyServer:
    """An issuer of tokens: its keys over HTTP, and tokens signed with them."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {"one": rsa.generate_private_key(public_exponent=65537, key_size=2048)}
        self.fetches = 0
        self.fails = False
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.fetches += 1
                body = b"garbage" if outer.fails else json.dumps(outer.jwks()).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/keys"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def jwks(self) -> dict[str, Any]:
        found: list[dict[str, Any]] = [{"kty": "oct", "kid": "shared", "k": "c2VjcmV0"}]
        for kid, key in self.keys.items():
            kind: Any = (
                jwt.algorithms.RSAAlgorithm
                if isinstance(key, rsa.RSAPrivateKey)
                else jwt.algorithms.ECAlgorithm
            )
            found.append({**kind.to_jwk(key.public_key(), as_dict=True), "kid": kid, "use": "sig"})
        return {"keys": found}

    def token(self, *, kid: str = "one", key: Any = None, algorithm: str = "RS256", **claims: Any) -> str:
        now = int(time.time())
        whole = {"sub": "ada", "iss": ISSUER, "aud": "forebay", "iat": now, "exp": now + 300, **claims}
        return jwt.encode(whole, key or self.keys[kid], algorithm=algorithm, headers={"kid": kid})

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture(scope="module")
def issuer() -> Iterator[KeyServer]:
    server = KeyServer()
    yield server
    server.close()


def settings(issuer: KeyServer) -> dict[str, str]:
    return {
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.url,
        "sasl.oauthbearer.expected.audience": "forebay",
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "forebay.oauthbearer.jwks.refetch.ms": "10",
        "connection.failed.authentication.delay.ms": "1",
    }


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, issuer: KeyServer) -> Iterator[LocalBroker]:
    with sasl_broker(tmp_path_factory.mktemp("oauth") / "data", settings(issuer)) as broker:
        yield broker


def shown(client: WireClient, token: str, authzid: str = "") -> Any:
    """The answer to a token."""
    assert client.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1).error_code == ErrorCode.NONE
    message = f"n,{f'a={authzid}' if authzid else ''},\x01auth=Bearer {token}\x01\x01"
    return client.call(SaslAuthenticateRequest(auth_bytes=message.encode()), 2)


def is_accepted(broker: LocalBroker, token: str) -> bool:
    with WireClient(broker.bootstrap) as client:
        answer = shown(client, token)
        if answer.error_code == ErrorCode.NONE and not answer.auth_bytes:
            assert client.call(MetadataRequest(topics=None), 12).brokers
            return True
        if answer.error_code == ErrorCode.NONE:  # a refusal, which the client acknowledges
            assert json.loads(bytes(answer.auth_bytes)) == {"status": "invalid_token"}
            answer = client.call(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()
        return False


def forged(header: dict[str, str], claims: dict[str, Any], secret: bytes = b"") -> str:
    def text(value: dict[str, Any]) -> bytes:
        return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    signed = text(header) + b"." + text(claims)
    signature = urlsafe_b64encode(hmac.digest(secret, signed, hashlib.sha256)).rstrip(b"=") if secret else b""
    return (signed + b"." + signature).decode()


def test_a_token_logs_in_until_it_expires(broker: LocalBroker, issuer: KeyServer) -> None:
    with WireClient(broker.bootstrap) as client:
        answer = shown(client, issuer.token())
        assert 200_000 < answer.session_lifetime_ms <= 300_000
        principals = broker.on_loop(lambda node: [each.principal for each in node.server.connections])
        assert "User:ada" in principals


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 1_000_000_000},
        {"aud": "other"},
        {"iss": "https://other.example"},
        {"nbf": 4_000_000_000},
        {"sub": ""},
    ],
    ids=lambda claims: next(iter(claims)),
)
def test_a_token_that_says_something_else_is_refused(
    broker: LocalBroker, issuer: KeyServer, claims: dict[str, Any]
) -> None:
    assert not is_accepted(broker, issuer.token(**claims))


def test_a_refused_token_counts_once_whether_or_not_the_client_stays(
    broker: LocalBroker, issuer: KeyServer
) -> None:
    def failed() -> int:
        return broker.on_loop(lambda node: node.metrics.logins_failed)

    before = failed()
    with WireClient(broker.bootstrap) as client:
        assert shown(client, issuer.token(aud="other")).auth_bytes
        assert failed() == before + 1
    assert not is_accepted(broker, issuer.token(aud="other"))
    assert failed() == before + 2


def test_forged_tokens_are_refused(broker: LocalBroker, issuer: KeyServer) -> None:
    good = issuer.token()
    claims = jwt.decode(good, options={"verify_signature": False})
    public = issuer.keys["one"].public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    head, body, signature = good.split(".")
    other = urlsafe_b64encode(json.dumps({**claims, "sub": "root"}).encode()).decode().rstrip("=")
    for token in (
        forged({"alg": "none", "kid": "one"}, claims),
        forged({"alg": "HS256", "kid": "one"}, claims, pem),
        forged({"alg": "HS256", "kid": "shared"}, claims, b"secret"),
        forged({"alg": "RS256", "kid": "shared"}, claims, b"secret"),
        forged({"alg": "ES256", "kid": "one"}, claims, pem),
        issuer.token(key=stranger),
        issuer.token(kid="unknown", key=stranger),
        f"{head}.{other}.{signature}",
        f"{head}.{body}.",
        "a.b.c",
    ):
        assert not is_accepted(broker, token)
    assert is_accepted(broker, good)


def test_a_token_acts_for_nobody_else(broker: LocalBroker, issuer: KeyServer) -> None:
    with WireClient(broker.bootstrap) as client:
        assert shown(client, issuer.token(), authzid="bob").auth_bytes
    with WireClient(broker.bootstrap) as client:
        assert not shown(client, issuer.token(), authzid="ada").auth_bytes


def test_new_keys_are_fetched_when_they_are_named(broker: LocalBroker, issuer: KeyServer) -> None:
    issuer.keys["two"] = ec.generate_private_key(ec.SECP256R1())
    time.sleep(0.02)  # more than refetch.ms
    assert is_accepted(broker, issuer.token(kid="two", algorithm="ES256"))
    assert is_accepted(broker, issuer.token())


def test_unknown_keys_cost_few_fetches(tmp_path: Path, issuer: KeyServer) -> None:
    slow = {**settings(issuer), "forebay.oauthbearer.jwks.refetch.ms": "600000"}
    with sasl_broker(tmp_path / "data", slow) as broker:
        before = issuer.fetches
        assert is_accepted(broker, issuer.token())
        for number in range(20):
            assert not is_accepted(broker, issuer.token(kid=f"{number}", key=issuer.keys["one"]))
        assert issuer.fetches == before + 1


def test_known_keys_stay_while_no_others_can_be_had(tmp_path: Path, issuer: KeyServer) -> None:
    with sasl_broker(tmp_path / "data", settings(issuer)) as broker:
        assert is_accepted(broker, issuer.token())
        issuer.fails = True
        try:
            time.sleep(0.02)
            assert not is_accepted(broker, issuer.token(kid="x", key=issuer.keys["one"]))
            assert is_accepted(broker, issuer.token())
        finally:
            issuer.fails = False


def test_librdkafka_logs_in_with_a_token(broker: LocalBroker, issuer: KeyServer) -> None:
    def token(_config: str) -> tuple[str, float]:
        return issuer.token(), time.time() + 300

    config: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": token,
        "log_level": 0,
    }
    admin = AdminClient(config)
    admin.poll(0)
    assert admin.list_topics(timeout=DEADLINE_SECONDS).brokers
    refused: list[confluent_kafka.KafkaError] = []
    config |= {"oauth_cb": lambda _: ("a.b.c", time.time() + 300), "error_cb": refused.append}
    wrong = AdminClient(config)
    wrong.poll(0)
    with pytest.raises(confluent_kafka.KafkaException):
        wrong.list_topics(timeout=5)
    wrong.poll(1)
    assert confluent_kafka.KafkaError._AUTHENTICATION in {error.code() for error in refused}


async def test_aiokafka_logs_in_with_a_token(broker: LocalBroker, issuer: KeyServer) -> None:
    class Tokens(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return issuer.token()

    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Tokens(),
    )
    await producer.start()
    await producer.stop()


def test_keys_do_not_come_from_another_machine_without_tls(issuer: KeyServer) -> None:
    given = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "forebay.sasl.username": "broker",
        "forebay.sasl.password": "x",
        **settings(issuer),
    }
    key = "sasl.oauthbearer.jwks.endpoint.url"
    for url in ("https://login.example.org/keys", "http://[::1]:80/keys", "http://localhost/keys"):
        assert broker_config({**given, key: url})
    for url in ("http://login.example.org/keys", "http://10.0.0.1/keys", "http://localhost.example.org/"):
        with pytest.raises(ConfigError, match="use https:"):
            broker_config({**given, key: url})
        assert broker_config({**given, key: url, "forebay.allow.insecure": "true"})


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("sasl.oauthbearer.jwks.endpoint.url", "jwks"),
        ("sasl.oauthbearer.expected.audience", "unverified.audience"),
        ("sasl.oauthbearer.expected.issuer", "unverified.issuer"),
    ],
)
def test_a_broker_that_would_accept_any_token_does_not_start(
    issuer: KeyServer, missing: str, message: str
) -> None:
    listener = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "forebay.sasl.username": "broker",
        "forebay.sasl.password": "x",
    }
    given = {**listener, **settings(issuer)}
    assert broker_config(given)
    del given[missing]
    with pytest.raises(ConfigError, match=message):
        broker_config(given)
