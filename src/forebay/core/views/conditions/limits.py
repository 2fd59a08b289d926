"""The cost limits of a view: bounds for one record, and for the patterns of one query.

One user writes the query, and another the data. So the cost of a record needs a bound that neither of them
controls. Three things are counted:

- *Steps of patterns.* RE2 takes at worst one step for each byte of a text and each instruction of the
pattern's
  program (its size), and a step takes a few nanoseconds. A text that may take more steps than
  `steps_max` is not matched.
- *Walks.* Other functions go through a text, or through the whole document, once: LOWER, `||`, a cast to
  text. A walk is much faster than a pattern, so `WALKED_PER_STEP` walked bytes count as one step.
- *Elements of documents.* The parser holds the interpreter while it makes an object of each.

A record that is over a bound raises `TooMuchWork`: it is not shown, and it is counted.
"""

from __future__ import annotations

from collections.abc import Iterable

from forebay.core.views.conditions.expressions import (
    Call,
    Cast,
    CastType,
    Column,
    ColumnName,
    Compare,
    Concat,
    Const,
    Expression,
    IsDistinct,
    Like,
    Matches,
    all_parts,
)
from forebay.lazy import dataclass

WALKED_PER_STEP = 8
_STEPS_PER_ELEMENT = 32
"""The steps to write an element of a document as text, with names sorted."""


class TooMuchWork(Exception):
    """A record would cost more than a view may spend on one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLimits:
    """The limits for one record of a view's source. The defaults are those of the settings."""

    bytes_max: int = 4 << 20
    """The bytes that are read of a record: the value counts only if the query uses it."""
    elements_max: int = 100_000
    """Fields and elements of the value's document, and headers."""
    steps_max: int = 64 << 20
    """Bytes of a text times the size of the patterns."""

    def bytes_for(self, walks: int) -> int:
        """The maximum size of a record that is walked through this many times."""
        return min(self.bytes_max, self.steps_max * WALKED_PER_STEP // max(walks, 1))

    def elements_for(self, writings: int) -> int:
        """The maximum number of elements of a document that is written as text this many times."""
        return min(self.elements_max, self.steps_max // (_STEPS_PER_ELEMENT * max(writings, 1)))


DEFAULT_LIMITS = RecordLimits()


def walks_of(expressions: Iterable[Expression]) -> int:
    """How many times expressions may walk through a text or a document of a record."""
    return sum(_walks(part) for expression in expressions for part in all_parts(expression))


def _walks(part: Expression) -> int:
    match part:
        case Compare(_, left, right):
            return 0 if isinstance(left, Const) or isinstance(right, Const) else 1
        case IsDistinct():
            return 2
        case Like() | Matches() | Call() | Cast() | Concat() | Column(ColumnName.KEY):
            return 1
        case _:
            return 0


def writings_of(expressions: Iterable[Expression]) -> int:
    """How many times expressions may write a document as text, to compare or convert it."""
    return sum(_writings(part) for expression in expressions for part in all_parts(expression))


def _writings(part: Expression) -> int:
    match part:
        case IsDistinct() | Concat():
            return 2
        case Cast(_, CastType.VARCHAR):
            return 1
        case _:
            return 0


def check_elements(document: bytes, elements_max: int) -> None:
    """Raise TooMuchWork for a document with more elements. Separators in texts count too."""
    size = len(document)
    if size <= elements_max:
        return  # an element takes a byte at least
    found = document.count(b",") + document.count(b"[") + document.count(b"{")
    if found > elements_max:
        raise TooMuchWork
