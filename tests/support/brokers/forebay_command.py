"""Runs the command line: in this process, which is fast, or as a process with pipes, as a user does."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from click.testing import CliRunner

from forebay.cli.main import run

TIMEOUT_SECONDS = 120


class Done(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def forebay(*arguments: str, bootstrap: str | None = None, stdin: str | bytes = b"") -> Done:
    """One command line, to its end, in this process."""
    with CliRunner().isolation(_bytes(stdin), {"FOREBAY_BOOTSTRAP_SERVERS": bootstrap}) as (out, err, _):
        code = run(arguments)
        return Done(code, _text(out.getvalue()), _text(err.getvalue()))


def forebay_process(*arguments: str, bootstrap: str | None = None, stdin: str | bytes = b"") -> Done:
    """The same in a process of its own: for `serve`, and where the process itself is the point."""
    done = subprocess.run(
        command(*arguments),
        input=_bytes(stdin),
        capture_output=True,
        env=environment(bootstrap),
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    return Done(done.returncode, _text(done.stdout), _text(done.stderr))


@contextlib.contextmanager
def running_command(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """A command that runs until a test stops it, and its output. Ended in any case: a test that fails, or
    reads a line that never comes, would wait for it."""
    with subprocess.Popen(
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**environment(), "PYTHONUNBUFFERED": "1"},
    ) as child:
        assert child.stdout is not None
        timer = threading.Timer(TIMEOUT_SECONDS, child.kill)
        timer.start()
        try:
            yield child, child.stdout
        finally:
            timer.cancel()
            if child.poll() is None:
                child.kill()


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "forebay", *arguments]


def environment(bootstrap: str | None = None) -> dict[str, str]:
    """Without the caller's own settings."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    return clean if bootstrap is None else {**clean, "FOREBAY_BOOTSTRAP_SERVERS": bootstrap}


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _text(raw: bytes) -> str:
    return raw.decode(errors="replace")
