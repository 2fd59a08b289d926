"""Spark's daemon of Python workers, as `worker_python.sh` starts it.

It is quiet about readers that have seen enough: `take(3)`, `limit` and `show` close their connection to a
worker as soon as they have their rows. The worker is still writing, and Spark's daemon prints the
BrokenPipeError of it with its traceback, on the terminal of the user, though nothing has gone wrong. Every
other error is printed as before.

This file is run by its path and imports nothing of Forebay, so that it starts wherever PySpark does.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import SimpleNamespace


def print_unexpected() -> None:
    """Like `traceback.print_exc`, for everything but a reader that has closed its connection."""
    if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
        traceback.print_exc()


def main() -> None:
    from pyspark import daemon

    quiet = SimpleNamespace(**{**vars(traceback), "print_exc": print_unexpected})
    daemon.traceback = quiet  # type: ignore[assignment]
    daemon.manager()


if __name__ == "__main__":
    # As with `-m pyspark.daemon`: what lies beside this file is not to be found, what lies here is.
    sys.path.insert(0, str(Path.cwd()))
    main()
