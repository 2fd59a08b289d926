"""Patterns over topic names, matched by RE2.

Clients that subscribe by pattern expect RE2, as in Kafka: no back references, no look-around, and the whole
name must match. Python's `re` would do for honest patterns, but it backtracks: `(a+)+b` against one long name
keeps it busy for hours, and with it the broker. The time of RE2 grows with the name and with the size of the
pattern only, and its memory has a limit. New patterns have a limit on their size, too.
"""

from __future__ import annotations

import re2

PATTERN_CHARS_MAX = 4_096
_PATTERN_BYTES_MAX = 1 << 20
"""The memory limit of a compiled pattern; repetitions such as (a{100}){10} make one large."""


class Pattern:
    def __init__(self, text: str) -> None:
        """Raises ValueError, which says what is wrong with the pattern."""
        if len(text) > PATTERN_CHARS_MAX:
            raise ValueError(f"the pattern is longer than {PATTERN_CHARS_MAX} characters")
        options = re2.Options()
        options.max_mem = _PATTERN_BYTES_MAX
        options.never_capture = True
        options.log_errors = False  # to stderr, past our log
        try:
            self._compiled = re2.compile(text, options)
        except re2.error as error:
            raise ValueError(error.args[0].decode(errors="replace")) from error

    @property
    def size(self) -> int:
        """The instructions that it is compiled to. At worst each is a step for each character of a name."""
        size: int = self._compiled.programsize
        return size

    def matches(self, name: str) -> bool:
        return self._compiled.fullmatch(name) is not None
