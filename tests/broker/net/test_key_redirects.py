"""Where the keys of tokens may come from, if their server redirects."""

from __future__ import annotations

import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from forebay.broker.authentication.key_fetching import fetch_keys
from support.brokers.tls_files import TlsFiles

KEYS = {
    **jwt.algorithms.ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key(), as_dict=True),
    "kid": "one",
}


@contextmanager
def web_server(certificate: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """A server that redirects `/to?URL`, and has the keys elsewhere; the paths that it was asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            path, _, target = self.path.partition("?")
            body = json.dumps({"keys": [KEYS]}).encode()
            self.send_response(302 if path == "/to" else 200)
            self.send_header("Location", target)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    scheme = "http" if certificate is None else "https"
    try:
        yield f"{scheme}://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TlsFiles:
    files = TlsFiles(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", files.ca)
    return files


def test_keys_that_are_redirected_to_plain_http_are_not_fetched(tls: TlsFiles) -> None:
    with web_server(tls.broker) as (secure, _), web_server() as (plain, asked):
        with pytest.raises(ValueError, match="not https"):
            fetch_keys(f"{secure}/to?{plain}/keys")
        assert asked == []


def test_keys_that_are_redirected_to_https_are_fetched(tls: TlsFiles) -> None:
    with web_server(tls.broker) as (first, _), web_server(tls.broker) as (second, asked):
        assert "one" in fetch_keys(f"{first}/to?{second}/keys")
        assert asked == ["/keys"]
