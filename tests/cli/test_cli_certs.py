"""`forebay certs`: what it makes is good for a broker and for clients, and nothing is replaced unasked."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

from forebay.wire.messages.api_versions import ApiVersionsRequest
from support.brokers.forebay_command import forebay
from support.brokers.local_broker import local_broker
from support.clients.wire_client import WireClient


def test_what_it_makes_serves_a_broker_and_its_clients(tmp_path: Path) -> None:
    certs = tmp_path / "certs"
    made = forebay("certs", "create", str(certs))
    assert made.code == 0, made.err
    assert "User:CN=client" in made.out
    secrets = {path.name for path in certs.iterdir() if stat.S_IMODE(path.stat().st_mode) == 0o600}
    assert secrets == {"broker.pem", "client.pem", "ca.key.pem"}
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(certs / "broker.pem"),
        "ssl.truststore.location": str(certs / "ca.pem"),
        "ssl.client.auth": "required",
    }
    context = ssl.create_default_context(cafile=str(certs / "ca.pem"))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_cert_chain(certs / "client.pem")
    with (
        local_broker(tmp_path / "data", settings) as broker,
        WireClient(broker.bootstrap, tls=context) as client,
    ):
        assert client.call(ApiVersionsRequest(), 3).error_code == 0


def test_brokers_and_clients_are_added_to_an_authority(tmp_path: Path) -> None:
    certs = tmp_path / "certs"
    assert forebay("certs", "create", str(certs), "--client", "ada").code == 0
    authority, ada = (certs / "ca.pem").read_bytes(), (certs / "ada.pem").read_bytes()
    hosts = "--broker", "one=10.0.0.1,one.example.org"
    added = forebay("certs", "create", str(certs), *hosts, "--client", "bob")
    assert "broker one, at 10.0.0.1, one.example.org" in added.out
    assert (certs / "ca.pem").read_bytes() == authority
    refused = forebay("certs", "create", str(certs), "--client", "ada", "--client", "eve")
    assert (refused.code, "--renew" in refused.err) == (2, True)
    assert not (certs / "eve.pem").exists()
    assert forebay("certs", "create", str(certs), "--client", "ada", "--renew", "--days", "1").code == 0
    assert (certs / "ada.pem").read_bytes() != ada


def test_names_that_cannot_be(tmp_path: Path) -> None:
    for options in (
        ("--client", "../ada"),
        ("--client", "ca"),
        ("--broker", "one"),
        ("--broker", "one=bücher.example"),
        ("--client", "a", "--client", "a"),
    ):
        refused = forebay("certs", "create", str(tmp_path / "certs"), *options)
        assert refused.code == 2 and refused.err, options
