"""A mapping over another one behaves like a copy that was changed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forebay.core.groups.overlay import Overlay

KEYS = st.sampled_from("abcd")
CHANGES = st.lists(st.tuples(KEYS, st.none() | st.integers()), max_size=12)


def change(mapping: Overlay[str, int] | dict[str, int], key: str, value: int | None) -> int | None:
    """Set a value, or with None delete one; what was there."""
    if value is None:
        return mapping.pop(key, None)
    before = mapping.get(key)
    mapping[key] = value
    return before


@given(beneath=st.dictionaries(KEYS, st.integers()), changes=CHANGES, above=CHANGES)
def test_an_overlay_shows_its_changes_and_leaves_what_is_beneath(
    beneath: dict[str, int], changes: list[tuple[str, int | None]], above: list[tuple[str, int | None]]
) -> None:
    before, copy = dict(beneath), dict(beneath)
    overlay = Overlay(beneath)
    for key, value in changes:
        assert change(overlay, key, value) == change(copy, key, value)
        assert overlay == copy
        assert len(overlay) == len(copy)
        assert set(overlay) == set(copy)
        assert [each in overlay for each in "abcd"] == [each in copy for each in "abcd"]
    second, changed = Overlay(overlay), dict(copy)
    for key, value in above:
        assert change(second, key, value) == change(changed, key, value)
    assert second == changed
    assert overlay == copy
    assert beneath == before
