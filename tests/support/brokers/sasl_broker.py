"""A broker with a SASL listener and users, and logins at it as a test wants them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from forebay.config import broker_config
from forebay.local.stored_users import StoredUsers
from forebay.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from forebay.wire.messages.sasl_handshake import SaslHandshakeRequest
from forebay.wire.sasl.client import Login, new_login
from forebay.wire.sasl.scram import BY_NAME
from support.brokers.local_broker import LocalBroker, local_broker
from support.clients.wire_client import WireClient

PASSWORDS = {"ada": "ada's pässword", "bob": "b,=;#c"}
BROKER_PASSWORD = "broker-secret"
ALL_MECHANISMS = "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN"


def add_users(settings: Mapping[str, str], passwords: Mapping[str, str] = PASSWORDS) -> None:
    """Straight in the store, as for the first users of a cluster."""
    store = StoredUsers(broker_config(settings))
    for name, password in {**passwords, "broker": BROKER_PASSWORD}.items():
        store.put(name, list(BY_NAME), password, 4096)


@contextlib.contextmanager
def sasl_broker(
    data: Path, settings: Mapping[str, str] | None = None, **options: Any
) -> Iterator[LocalBroker]:
    """`options`: those of `local_broker`."""
    add_users({"log.dirs": str(data)})
    common = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": ALL_MECHANISMS,
        "forebay.sasl.username": "broker",
        "forebay.sasl.password": BROKER_PASSWORD,
    }
    with local_broker(data, {**common, **(settings or {})}, **options) as broker:
        yield broker


def log_in(
    client: WireClient,
    mechanism: str = "SCRAM-SHA-256",
    user: str = "ada",
    password: str | None = None,
    *,
    is_token: bool = False,
) -> Any:
    """The answer to the last step."""
    secret = PASSWORDS.get(user, "") if password is None else password
    login = new_login(mechanism, user, secret, os.urandom, is_token=is_token)
    handshake = client.call(SaslHandshakeRequest(mechanism=mechanism), 1)
    assert handshake.error_code == 0, handshake
    return authenticate(client, login)


def authenticate(client: WireClient, login: Login) -> Any:
    message: bytes | None = login.first()
    while True:
        answer = client.call(SaslAuthenticateRequest(auth_bytes=message or b""), 2)
        if answer.error_code:
            return answer
        message = login.step(bytes(answer.auth_bytes))
        if message is None:
            return answer
