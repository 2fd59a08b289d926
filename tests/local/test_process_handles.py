"""Descriptors of processes, by Python's own calls and by the kernel's numbers for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from forebay.local.workers.process_handles import open_process, signal_process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no other system has them")


@pytest.fixture(params=["Python's", "the kernel's"])
def calls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "the kernel's":
        monkeypatch.delattr(os, "pidfd_open", raising=False)
        monkeypatch.delattr(signal, "pidfd_send_signal", raising=False)


@pytest.mark.usefixtures("calls")
def test_a_process_is_signalled_until_it_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        handle = open_process(child.pid)
        try:
            signal_process(handle, signal.SIGKILL)
            assert child.wait() == -signal.SIGKILL
            with pytest.raises(ProcessLookupError):
                signal_process(handle, signal.SIGKILL)
        finally:
            os.close(handle)


@pytest.mark.usefixtures("calls")
def test_there_is_none_of_a_process_that_is_not_there() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    with pytest.raises(OSError):
        os.close(open_process(child.pid))
