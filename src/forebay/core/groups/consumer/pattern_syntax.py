"""Reads RE2's syntax, as far as it can say something about the name of a topic.

Not read, because no name of a topic needs it: word boundaries, Unicode classes. What a group captures, and
whether a repetition is greedy, does not matter when the whole name has to match.
"""

from __future__ import annotations

import string
from enum import Enum, auto
from typing import NamedTuple

PATTERN_CHARS_MAX = 4_096
_DEPTH_MAX = 100
_REPEAT_MAX = 1_000
"""RE2's own limit."""

ALPHABET = frozenset(string.ascii_letters + string.digits + "._-")
"""What names of topics are made of."""


class Edge(Enum):
    START = auto()
    END = auto()


class Chars(NamedTuple):
    chars: frozenset[str]


class Sequence(NamedTuple):
    parts: tuple[Node, ...]


class Alternatives(NamedTuple):
    choices: tuple[Node, ...]


class Repeat(NamedTuple):
    part: Node
    least: int
    most: int | None


Node = Chars | Edge | Sequence | Alternatives | Repeat

_DIGITS = frozenset(string.digits)
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_SPACE = frozenset("\t\n\f\r ")
_CLASSES = {
    "d": _DIGITS,
    "D": ALPHABET - _DIGITS,
    "w": _WORD,
    "W": ALPHABET - _WORD,
    "s": _SPACE,
    "S": ALPHABET,
}
_POSIX = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": ALPHABET,
    "blank": frozenset("\t "),
    "cntrl": frozenset[str](),
    "digit": _DIGITS,
    "graph": ALPHABET,
    "lower": frozenset(string.ascii_lowercase),
    "print": ALPHABET,
    "punct": frozenset("._-"),
    "space": _SPACE,
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_CONTROLS = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_FLAGS = frozenset("imsU")


