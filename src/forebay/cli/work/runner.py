"""Runs a command per message: the value is on standard input, the exit code decides the outcome."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from forebay.cli.client import CommandError
from forebay.cli.work.environment import message_variables

if TYPE_CHECKING:
    from forebay.client import QueueMessage

REJECT_CODE = os.EX_DATAERR
"""65: the data is wrong, and would be another time."""
_CANNOT_RUN = frozenset({errno.ENOENT, errno.EACCES, errno.ENOEXEC})


class CommandRunner:
    """Handles messages, in several threads. `failure` is set, and `stop`, if the command cannot be run."""

    def __init__(
        self, command: Sequence[str], *, group: str, environ: Mapping[str, str], stop: threading.Event
    ) -> None:
        self._command = list(command)
        self._group = group
        self._environ = dict(environ)
        self._stop = stop
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self.failure: CommandError | None = None

    def handle(self, message: QueueMessage) -> None:
        try:
            code = self._run(message)
        except OSError as error:
            self._not_run(message, error)
            return
        if code == REJECT_CODE:
            message.reject(f"the command ended with {_ending(code)}")
        elif code != 0:
            message.release()
            note(f"{message.place} is released: delivery {message.delivery_count} ended with {_ending(code)}")

    def _run(self, message: QueueMessage) -> int:
        # In a separate session: Ctrl-C at the terminal is for this program, and the command may finish.
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            env={**self._environ, **message_variables(message, self._group)},
            start_new_session=True,
        )
        with self._lock:
            self._running.add(process)
        try:
            process.communicate(message.value or b"")
        finally:
            with self._lock:
                self._running.discard(process)
        return process.returncode

    def _not_run(self, message: QueueMessage, error: OSError) -> None:
        reason = error.strerror or str(error)
        if error.errno == errno.E2BIG:
            message.reject("its key and headers are too large for the environment of a process")
            return
        message.release()
        if error.errno in _CANNOT_RUN:
            self.failure = CommandError(f"cannot run {self._command[0]}, check the command: {reason.lower()}")
            self._stop.set()
        else:
            note(f"{message.place} is released, the command could not be started: {reason}")

    def terminate(self) -> None:
        """End all running commands. For a signal handler: takes no lock that a thread may hold."""
        for process in tuple(self._running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)


def note(text: str) -> None:
    click.echo(f"forebay: {text}", err=True)


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"
