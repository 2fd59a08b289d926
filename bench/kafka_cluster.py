"""Three nodes of Apache Kafka as a cluster under measurement; `kafka_server.py` has each of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.cluster import BROKERS, BenchCluster
from bench.kafka_server import KafkaServer, free_ports, prepare


class KafkaCluster(BenchCluster):
    name = "Kafka"

    def __init__(self, scratch: Path, name: str) -> None:
        self._scratch, self._label = scratch, name
        self._ports = free_ports(BROKERS)
        self._servers: dict[int, KafkaServer] = {}

    def _prepare(self) -> None:
        for node in range(1, BROKERS + 1):
            prepare(self._scratch, f"{self._label}-{node}", self._ports, node)

    def _open(self) -> None:
        """All at once: none is ready before it has found a majority of the others."""
        with ThreadPoolExecutor(BROKERS) as threads:
            for node, server in enumerate(threads.map(self._start, range(1, BROKERS + 1)), 1):
                self._servers[node] = server

    def _start(self, node: int) -> KafkaServer:
        return KafkaServer(self._scratch, f"{self._label}-{node}", ports=self._ports, node=node)

    def _close(self) -> None:
        with ThreadPoolExecutor(BROKERS) as threads:
            list(threads.map(KafkaServer.stop, self._servers.values()))

    @property
    def addresses(self) -> dict[int, str]:
        return {node: f"127.0.0.1:{each.broker}" for node, each in enumerate(self._ports, 1)}

    def pids(self) -> dict[int, int]:
        running = {node: server.process for node, server in self._servers.items()}
        return {node: process.pid for node, process in running.items() if process.poll() is None}

    def kill(self, node: int) -> None:
        process = self._servers[node].process
        process.kill()
        process.wait()
