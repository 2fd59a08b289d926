"""Apache Kafka's own share consumer as a load generator: `kafka/ShareLoad.java`, in one JVM for all brokers.

It is told what to do by lines on its standard input, and stays warm from one round to the next.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path
from typing import Any, Self

from bench.kafka_server import LIBS, POM
from bench.server import BenchError

SOURCE = POM.with_name("ShareLoad.java")
VALUE_BYTES = 200
STOP_S_MAX = 20.0


class ShareLoad:
    def __init__(self, scratch: Path) -> None:
        self._log = scratch / "share-load.err"
        with self._log.open("wb") as errors:
            self._process = subprocess.Popen(
                ["java", "-Xmx1G", "-cp", f"{LIBS}/*", str(SOURCE), str(VALUE_BYTES)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.communicate(timeout=STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def ask(self, *words: object) -> dict[str, Any]:
        """The first answer to a command; `ShareLoad.java` has the list of them."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # when it has ended, `read` says why
            self._process.stdin.write(" ".join(map(str, words)) + "\n")
            self._process.stdin.flush()
        return self.read()

    def read(self) -> dict[str, Any]:
        """The next answer."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BenchError(f"the share consumers have ended:\n{self._log.read_text()[-2000:]}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise BenchError(f"share consumers: {answer['error']}")
        return answer
