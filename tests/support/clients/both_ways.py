"""The same Produce requests on the broker's fast path and on its full path, to compare the responses.

A connection uses the fast path from the third request with the same header on. Requests with alternating
client ids never use it, so their connection is the oracle: both connections get the same requests, and the
responses are compared byte for byte.
"""

from __future__ import annotations

from typing import Any

from support.clients.wire_client import WireClient, create, only_partition, produce

NOW = 1_700_000_000_000
ACKS_ALL = -1


class Pair:
    """Two topics with names of the same length, each with a connection; the first one uses the fast path."""

    def __init__(self, bootstrap: str, admin: WireClient, topic: str, partitions: int = 1, **configs: str):
        self.names = (f"{topic}-short", f"{topic}-plain")
        self.ids = tuple(create(admin, name, partitions, **configs) for name in self.names)
        self.clients = (WireClient(bootstrap), WireClient(bootstrap))
        self._sent = 0

    def close(self) -> None:
        for client in self.clients:
            client.close()

    def send(self, data: bytes | None, version: int, **how: Any) -> None:
        self._sent += 1
        for number, client in enumerate(self.clients):
            topic = self.names[number] if version < 13 else self.ids[number]
            client_id = f"client-{self._sent % 2 if number else 0}"
            client.socket.sendall(client.frame(produce(topic, data, **how), version, client_id))

    def compare(self, count: int) -> list[Any]:
        """The answers to the next requests, which must be the same on both connections."""
        answers = []
        for _ in range(count):
            short, plain = (client.read_frame() for client in self.clients)
            assert short == self._renamed(plain)
            answers.append(only_partition(self.clients[0].decode(short)))
            self.clients[1].decode(plain)
        return answers

    def _renamed(self, answer: bytes) -> bytes:
        answer = answer.replace(self.names[1].encode(), self.names[0].encode())
        answer = answer.replace(self.ids[1].hex().encode(), self.ids[0].hex().encode())
        return answer.replace(self.ids[1], self.ids[0])
