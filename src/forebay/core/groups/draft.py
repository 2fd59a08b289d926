"""The draft of a group whose partitions the broker assigns, and the records of such a group.

An operation that changes several things at once must see the first change when it decides about the second.
So it works on a draft: each record written to it is applied to a state laid over the present one, by the same
code that replays it later. A draft costs what is written to it, however large the group is.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, Self, TypeVar

from forebay.core.step import StateRecord
from forebay.wire.fields import Message
from forebay.wire.state.versioned import pack, unpack, version_of


class RecordKinds:
    """The records of one kind of group: types of keys and values, by the version of the key."""

    def __init__(self, *kinds: tuple[type[Message], type[Message]]) -> None:
        self._kinds = {key.MIN_VERSION: (key, value) for key, value in kinds}

    def __contains__(self, version: int) -> bool:
        return version in self._kinds

    def read(self, record: StateRecord) -> tuple[Any, Any]:
        """Key and value of a record; the value is None in a tombstone."""
        key, value = self._kinds[version_of(record.key)]
        return unpack(key, record.key), None if record.value is None else unpack(value, record.value)


class GroupState(Protocol):
    def overlaid(self) -> Self:
        """A state that begins like this one, and whose changes leave this one as it is."""

    def apply(self, key: Message, value: Any) -> None: ...


S = TypeVar("S", bound=GroupState)


class GroupDraft(Generic[S]):
    """The state as it will be once the records written so far have been replayed."""

    def __init__(self, group_id: str, state: S) -> None:
        self.state = state
        self.records: list[StateRecord] = []
        self._group_id = group_id

    def _write(self, key: Message, value: Message | None) -> None:
        if not self.records:
            self.state = self.state.overlaid()
        self.records.append(
            StateRecord(pack(key, type(key).MIN_VERSION), None if value is None else pack(value, 0))
        )
        self.state.apply(key, value)
