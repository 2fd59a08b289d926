"""Has the store gone back? What a data directory remembers of it, compared with what it says now.

Three things can only rise in a store that was never put back: its revision, the index of its log, and what a
broker has written under a key of its own. A store that was restored from a backup has begun a new log. So its
index tells even where the backup is as new as all that this broker has seen. Others may have seen more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Remembered(Protocol):
    @property
    def cluster(self) -> str: ...
    @property
    def revision(self) -> int: ...
    @property
    def index(self) -> int: ...
    @property
    def nonces(self) -> Sequence[str]: ...


class Present(Protocol):
    @property
    def cluster(self) -> str: ...
    @property
    def revision(self) -> int: ...
    @property
    def index(self) -> int: ...


def signs_of_restore(before: Remembered, now: Present, nonce: str | None) -> list[str]:
    """Why the store must have been put back since; empty if nothing says so.

    `nonce` is what the store has under this broker's key: empty if nothing, None if another data directory
    of this broker has written it, which says nothing.
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
