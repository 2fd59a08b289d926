"""The size of a query, counted while it is parsed.

Its length in characters says little. A pattern of ten characters may be a program of thousands of
instructions. And some expressions occur once in the text, but are evaluated several times: `x BETWEEN a AND
b` compares x twice, and `CASE x WHEN ...` once for each branch. Nested, they would grow exponentially.
"""

from __future__ import annotations

import sys

from forebay.core.views.conditions.compiler import Patterns
from forebay.core.views.conditions.expressions import Expression, Like, Matches, parts_of

PARTS_MAX = 50_000
"""More than a text of maximum length can hold if nothing in it is evaluated several times."""
TOO_MANY_PARTS = (
    f"more than {PARTS_MAX} parts of the expression would be evaluated for each message: BETWEEN and "
    "CASE x WHEN evaluate what they compare several times, so nest them less"
)
PATTERN_SIZE_MAX = "forebay.view.pattern.size.max"


class QuerySizes:
    """The size of the condition and the selection of one view together."""

    def __init__(self, pattern_size_max: int | None = None) -> None:
        """`pattern_size_max`: the limit for all patterns; None for a view that was accepted before."""
        self.patterns = Patterns()
        self.pattern_size = 0
        """The sum over all occurrences of patterns."""
        self._pattern_size_max = sys.maxsize if pattern_size_max is None else pattern_size_max
        self._parts: dict[int, tuple[Expression, int]] = {}
        """The number of parts, itself included, by the identity of an expression, which is therefore kept."""

    def add_pattern(self, expression: Like | Matches) -> None:
        """Raises ValueError if the pattern is invalid, or too large together with the others."""
        size = self.patterns.of(expression).size
        self.pattern_size += size
        if self.pattern_size > self._pattern_size_max:
            others = self.pattern_size - size
            beside = f" beside others of {others}" if others else ""
            raise ValueError(
                f"it is a program of {size} instructions{beside}, and the patterns of a view may have "
                f"{self._pattern_size_max} ({PATTERN_SIZE_MAX}); repeat fewer times: "
                "x{1,1000} takes 2,000, x+ two, and a _ up to eight"
            )

    def has_too_many_parts(self, expression: Expression) -> bool:
        """Checked for each compound expression, so that none becomes much larger."""
        return self._count(expression) > PARTS_MAX

    def _count(self, expression: Expression) -> int:
        known = self._parts.get(id(expression))
        if known is None:
            count = 1 + sum(map(self._count, parts_of(expression)))
            known = self._parts[id(expression)] = expression, count
        return known[1]
