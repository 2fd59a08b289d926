"""The turn of a view: how long filtering goes on before others get theirs. The caller provides the clock."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Place(NamedTuple):
    """The place within a batch where a turn ended, so that the next one need not search for it."""

    crc: int
    """The checksum of the batch, which identifies it."""
    offset: int
    """The offset of the first record that was not examined."""
    number: int
    """The number of records of the batch before it."""
    position: int
    """The position in the unpacked records."""


class UnpackLater(Exception):
    """A turn has to wait until another one has unpacked its batch. It has got nowhere."""


class Turn(Protocol):
    def goes_on(self) -> bool:
        """Called between records and batches: a thread may pause here. False when the turn is over."""

    def begin(self) -> None:
        """Called at the first requested record. Getting there may have taken the whole turn: at least as much
        time again is left for what follows."""

    def may_unpack_much(self) -> bool:
        """Asked before a batch is unpacked to more than a few megabytes. False if another turn does so: then
        this one ends."""


class EndlessTurn:
    """A turn without end, for callers with nothing else to do."""

    def goes_on(self) -> bool:
        return True

    def begin(self) -> None:
        pass

    def may_unpack_much(self) -> bool:
        return True


ENDLESS = EndlessTurn()
