"""The steps of a run for Prometheus: `--metrics [HOST:]PORT`.

One thread serves the page and asks the brokers how far each step is behind, one request after the other.
Nobody is asked while nobody looks. The address is taken before Spark is started: that it is in use is told
like other mistakes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, NamedTuple

from forebay.cli.client import CommandError, split_address
from forebay.errors import ForebayError

if TYPE_CHECKING:
    from forebay.spark.pipelines import Brokers, Job

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "forebay_pipeline"
_HELP = {
    "up": ("gauge", "1 while the step works, 0 while it waits to be started again."),
    "restarts_total": ("counter", "How often the step was started again."),
    "batches_total": ("counter", "Batches with rows, since the step was started last."),
    "rows_total": ("counter", "Messages that were read, since the step was started last."),
    "rows_written_total": ("counter", "Rows that were written, where they are others than those read."),
    "unreadable_total": ("counter", "Messages that were passed over since they cannot be read."),
    "lost_total": ("counter", "Offsets that were gone before they could be read."),
    "lag_messages": ("gauge", "Messages in the topics that no batch has yet."),
    "lag_seconds": ("gauge", "The age of the first of them."),
}
_FACTS = {
    "batches": "batches_total",
    "rows": "rows_total",
    "rows written": "rows_written_total",
    "unreadable": "unreadable_total",
    "lost": "lost_total",
}
_TIMEOUT_S = 10.0


class Watched(NamedTuple):
    """A step under way."""

    name: str
    job: Job | None
    restarts: int


def page(steps: Iterable[Watched], brokers: Brokers, now_s: float) -> str:
    samples: dict[str, list[str]] = {name: [] for name in _HELP}
    for step in steps:
        label = f'{{step="{_escaped(step.name)}"}}'
        for name, value in _values(step, brokers, now_s).items():
            samples[name].append(f"{_PREFIX}_{name}{label} {value:g}")
    lines = []
    for name, (kind, help_text) in _HELP.items():
        if samples[name]:
            lines += [f"# HELP {_PREFIX}_{name} {help_text}", f"# TYPE {_PREFIX}_{name} {kind}"]
            lines += samples[name]
    return "".join(f"{line}\n" for line in lines)


def _values(step: Watched, brokers: Brokers, now_s: float) -> dict[str, float]:
    from forebay.spark.pipelines.lag import lag_of

    values: dict[str, float] = {"up": float(step.job is not None), "restarts_total": step.restarts}
    if step.job is None:
        return values
    facts = step.job.counts()
    values |= {name: facts[fact] for fact, name in _FACTS.items() if fact in facts}
    try:
        lag = lag_of(brokers, step.job.sources, now_s)
    except ForebayError:
        return values  # brokers that do not answer now
    if lag is not None:
        values["lag_messages"] = lag.messages
        if lag.seconds is not None:
            values["lag_seconds"] = lag.seconds
    return values


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class MetricsServer(HTTPServer):
    """Takes its address at once, and answers when it is started."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__((host, port), _Handler)
        self.text: Callable[[], str] = str

    def start(self, text: Callable[[], str]) -> None:
        self.text = text
        threading.Thread(target=self.serve_forever, name="forebay-pipeline-metrics", daemon=True).start()
        self.started = True

    started = False


class _Handler(BaseHTTPRequestHandler):
    timeout = _TIMEOUT_S

    def do_GET(self) -> None:
        assert isinstance(self.server, MetricsServer)
        known = self.path in ("/", "/metrics")
        content = self.server.text().encode() if known else b""
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", _CONTENT_TYPE)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nobody wants a line for each time that Prometheus asks."""


@contextlib.contextmanager
def bound(address: str | None) -> Iterator[MetricsServer | None]:
    """A server at a port, or at host and port, until the block ends; None without an address."""
    if address is None:
        yield None
        return
    host, port = split_address(address) if ":" in address else ("127.0.0.1", _port(address))
    try:
        server = MetricsServer(host, port)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CommandError(f"--metrics {address}: {reason}: name another port") from None
    try:
        yield server
    finally:
        if server.started:
            server.shutdown()
        server.server_close()


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise CommandError(f"--metrics {text} is neither PORT nor HOST:PORT")
    return int(text)
