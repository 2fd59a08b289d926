"""Several listeners: their names, what is spoken on them, what is told of them, and which are refused."""

from __future__ import annotations

import pytest

from forebay.config import broker_config
from forebay.config.listeners import ListenersConfig, SecurityProtocol
from forebay.errors import ConfigError


def listeners(**settings: str) -> ListenersConfig:
    return broker_config({name.replace("_", "."): text for name, text in settings.items()}).node.listeners


TWO = "INTERNAL://127.0.0.1:9092,external://127.0.0.2:9093"
MAP = "internal:PLAINTEXT, EXTERNAL:plaintext"


def two(**settings: str) -> ListenersConfig:
    return listeners(**{"listeners": TWO, "listener_security_protocol_map": MAP, **settings})


def test_several_listeners_have_names_and_protocols() -> None:
    found = two()
    assert [(each.name, each.port, each.protocol) for each in found.all] == [
        ("INTERNAL", 9092, SecurityProtocol.PLAINTEXT),
        ("EXTERNAL", 9093, SecurityProtocol.PLAINTEXT),
    ]
    assert found.inter_broker == found.all[0]


def test_a_name_without_a_protocol_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"EXTERNAL.*listener\.security\.protocol\.map"):
        two(listener_security_protocol_map="INTERNAL:PLAINTEXT")


@pytest.mark.parametrize("text", ["INTERNAL", "INTERNAL:TLS", ":PLAINTEXT", "a b:PLAINTEXT"])
def test_what_is_no_map_of_protocols(text: str) -> None:
    with pytest.raises(ConfigError, match=r"listener\.security\.protocol\.map"):
        two(listener_security_protocol_map=text)


@pytest.mark.parametrize(
    "text",
    ["PLAINTEXT://127.0.0.1:1,PLAINTEXT://127.0.0.1:2", "PLAINTEXT://127.0.0.1:1,INTERNAL://127.0.0.1:1"],
)
def test_names_and_addresses_are_unique(text: str) -> None:
    with pytest.raises(ConfigError, match="the same"):
        two(listeners=text)


def test_any_free_port_may_be_wanted_twice() -> None:
    assert len(two(listeners="INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0").all) == 2


def test_the_listener_of_brokers_is_chosen_by_name_or_by_protocol() -> None:
    assert two(inter_broker_listener_name="external").inter_broker.name == "EXTERNAL"
    assert two(security_inter_broker_protocol="PLAINTEXT").inter_broker.name == "INTERNAL"
    with pytest.raises(ConfigError, match="no OTHER among the listeners: INTERNAL, EXTERNAL"):
        two(inter_broker_listener_name="OTHER")
    with pytest.raises(ConfigError, match="no listener speaks SSL"):
        two(security_inter_broker_protocol="SSL")
    with pytest.raises(ConfigError, match="not both"):
        two(inter_broker_listener_name="INTERNAL", security_inter_broker_protocol="PLAINTEXT")


def test_only_what_is_listened_on_is_advertised() -> None:
    found = two(advertised_listeners="EXTERNAL://broker-1.example.org:443")
    assert {name: each.host for name, each in found.advertised.items()} == {
        "EXTERNAL": "broker-1.example.org"
    }
    with pytest.raises(ConfigError, match=r"advertised\.listeners: there is no OTHER"):
        two(advertised_listeners="OTHER://broker-1.example.org:443")


@pytest.mark.parametrize(
    "text", [":9092", "0.0.0.0:9092", "[::]:9092", "10.0.0.1:9092", "broker.example.org:9092"]
)
def test_an_open_listener_beyond_this_machine_has_to_be_allowed(text: str) -> None:
    with pytest.raises(ConfigError, match=r"forebay\.allow\.insecure=true"):
        listeners(listeners=text)
    assert listeners(listeners=text, forebay_allow_insecure="true").all


@pytest.mark.parametrize("text", ["127.0.0.1:9092", "localhost:9092", "[::1]:9092", "127.1.2.3:9092"])
def test_this_machine_needs_no_allowance(text: str) -> None:
    assert listeners(listeners=text).all


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_a_listener_with_tls_needs_a_certificate(protocol: str) -> None:
    with pytest.raises(ConfigError, match=r"set ssl\.keystore\.location"):
        listeners(listeners=f"{protocol}://127.0.0.1:9092")
