"""Runs a program that ends when its parent ends, for whatever reason.

Started as a script with the program and its arguments. The program replaces this process, so the parent knows
its pid; a small process beside it waits for the end of the standard input, which only the parent holds open.
"""

from __future__ import annotations

import os
import signal
import sys


def _watch(program: int) -> None:
    while os.read(0, 1024):
        pass
    # It may be gone already, and its pid used by another process: a child of it still has it as its parent.
    if os.getppid() == program:
        os.kill(program, signal.SIGKILL)


def main() -> None:
    program = os.getpid()
    if os.fork() == 0:
        _watch(program)
        os._exit(0)
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
