"""A live view of the console, read as a browser reads it: server-sent events."""

from __future__ import annotations

import http.client
import json
from typing import Any

from support.console.running_console import RunningConsole
from support.waiting import SECONDS_MAX


class Events:
    """A stream of events, as a browser reads it."""

    def __init__(self, console: RunningConsole, query: str, last_id: str = "") -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=SECONDS_MAX)
        headers = {"cookie": console.cookie} | ({"last-event-id": last_id} if last_id else {})
        self._connection.request("GET", f"/api/local/events?{query}", headers=headers)
        self._response = self._connection.getresponse()
        assert self._response.headers["content-type"].startswith("text/event-stream")
        self.last_id = ""

    def next(self, kind: str) -> Any:
        """The data of the next event of a kind."""
        seen = ""
        while True:
            line = self._response.readline().decode().rstrip("\n")
            if line.startswith("id: "):
                self.last_id = line.removeprefix("id: ")
            elif line.startswith("event: "):
                seen = line.removeprefix("event: ")
            elif line.startswith("data: ") and seen == kind:
                return json.loads(line.removeprefix("data: "))

    def close(self) -> None:
        self._response.close()
        self._connection.close()
