"""The exit codes of `forebay pipeline`, by which a scheduler decides whether to run the command again.

They are those of all commands, and two of sysexits.h, which schedulers know.
"""

from __future__ import annotations

from typing import Final

FAILED: Final = 1
"""Somebody has to look: the same command would fail again."""
DATA: Final = 65
"""The messages to be read are gone or cannot be read (EX_DATAERR): somebody has to decide about them."""
TRY_AGAIN: Final = 75
"""Brokers or Spark's master cannot be reached (EX_TEMPFAIL): the same command may succeed later."""
INTERRUPTED: Final = 130
TERMINATED: Final = 143


class Terminated(KeyboardInterrupt):
    """SIGTERM, by which schedulers stop a process: it is handled as Ctrl-C is, with a status of its own."""

    exit_code = TERMINATED
