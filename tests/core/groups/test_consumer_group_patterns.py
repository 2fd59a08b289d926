"""Patterns over topic names: RE2 knows what they mean; what we ask of it is tested here."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.groups.consumer.patterns import PATTERN_CHARS_MAX, Pattern


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("orders", "orders", True),
        ("orders", "orders-eu", False),
        ("orders", "all-orders", False),
        ("^orders.*", "orders-eu", True),
        ("^orders-.*$", "all-orders-eu", False),
        ("^(orders|payments)$", "payments", True),
        ("a|ab", "ab", True),
        ("(?i)ORDERS-[A-Z]+", "orders-eu", True),
        (r"\Qa.b\E+", "a.bb", True),
        (r"\p{Lu}+", "ABC", True),
        ("(?<word>a)(?P<other>b)", "ab", True),
        ("()*", "a", False),
    ],
)
def test_the_whole_name_must_match(text: str, name: str, expected: bool) -> None:
    assert Pattern(text).matches(name) == expected


@pytest.mark.parametrize(
    "text",
    ["(", "a)", "[b-a]", "*", "a{1001}", "(a{100}){100}", "(?=a)", r"(a)\1", "a" * (PATTERN_CHARS_MAX + 1)],
)
def test_what_is_not_a_pattern_is_refused(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Pattern(text)
    assert capfd.readouterr() == ("", "")


@given(st.text(max_size=30))
def test_anything_is_a_pattern_or_refused(text: str) -> None:
    try:
        Pattern(text).matches("aab-01")
    except ValueError as error:
        assert str(error)


def test_a_hostile_pattern_costs_no_more_than_others() -> None:
    """Backtracking would need 2**200 steps for this."""
    assert not Pattern("((a+)+)+b").matches("a" * 249)
    assert Pattern("(a|a|aa)*b?").matches("a" * 249)
    assert Pattern("(a|b)*a(a|b){12}").matches("ab" * 100 + "a" * 13)
