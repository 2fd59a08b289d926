"""Backups of etcd and their restoring, with etcd's own tools."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from forebay.local.etcd import EtcdCluster, EtcdServer, find_etcd

_SECONDS_MAX = 120


def save_backup(etcd: EtcdCluster, file: Path, *, user: str = "") -> None:
    """Write a snapshot of a running server. `user`: name and password, as etcdctl takes them."""
    login = [f"--user={user}"] if user else []
    _run("etcdctl", f"--endpoints={etcd.servers[0].endpoint}", *login, "snapshot", "save", str(file))


def restore_backup(etcd: EtcdCluster, file: Path) -> None:
    """Stop the only server, and start it with the contents of a snapshot."""
    (server,) = etcd.servers
    server.stop()
    shutil.rmtree(data_of(server))
    _run(
        "etcdutl",
        "snapshot",
        "restore",
        str(file),
        f"--data-dir={data_of(server)}",
        f"--name={server.name}",
        f"--initial-cluster={etcd.initial_cluster}",
        f"--initial-advertise-peer-urls={server.peer_url}",
    )
    etcd.restart(0)


def data_of(server: EtcdServer) -> Path:
    return server.directory / "data"


def _run(tool: str, *arguments: str) -> None:
    program = Path(find_etcd()).with_name(tool)
    if not os.access(program, os.X_OK):
        program.chmod(program.stat().st_mode | 0o111)
    done = subprocess.run(
        [str(program), *arguments], capture_output=True, text=True, timeout=_SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stderr
