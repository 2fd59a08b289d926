"""How far streams are behind their topics, in the words of Spark's Kafka source, and for Prometheus.

Spark lets a source that is written in Python add no metrics to the progress of a query. But the progress has
the offsets where the batch ends and those where the topics end, and the difference is all there is to know.

    spark.streams.addListener(PrometheusListener(port=9400))
"""

from __future__ import annotations

import ast
import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from forebay.spark.source.offset_ranges import NO_TOPICS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "forebay_spark"
_HELP = {
    "offsets_behind_latest_min": "Offsets of a partition that no batch has yet: the least.",
    "offsets_behind_latest_max": "The same: the most.",
    "offsets_behind_latest_avg": "The same: the mean over all partitions.",
    "input_rows_per_second": "Rows that arrived, in the last batch.",
    "processed_rows_per_second": "Rows that were processed, in the last batch.",
    "batch_id": "The number of the last batch.",
    "batch_duration_ms": "How long the last batch took.",
}


class OffsetsBehind(NamedTuple):
    """Over the partitions of a source: how many offsets no batch has yet."""

    minOffsetsBehindLatest: int
    maxOffsetsBehindLatest: int
    avgOffsetsBehindLatest: float


def offsets_behind(source: Any) -> OffsetsBehind | None:
    """Of one of `query.lastProgress["sources"]`; None if the source does not say where its topics end."""
    behind = distances(source["endOffset"], source["latestOffset"])
    if not behind:
        return None
    return OffsetsBehind(min(behind), max(behind), sum(behind) / len(behind))


def distances(end: Any, latest: Any) -> list[int]:
    """From each partition's end of a batch to its latest offset. A partition that is new begins at 0."""
    return _distances(loaded(end), loaded(latest))


def loaded(offset: Any) -> Any:
    """PySpark 4.1 has it as Python writes a dict; later versions have JSON."""
    if not isinstance(offset, str):
        return offset
    try:
        return json.loads(offset)
    except ValueError:
        return ast.literal_eval(offset)


def _distances(end: Any, latest: Any) -> list[int]:
    """Offsets are numbers in a tree of topics and partitions."""
    if isinstance(latest, Mapping):
        ends = end if isinstance(end, Mapping) else {}
        inner = (
            _distances(ends.get(name, 0), value) for name, value in latest.items() if name not in NO_TOPICS
        )
        return [distance for found in inner for distance in found]
    if isinstance(latest, int) and isinstance(end, int):
        return [max(0, latest - end)]
    return []


class PrometheusListener(StreamingQueryListener):
    """Keeps what the streams of a session reported last, and serves it at http://host:port/metrics.

    Without a port nothing is served; `text()` is the page.
    """

    def __init__(self, port: int | None = None, host: str = "127.0.0.1") -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._samples: dict[str, dict[str, float]] = {}
        """By query: each sample by its name and labels."""
        self._server = None if port is None else _serve(self, host, port)

    @property
    def port(self) -> int | None:
        return None if self._server is None else self._server.server_port

    def close(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        samples = samples_of(json.loads(event.progress.json))
        with self._lock:
            self._samples[str(event.progress.id)] = samples

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._lock:
            self._samples.pop(str(event.id), None)

    def text(self) -> str:
        """In Prometheus' format."""
        with self._lock:
            samples = [item for found in self._samples.values() for item in found.items()]
        lines = []
        for name, help_text in _HELP.items():
            mine = [(where, value) for where, value in samples if where.startswith(f"{name}{{")]
            if mine:
                lines += [f"# HELP {_PREFIX}_{name} {help_text}", f"# TYPE {_PREFIX}_{name} gauge"]
                lines += [f"{_PREFIX}_{where} {value:g}" for where, value in mine]
        return "".join(f"{line}\n" for line in lines)


def samples_of(progress: Mapping[str, Any]) -> dict[str, float]:
    """The samples in one progress of a query, by name and labels."""
    query = f'query="{_escaped(progress.get("name") or progress["id"])}"'
    samples = {
        f"input_rows_per_second{{{query}}}": float(progress.get("inputRowsPerSecond") or 0),
        f"processed_rows_per_second{{{query}}}": float(progress.get("processedRowsPerSecond") or 0),
        f"batch_id{{{query}}}": float(progress["batchId"]),
        f"batch_duration_ms{{{query}}}": float(progress.get("batchDuration") or 0),
    }
    for number, source in enumerate(progress["sources"]):
        behind = offsets_behind(source)
        if behind is not None:
            labels = f'{query},source="{number}"'
            values = zip(("min", "max", "avg"), behind, strict=True)
            samples |= {f"offsets_behind_latest_{stat}{{{labels}}}": value for stat, value in values}
    return samples


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _serve(listener: PrometheusListener, host: str, port: int) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = listener.text().encode()
            self.send_response(200 if self.path in ("/", "/metrics") else 404)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:
            """Nobody wants a line for each time that Prometheus asks."""

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="forebay-spark-metrics", daemon=True).start()
    return server
