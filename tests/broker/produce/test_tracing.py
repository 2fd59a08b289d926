"""Spans for messages whose producers sent a trace along: to a collector that speaks OTLP over HTTP."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from confluent_kafka import Producer

from forebay.broker.produce.spans import Parent, parse_traceparent
from forebay.client import Admin
from forebay.testing import Broker
from support.brokers.forebay_command import forebay
from support.waiting import Patience

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector(ThreadingHTTPServer):
    """Keeps the spans that it is sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[dict[str, Any]] = []


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        for resource in body["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                self.server.spans += scope["spans"]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def collector() -> Iterator[Collector]:
    server = Collector()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def send(broker: Broker, *traceparents: str | None, **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 50, **settings})
    for header in traceparents:
        headers: list[tuple[str, str | bytes | None]] = [("source", b"test")]
        if header is not None:
            headers.append(("traceparent", header.encode()))
        producer.produce("orders", b"something", headers=headers, partition=0)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_message_with_a_trace_gets_a_span_that_belongs_to_it(compression: str) -> None:
    with collector() as server:
        url = f"http://127.0.0.1:{server.server_port}/v1/traces"
        with Broker(settings={"forebay.tracing.endpoint": url}) as broker:
            with Admin(broker.bootstrap_servers) as admin:
                admin.create_topic("orders", partitions=1)
            traced, not_recorded = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"
            send(broker, None, traced, not_recorded, "nonsense", **{"compression.type": compression})
            patience = Patience("the span has come")
            while not server.spans:
                patience.check()
    (span,) = server.spans
    assert (span["traceId"], span["parentSpanId"], span["name"]) == (TRACE, SPAN, "append orders")
    assert len(bytes.fromhex(span["spanId"])) == 8
    assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
    known = {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]}
    assert known["messaging.destination.name"] == "orders"
    assert known["messaging.kafka.offset"] == "1"


def test_a_collector_that_does_not_answer_stops_no_producer() -> None:
    with Broker(settings={"forebay.tracing.endpoint": "http://127.0.0.1:1/v1/traces"}) as broker:
        for _ in range(3):
            send(broker, f"00-{TRACE}-{SPAN}-01")
        found = forebay("consume", "orders", "-e", "-b", broker.bootstrap_servers)
    assert found.out == "something\n" * 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
    ],
)
def test_what_is_no_trace_is_none(text: str) -> None:
    assert parse_traceparent(text.encode()) is None


def test_a_trace_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert parse_traceparent(f"01-{TRACE}-{SPAN}-03-more".encode()) == Parent(TRACE, SPAN)
    assert parse_traceparent(None) is None
    assert parse_traceparent(b"\xff") is None
