"""Runs the command line as a user does: a process with pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, NamedTuple

TIMEOUT_SECONDS = 60


class Done(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "forebay", *arguments]


def environment(bootstrap: str | None = None) -> dict[str, str]:
    """Without the caller's own settings."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FOREBAY_")}
    return clean if bootstrap is None else {**clean, "FOREBAY_BOOTSTRAP_SERVERS": bootstrap}


def forebay(*arguments: str, bootstrap: str | None = None, stdin: str | bytes = b"") -> Done:
    """One command line, to its end."""
    done = subprocess.run(
        command(*arguments),
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        env=environment(bootstrap),
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    return Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
