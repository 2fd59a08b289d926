"""`forebay pipeline` in a process group of its own, which can be interrupted or killed with its JVM."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from forebay.spark.session import DRIVER_OPTIONS
from support.brokers.forebay_command import command, environment


@contextlib.contextmanager
def running(*arguments: str, bootstrap: str, cwd: Path, jvm_options: str) -> Iterator[subprocess.Popen[str]]:
    """What it says is in the file `stderr`."""
    with (cwd / "stderr").open("w") as told:
        process = subprocess.Popen(
            command("pipeline", *arguments, "--master", "local[2]", *quick(jvm_options)),
            env=environment(bootstrap),
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=told,
            text=True,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            kill(process)
        process.communicate()


def quick(jvm_options: str) -> tuple[str, str]:
    return "--conf", f"{DRIVER_OPTIONS}={jvm_options}"


def kill(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
