"""A console on a real socket, in a thread of this process, and a small HTTP client for it."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from forebay.console.serving import Console
from forebay.console.settings import ClusterSettings, ConsoleSettings
from support.waiting import SECONDS_MAX

TOKEN = "a-token-for-tests"


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class RunningConsole:
    """Requests with the cookie of a person who has used the token."""

    def __init__(self, console: Console, settings: ConsoleSettings) -> None:
        self._console = console
        self.settings = settings
        self.cookie = ""

    @property
    def port(self) -> int:
        return self._console.port

    @property
    def url(self) -> str:
        return self._console.url

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def at(self, address: str) -> str:
        """The address of a view, with the token: it takes one load of the page."""
        return f"{self.origin}/local/{address}{'&' if '?' in address else '?'}token={TOKEN}"

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS_MAX)
        sent = {"cookie": self.cookie, **(headers or {})}
        data = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, data, {name: text for name, text in sent.items() if text})
            response = connection.getresponse()
            found = {name.lower(): text for name, text in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        """The JSON at an address of the API, which must be there."""
        answer = self.ask("GET", f"/api/{path}")
        assert answer.status == 200, answer.body
        return answer.json

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        headers = {"content-type": "application/json", "x-forebay-console": "1"}
        return self.ask("POST", f"/api/{path}", dict(body or {}), headers)

    def change(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Ask, agree, and do it."""
        question = self.post(path, body)
        assert question.status == 200, question.body
        assert question.json["question"].endswith("?")
        done = self.post(path, {**(body or {}), "confirmed": True})
        assert done.status == 200, done.body
        assert done.json["command"] == question.json["command"]
        return done.json

    def enter(self) -> None:
        """Use the token, as the printed address does."""
        answer = self.ask("GET", f"/?token={TOKEN}")
        assert answer.status == 303
        self.cookie = answer.headers["set-cookie"].partition(";")[0]


@contextmanager
def running_console(bootstrap: str, **settings: Any) -> Iterator[RunningConsole]:
    """A console for a broker, which looks at it often."""
    cluster = ClusterSettings(name="local", bootstrap=bootstrap, properties=settings.pop("properties", {}))
    given = {"clusters": (cluster,), "token": TOKEN, "sample_seconds": 0.5, "sample_share": 0.9}
    chosen = ConsoleSettings(**{**given, **settings})
    console = Console(chosen)
    console.bind()
    ready = threading.Event()
    thread = threading.Thread(target=console.run, args=(ready.set,), name="console")
    thread.start()
    try:
        assert ready.wait(SECONDS_MAX)
        running = RunningConsole(console, chosen)
        if not settings.get("login"):
            running.enter()
        yield running
    finally:
        console.stop()
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()
