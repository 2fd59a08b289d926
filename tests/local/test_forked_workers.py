"""Workers are forked from a process that has imported what they need."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay as forebay_package
from forebay.local.workers import fork_server
from support.brokers.forebay_command import environment, forebay
from support.brokers.host_process import HostProcess, running_host, wait_until_gone
from support.brokers.replicated import until

COUNT = 3


@pytest.fixture
def host(tmp_path: Path) -> Iterator[HostProcess]:
    with running_host(tmp_path / "data", COUNT) as running:
        yield running


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def links(pid: int) -> set[str]:
    """What the descriptors of a process are of: sockets and pipes by their numbers."""
    folder = Path(f"/proc/{pid}/fd")
    return {str(each.readlink()) for each in folder.iterdir()}


def consumed(host: HostProcess) -> list[int]:
    read = forebay("consume", "t", "--exit-at-end", bootstrap=host.bootstrap)
    return sorted(map(int, read.out.split()))


def test_each_worker_is_a_process_group_of_its_own_with_a_name_in_ps(host: HostProcess) -> None:
    """A Ctrl-C at the terminal is for the parent alone."""
    workers = host.worker_pids()
    assert sorted(workers) == [1, 2, 3]
    server = host.fork_server_pid()
    for number, pid in workers.items():
        assert parent_of(pid) == server
        assert os.getpgid(pid) == pid
        assert Path(f"/proc/{pid}/comm").read_text() == f"forebay-worker{number}\n"
    assert os.getpgid(server) == server
    assert Path(f"/proc/{server}/cmdline").read_bytes().rstrip(b"\0") == b"forebay: fork server"


def test_a_worker_has_no_descriptor_of_another_and_the_fork_server_has_none_of_a_worker(
    host: HostProcess,
) -> None:
    """Pipes and connections tell the parent and the workers of each other's end, so nobody else has them."""
    own = [links(pid) for pid in host.worker_pids().values()]
    in_common = own[0] & own[1] & own[2]
    connected = {each for each in in_common if each.startswith(("socket:", "pipe:"))}
    assert len(connected) == 1  # the port at which all of them accept; standard error is a file
    kept = {each for each in links(host.fork_server_pid()) if each.startswith(("socket:", "pipe:"))}
    assert not kept & (own[0] | own[1] | own[2])


def test_several_workers_import_little_more_than_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")
    imported: dict[int, int] = {}
    for count in (2, 5):
        with running_host(tmp_path / str(count), count) as host:
            imported[count] = len(re.findall(r"^import time:", host.log(), re.MULTILINE))
    each = (imported[5] - imported[2]) / 3
    assert imported[2] > 300
    assert each < 40, imported


def test_without_its_fork_server_a_host_goes_on_and_starts_workers_as_programs(host: HostProcess) -> None:
    assert forebay("topic", "create", "t", "--partitions", "6", bootstrap=host.bootstrap).code == 0
    forked = host.worker_pids()
    os.kill(host.fork_server_pid(), signal.SIGKILL)
    until(lambda: "the fork server has ended" in host.log(), "the parent has noticed")
    sent = forebay("produce", "t", bootstrap=host.bootstrap, stdin="".join(f"{n}\n" for n in range(100)))
    assert sent.code == 0, sent.err
    os.kill(forked[2], signal.SIGKILL)
    until(lambda: list(host.worker_pids()) == [2], "worker 2 is a child of the parent")
    until(lambda: consumed(host) == list(range(100)), "worker 2 leads again")
    assert host.end() == 0
    for pid in forked.values():
        wait_until_gone(pid)
    assert "Traceback" not in host.log()
    for folder in (host.data, host.data / "workers" / "2", host.data / "workers" / "3"):
        assert (folder / ".kafka_cleanshutdown").exists()


def test_after_an_upgrade_on_disk_a_worker_starts_as_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forked one would load the parts that it needs later from the new version."""
    package = tmp_path / "site" / "forebay"
    shutil.copytree(Path(forebay_package.__file__).parent, package)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    with running_host(tmp_path / "data", 2) as host:
        killed = host.kill_worker(2)
        until(lambda: host.worker_pids().get(2, killed) != killed, "worker 2 runs again")
        forked = host.worker_pids()[2]
        assert parent_of(forked) == host.fork_server_pid()
        upgraded = package / "__init__.py.new"
        shutil.copyfile(package / "__init__.py", upgraded)
        upgraded.rename(package / "__init__.py")
        host.kill_worker(2)
        until(lambda: host.worker_pids().get(2, forked) != forked, "worker 2 runs again")
        assert parent_of(host.worker_pids()[2]) == host.pid


def test_the_fork_server_ends_with_its_parent(host: HostProcess) -> None:
    server = host.fork_server_pid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(server, number)  # as by whoever ends all processes of a service at once
    killed = host.kill_worker(1)
    until(lambda: host.worker_pids().get(1, killed) != killed, "it has forked another")
    assert parent_of(host.worker_pids()[1]) == server
    until(lambda: "reason=SIGKILL" in host.log(), "the log says how the first one ended")
    host.end(signal.SIGKILL)
    wait_until_gone(server)


EARLY_SIGNAL = """
import os, signal, socket
from forebay.local.workers.fork_server import start_fork_server
from forebay.local.workers.process_handles import signal_process

pid, control = start_fork_server(["forebay.local.workers.child"])
settings, _never_written = os.pipe()
socket.send_fds(control, [b'{"start": 1, "number": 1, "descriptors": []}'], [settings, os.dup(1)])
_, handles, _, _ = socket.recv_fds(control, 1024, 1)
signal_process(handles[0], signal.SIGTERM)
print(control.recv(1024).decode())
"""


def test_a_worker_ends_by_a_signal_that_comes_before_it_has_begun() -> None:
    """Signals that the fork server does not want to see are blocked in it, and kept for the worker."""
    done = subprocess.run(
        [sys.executable, "-c", EARLY_SIGNAL], env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout == '{"ended": 1, "code": -15}\n'


def test_nothing_is_forked_beside_threads() -> None:
    """Their locks would stay closed in the new process."""
    going_on = threading.Event()
    thread = threading.Thread(target=going_on.wait)
    thread.start()
    assert not fork_server.can_fork()
    going_on.set()
    thread.join()
