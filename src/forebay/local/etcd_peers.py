"""The address of an etcd server for its peers, and the switch to TLS.

etcd keeps the addresses of its members in its own data, so a server cannot just listen elsewhere. A server
without TLS gets it like this: for a moment it listens at both addresses, the members are told the new ones,
and at the next start it listens at the new one only. Each step may be interrupted; the next start continues
from there.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from forebay.local.ports import HOST, ReservedPort

_KNOWN, _NEXT = "peer_url", "peer_url.next"
_SECONDS_MAX = 60.0


class PeerAddress:
    def __init__(self, directory: Path, port: int, *, tls: bool) -> None:
        """`port`: for a server without TLS, and for a new one."""
        self._directory = directory
        plain = f"http://{HOST}:{port}"
        if tls and not (directory / "data").exists():
            _write(directory / _KNOWN, plain.replace("http", "https"))
        self.url = _read(directory / _KNOWN) or plain
        """The address that others know."""
        self.next_url: str | None = None
        """The address that they will know: it is getting TLS."""
        self._port = ReservedPort(_port(self.url)) if _port(self.url) != port else None
        if tls and not self.has_tls:
            self._port = ReservedPort(_port(_read(directory / _NEXT) or ":0"))
            self.next_url = f"https://{HOST}:{self._port.number}"
            _write(directory / _NEXT, self.next_url)

    @property
    def has_tls(self) -> bool:
        return self.url.startswith("https:")

    @property
    def listened_at(self) -> str:
        return self.url if self.next_url is None else f"{self.url},{self.next_url}"

    def move(self) -> None:
        """Use only the new address from now on: all others know it."""
        if self.next_url is not None:
            _write(self._directory / _KNOWN, self.next_url)
            self.url, self.next_url = self.next_url, None

    def release(self) -> None:
        if self._port is not None:
            self._port.close()


class Server(Protocol):
    """A running etcd server."""

    name: str
    peer: PeerAddress

    def ask(self, path: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        """One request; raises OSError when it fails."""


def announce(servers: Sequence[Server]) -> None:
    """Tell running servers the new addresses; raises OSError."""
    wanted = {server.name: server.peer.next_url or server.peer.url for server in servers}
    for member in _members(servers[0]):
        if member["peerURLs"] != [wanted[member["name"]]]:
            changed = {"ID": member["ID"], "peerURLs": [wanted[member["name"]]]}
            servers[0].ask("/v3/cluster/member/update", changed)
    deadline = time.monotonic() + _SECONDS_MAX
    for server in servers:
        while {each["name"]: each["peerURLs"][0] for each in _members(server)} != wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{server.name} did not hear of the new addresses")
            time.sleep(0.02)


def _members(server: Server) -> list[dict[str, Any]]:
    members: list[dict[str, Any]] = server.ask("/v3/cluster/member/list", {})["members"]
    return members


def _port(url: str) -> int:
    return int(url.rpartition(":")[2])


def _read(file: Path) -> str:
    return file.read_text().strip() if file.exists() else ""


def _write(file: Path, text: str) -> None:
    beside = file.with_name(f".{file.name}.new")
    beside.write_text(f"{text}\n")
    beside.replace(file)
