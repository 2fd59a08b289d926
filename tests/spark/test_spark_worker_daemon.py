"""Spark's daemon as sessions on this machine start it, told what a JVM would tell it."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from forebay.spark.session import DAEMON, REAL_PYTHON, WORKER_DAEMON, WORKER_PYTHON
from support.waiting import Patience

WORKERS = {
    "pyspark_that_writes": "while True: outfile.write(bytes(65536)); outfile.flush()",
    "pyspark_that_fails": "raise ValueError('a bug of the user')",
}
SECRET = b"a secret of the session"


@pytest.fixture
def workers(tmp_path: Path) -> Path:
    for name, body in WORKERS.items():
        (tmp_path / f"{name}.py").write_text(f"def main(infile, outfile):\n    {body}\n")
    return tmp_path


def what_it_says(worker: str, path: Path, daemon: Path = WORKER_DAEMON) -> str:
    """What is on stderr when a reader has closed its connection to a worker, and the daemon has ended."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")]),
        "PYTHON_WORKER_FACTORY_SECRET": SECRET.decode(),
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        REAL_PYTHON: sys.executable,
        DAEMON: str(daemon),
    }
    with subprocess.Popen(
        [WORKER_PYTHON, "-m", "pyspark.daemon", worker],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
    ) as started:
        assert started.stdout is not None
        (port,) = struct.unpack(">i", started.stdout.read(4))
        with socket.create_connection(("127.0.0.1", port)) as reader:
            reader.sendall(struct.pack(">i", len(SECRET)) + SECRET)
            answered = reader.recv(4 + 4 + 2, socket.MSG_WAITALL)
            assert answered.endswith(b"ok")
            reader.recv(1)  # of rows, or the end
        (pid,) = struct.unpack_from(">i", answered)
        patience = Patience("the worker ends")
        while Path(f"/proc/{pid}").exists():
            patience.check()
            time.sleep(0.01)
        _, said = started.communicate(timeout=60)
    return said.decode()


def test_a_reader_that_has_seen_enough_is_no_error(workers: Path) -> None:
    spark_s_own = what_it_says("pyspark_that_writes", workers, workers / "none")
    assert "BrokenPipeError" in spark_s_own or "ConnectionResetError" in spark_s_own
    assert what_it_says("pyspark_that_writes", workers) == ""


def test_every_other_error_is_printed(workers: Path) -> None:
    said = what_it_says("pyspark_that_fails", workers)
    assert said.startswith("Traceback")
    assert "ValueError: a bug of the user" in said
