"""Stopping a child process for a while, so that it is certain to stand still."""

from __future__ import annotations

import os
import signal
import subprocess
import time

_POLL_SECONDS = 0.005


def halt(pid: int) -> None:
    """SIGSTOP a child; when this returns, none of its threads runs any more."""
    os.kill(pid, signal.SIGSTOP)
    if hasattr(os, "waitid"):
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return
    # Python has no waitid on macOS before 3.13, and waitpid would take the exit code of a child that ended.
    while not _stands_still(pid):
        time.sleep(_POLL_SECONDS)


def _stands_still(pid: int) -> bool:
    """True if a process is stopped, has ended, or is gone."""
    asked = ["ps", "-o", "stat=", "-p", str(pid)]
    state = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
    return not state or state[0] in "TZ"
