"""Patterns over topic names: what they mean is held against Python's `re`, where both mean the same."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.groups.consumer.pattern_syntax import PATTERN_CHARS_MAX
from forebay.core.groups.consumer.patterns import compile_pattern

letters = st.sampled_from("ab.-_0")
atoms = st.one_of(
    letters.map(re.escape),
    st.sampled_from([".", "[ab]", "[^a]", "[a-b0]", r"\d", r"\w", r"\.", r"[\d.]", "", "^", "$", r"\A"]),
)


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = inner.map(lambda text: f"(?:{text})")
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(group, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"])).map("".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"(?i:{text})"),
    )


@given(text=st.recursive(atoms, _grow, max_leaves=8), name=st.text(letters, min_size=1, max_size=8))
def test_patterns_mean_what_they_mean_elsewhere(text: str, name: str) -> None:
    pattern = compile_pattern(text)
    for _ in range(2):  # from the automaton, then from what it has kept
        assert pattern.matches(name) == (re.fullmatch(text, name) is not None)


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("orders", "orders", True),
        ("orders", "orders-eu", False),
        ("^orders.*", "orders-eu", True),
        ("^orders-.*$", "all-orders-eu", False),
        ("^(orders|payments)$", "payments", True),
        ("(?i)ORDERS-[A-Z]+", "orders-eu", True),
        ("(?i:o)RDERS", "Orders", False),
        ("a(?i)b|c", "C", True),
        ("a(?i-s)b(?-i)c", "aBC", False),
        ("(?s:.)+", "a.b", True),
        (r"\Qa.b\E+", "a.bb", True),
        (r"\Q\E\Qa.b\E", "a-b", False),
        (r"\Qa.b", "a.b", True),
        (r"\x61\x{62}", "ab", True),
        ("[[:alpha:]]+[[:^alpha:]]", "ab1", True),
        ("[[:word:]-]+", "a_b-1", True),
        ("[]a]+", "a", True),
        ("[a-]+", "a-a", True),
        ("[^]a]+", "a", False),
        ("a{,3}", "a", False),
        ("a{2}b{0}", "aa", True),
        ("(?<word>a)(?P<other>b)", "ab", True),
        (r"\S+\D", "a1b", True),
        ("()*", "a", False),
    ],
)
def test_examples(text: str, name: str, expected: bool) -> None:
    assert compile_pattern(text).matches(name) == expected


@pytest.mark.parametrize(
    "text",
    [
        "(",
        ")",
        "a)",
        "[a",
        "[b-a]",
        "*",
        "a**",
        "a{2}{3}",
        "a{3,2}",
        "a{1001}",
        "(a{100}){100}",
        "(?=a)",
        "(?<=a)b",
        "(?P<>a)",
        "(?P<a",
        r"(a)\1",
        r"\b",
        r"\p{Greek}",
        r"\x{zz}",
        "\\",
        "[[:nope:]]",
        "(" * 200 + ")" * 200,
        "a" * (PATTERN_CHARS_MAX + 1),
    ],
)
def test_what_is_not_a_pattern_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        compile_pattern(text)


@given(st.text(st.sampled_from("ab()[]{}*+?|\\^$.,-:<>iPQEx:01="), max_size=30))
def test_anything_is_a_pattern_or_refused(text: str) -> None:
    try:
        compile_pattern(text).matches("aab-01")
    except ValueError as error:
        assert str(error)


def test_a_hostile_pattern_costs_no_more_than_others() -> None:
    """Backtracking would need 2**200 steps for this."""
    assert not compile_pattern("((a+)+)+b").matches("a" * 249)
    assert compile_pattern("(a|a|aa)*b?").matches("a" * 249)
    assert compile_pattern("(a|b)*a(a|b){12}").matches("ab" * 100 + "a" * 13)
