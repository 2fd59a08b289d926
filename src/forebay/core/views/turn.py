"""The turn of a view: how long filtering goes on before others get theirs. Clocks are the caller's."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Place(NamedTuple):
    """Where a turn ended within a batch, so that the next one need not look for it."""

    crc: int
    """Of the batch: it is the same batch if that is the same."""
    offset: int
    """Of the first record that was not examined."""
    number: int
    """How many records of the batch lie before it."""
    position: int
    """In the unpacked records."""


class Turn(Protocol):
    def goes_on(self) -> bool:
        """Asked between records and between batches: a thread may rest here. False when the turn is over."""

    def begin(self) -> None:
        """The first record that is wanted has been reached. To get there may have taken the whole turn: as
        much time again is left for what follows, at least."""


class EndlessTurn:
    """For who has nothing else to do."""

    def goes_on(self) -> bool:
        return True

    def begin(self) -> None:
        pass


ENDLESS = EndlessTurn()
