"""Settings of TLS: for all listeners, for one of them, and those that do not go together."""

from __future__ import annotations

from pathlib import Path

import pytest

from forebay.broker.tls.contexts import client_context, server_context
from forebay.config import BrokerConfig, broker_config, describe_broker, load
from forebay.config.principal_mapping import parse_rules, user_of
from forebay.errors import ConfigError
from support.brokers.tls_files import TlsFiles

TWO = {
    "listeners": "SSL://127.0.0.1:9093,OUTSIDE://0.0.0.0:9094",
    "listener.security.protocol.map": "OUTSIDE:SSL",
    "ssl.keystore.location": "/etc/forebay/broker.pem",
}


def config(**settings: str) -> BrokerConfig:
    return broker_config({**TWO, **{name.replace("_", "."): text for name, text in settings.items()}})


def test_a_listener_has_settings_of_its_own() -> None:
    found = config(listener_name_outside_ssl_enabled_protocols="TLSv1.3", ssl_key_password="secret").tls
    assert found["SSL"].enabled_protocols == ("TLSv1.2", "TLSv1.3")
    assert found["OUTSIDE"].enabled_protocols == ("TLSv1.3",)
    assert found["OUTSIDE"].keystore_location == found["SSL"].keystore_location


def test_the_environment_names_them_too() -> None:
    environ = {"FOREBAY_LISTENER_NAME_OUTSIDE_SSL_ENABLED_PROTOCOLS": "TLSv1.2"}
    found = load(None, environ, [f"{name}={text}" for name, text in TWO.items()])
    assert found.tls["OUTSIDE"].enabled_protocols == ("TLSv1.2",)
    with pytest.raises(ConfigError, match="FOREBAY_LISTENER_NAME_OUTSIDE_NONSENSE is no setting"):
        load(None, {"FOREBAY_LISTENER_NAME_OUTSIDE_NONSENSE": "1"}, [])


def test_a_tls_listener_beyond_this_machine_needs_no_allowance() -> None:
    assert [listener.protocol for listener in config().node.listeners.all] == ["SSL", "SSL"]


def test_what_is_set_for_one_listener_is_described_and_secrets_are_not() -> None:
    found = config(
        listener_name_outside_ssl_client_auth="none", listener_name_outside_ssl_key_password="secret"
    )
    entries = {entry.name: entry.value for entry in describe_broker(found)}
    assert entries["listener.name.outside.ssl.client.auth"] == "none"
    assert entries["listener.name.outside.ssl.key.password"] is None
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ssl.keystore.location": ""}, r"has no certificate.*forebay certs create"),
        ({"ssl.keystore.key": "x"}, "not both"),
        ({"ssl.keystore.location": "", "ssl.keystore.key": "x"}, "belong together"),
        ({"ssl.client.auth": "required"}, r"needs ssl\.truststore\.location"),
        ({"ssl.truststore.location": "a", "ssl.truststore.certificates": "b"}, "not both"),
        ({"ssl.keystore.type": "JKS"}, "use one of PEM"),
        ({"ssl.enabled.protocols": "TLSv1"}, r"any of TLSv1\.2, TLSv1\.3"),
        ({"ssl.enabled.protocols": ""}, "at least one"),
        ({"listener.name.inside.ssl.client.auth": "none"}, "no such listener, only outside, ssl"),
        ({"listener.name.outside.log.dirs": "x"}, "cannot be set for one listener"),
        ({"ssl.principal.mapping.rules": "RULE:a"}, "is not a rule"),
    ],
)
def test_what_does_not_go_together(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        broker_config({**TWO, **settings})


# -- files --------------------------------------------------------------------------------------------


def _check(settings: dict[str, str]) -> None:
    found = broker_config({"listeners": "SSL://127.0.0.1:0", **settings}).tls["SSL"]
    server_context("SSL", found)
    client_context("SSL", found)


def test_certificates_may_be_in_the_settings(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    text = Path(files.broker).read_text()
    key, chain = text.split("-----END PRIVATE KEY-----\n")
    _check(
        {
            "ssl.keystore.key": f"{key}-----END PRIVATE KEY-----",
            "ssl.keystore.certificate.chain": chain,
            "ssl.truststore.certificates": Path(files.ca).read_text(),
            "ssl.client.auth": "required",
        }
    )


def test_the_key_may_be_in_a_file_of_its_own(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    text = Path(files.broker).read_text()
    key, chain = text.split("-----END PRIVATE KEY-----\n")
    (tmp_path / "tls.key").write_text(f"{key}-----END PRIVATE KEY-----\n")
    (tmp_path / "tls.crt").write_text(chain)
    own = {"ssl.keystore.location": str(tmp_path / "tls.crt")}
    _check({**own, "forebay.ssl.key.location": str(tmp_path / "tls.key")})
    with pytest.raises(ConfigError, match=r"tls\.crt: .*forebay\.ssl\.key\.location"):
        _check(own)
    with pytest.raises(ConfigError, match="the key does not belong to the first certificate"):
        _check({**own, "forebay.ssl.key.location": files.client})


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path)
    with pytest.raises(ConfigError, match=r"nowhere\.pem: No such file"):
        _check({"ssl.keystore.location": str(tmp_path / "nowhere.pem")})
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    mutual = {"ssl.keystore.location": files.broker, "ssl.client.auth": "required"}
    with pytest.raises(ConfigError, match=r"empty\.pem: there is no certificate"):
        _check({**mutual, "ssl.truststore.location": str(empty)})


# -- principals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", "CN=ada,OU=people", "CN=ada,OU=people"),
        (r"RULE:^CN=(.*?),OU=people$/$1/", "CN=Ada,OU=people", "Ada"),
        (r"RULE:^CN=(.*?),OU=people$/$1/L", "CN=Ada,OU=people", "ada"),
        (r"RULE:^CN=(.*?),OU=(\w+)$/$2-$1/U , DEFAULT", "CN=Ada,OU=people", "PEOPLE-ADA"),
        (r"RULE:^CN=(.*?),OU=people$/$1/, DEFAULT", "CN=robot", "CN=robot"),
        ("RULE:CN=(.*?)/$1/", "CN=ada,O=us", "ada,O=us"),  # the whole name has to match
        (r"RULE:CN=a\/b,.*/a\/b/", "CN=a/b,O=us", "a/b"),
        ("RULE:CN=(\\w+)/$1/\nRULE:.*/nobody/", "O=us", "nobody"),
        ("RULE:CN=(.*?),.*/\\$$1/", "CN=ada,O=us", "$ada"),
    ],
)
def test_names_become_users(rules: str, name: str, user: str) -> None:
    assert user_of(parse_rules(rules), name) == user


def test_a_name_without_a_rule_is_nobody() -> None:
    assert user_of(parse_rules("RULE:CN=ada/ada/"), "CN=bob") is None
    assert user_of(parse_rules("DEFAULT"), "CN=" + "a" * 5000) is None


@pytest.mark.parametrize(
    "rules", ["RULE:a", "RULE:a/b", "RULE:(/b/", "RULE:a/$1/", "RULE:a/b/X", "DEFAULT DEFAULT", "nonsense"]
)
def test_what_is_no_rule(rules: str) -> None:
    with pytest.raises(ValueError, match=r"rule|pattern|comma|does not have"):
        parse_rules(rules)
