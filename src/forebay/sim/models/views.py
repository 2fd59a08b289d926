"""The model of views: a view equals its condition applied to the source, up to the position that was read."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from forebay.core.topic_partition import TopicPartition
from forebay.sim.models.facts import Content, name_of
from forebay.sim.world.places import FILLS, SHOWN_EVERY, VIEWS


def source_of(at: TopicPartition) -> TopicPartition:
    """The partition that a partition of a view shows."""
    return (VIEWS.get(at[0]) or FILLS[at[0]]), at[1]


class Views:
    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._seen: dict[tuple[TopicPartition, bool], dict[int, bytes]] = {}
        """By partition of a view, and by whether only committed messages are read."""
        self._positions: dict[tuple[TopicPartition, bool], int] = {}

    def read(
        self,
        reader: str,
        at: TopicPartition,
        shown: Iterable[tuple[int, bytes]],
        next_offset: int,
        *,
        committed: bool,
    ) -> None:
        """Note that a reader has got these, and continues at this offset."""
        key = (at, committed)
        for offset, value in shown:
            if not is_shown(offset):
                self._fail(f"{reader} read {value!r} at {name_of(at, offset)}, which the view does not show")
            self._seen.setdefault(key, {})[offset] = value
        self._positions[key] = max(self._positions.get(key, 0), next_offset)

    def finish(self, stored: Content, visible: Content) -> None:
        """Compare what was read of views with all messages of their sources, and the committed ones."""
        for (at, committed), position in self._positions.items():
            content = (visible if committed else stored).get(source_of(at), {})
            expected = {
                offset: value for offset, value in content.items() if offset < position and is_shown(offset)
            }
            seen = self._seen.get((at, committed), {})
            for offset in sorted(expected.keys() | seen.keys()):
                was, is_now = seen.get(offset), expected.get(offset)
                if was != is_now:
                    where = f"{name_of(at, offset)} of a view that was read up to {position} ({committed=})"
                    self._fail(f"{where} was {was!r}, and its source has {is_now!r} there")


def is_shown(offset: int) -> bool:
    return offset % SHOWN_EVERY == 0


def wrong_views(views: Content, sources: Content, what: str) -> list[str]:
    """Differences at the end between views and the messages of their sources; `what` names these."""
    wrong = []
    for at, view in views.items():
        content = sources[source_of(at)]
        expected = {offset: value for offset, value in content.items() if is_shown(offset)}
        if view != expected:
            offsets = sorted(offset for offset, _ in view.items() ^ expected.items())
            wrong.append(f"{name_of(at)} is not what is {what} of its source at {offsets[:5]}")
    return wrong
