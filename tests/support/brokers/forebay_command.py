"""Runs the command line: in this process, which is fast, or as a process with pipes, as a user does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

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
