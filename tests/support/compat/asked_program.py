"""A program in another language that does what it is told by lines, and answers in lines of JSON."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

_STOP_S_MAX = 20.0
_ERRORS_SHOWN = 3000


class AskedProgram:
    def __init__(self, command: Sequence[str | Path], log: Path) -> None:
        """What it writes to its standard error goes to this file."""
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """It ends when its input does."""
        try:
            self._process.communicate(timeout=_STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def ask(self, *words: object) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # when it has ended, its log says why
            self._process.stdin.write(" ".join(map(str, words)) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the program has ended:\n{self._said()}"
        answer = json.loads(line)
        if isinstance(answer, dict) and "error" in answer:
            raise AssertionError(f"{answer['error']}\n{self._said()}")
        return answer

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-_ERRORS_SHOWN:]
