"""A schema registry for tests: a server that speaks the REST interface of Confluent's, as far as we use it.

None of the real ones can be had from PyPI. Schemas are kept in memory and not checked for compatibility.
"""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

AUTHORIZATION = "Basic dXNlcjpzZWNyZXQ="
"""user:secret"""


class SchemaRegistry(ThreadingHTTPServer):
    def __init__(self, *, protected: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.protected = protected
        self.unavailable = 0
        """How many of the next requests are answered with an error of the server."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def add(self, subject: str, schema: dict[str, Any]) -> int:
        if schema not in self.schemas:
            self.schemas.append(schema)
        schema_id = self.schemas.index(schema) + 1
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id


class _Handler(BaseHTTPRequestHandler):
    server: SchemaRegistry

    def do_GET(self) -> None:
        match self._parts():
            case ["schemas", "ids", number]:
                if int(number) > len(self.server.schemas):
                    return self._answer(404, {"error_code": 40403, "message": f"Schema {number} not found"})
                return self._answer(200, self.server.schemas[int(number) - 1])
            case ["subjects", subject, "versions", version]:
                if subject not in self.server.subjects:
                    return self._answer(
                        404, {"error_code": 40401, "message": f"Subject '{subject}' not found"}
                    )
                versions = self.server.subjects[subject]
                at = len(versions) if version == "latest" else int(version)
                if not 0 < at <= len(versions):
                    return self._answer(404, {"error_code": 40402, "message": f"Version {version} not found"})
                found = versions[at - 1]
                about = {"subject": subject, "version": at, "id": found}
                return self._answer(200, {**about, **self.server.schemas[found - 1]})
        return self._answer(404, {"error_code": 404, "message": "HTTP 404 Not Found"})

    def do_POST(self) -> None:
        content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        match self._parts():
            case ["subjects", subject, "versions"]:
                return self._answer(200, {"id": self.server.add(subject, content)})
        return self._answer(404, {"error_code": 404, "message": "HTTP 404 Not Found"})

    def _parts(self) -> list[str]:
        self.server.asked.append(self.path)
        return [urllib.parse.unquote(part) for part in self.path.strip("/").split("/")]

    def _answer(self, code: int, content: Any) -> None:
        if self.server.protected and self.headers.get("Authorization") != AUTHORIZATION:
            code, content = 401, {"error_code": 401, "message": "Unauthorized"}
        if self.server.unavailable:
            self.server.unavailable -= 1
            code, content = 503, {"error_code": 50003, "message": "Error while forwarding the request"}
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextlib.contextmanager
def running_registry(*, protected: bool = False) -> Iterator[SchemaRegistry]:
    server = SchemaRegistry(protected=protected)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