def parse(text: str) -> Node:
    """Raises ValueError if it is not a pattern."""
    if len(text) > PATTERN_CHARS_MAX:
        raise ValueError(f"the pattern is longer than {PATTERN_CHARS_MAX} characters")
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._fold = False
        """Whether case is ignored from here on."""

    def read(self) -> Node:
        node = self._alternatives()
        if self._at < len(self._text):
            raise self._wrong("a ) without its (")
        return node

    def _wrong(self, reason: str) -> ValueError:
        return ValueError(f"{reason}, at position {self._at} of the pattern")

    def _peek(self, count: int = 1) -> str:
        return self._text[self._at : self._at + count]

    def _take(self) -> str:
        if self._at >= len(self._text):
            raise self._wrong("the pattern ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _skip(self, token: str) -> bool:
        found = self._text.startswith(token, self._at)
        self._at += len(token) * found
        return found

    def _until(self, token: str) -> str:
        end = self._text.find(token, self._at)
        if end < 0:
            raise self._wrong(f"{token} is missing")
        found, self._at = self._text[self._at : end], end + len(token)
        return found

    # -- structure -----------------------------------------------------------------------------------

    def _alternatives(self) -> Node:
        fold = self._fold
        choices = [self._sequence()]
        while self._skip("|"):
            choices.append(self._sequence())
        self._fold = fold
        return choices[0] if len(choices) == 1 else Alternatives(tuple(choices))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            found = self._quoted() if self._skip("\\Q") else [self._atom()]
            parts += found[:-1]
            parts += [self._repeats(last) for last in found[-1:]]
        return Sequence(tuple(parts))

    def _quoted(self) -> list[Node]:
        """Literally, up to the end of the quotation or of the pattern."""
        text, _, _ = self._text[self._at :].partition("\\E")
        self._at += len(text)
        self._skip("\\E")
        return [self._literal(char) for char in text]

    def _repeats(self, part: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return part
        self._skip("?")
        if self._bounds() is not None:
            raise self._wrong("a repetition of a repetition")
        return Repeat(part, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        for token, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._skip(token):
                return bounds
        return self._braces()

    def _braces(self) -> tuple[int, int | None] | None:
        """{2}, {2,} or {2,5}; braces around anything else are braces."""
        end = self._text.find("}", self._at)
        if self._peek() != "{" or end < 0:
            return None
        least, comma, most = self._text[self._at + 1 : end].partition(",")
        if not _is_number(least) or (most and not _is_number(most)):
            return None
        self._at = end + 1
        low = int(least)
        high = (int(most) if most else None) if comma else low
        if max(low, high or 0) > _REPEAT_MAX or (high is not None and high < low):
            raise self._wrong(f"a repetition must be of 0 to {_REPEAT_MAX}, the smaller number first")
        return low, high

    # -- atoms ---------------------------------------------------------------------------------------

    def _atom(self) -> Node:
        char = self._take()
        match char:
            case "(":
                return self._group()
            case "[":
                return Chars(self._class())
            case ".":
                return Chars(ALPHABET)
            case "^":
                return Edge.START
            case "$":
                return Edge.END
            case "\\":
                return self._escape()
            case "*" | "+" | "?":
                raise self._wrong(f"nothing for {char} to repeat")
        return self._literal(char)

    def _group(self) -> Node:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._wrong(f"more than {_DEPTH_MAX} groups inside each other")
        outside = self._fold
        if self._skip("?") and not self._skip(":"):
            if self._skip("P<") or (self._peek(2) not in ("<=", "<!") and self._skip("<")):
                self._name()
            elif self._flags():
                self._depth -= 1
                return Sequence(())  # flags without a group are for the rest of the group around them
        node = self._alternatives()
        if not self._skip(")"):
            raise self._wrong("a ( without its )")
        self._fold = outside
        self._depth -= 1
        return node

    def _name(self) -> None:
        name = self._until(">")
        if not name or not _WORD.issuperset(name):
            raise self._wrong(f"{name!r} is not a name for a group")

    def _flags(self) -> bool:
        """Whether the group ends here; otherwise the flags are for what is in it."""
        is_on = True
        while self._peek() and (self._peek() in _FLAGS or self._peek() == "-"):
            flag = self._take()
            is_on = is_on and flag != "-"
            if flag == "i":
                self._fold = is_on
        if self._skip(")"):
            return True
        if self._skip(":"):
            return False
        raise self._wrong("a kind of group that RE2 does not have")

    def _escape(self) -> Node:
        char = self._take()
        if char in _CLASSES:
            return Chars(_CLASSES[char])
        if char in "Az":
            return Edge.START if char == "A" else Edge.END
        return self._literal(self._escaped(char))

    def _escaped(self, char: str) -> str:
        """The character that an escape stands for."""
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x":
            return self._hex()
        if char.isascii() and char.isalnum():
            raise self._wrong(f"\\{char} means nothing here")
        return char

    def _hex(self) -> str:
        if self._skip("{"):
            digits = self._until("}")
        else:
            digits = self._peek(2)
            self._at += 2
        if not 0 < len(digits) <= 6 or not set(digits) <= set(string.hexdigits) or int(digits, 16) > 0x10FFFF:
            raise self._wrong("\\x needs a code point")
        return chr(int(digits, 16))

    def _literal(self, char: str) -> Chars:
        return Chars(self._folded(frozenset(char)))

    def _folded(self, chars: frozenset[str]) -> frozenset[str]:
        if not self._fold:
            return chars
        return chars | {char.lower() for char in chars} | {char.upper() for char in chars}

    # -- classes -------------------------------------------------------------------------------------

    def _class(self) -> frozenset[str]:
        is_negated = self._skip("^")
        found: set[str] = set()
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            found |= self._class_item()
        self._at += 1
        chars = self._folded(frozenset(found))
        return ALPHABET - chars if is_negated else chars

    def _class_item(self) -> frozenset[str]:
        if self._skip("[:"):
            is_negated = self._skip("^")
            name = self._until(":]")
            if name not in _POSIX:
                raise self._wrong(f"[:{name}:] is not a class")
            return ALPHABET - _POSIX[name] if is_negated else _POSIX[name]
        if self._peek() == "\\" and self._peek(2)[1:] in _CLASSES and len(self._peek(2)) == 2:
            self._at += 2
            return _CLASSES[self._text[self._at - 1]]
        first = self._class_char()
        if self._peek() != "-" or self._peek(2) == "-]":
            return frozenset(first)
        self._at += 1
        last = self._class_char()
        if last < first:
            raise self._wrong(f"a range from {first} to {last}")
        return frozenset(char for char in ALPHABET if first <= char <= last)

    def _class_char(self) -> str:
        char = self._take()
        return self._escaped(self._take()) if char == "\\" else char


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= len(str(_REPEAT_MAX))
