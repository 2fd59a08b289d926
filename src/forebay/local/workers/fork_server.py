"""The process that workers are forked from: it has imported what a broker needs, once for all of them.

It is forked itself, from a parent that has neither threads nor an event loop yet, and never has any. Over a
socket of whole messages it is given the descriptors of a worker, and answers with the worker's pid and a
descriptor of its process; later it says with which code a worker has ended. It ends with its parent: the
kernel then closes the socket. Its workers go on, and see by themselves whether their parent lives.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from forebay.local.workers.process_handles import open_process
from forebay.local.workers.process_title import set_process_title

MESSAGE_BYTES_MAX = 1 << 16
DESCRIPTORS_MAX = 253
"""As many as Linux passes with one message."""
_STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def can_fork() -> bool:
    """Not on macOS, whose own libraries do not survive a fork, and not beside threads, whose locks would stay
    closed for ever. Linux has descriptors of processes since 5.3; a container may forbid them."""
    if sys.platform != "linux" or threading.active_count() > 1:
        return False
    try:
        os.close(open_process(os.getpid()))
    except OSError:
        return False
    return True


def start_fork_server(modules: Sequence[str]) -> tuple[int, socket.socket]:
    """Its pid, and the connection to it. It imports `modules` before it forks."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()  # or both processes would write it
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, ours
    try:
        ours.close()
        _ForkServer(theirs).run(modules)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


class _ForkServer:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._started: dict[int, int] = {}
        """The number of its start, by the pid of a worker."""
        self._wake, self._woken = socket.socketpair()

    def run(self, modules: Sequence[str]) -> None:
        os.setpgid(0, 0)  # a Ctrl-C at the terminal is for the parent
        set_process_title("forebay: fork server")
        # They stay blocked here. What ends this process is the end of its parent.
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
        _use_for_standard_streams(os.open(os.devnull, os.O_RDWR), os.open(os.devnull, os.O_RDWR))
        self._notice_ends()
        for name in modules:
            import_module(name)
        gc.freeze()  # the collector writes to what it looks at, and would make copies of shared pages
        polling = select.poll()
        polling.register(self._control, select.POLLIN)
        polling.register(self._woken, select.POLLIN)
        while True:
            ready = dict(polling.poll())
            if self._woken.fileno() in ready:
                self._report_ends()
            if self._control.fileno() in ready and not self._handle_message():
                return

    def _notice_ends(self) -> None:
        for each in (self._wake, self._woken):
            each.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)

    def _handle_message(self) -> bool:
        """False if the parent has ended."""
        text, passed, _, _ = socket.recv_fds(
            self._control, MESSAGE_BYTES_MAX, DESCRIPTORS_MAX, socket.MSG_CMSG_CLOEXEC
        )
        if not text:
            return False
        try:
            self._start(json.loads(text), passed)
        finally:
            for number in passed:
                os.close(number)
        return True

    def _start(self, message: dict[str, Any], passed: list[int]) -> None:
        try:
            pid = os.fork()
        except OSError as error:  # too many processes, or no memory
            self._say({"start": message["start"], "error": str(error)})
            return
        if not pid:
            self._become_worker(message, passed)
        self._started[pid] = message["start"]
        handle = open_process(pid)  # it is this process' child, so the pid is still its own
        try:
            self._say({"start": message["start"], "pid": pid}, handle)
        finally:
            os.close(handle)

    def _become_worker(self, message: dict[str, Any], passed: list[int]) -> None:
        """Never returns."""
        code = 1
        try:
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            for each in (self._control, self._wake, self._woken):
                each.close()
            for number in (*_STOPPING, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)
            set_process_title(f"forebay: worker {message['number']}")
            _use_for_standard_streams(*passed[:2])
            from forebay.local.workers.child import serve

            code = serve(dict(zip(message["descriptors"], passed[2:], strict=True)))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)

    def _report_ends(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
        for pid in list(self._started):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._say({"ended": self._started.pop(pid), "code": os.waitstatus_to_exitcode(status)})

    def _say(self, message: dict[str, Any], *handles: int) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the next read says so
            socket.send_fds(self._control, [json.dumps(message).encode()], handles)


def _use_for_standard_streams(stdin: int, stdout: int) -> None:
    """Standard error stays the parent's."""
    for number, target in ((stdin, 0), (stdout, 1)):
        os.dup2(number, target)
        if number > 2:
            os.close(number)
