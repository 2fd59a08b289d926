"""Runs the console: binds the socket, says where to look, and serves until it is stopped."""

from __future__ import annotations

import errno
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from forebay.console.app import make_app
from forebay.console.settings import ConsoleSettings
from forebay.errors import ForebayError

_STOP_SECONDS = 2
"""Live streams of open pages do not end by themselves."""


class Console:
    """`bind` first, then `run`, which returns when the console was stopped."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self.port = settings.port

    def bind(self) -> None:
        """Raises ForebayError if the address is taken."""
        host, port = self._settings.host, self._settings.port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            listener.close()
            taken = error.errno == errno.EADDRINUSE
            hint = "something else listens there: choose another --port" if taken else str(error)
            raise ForebayError(f"the console cannot listen on {host}:{port}: {hint}") from None
        self._socket = listener
        self.port = listener.getsockname()[1]

    @property
    def url(self) -> str:
        """The address to open, with the token if there is one."""
        scheme = "https" if self._settings.certificate else "http"
        host = self._settings.host
        if host in ("0.0.0.0", "::", ""):
            host = "localhost"
        shown = f"[{host}]" if ":" in host else host
        query = "" if self._settings.login else f"?token={self._settings.token}"
        return f"{scheme}://{shown}:{self.port}/{query}"

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        assert self._socket is not None, "bind first"
        config = uvicorn.Config(
            make_app(self._settings, cookie_name=f"forebay_console_{self.port}"),
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_STOP_SECONDS,
            ssl_certfile=self._settings.certificate or None,
            ssl_keyfile=self._settings.key or None,
            # Pure Python ones: what this package asks for is there everywhere.
            http="h11",
            loop="asyncio",
            ws="none",
        )
        self._server = _Server(config, on_ready)
        self._server.run(sockets=[self._socket])

    def stop(self) -> None:
        """From any thread."""
        if self._server is not None:
            self._server.should_exit = True


class _Server(uvicorn.Server):
    """Says when it is ready. Ctrl-C and SIGTERM are its normal end, and not an error of the process."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
