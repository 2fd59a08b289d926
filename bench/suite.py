"""What the measurements of one run share: the servers, a place on disk, the number of rounds."""

from __future__ import annotations

import resource
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.report import RESULTS
from bench.server import ForebayServer, Server, bare_server


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    scratch: Path
    rounds: int
    broker: Server
    echo: Server
    crc_write: Server

    def each_round(self, doing: str) -> Iterator[int]:
        for number in range(1, self.rounds + 1):
            print(f"  {doing}: round {number} of {self.rounds}", flush=True)
            yield number


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """On the disk of the checkout, not in a memory file system, and gone afterwards."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="data-", dir=RESULTS))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def open_suite(rounds: int) -> Iterator[Suite]:
    allow_many_files()
    with scratch_directory() as scratch, ExitStack() as servers:
        yield Suite(
            scratch=scratch,
            rounds=rounds,
            broker=servers.enter_context(ForebayServer(scratch, "broker")),
            echo=servers.enter_context(bare_server("echo", scratch)),
            crc_write=servers.enter_context(bare_server("crc-write", scratch)),
        )


def allow_many_files() -> None:
    """Thousands of connections are open at once here and in the servers, which inherit this limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
