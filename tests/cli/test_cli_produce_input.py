"""How lines become messages, before any broker is involved."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest

from forebay.cli.client import CommandError
from forebay.cli.messages import produce
from forebay.cli.messages.produce import Draft, read_drafts


def drafts(text: bytes, **options: str) -> list[Draft]:
    return list(read_drafts(io.BytesIO(text), **options))


def test_a_line_is_a_value() -> None:
    assert drafts(b"one\n\ntwo") == [Draft(None, b"one"), Draft(None, b""), Draft(None, b"two")]


def test_bytes_that_are_not_text_stay_as_they_are() -> None:
    assert drafts(b"\xff\x00\r\n") == [Draft(None, b"\xff\x00\r")]


def test_only_the_first_separator_counts() -> None:
    assert drafts(b"a:b:c\n:v\nk:\n", key_separator=":") == [
        Draft(b"a", b"b:c"),
        Draft(b"", b"v"),
        Draft(b"k", b""),
    ]


def test_a_line_without_the_separator_is_named() -> None:
    with pytest.raises(CommandError, match="line 2 has no ':'"):
        drafts(b"a:b\nc\n", key_separator=":")


def test_null_marker() -> None:
    assert drafts(b"k=NULL\nNULL=v\n", key_separator="=", null_marker="NULL") == [
        Draft(b"k", None),
        Draft(None, b"v"),
    ]


def test_one_key_for_all() -> None:
    assert drafts(b"a\nb\n", key="k") == [Draft(b"k", b"a"), Draft(b"k", b"b")]


@pytest.fixture
def short_lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(produce, "LINE_BYTES_MAX", 8)
    yield 8


def test_a_line_of_any_length_cannot_fill_the_memory(short_lines: int) -> None:
    assert drafts(b"1234567\n") == [Draft(None, b"1234567")]
    with pytest.raises(CommandError, match="line 2 is longer than 8 bytes"):
        drafts(b"ok\n123456789\n")
