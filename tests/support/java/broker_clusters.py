"""Brokers for tests in Java: a server on the loopback address that starts and stops clusters on request.

A request is a line of JSON, and so is the answer. Clusters of several brokers share one etcd, under names of
their own. Brokers are numbered from 0, as those of Kafka's tests.
"""

from __future__ import annotations

import contextlib
import json
import socketserver
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from forebay.config.keys.broker import ALIASES, BROKER_KEYS
from forebay.local.etcd import EtcdCluster
from forebay.local.settings import TEST_SETTINGS
from support.brokers.broker_process import BrokerProcess

KAFKAS_DEFAULTS = {"min.insync.replicas": "1"}
"""Tests with two replicas go on writing when one is gone. Forebay's default would need both."""
_LEFT_TO_THE_TEST = frozenset(
    {"node.id", "broker.id", "log.dirs", "log.dir", "listeners", "advertised.listeners"}
)


class TestBrokers:
    __test__ = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._etcd: EtcdCluster | None = None
        self._clusters: dict[int, dict[int, BrokerProcess]] = {}
        self._lock = threading.Lock()
        self._made = 0

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            return self._answer(request)

    def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        wanted = request["do"]
        if wanted == "start":
            return self._start(request)
        brokers = self._clusters[request["cluster"]]
        if wanted == "stop":
            self._end(request["cluster"])
        elif wanted == "stop_broker":
            brokers[request["broker"]].stop()
        elif wanted == "start_broker":
            brokers[request["broker"]].start()
        else:
            raise ValueError(f"what is {wanted}?")
        return {}

    def _start(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self._made += 1
        number, count = self._made, request["brokers"]
        settings = {**TEST_SETTINGS, **KAFKAS_DEFAULTS, **_known(request["settings"])}
        if count > 1:
            settings["forebay.cluster"] = self._etcd_url(f"kafka-tests-{number}")
        brokers = self._clusters[number] = {}
        for node in range(count):
            own = _known(request["own_settings"].get(str(node), {}))
            texts = [f"{name}={text}" for name, text in ({**settings, **own, "node.id": str(node)}).items()]
            brokers[node] = BrokerProcess(self._folder / f"{number}-{node}", *texts)
        for broker in brokers.values():
            broker.start()
        return {"cluster": number, "bootstrap": ",".join(broker.bootstrap for broker in brokers.values())}

    def _etcd_url(self, name: str) -> str:
        if self._etcd is None:
            self._etcd = EtcdCluster(1, data_dir=self._folder / "etcd", durable=False)
            self._etcd.start()
        return self._etcd.url(name)

    def _end(self, number: int) -> None:
        for broker in self._clusters.pop(number).values():
            broker.close()

    def close(self) -> None:
        with self._lock:
            for number in list(self._clusters):
                self._end(number)
            if self._etcd is not None:
                self._etcd.stop()


def _known(settings: Mapping[str, str]) -> dict[str, str]:
    """Kafka's settings that have a meaning here: others are about its own threads, files and controllers."""
    return {
        name: text
        for name, text in settings.items()
        if ALIASES.get(name, name) in BROKER_KEYS and name not in _LEFT_TO_THE_TEST
    }


@contextlib.contextmanager
def serve(folder: Path) -> Iterator[int]:
    """The port at which brokers can be asked for."""
    brokers = TestBrokers(folder)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            try:
                answer = brokers.answer(json.loads(self.rfile.readline()))
            except Exception as error:  # the test in Java shows it
                answer = {"error": f"{type(error).__name__}: {error}"}
            self.wfile.write(json.dumps(answer).encode() + b"\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            brokers.close()
