"""What a redrive writes down about letters that were moved."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.operations.dead_letters.progress import NoteTooLongError, Progress, progress_of


def restored(progress: Progress) -> Progress:
    return progress_of(progress.position, progress.note())


@given(st.sets(st.integers(0, 300)), st.lists(st.integers(1, 300), max_size=4))
def test_each_letter_is_moved_once_over_passes_with_filters(
    wanted_first: set[int], reads_to: list[int]
) -> None:
    """Each pass moves some letters; its progress is written down and read again before the next."""
    progress = Progress(position=0)
    moved: set[int] = set()
    for number, read_to in enumerate([*reads_to, 301]):
        for offset in range(progress.position, read_to):
            progress.read_to = offset + 1
            assert progress.is_moved(offset) == (offset in moved)
            if offset in moved:
                continue
            if number < len(reads_to) and (offset + number) not in wanted_first:
                progress.leave(offset)
                continue
            progress.moved.add(offset)
            moved.add(offset)
        progress.advance()
        progress = restored(progress)
    assert moved == set(range(301))
    assert (progress.position, progress.moved) == (301, set())


def test_what_is_unsure_stays_so_until_the_position_has_passed_it() -> None:
    progress = Progress(position=3, unsure_below=10)
    assert restored(progress).unsure_below == 10
    progress.position = 10
    assert restored(progress).unsure_below == 0


@pytest.mark.parametrize("note", [None, "", "mine", "redrive1;x;", "redrive1;0;!!", "redrive1;0;AAAA"])
def test_a_note_that_is_not_ours_counts_for_nothing(note: str | None) -> None:
    progress = progress_of(7, note)
    assert (progress.position, progress.moved, progress.unsure_below) == (7, set(), 0)


def test_how_much_fits_into_a_note() -> None:
    random = Random(1)
    scattered = Progress(position=5, moved=set(random.sample(range(6, 24_000), 12_000)))
    assert restored(scattered) == Progress(position=5, read_to=5, moved=scattered.moved)
    runs = Progress(position=0, moved={*range(1, 400_000), *range(400_001, 900_000)})
    assert restored(runs).moved == runs.moved
    scattered.moved |= set(random.sample(range(24_000, 60_000), 18_000))
    with pytest.raises(NoteTooLongError):
        scattered.note()
