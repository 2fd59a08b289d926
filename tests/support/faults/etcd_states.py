"""An etcd server at the same address that is another one, or an older state of what was there."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forebay.local.etcd import EtcdServer, find_etcd
from forebay.testing import Cluster


class EtcdStates:
    """The states of a cluster's only etcd server. What is not in use is kept beside it."""

    def __init__(self, cluster: Cluster) -> None:
        self._etcd = cluster.etcd
        self._root = cluster.data_dir / "etcd"

    @property
    def server(self) -> EtcdServer:
        return self._etcd.servers[0]

    def stop(self) -> None:
        self.server.kill()

    def start(self) -> None:
        self._etcd.restart(0)

    def keep(self, name: str) -> None:
        """Move the data of the server that was stopped out of the way."""
        self._data.rename(self._root / name)

    def put_back(self, name: str) -> None:
        if self._data.exists():
            shutil.rmtree(self._data)
        (self._root / name).rename(self._data)

    def save_snapshot(self) -> Path:
        path = self._root / "snapshot.db"
        self._run("etcdctl", "--endpoints", self.server.endpoint, "snapshot", "save", str(path))
        return path

    def restore_snapshot(self, snapshot: Path) -> None:
        """As etcd's documentation says: same name, same addresses, a new data directory."""
        if self._data.exists():
            shutil.rmtree(self._data)
        options = {
            "name": self.server.name,
            "initial-cluster": self._etcd.initial_cluster,
            "initial-advertise-peer-urls": self.server.peer_url,
            "data-dir": str(self._data),
        }
        flags = [f"--{name}={value}" for name, value in options.items()]
        self._run("etcdutl", "snapshot", "restore", str(snapshot), *flags)

    @contextmanager
    def another_server(self) -> Iterator[EtcdServer]:
        """Another etcd at the same address, in which much has happened already."""
        directory = self._root / "another"
        with self._serving(directory) as elsewhere:
            for _ in range(300):
                elsewhere.ask("/v3/kv/put", {"key": "b3RoZXJz", "value": "eA=="})
        (directory / "ports.json").write_text(json.dumps([self.server.client_port, elsewhere.peer_port]))
        with self._serving(directory) as server:
            yield server

    @contextmanager
    def _serving(self, directory: Path) -> Iterator[EtcdServer]:
        server = EtcdServer("another", directory, (), None)
        try:
            server.start(f"another={server.peer_url}")
            server.wait_until_ready()
            yield server
        finally:
            server.stop()
            server.release()

    @property
    def _data(self) -> Path:
        return self._root / self.server.name / "data"

    @staticmethod
    def _run(program: str, *arguments: str) -> None:
        path = Path(find_etcd()).with_name(program)
        path.chmod(path.stat().st_mode | 0o111)
        subprocess.run([str(path), *arguments], check=True, capture_output=True, timeout=120)
