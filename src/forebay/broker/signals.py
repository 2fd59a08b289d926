"""Signals: how a part tells others that something happened, without knowing them.

The composition root (`node.py`) connects signals to listeners, so the order in which listeners hear is
written down in one place. A signal is sent on the event loop, and its listeners are called at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Signal(Generic[P]):
    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: list[Callable[P, object]] = []

    def listen(self, listener: Callable[P, object]) -> None:
        self._listeners.append(listener)

    def send(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self._listeners:
            listener(*args, **kwargs)
