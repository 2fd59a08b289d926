"""A whole cluster on this machine: etcd, and brokers as child processes that can be killed, paused and added.

Brokers are identified by their node ids, 1 and up, as in the metadata: `cluster.kill(leader)`.

    with Cluster(brokers=3) as cluster:
        client = AnyKafkaClient(bootstrap_servers=cluster.bootstrap_servers)

`forebay cluster start` is the same thing with a terminal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from forebay.config import broker_config
from forebay.local.child_broker import ChildBroker
from forebay.local.etcd import EtcdCluster
from forebay.local.halting import halt
from forebay.local.metadata import Seen, leader_seen_by, seen_by
from forebay.local.ports import HOST, ReservedPort
from forebay.local.settings import TEST_SETTINGS, BrokerFailed, setting_text

if TYPE_CHECKING:
    from forebay.local.secure_setup import SecureSetup

_READY_SECONDS_MAX = 120.0
_POLL_SECONDS = 0.05
_NAME = "local"


class Cluster:
    """Use it with `with`, or with open() and close().

    `settings` apply to every broker; `racks` names the rack of each. A given `data_dir` is kept, and its data
    is used again; otherwise everything is removed by close(). With `port` the brokers listen on that port and
    the following ones, else on free ones; metrics are served likewise with `metrics_port`, else nowhere.
    `secure`: with TLS, logins and ACLs; `client_settings` then has an administrator's login.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        settings: Mapping[str, object] | None = None,
        racks: Sequence[str] = (),
        etcd_servers: int = 1,
        data_dir: Path | str | None = None,
        port: int = 0,
        metrics_port: int = 0,
        secure: bool = False,
    ) -> None:
        self._count = brokers
        self._settings = {name: setting_text(value) for name, value in (settings or {}).items()}
        self._racks = tuple(racks)
        self._port = port
        self._metrics_port = metrics_port
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="forebay-", ignore_cleanup_errors=True)
            data_dir = self._temporary.name
        self._kept = self._temporary is None
        self.data_dir = Path(data_dir)
        self._secure = _secure_setup(self.data_dir) if secure else None
        # Servers that have TLS keep it, whatever the brokers are started with.
        etcd_security = self._secure or _existing_setup(self.data_dir)
        self._etcd_security = etcd_security
        self.etcd = EtcdCluster(
            etcd_servers,
            data_dir=self.data_dir / "etcd",
            durable=self._kept,
            tls=None if etcd_security is None else etcd_security.etcd_tls,
        )
        self._addresses: dict[int, str] = {}
        self._ports: dict[int, ReservedPort] = {}
        self._children: dict[int, ChildBroker] = {}
        self.client_file: Path | None = None
        """The file with the administrator's login, for a secure cluster."""
        self.paused: set[int] = set()
        """The brokers that are paused until they are resumed."""

    # -- what there is -------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """Every broker that was ever started: clients continue when some of them are down."""
        return ",".join(self._addresses.values())

    @property
    def node_ids(self) -> list[int]:
        return sorted(self._addresses)

    @property
    def running(self) -> list[int]:
        """The brokers whose process lives, paused or not."""
        return sorted(node for node, child in self._children.items() if child.alive)

    @property
    def client_settings(self) -> dict[str, str]:
        """librdkafka's settings of a client that may do everything."""
        servers = self.bootstrap_servers
        return (
            {"bootstrap.servers": servers} if self._secure is None else self._secure.client_settings(servers)
        )

    def address(self, node_id: int) -> str:
        return self._addresses[node_id]

    def pid(self, node_id: int) -> int:
        return self._child(node_id).pid

    def broker_data_dir(self, node_id: int) -> Path:
        return self.data_dir / f"broker-{node_id}"

    def log_path(self, node_id: int) -> Path:
        return self.data_dir / f"broker-{node_id}.log"

    def log(self, node_id: int) -> str:
        """Everything that the broker has logged, over all its runs."""
        return self.log_path(node_id).read_text(errors="replace")

    def leader(self, topic: str, partition: int = 0) -> int:
        """The running broker that leads the partition, as soon as there is one; raises BrokerFailed."""
        deadline = time.monotonic() + _READY_SECONDS_MAX
        while time.monotonic() < deadline:
            awake = [node for node in self.running if node not in self.paused]
            for node in awake:
                leader = leader_seen_by(self._addresses[node], topic, partition, self.client_settings)
                if leader in awake:
                    return leader
            time.sleep(_POLL_SECONDS)
        raise BrokerFailed(f"no running broker leads {topic}-{partition} after {_READY_SECONDS_MAX:.0f} s")

    # -- life ----------------------------------------------------------------------------------------

    def open(self) -> Cluster:
        """Returns when every broker knows all the others and there is a controller."""
        try:
            self._make_certificates()
            self.etcd.start()
            self._prepare_security()
            self._start(range(1, self._count + 1))
            self.wait_until_ready()
            self._write_client_files()
        except BaseException:
            self._end_all()
            raise
        return self

    def close(self) -> None:
        """End everything. Raises BrokerFailed if a broker had ended by itself."""
        dead = [node for node, child in self._children.items() if not child.alive]
        words = {node: self._children[node].log_text() for node in dead}
        try:
            if self._kept:
                self._stop_gently()
        finally:
            self._end_all()
        if dead:
            raise BrokerFailed(f"broker {dead[0]} had ended by itself: {words[dead[0]]}")

    def __enter__(self) -> Cluster:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An error in the block matters more than errors afterwards.
        with contextlib.suppress(BrokerFailed) if error is not None else contextlib.nullcontext():
            self.close()

    def start(self, node_id: int) -> None:
        """Restart a broker that was stopped or killed: same data, same address."""
        if node_id not in self._addresses:
            raise BrokerFailed(f"there is no broker {node_id}, only {self.node_ids}; add() makes a new one")
        self._start([node_id])

    def stop(self, node_id: int) -> None:
        """Stop a broker like a service: its leaders move to others first."""
        self.resume(node_id)
        self._child(node_id).stop()
        del self._children[node_id]

    def kill(self, node_id: int) -> None:
        """SIGKILL. Its data stays."""
        self._child(node_id).kill()
        self.paused.discard(node_id)
        del self._children[node_id]

    def pause(self, node_id: int) -> None:
        """SIGSTOP: it neither answers nor ends, until resume()."""
        halt(self.pid(node_id))
        self.paused.add(node_id)

    def resume(self, node_id: int) -> None:
        if node_id in self.paused:
            os.kill(self.pid(node_id), signal.SIGCONT)
            self.paused.discard(node_id)

    def add(self, rack: str | None = None) -> int:
        """Start one more broker, empty, and return its node id."""
        node_id = max(self.node_ids, default=0) + 1
        self._racks = (*self._racks, *[""] * (node_id - 1 - len(self._racks)), rack or "")[:node_id]
        self._start([node_id])
        return node_id

    def wait_until_ready(self) -> None:
        """Wait until all running brokers know each other and agree on a controller; raises BrokerFailed."""
        deadline = time.monotonic() + _READY_SECONDS_MAX
        wanted = set(self.running) - self.paused
        waiting = sorted(wanted)
        while waiting:
            seen = self.seen_by(waiting[0])
            if seen is not None and wanted <= set(seen.brokers) and seen.controller_id in wanted:
                waiting.pop(0)
                continue
            self._check_alive(waiting)
            if time.monotonic() > deadline:
                raise BrokerFailed(
                    f"broker {waiting[0]} does not know all of {sorted(wanted)} after "
                    f"{_READY_SECONDS_MAX:.0f} s but sees {seen}: {self._children[waiting[0]].log_text()}"
                )
            time.sleep(_POLL_SECONDS)

    def seen_by(self, node_id: int) -> Seen | None:
        """A broker's view of the cluster; None if it does not answer."""
        return seen_by(self._addresses[node_id], self.client_settings)

    # -- how -----------------------------------------------------------------------------------------

    def _start(self, node_ids: Iterable[int]) -> None:
        fresh = [node for node in node_ids if node not in self.running]
        for node in fresh:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            self._children[node] = ChildBroker(self.log_path(node))
            self._children[node].launch(self.broker_settings(node))
        for node in fresh:
            self._addresses[node] = self._children[node].wait_until_ready()

    def _make_certificates(self) -> None:
        if self._secure is not None:
            self._secure.make_files([HOST])
        if self._etcd_security is not None:
            self._etcd_security.make_etcd_files()

    def _prepare_security(self) -> None:
        if self._etcd_security is not None:
            self._etcd_security.write_etcd_settings(self.etcd.url(_NAME))
        if self._secure is not None:
            self._secure.add_users(broker_config(self._etcd_settings()))

    def _etcd_settings(self) -> dict[str, str]:
        url = self.etcd.url(_NAME)
        return (
            {"forebay.cluster": url}
            if self._etcd_security is None
            else self._etcd_security.etcd_settings(url)
        )

    def _write_client_files(self) -> None:
        if self._secure is not None:
            self.client_file = self._secure.write_client_files(self.bootstrap_servers)

    def broker_settings(self, node_id: int) -> dict[str, str]:
        """The settings of a broker at its start; a subclass may change them."""
        address = self._addresses.get(node_id) or f"{HOST}:{self._port_of(node_id)}"
        own = {
            **self._etcd_settings(),
            "node.id": str(node_id),
            "listeners": f"{self._secure.protocol if self._secure else 'PLAINTEXT'}://{address}",
            "log.dirs": str(self.broker_data_dir(node_id)),
        }
        if node_id <= len(self._racks) and self._racks[node_id - 1]:
            own["broker.rack"] = self._racks[node_id - 1]
        if self._metrics_port:
            own["forebay.metrics.listener"] = f"{HOST}:{self._metrics_port + node_id - 1}"
        # Data that is kept is kept as safely as by a normal broker.
        defaults = {} if self._kept else TEST_SETTINGS
        security = self._secure.settings() if self._secure is not None else {}
        return {**defaults, **security, **self._settings, **own}

    def _port_of(self, node_id: int) -> int:
        if self._port:
            return self._port + node_id - 1
        if node_id not in self._ports:
            self._ports[node_id] = ReservedPort()
        return self._ports[node_id].number

    def _child(self, node_id: int) -> ChildBroker:
        if node_id not in self._children:
            raise BrokerFailed(f"broker {node_id} does not run; running are {self.running}")
        return self._children[node_id]

    def _check_alive(self, node_ids: Iterable[int]) -> None:
        for node in node_ids:
            if not self._children[node].alive:
                raise BrokerFailed(f"broker {node} has ended: {self._children[node].log_text()}")

    def _stop_gently(self) -> None:
        for node in list(self.paused):
            self.resume(node)
        for child in self._children.values():
            child.terminate()
        for child in self._children.values():
            if child.alive:
                child.stop()

    def _end_all(self) -> None:
        for child in self._children.values():
            child.kill()
        self._children.clear()
        for port in self._ports.values():
            port.close()
        self.paused.clear()
        self.etcd.stop()
        if self._temporary is not None:
            self._temporary.cleanup()


def _existing_setup(data_dir: Path) -> SecureSetup | None:
    """The setup of an earlier secure start; None if there was none, or its etcd had no TLS."""
    if not (data_dir / "security").exists():
        return None
    found = _secure_setup(data_dir)
    return found if found.has_etcd_files else None


def _secure_setup(data_dir: Path) -> SecureSetup:
    # Most clusters need no certificates, and start sooner without the library for them.
    from forebay.local.secure_setup import SecureSetup

    return SecureSetup(data_dir / "security")
