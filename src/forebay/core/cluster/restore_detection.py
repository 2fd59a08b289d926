"""Detects that the store has gone back: compares a data directory's memory of it with its present state.

Three things only rise in a store that was never restored: its revision, the index of its log, and what a
broker has written under its own key. A store that was restored from a backup has begun a new log. So its
index reveals the restore even if the backup is as new as everything this broker has seen. Other brokers may
have seen more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Present(Protocol):
    @property
    def cluster(self) -> str: ...
    @property
    def revision(self) -> int: ...
    @property
    def index(self) -> int: ...


class Remembered(Present, Protocol):
    @property
    def nonces(self) -> Sequence[str]: ...


def signs_of_restore(before: Remembered, now: Present, nonce: str | None) -> list[str]:
    """Why the store must have been restored since; empty if nothing says so.

    `nonce` is the value under this broker's key: empty if there is none; None if another data directory of
    this broker wrote it, which proves nothing.
    """
    signs: list[str] = []
    if now.cluster != before.cluster:
        signs.append(f"the store's id is {now.cluster}, it was {before.cluster}")
    if now.revision < before.revision:
        signs.append(f"the store is at revision {now.revision}, it was at {before.revision}")
    if now.index < before.index:
        signs.append(f"the store's log is at index {now.index}, it was at {before.index}")
    if nonce is not None and before.nonces and nonce not in before.nonces:
        signs.append(f"the store has {nonce or 'nothing'} where this broker wrote {before.nonces[0]}")
    return signs
