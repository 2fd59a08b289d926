"""A compiled view: its functions over records, and what they need of a record."""

from __future__ import annotations

from collections.abc import Sequence

from forebay.core.views.conditions.compiler import Compiler, Test
from forebay.core.views.conditions.expressions import (
    And,
    Expression,
    NamedExpression,
    uses_record,
    uses_row,
    uses_time,
    uses_value,
)
from forebay.core.views.conditions.limits import (
    DEFAULT_LIMITS,
    WALKED_PER_STEP,
    RecordLimits,
    walks_of,
    writings_of,
)
from forebay.core.views.conditions.prefilter import needles_of
from forebay.core.views.conditions.rows import Scope
from forebay.core.views.conditions.sizes import QuerySizes
from forebay.core.views.projection import Projection, projection
from forebay.core.views.view_error import ViewError
from forebay.lazy import dataclass, load

__all__ = ["CompiledView", "ViewError", "compile_view"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledView:
    test: Test
    """True if a record is delivered; the argument is as `takes_document` says."""
    tombstone_test: Test
    """Like `test`, for a record without a value."""
    project: Projection | None
    """Returns the value that is delivered instead of a record's own."""
    takes_document: bool
    """True if the functions are called with the value's document, and not with a Row."""
    uses_value: bool
    """True if a record is delivered only if its value is JSON."""
    needles: tuple[bytes, ...] | None
    """One of them is in every record that is delivered; None if nothing is known."""
    is_per_record: bool
    """False if the condition is the same for all records of a partition."""
    is_constant: bool
    """True if its result does not depend on the time."""
    weight: int
    """The number of steps that a byte of a record may take; at least 1."""
    bytes_max: int
    """The maximum size of a record; see `RecordLimits`."""
    elements_max: int

    def for_all(self, scope: Scope) -> bool | None:
        """True if all records of a partition match, False if none does; None if each has to be examined."""
        return None if self.is_per_record else self.test(scope)


def compile_view(
    where: str | None,
    select: str | None,
    *,
    keep_tombstones: bool = False,
    limits: RecordLimits = DEFAULT_LIMITS,
    pattern_size_max: int | None = None,
) -> CompiledView:
    """Compile a view. Raises ViewError, which says what is wrong and where. Not for the event loop: the
    longest texts take half a second, and so does the import of the parser when the first one is compiled.

    `keep_tombstones`: conditions that use the value do not hold for records without one. Those that are
    joined by AND are ignored for such records, so that deletions reach consumers that keep a table of the
    view. `pattern_size_max`: for a new view. One that was accepted before is compiled without it.
    """
    # A broker without views does not pay for the parser.
    read_condition = load("forebay.core.views.sql.translation:read_condition")
    read_selection = load("forebay.core.views.sql.translation:read_selection")
    sizes = QuerySizes(pattern_size_max)
    condition = read_condition(where, sizes) if where is not None else None
    selection = read_selection(select, sizes) if select is not None else []
    return _compiled(condition, selection, keep_tombstones, sizes, limits)


def _compiled(
    condition: Expression | None,
    selection: Sequence[NamedExpression],
    keep_tombstones: bool,
    sizes: QuerySizes,
    limits: RecordLimits,
) -> CompiledView:
    conditions = _joined_by_and(condition)
    expressions = [*conditions, *(named.expression for named in selection)]
    takes_document = not any(map(uses_row, expressions)) and any(map(uses_value, expressions))
    for_tombstones = conditions
    if keep_tombstones:
        for_tombstones = [one for one in conditions if not uses_value(one)]
    walks = walks_of(expressions) + len(selection)
    compiler = Compiler(
        takes_document=takes_document,
        patterns=sizes.patterns,
        pattern_bytes_max=limits.steps_max // max(sizes.pattern_size, 1),
    )
    found = needles_of(And(tuple(for_tombstones)))
    return CompiledView(
        test=compiler.test(And(tuple(conditions))),
        tombstone_test=compiler.test(And(tuple(for_tombstones))),
        project=projection(selection, compiler) if selection else None,
        takes_document=takes_document,
        uses_value=any(map(uses_value, expressions)),
        needles=None if found is None else tuple(sorted(found)),
        is_per_record=any(map(uses_record, conditions)),
        is_constant=not any(map(uses_time, expressions)),
        weight=1 + walks // WALKED_PER_STEP + sizes.pattern_size,
        bytes_max=limits.bytes_for(walks),
        elements_max=limits.elements_for(writings_of(expressions)),
    )


def _joined_by_and(condition: Expression | None) -> list[Expression]:
    if condition is None:
        return []
    return list(condition.items) if isinstance(condition, And) else [condition]
