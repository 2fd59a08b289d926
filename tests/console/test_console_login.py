"""People who log in with the users of the cluster: the brokers decide what they see and do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forebay.testing import Broker
from support.brokers.forebay_command import forebay
from support.console.running_console import RunningConsole, running_console
from support.waiting import Patience

PASSWORD = "correct horse battery"


@pytest.fixture(scope="module")
def secure() -> Iterator[Broker]:
    with Broker(secure=True) as started:
        yield started


@pytest.fixture(scope="module")
def login(secure: Broker) -> Iterator[RunningConsole]:
    settings = dict(secure.client_settings)
    _as_administrator(settings, "user", "add", "ada", "--password-file", "-", stdin=PASSWORD)
    for topic in ("ada.own", "secret"):
        _as_administrator(settings, "topic", "create", topic, "--partitions", "1")
    rule = ("User:ada", "read,write,describe", "topic", "ada.", "--prefix")
    _as_administrator(settings, "acl", "add", *rule)
    properties = {name: settings[name] for name in ("security.protocol", "ssl.ca.location", "sasl.mechanism")}
    with running_console(secure.bootstrap_servers, login=True, properties=properties) as console:
        yield console


def _as_administrator(settings: dict[str, str], *command: str, stdin: str = "") -> None:
    options = [
        text
        for name, value in settings.items()
        if name != "bootstrap.servers"
        for text in ("-X", f"{name}={value}")
    ]
    done = forebay(*command, *options, bootstrap=settings["bootstrap.servers"], stdin=stdin)
    assert done.code == 0, done.err


def _log_in(console: RunningConsole, user: str, password: str) -> None:
    answer = console.post("login", {"user": user, "password": password})
    assert answer.status == 200, answer.body
    console.cookie = answer.headers["set-cookie"].partition(";")[0]


def test_a_wrong_password_is_refused_and_the_token_is_no_way_in(login: RunningConsole) -> None:
    assert login.ask("GET", "/api/session").json["login"] == "password"
    refused = login.post("login", {"user": "ada", "password": "wrong"})
    assert refused.status == 403
    assert "set-cookie" not in refused.headers
    assert login.post("login", {"user": "ada"}).status == 422
    assert "set-cookie" not in login.ask("GET", "/?token=a-token-for-tests").headers


def test_a_user_sees_and_does_what_the_rules_allow(login: RunningConsole) -> None:
    _log_in(login, "ada", PASSWORD)
    assert login.get("session")["user"] == "ada"
    assert [row["name"] for row in login.get("local/topics")["rows"]] == ["ada.own"]
    assert login.ask("GET", "/api/local/topics/secret").status == 404
    login.change("local/topics/ada.own/produce", {"value": "mine"})
    shown = login.get("local/topics/ada.own/messages")["rows"]
    assert [row["value"]["text"] for row in shown] == ["mine"]
    refused = login.post("local/topics/ada.own/delete", {"confirmed": True})
    assert refused.status == 502
    assert "AUTHORIZATION" in refused.json["error"]
    assert any("sizes on disk" in text for text in login.get("local/overview")["hidden"])


def test_masked_fields_are_for_users_who_may_alter_the_topic(login: RunningConsole, secure: Broker) -> None:
    settings = secure.client_settings
    properties = {name: settings[name] for name in ("security.protocol", "ssl.ca.location", "sasl.mechanism")}
    masks = ("card", "Token")
    with running_console(secure.bootstrap_servers, login=True, properties=properties, masks=masks) as console:
        _log_in(console, "ada", PASSWORD)
        for value in ('{"id": 1, "pay": [{"card": "4111"}]}', "card 4111", "plain", '{"id": 2}'):
            console.change("local/topics/ada.own/produce", {"value": value, "headers": [["token", "t-1"]]})
        rows = console.get("local/topics/ada.own/messages?from=-4")["rows"]
        texts = [row["value"]["text"] for row in rows]
        assert texts[0] == '{"id":1,"pay":[{"card":"•••"}]}'
        assert texts[1].startswith("(hidden")
        assert texts[2:] == ["plain", '{"id": 2}']
        assert rows[0]["headers"][0][1]["text"] == "•••"
        place = f"local/topics/ada.own/messages/0/{rows[0]['offset']}"
        assert "4111" not in console.get(place)["value"]["text"]
        for path in (
            f"{place}/value",
            "local/topics/ada.own/export",
            "local/topics/ada.own/export?format=csv",
        ):
            assert b"4111" not in console.ask("GET", f"/api/{path}").body
        assert console.get("local/topics/ada.own/messages?text=4111")["rows"] == []
        assert console.ask("GET", "/api/local/topics/ada.own/messages?where=value.id=1").status == 422

        _log_in(console, settings["sasl.username"], settings["sasl.password"])
        assert len(console.get("local/topics/ada.own/messages?text=4111")["rows"]) == 2


def test_logging_out_ends_the_session(login: RunningConsole, secure: Broker) -> None:
    settings = secure.client_settings
    _log_in(login, settings["sasl.username"], settings["sasl.password"])
    patience = Patience("an administrator sees every topic")
    while len(login.get("local/topics")["rows"]) < 2:
        patience.check()
    assert login.post("logout").status == 200
    assert login.ask("GET", "/api/session").status == 401
