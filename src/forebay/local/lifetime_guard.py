"""Runs a program that ends when its parent does, however the parent came to its end.

Started as a script with the program and its arguments. The program takes the place of this process, so that
its pid is the one that the parent knows; a small process beside it waits for the end of the standard input,
which only the parent holds open.
"""

from __future__ import annotations

import os
import signal
import sys


def _watch(program: int) -> None:
    while os.read(0, 1024):
        pass
    # It may be gone already, and its number another's: a child of it still has it as its parent.
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
