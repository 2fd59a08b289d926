"""Who may use the console, and what other web pages cannot do with it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import forebay.console
from forebay.testing import Broker
from support.console.running_console import TOKEN, RunningConsole, running_console

STATIC = Path(forebay.console.__file__).parent / "static"
CHANGE = {"content-type": "application/json", "x-forebay-console": "1"}


def test_the_token_becomes_a_cookie_that_scripts_cannot_read_and_leaves_the_address(
    console: RunningConsole,
) -> None:
    answer = console.ask("GET", f"/local/topics?search=a&token={TOKEN}", headers={"cookie": ""})
    assert answer.status == 303
    assert answer.headers["location"] == "/local/topics?search=a"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_without_the_token_there_is_the_page_and_nothing_else(console: RunningConsole) -> None:
    assert console.ask("GET", "/local/overview", headers={"cookie": ""}).status == 200
    for path in ("session", "local/overview", "local/topics", "local/events"):
        assert console.ask("GET", f"/api/{path}", headers={"cookie": "forebay_console=x"}).status == 401
    wrong = console.ask("GET", "/?token=wrong", headers={"cookie": ""})
    assert "set-cookie" not in wrong.headers


def test_every_answer_forbids_foreign_scripts_frames_and_guessed_types(console: RunningConsole) -> None:
    for path in ("/", "/api/session", "/static/app.js", "/api/nothing"):
        headers = console.ask("GET", path).headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "application/json"},
        {"content-type": "application/x-www-form-urlencoded", "x-forebay-console": "1"},
        {**CHANGE, "origin": "https://elsewhere.example"},
        {**CHANGE, "sec-fetch-site": "cross-site"},
        {**CHANGE, "host": "rebound.example"},
    ],
    ids=["no header of its own", "a form", "another origin", "another site", "another name"],
)
def test_a_change_from_elsewhere_is_refused(console: RunningConsole, headers: Mapping[str, str]) -> None:
    answer = console.ask("POST", "/api/local/topics/create", {"name": "stolen", "confirmed": True}, headers)
    assert answer.status == 403
    assert "stolen" not in [row["name"] for row in console.get("local/topics")["rows"]]


def test_a_name_that_was_made_to_point_here_sees_nothing(console: RunningConsole) -> None:
    assert console.ask("GET", "/api/local/topics", headers={"host": "rebound.example"}).status == 403
    assert console.ask("GET", "/api/session", headers={"host": f"localhost:{console.port}"}).status == 200


def test_a_read_only_console_changes_nothing(broker: Broker) -> None:
    with running_console(broker.bootstrap_servers, read_only=True) as console:
        assert console.get("session")["read_only"] is True
        answer = console.post("local/topics/create", {"name": "refused", "confirmed": True})
        assert answer.status == 403
        assert "read-only" in answer.json["error"]


def test_vendored_files_are_what_their_list_says() -> None:
    listed = json.loads((STATIC / "vendor" / "vendored.json").read_text(encoding="utf-8"))
    hashes: dict[str, str] = {}
    for package in listed["packages"]:
        assert package["licence"] in ("MIT", "Apache-2.0")
        assert package["version"]
        assert package["licence_text"]
        hashes |= {each["file"]: each["sha256"] for each in package["files"]}
    files = [file for file in (STATIC / "vendor").iterdir() if file.name != "vendored.json"]
    assert {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files} == hashes


def test_no_page_has_inline_scripts_or_addresses_of_other_sites() -> None:
    for file in [
        *STATIC.glob("*.html"),
        *STATIC.glob("*.js"),
        *STATIC.glob("lib/*.js"),
        *STATIC.glob("pages/*.js"),
    ]:
        text = file.read_text(encoding="utf-8")
        assert "innerHTML" not in text
        assert "https://" not in text, file.name
        assert "eval(" not in text
