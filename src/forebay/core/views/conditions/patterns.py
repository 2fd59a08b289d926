"""LIKE patterns and regular expressions as functions over text, with bounded run time.

A pattern with `%` only is a few text searches in sequence, in a single pass. A pattern of wildcards only is a
test of length. Any other pattern with `_` goes to RE2, and so does every regular expression: its time depends
only on the length of the text and the size of the compiled pattern. Python's `re` backtracks, and is not
used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import re2

from forebay.core.views.conditions.expressions import LikeWildcard

TextTest = Callable[[str], bool]


class Pattern(NamedTuple):
    test: TextTest
    size: int = 0
    """The size of RE2's program: the steps that a byte of the text may take. 0 without RE2."""


ANY_TEXT = LikeWildcard.ANY_TEXT
ANY_CHARACTER = LikeWildcard.ANY_CHARACTER

_SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
_FINAL_SIGMA = "\N{GREEK SMALL LETTER FINAL SIGMA}"
_REGEX_CHARS_MAX = 1_000
_REGEX_BYTES_MAX = 1 << 18
"""The memory limit of a compiled pattern."""


def read_like(pattern: str, escape: str | None) -> tuple[str | LikeWildcard, ...]:
    """The texts and wildcards of a LIKE pattern. Raises ValueError."""
    parts: list[str | LikeWildcard] = []
    text = ""
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise ValueError("the pattern ends with its escape character")
            text += escaped
        elif character in "%_":
            if text:
                parts.append(text)
            text = ""
            if character == "_":
                parts.append(ANY_CHARACTER)
            elif not parts or parts[-1] is not ANY_TEXT:
                parts.append(ANY_TEXT)
        else:
            text += character
    if text:
        parts.append(text)
    return tuple(parts)


def like_pattern(pattern: Sequence[str | LikeWildcard], *, ignores_case: bool) -> Pattern:
    """A test that a whole text matches the pattern. Raises ValueError for a pattern that is too large."""
    if ignores_case:
        test, size = like_pattern(
            [_lowered(part) if isinstance(part, str) else part for part in pattern], ignores_case=False
        )
        return Pattern(lambda text: test(_lowered(text)), size)
    if ANY_CHARACTER not in pattern:
        return Pattern(_test_without_single(pattern))
    if not any(isinstance(part, str) for part in pattern):
        return Pattern(_length_test(pattern))
    try:
        return _re2_pattern(_as_regex(pattern), whole=True)
    except ValueError as error:
        raise ValueError(f"the pattern with _ cannot be used: {error}") from None


def _test_without_single(pattern: Sequence[str | LikeWildcard]) -> TextTest:
    match list(pattern):
        case []:
            return lambda text: not text
        case [str(only)]:
            return lambda text: text == only
        case [LikeWildcard.ANY_TEXT]:
            return lambda text: True  # noqa: ARG005
        case [str(start), LikeWildcard.ANY_TEXT]:
            return lambda text: text.startswith(start)
        case [LikeWildcard.ANY_TEXT, str(end)]:
            return lambda text: text.endswith(end)
        case [LikeWildcard.ANY_TEXT, str(part), LikeWildcard.ANY_TEXT]:
            return lambda text: part in text
    return _texts_in_order(pattern)


def _length_test(pattern: Sequence[str | LikeWildcard]) -> TextTest:
    least = sum(part is ANY_CHARACTER for part in pattern)
    if ANY_TEXT in pattern:
        return lambda text: len(text) >= least
    return lambda text: len(text) == least


def _lowered(text: str) -> str:
    """The text in lower case. Parts can be lowered separately: only the Greek sigma needs its context."""
    return text.lower().replace(_FINAL_SIGMA, _SIGMA)


def _texts_in_order(pattern: Sequence[str | LikeWildcard]) -> TextTest:
    """A test for texts with `%` between them: the first and the last are fixed, the others come in order."""
    start = pattern[0] if isinstance(pattern[0], str) else ""
    end = pattern[-1] if isinstance(pattern[-1], str) else ""
    inner = [part for part in pattern[bool(start) : len(pattern) - bool(end)] if isinstance(part, str)]
    least = len(start) + len(end)

    def test(text: str) -> bool:
        if len(text) < least or not text.startswith(start) or not text.endswith(end):
            return False
        position, stop = len(start), len(text) - len(end)
        for part in inner:
            found = text.find(part, position, stop)
            if found < 0:
                return False
            position = found + len(part)
        return True

    return test


def _as_regex(pattern: Sequence[str | LikeWildcard]) -> str:
    regexes = {ANY_TEXT: ".*", ANY_CHARACTER: "."}
    return "(?s)" + "".join(re2.escape(part) if isinstance(part, str) else regexes[part] for part in pattern)


def regex_pattern(pattern: str) -> Pattern:
    """A test that a regular expression matches somewhere in a text. Raises ValueError with the reason."""
    return _re2_pattern(pattern, whole=False)


def _re2_pattern(pattern: str, *, whole: bool) -> Pattern:
    if len(pattern) > _REGEX_CHARS_MAX:
        raise ValueError(f"it is longer than {_REGEX_CHARS_MAX} characters")
    options = re2.Options()
    options.max_mem = _REGEX_BYTES_MAX
    options.never_capture = True
    options.log_errors = False  # to stderr, past our log
    try:
        compiled: Any = re2.compile(pattern, options)
    except re2.error as error:
        raise ValueError(error.args[0].decode(errors="replace")) from error
    find = compiled.fullmatch if whole else compiled.search
    return Pattern(lambda text: find(text) is not None, compiled.programsize)
