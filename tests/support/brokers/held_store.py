"""Requests to an object store that take as long as a test wants."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from forebay.tiers.local_directory import LocalDirectory


class Held:
    """Requests to the store that do not end before they are let go."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.let_go = threading.Event()

    def hold(self, patch: pytest.MonkeyPatch, name: str) -> None:
        real = getattr(LocalDirectory, name)

        def held(store: LocalDirectory, *arguments: Any, **how: Any) -> Any:
            if not self.let_go.is_set():
                self.reached.set()
                self.let_go.wait()
            return real(store, *arguments, **how)

        patch.setattr(LocalDirectory, name, held)
