"""What a view may cost: a large query is refused, a costly record is not shown, and each turn has an end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.views.conditions.limits import RecordLimits
from forebay.core.views.filtering import Filtered, filter_batches
from forebay.core.views.turn import Place, UnpackLater
from forebay.core.views.view import CompiledView, ViewError, compile_view
from forebay.wire.batch import HEADER_SIZE, assemble, build_batch, read_header, split
from forebay.wire.compression import MAX_OUTPUT_BYTES, Codec
from forebay.wire.records import Record
from support.machines.view_records import NOW_MS, filtered, record, records_of

HEAVY = "regexp_like(value.a, 'x{1,300}y')"
LARGE = "regexp_like(value.a, '^x{1,300}y')"
"""As large, but quick: it is found at the beginning, or not at all."""


def error_of(where: str | None, select: str | None = None, pattern_size_max: int | None = None) -> str:
    with pytest.raises(ViewError) as raised:
        compile_view(where, select, pattern_size_max=pattern_size_max)
    return raised.value.message


def one_batch(*values: Any, **how: Any) -> bytes:
    return bytes(build_batch([record(value, offset=at) for at, value in enumerate(values)], **how))


# -- queries -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where",
    [
        "regexp_like(value.a, 'x{1,1000}y')",
        "value.a LIKE '%x" + "_" * 900 + "'",
        "value.a ILIKE '%x" + "_" * 900 + "'",
        " OR ".join(["regexp_like(value.a, 'x{1,30}y')"] * 50),
    ],
    ids=range(4),
)
def test_a_new_view_has_patterns_of_a_bounded_size(where: str) -> None:
    message = error_of(where, pattern_size_max=2_000)
    assert "2000 (forebay.view.pattern.size.max)" in message and "repeat fewer times" in message
    assert compile_view(where, None).weight > 2_000, "a view that was accepted before is still compiled"


def test_the_patterns_of_a_condition_and_of_a_selection_count_together() -> None:
    half = "regexp_like(value.a, 'x{1,600}y')"
    compile_view(half, None, pattern_size_max=2_000)
    compile_view(None, f"{half} AS b", pattern_size_max=2_000)
    assert "beside others of 1204" in error_of(half, f"{half} AS b", pattern_size_max=2_000)


@pytest.mark.parametrize(
    "pattern",
    [
        r"\pL+",
        r"[\w.+-]+@[\w-]+\.[\w.]+",
        r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
        r"(?i)(select|insert|update|delete|drop)\s+(from|into|table)",
        r"^.{1,64}$",
        r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}",
    ],
)
def test_usual_patterns_are_far_from_the_bound(pattern: str) -> None:
    compile_view(f"regexp_like(value.a, '{pattern}')", None, pattern_size_max=2_000)


@pytest.mark.parametrize(
    ("pattern", "lengths"), [("_" * 900, {900}), ("_%" * 450, {450, 899, 900, 901}), ("%", {0, 450, 899})]
)
def test_a_like_of_wildcards_only_is_a_question_of_length(pattern: str, lengths: set[int]) -> None:
    view = compile_view(f"value.a LIKE '{pattern}'", None, pattern_size_max=1)
    for length in (0, 449, 450, 899, 900, 901):
        shown = filtered(view, one_batch({"a": "ä" * length})).delivered
        assert bool(shown) is (length in lengths or pattern == "%"), length


@pytest.mark.parametrize(
    "level",
    ["({} BETWEEN value.b AND value.c)", "CASE {} WHEN value.b THEN 1 WHEN value.c THEN 2 ELSE 3 END"],
)
def test_what_is_evaluated_several_times_does_not_grow_by_powers(level: str) -> None:
    where = "value.a"
    for _ in range(8):
        where = level.format(where)
    compile_view(f"{where} = value.d", None)
    for _ in range(15):
        where = level.format(where)
    assert "evaluated for each message" in error_of(f"{where} = value.d")


def test_what_is_searched_in_a_list_is_evaluated_once() -> None:
    where = "value.a"
    for _ in range(20):
        where = f"({where} IN (value.b, value.c, true, NULL))"
    view = compile_view(where, None)
    assert filtered(view, one_batch({"a": 1, "b": 1})).delivered == 1
    assert filtered(view, one_batch({"a": 1, "b": 2, "c": 2})).delivered == 0


# -- records -------------------------------------------------------------------------------------------------


def test_a_text_is_matched_if_its_bytes_times_the_pattern_are_within_the_limit() -> None:
    view = compile_view(HEAVY, None, limits=RecordLimits(steps_max=1_000_000))
    size = view.weight - 1
    fits = 1_000_000 // size - 1
    for text, is_shown in ((fits, True), (fits + 1, False)):
        shown = filtered(view, one_batch({"a": "x" * text + "y"}))
        assert (shown.delivered, shown.invalid) == (int(is_shown), int(not is_shown)), text
    wide = filtered(view, one_batch({"a": "ä" * (fits // 2) + "xy"}))
    assert (wide.delivered, wide.invalid) == (0, 1), "a character may take four bytes"


def test_several_patterns_share_what_a_record_may_cost() -> None:
    limits = RecordLimits(steps_max=1_000_000)
    text = one_batch({"a": "x" * 1_200 + "y"})
    assert filtered(compile_view(HEAVY, None, limits=limits), text).delivered == 1
    twice = compile_view(f"NOT {HEAVY} OR {HEAVY}", None, limits=limits)
    assert filtered(twice, text).invalid == 1


def test_a_record_that_costs_too_much_is_not_shown_by_the_opposite_condition_either() -> None:
    limits = RecordLimits(steps_max=10_000)
    for where in (HEAVY, f"NOT {HEAVY}", f"{HEAVY} IS NULL", f"coalesce({HEAVY}, true)"):
        shown = filtered(
            compile_view(where, None, limits=limits), one_batch({"a": "x" * 10_000}, {"a": "xy"})
        )
        assert (shown.invalid, shown.examined) == (1, 2), where


def test_a_document_is_read_if_it_is_not_too_large() -> None:
    limits = RecordLimits(bytes_max=2_000, elements_max=100)
    values = [
        {"a": 1, "b": ["x"] * 98},
        {"a": 1, "b": ["x"] * 100},
        {"a": 1, "b": [[]] * 60},
        {"a": 1, "b": "x" * 1_000},
        {"a": 1, "b": "x" * 2_000},
        {"a": 1, "b": ",[{" * 100},
        None,
    ]
    for where in ("value.a = 1", "value.a = 1 AND offset >= 0", "value.a > 0 OR key = 'z'"):
        shown = filtered(compile_view(where, None, limits=limits), one_batch(*values))
        assert [one.offset for one in records_of(shown.data)] == [0, 3], where
        assert shown.invalid == 4


def test_a_value_that_the_query_does_not_use_may_be_large() -> None:
    limits = RecordLimits(bytes_max=2_000)
    batch = one_batch({"b": "x" * 5_000}, {})
    assert filtered(compile_view("key = 'k'", None, limits=limits), batch).delivered == 2
    assert filtered(compile_view("key = 'k' AND value.c IS NULL", None, limits=limits), batch).delivered == 1
    keys = bytes(build_batch([Record(0, 0, b"k" * 3_000, b"{}"), Record(1, 0, b"k", b"{}")]))
    shown = filtered(compile_view("key LIKE 'k%'", None, limits=limits), keys)
    assert (shown.delivered, shown.invalid) == (1, 1)


def test_a_record_may_be_the_smaller_the_more_often_a_query_goes_through_it() -> None:
    batch = one_batch({"a": "x" * 100_000})
    many = " OR ".join(f"value.a LIKE '%y{number}%'" for number in range(1_000))
    few = " OR ".join(f"value.a LIKE '%y{number}%'" for number in range(10))
    limits = RecordLimits(steps_max=1_000_000)
    assert filtered(compile_view(many, None, limits=limits), batch).invalid == 1
    assert filtered(compile_view(few, None, limits=limits), batch).invalid == 0


def test_a_record_with_very_many_headers_is_not_searched() -> None:
    headers = [("h", b"v")] * 101
    data = bytes(build_batch([record({}, headers=headers[:at], offset=at - 100) for at in (100, 101)]))
    view = compile_view("headers['h'] = 'v'", None, limits=RecordLimits(elements_max=100))
    shown = filtered(view, data)
    assert (shown.delivered, shown.invalid) == (1, 1)


def test_a_document_may_have_the_fewer_elements_the_more_often_it_is_written_as_text() -> None:
    batch = one_batch({"a": list(range(1_000))})
    limits = RecordLimits(elements_max=5_000, steps_max=1_000_000)
    for times, is_read in ((5, True), (100, False)):
        where = " AND ".join(f"value.a IS DISTINCT FROM value.b{number}" for number in range(times))
        assert bool(filtered(compile_view(where, None, limits=limits), batch).delivered) is is_read


def test_what_a_selection_makes_of_one_record_is_bounded_while_it_is_made() -> None:
    view = compile_view(None, ", ".join(f"value AS a{number}" for number in range(100)))
    shown = filtered(view, one_batch({"x": "y" * 1_000_000}, {"x": "z"}, {"x": "y" * 100_000}))
    assert (shown.delivered, shown.invalid) == (2, 1)
    small, large = (json.loads(one.value or b"") for one in records_of(shown.data))
    assert small == {f"a{number}": {"x": "z"} for number in range(100)}
    assert list(large) == list(small) and large["a99"] == {"x": "y" * 100_000}


# -- turns ---------------------------------------------------------------------------------------------------


class CountedTurn:
    """Ends after so many questions."""

    def __init__(self, questions: int, *, may_unpack: bool = True) -> None:
        self._left = questions
        self.may_unpack = may_unpack
        self.begun = self.large = 0

    def goes_on(self) -> bool:
        self._left -= 1
        return self._left > 0

    def begin(self) -> None:
        self.begun += 1

    def may_unpack_much(self) -> bool:
        self.large += 1
        return self.may_unpack


def turn_of(
    view: CompiledView, data: bytes, first_offset: int, turn: CountedTurn, place: Place | None = None
) -> Filtered:
    return filter_batches(
        view,
        memoryview(data),
        first_offset,
        2**62,
        topic="orders",
        partition=3,
        now_ms=NOW_MS,
        decompress_max_bytes=MAX_OUTPUT_BYTES,
        turn=turn,
        place=place,
    )


def in_turns(
    view: CompiledView, data: bytes, questions: int, *, remembers: bool = False
) -> tuple[list[Record], list[Filtered]]:
    """What is shown by one turn after the other, as a client sees it: from its offset on."""
    found: list[Record] = []
    turns: list[Filtered] = []
    offset, end = 0, split(data)[-1][1].next_offset
    place: Place | None = None
    while offset < end:
        shown = turn_of(view, data, offset, CountedTurn(questions), place)
        place = shown.cut if remembers else None
        assert shown.next_offset > offset, "a turn gets further"
        assert all(header.last_offset < shown.next_offset for _, header in split(shown.data))
        found += [one for one in records_of(shown.data) if one.offset >= offset]
        turns.append(shown)
        offset = shown.next_offset
    return found, turns


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
    st.integers(1, 7),
    st.sampled_from(list(Codec)),
    st.sampled_from([LARGE, f"{LARGE} AND offset >= 0", f"value.a = 'x' OR {LARGE}"]),
)
def test_what_is_shown_in_turns_is_what_is_shown_at_once(
    lengths: list[int], questions: int, codec: Codec, where: str
) -> None:
    texts = ["x" * 6_000, "y" * 3_000, "x" * 1_500 + "y", "xy"]
    documents = [{"a": texts[length]} for length in lengths]
    half = len(documents) // 2
    data = b"".join(
        bytes(
            build_batch(
                [record(each, offset=base + at) for at, each in enumerate(part)],
                base_offset=base,
                codec=codec,
            )
        )
        for base, part in ((0, documents[:half]), (half, documents[half:]))
        if part
    )
    view = compile_view(where, None)
    found, turns = in_turns(view, data, questions)
    assert found == records_of(filtered(view, data).data)
    assert found == in_turns(view, data, questions, remembers=True)[0]
    assert sum(turn.examined for turn in turns) == len(documents)
    assert sum(turn.source_bytes for turn in turns) >= len(data) - max(h.size for _, h in split(data))


def test_a_long_batch_is_left_in_the_middle_and_gone_on_with() -> None:
    view = compile_view(HEAVY, None)
    data = one_batch(*({"a": "x" * 3_000 + ("y" if at % 3 else "")} for at in range(30)))
    found, turns = in_turns(view, data, questions=5)
    assert [one.offset for one in found] == [at for at in range(30) if at % 3]
    assert len(turns) > 3 and all(turn.cut for turn in turns[:-1])
    assert not turns[0].begins_within and all(turn.begins_within for turn in turns[1:])
    assert turns[-1].cut is None and turns[-1].whole


def test_a_turn_that_takes_long_to_get_to_its_first_record_is_told_when_it_is_there() -> None:
    view = compile_view(HEAVY, None)
    data = one_batch(*({"a": "x" * 3_000} for _ in range(30)))
    turn = CountedTurn(2)
    assert turn_of(view, data, 20, turn).next_offset > 20
    assert turn.begun == 1


def test_a_turn_asks_before_it_unpacks_much() -> None:
    view = compile_view("value.a = 'y'", None)
    small, large = (one_batch(*[{"a": "x" * 1_000_000}] * count, codec=Codec.ZSTD) for count in (2, 6))
    turn = CountedTurn(1_000)
    assert turn_of(view, small, 0, turn).examined == 2 and turn.large == 0
    assert turn_of(view, large, 0, turn).examined == 6 and turn.large == 1


def test_a_turn_that_may_not_unpack_much_ends_before_the_batch() -> None:
    view = compile_view("value.a = 'y'", None)
    small = one_batch({"a": "y"}, {"a": "x"})
    records = [record({"a": "x" * 1_000_000}, offset=at) for at in range(2, 8)]
    large = bytes(build_batch(records, base_offset=2, codec=Codec.ZSTD))
    shown = turn_of(view, small + large, 0, CountedTurn(1_000, may_unpack=False))
    assert (shown.next_offset, shown.delivered, shown.examined, shown.whole) == (2, 1, 2, False)
    with pytest.raises(UnpackLater):
        turn_of(view, small + large, 2, CountedTurn(1_000, may_unpack=False))


def test_a_turn_that_has_found_much_in_one_batch_leaves_the_rest() -> None:
    """What was found is there twice until it is packed."""
    view = compile_view("value.a LIKE 'x%'", None)
    data = one_batch(*[{"a": "x" * 1_000_000}] * 40, codec=Codec.ZSTD)
    found, turns = in_turns(view, data, questions=1_000)
    assert [one.offset for one in found] == list(range(40))
    assert [turn.delivered for turn in turns] == [9, 9, 9, 9, 4]


def test_a_place_in_another_batch_is_not_believed() -> None:
    view = compile_view(HEAVY, None)
    first, second = (one_batch(*({"a": "x" * chars + "y"} for _ in range(30))) for chars in (3_000, 3_100))
    cut = turn_of(view, first, 0, CountedTurn(5)).cut
    assert cut is not None
    shown = turn_of(view, second, cut.offset, CountedTurn(1_000), cut)
    assert [one.offset for one in records_of(shown.data)] == list(range(cut.offset, 30))


def test_a_batch_that_is_quickly_examined_is_never_cut() -> None:
    view = compile_view("value.a = 'x'", None)
    data = one_batch(*({"a": "x"} for _ in range(500)))
    shown = turn_of(view, data, 0, CountedTurn(1))
    assert (shown.delivered, shown.cut) == (500, None)


def test_a_turn_ends_between_two_batches_too() -> None:
    view = compile_view("value.a = 'x'", None)
    data = b"".join(bytes(build_batch([record({"a": "x"}, offset=at)], base_offset=at)) for at in range(10))
    shown = turn_of(view, data, 0, CountedTurn(4))
    assert (shown.next_offset, shown.delivered, shown.whole, shown.cut) == (4, 4, False, None)
    assert shown.source_bytes == 4 * len(data) // 10


def test_records_that_lie_about_their_offsets_do_not_keep_a_view_at_one_place() -> None:
    """Under a good checksum, all records claim the same offset: a turn that ends among them gets nowhere."""
    payload = b"".join(bytes(build_batch([record({"a": "x" * 4_000})]))[HEADER_SIZE:] for _ in range(30))
    header = read_header(build_batch([record({}, offset=at) for at in range(30)]))
    batch = bytes(assemble(header, payload))
    view = compile_view(HEAVY, None)
    for questions in (1, 3, 1_000):
        shown = turn_of(view, batch, 0, CountedTurn(questions))
        assert (shown.next_offset, shown.delivered) == (30, 0)
