"""An Iceberg REST catalog on loopback: the protocol's routes, over a catalog of pyiceberg in a file.

It reads and answers with pyiceberg's own models of the protocol, checks the requirements of every commit, and
wants a token, as such catalogs usually do.
"""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.parse
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # imports that are not ours to tidy
    from pyiceberg.catalog.rest import CreateTableRequest, TableResponse
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import (
        CommitFailedException,
        NamespaceAlreadyExistsError,
        NoSuchNamespaceError,
        NoSuchTableError,
    )
    from pyiceberg.table import CommitTableRequest, Table

TOKEN = "let-me-in"
_KINDS = {
    NoSuchTableError: (404, "NoSuchTableException"),
    NoSuchNamespaceError: (404, "NoSuchNamespaceException"),
    NamespaceAlreadyExistsError: (409, "AlreadyExistsException"),
    CommitFailedException: (409, "CommitFailedException"),
}


class RestCatalogServer(ThreadingHTTPServer):
    def __init__(self, behind: SqlCatalog) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = behind
        self.lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: RestCatalogServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._serve()

    def do_HEAD(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = urllib.parse.urlsplit(self.path).path.strip("/")
        parts = tuple(urllib.parse.unquote(part) for part in path.split("/")[1:])
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._answer(401, _error(401, "NotAuthorizedException", "no token"))
            return
        try:
            with self.server.lock:
                self._answer(200, self._result(self.command, parts, body))
        except tuple(_KINDS) as error:
            code, kind = next(found for of, found in _KINDS.items() if isinstance(error, of))
            self._answer(code, _error(code, kind, str(error)))

    def _result(self, method: str, parts: tuple[str, ...], body: bytes) -> str:
        behind = self.server.behind
        match method, parts:
            case "GET", ("config",):
                return json.dumps({"defaults": {}, "overrides": {}})
            case "POST", ("namespaces",):
                wanted = json.loads(body)
                behind.create_namespace(tuple(wanted["namespace"]))
                return json.dumps(wanted)
            case "GET" | "HEAD", ("namespaces", name):
                namespace = tuple(name.split("\x1f"))
                properties = behind.load_namespace_properties(namespace)
                return json.dumps({"namespace": namespace, "properties": properties})
            case "POST", ("namespaces", name, "tables"):
                request = CreateTableRequest.model_validate_json(body)
                identifier = (*name.split("\x1f"), request.name)
                return _told(behind.create_table(identifier, request.table_schema, location=request.location))
            case "GET" | "HEAD", ("namespaces", name, "tables", table):
                return _told(behind.load_table((*name.split("\x1f"), table)))
            case "POST", ("namespaces", name, "tables", table):
                change = CommitTableRequest.model_validate_json(body)
                loaded = behind.load_table((*name.split("\x1f"), table))
                return behind.commit_table(loaded, change.requirements, change.updates).model_dump_json()
        raise NoSuchTableError(f"{method} {parts}")

    def _answer(self, code: int, body: str) -> None:
        content = body.encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def _told(table: Table) -> str:
    known: Any = {"metadata": table.metadata, "metadata-location": table.metadata_location}
    return str(TableResponse(**known).model_dump_json(by_alias=True))


def _error(code: int, kind: str, message: str) -> str:
    return json.dumps({"error": {"code": code, "type": kind, "message": message}})


@contextlib.contextmanager
def running_rest_catalog(folder: Path, **properties: str) -> Iterator[RestCatalogServer]:
    """`properties`: of the files behind it, s3.endpoint for example."""
    place = {"uri": f"sqlite:///{folder}/rest.db", "warehouse": f"file://{folder}/warehouse", **properties}
    behind = SqlCatalog("behind", **place)
    server = RestCatalogServer(behind)
    thread = threading.Thread(target=server.serve_forever, name="rest-catalog")
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        behind.close()
