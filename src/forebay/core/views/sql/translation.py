"""Translates the parser's tree to expressions of views. Anything else is refused here, with its place.

sqlglot reads far more than a view can do: queries, windows, the functions of twenty databases. Every kind
of node that is allowed is named below.
"""

from __future__ import annotations

from sqlglot import exp

from forebay.core.views.conditions.expressions import (
    And,
    Arithmetic,
    Case,
    Cast,
    Compare,
    Concat,
    Const,
    Expression,
    In,
    IsDistinct,
    IsNull,
    IsTruth,
    Like,
    Matches,
    NamedExpression,
    Not,
    Or,
)
from forebay.core.views.conditions.patterns import read_like
from forebay.core.views.conditions.sizes import TOO_MANY_PARTS, QuerySizes
from forebay.core.views.conditions.values import fitting
from forebay.core.views.sql.calls import read_call
from forebay.core.views.sql.kinds import folded, may_be_condition, require_one_kind, require_text
from forebay.core.views.sql.literals import read_interval, read_literal, read_type
from forebay.core.views.sql.names import last_name, read_name
from forebay.core.views.sql.syntax import Source, condition_tree, selection_trees

COLUMNS_MAX = 100
"""Each column may be the whole document again."""
_DEPTH_MAX = 100

_KNOWN_PARTS = {"this", "expression", "expressions", "is_string", "typed", "safe", "only_json_types"}
"""The known parts of all nodes: the last three are how other databases would treat an operator."""
_MORE_PARTS: dict[type[exp.Expression], set[str]] = {
    exp.Column: {"table", "db", "catalog"},
    exp.Between: {"low", "high"},
    exp.Like: {"negate"},
    exp.ILike: {"negate"},
    exp.Case: {"ifs", "default"},
    exp.If: {"true", "false"},
    exp.Cast: {"to"},
    exp.TryCast: {"to"},
    exp.Interval: {"unit"},
    exp.Substring: {"start", "length"},
    exp.Round: {"decimals"},
}

_COMPARISONS: dict[type[exp.Expression], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ARITHMETIC: dict[type[exp.Expression], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}


def read_condition(text: str, sizes: QuerySizes) -> Expression:
    """Translate the text after WHERE. Raises ViewError."""
    source, tree = condition_tree(text)
    return _Reader(source, sizes).condition(tree)


def read_selection(text: str, sizes: QuerySizes) -> list[NamedExpression]:
    """Translate the text after SELECT. Raises ViewError."""
    source, trees = selection_trees(text)
    reader = _Reader(source, sizes)
    if len(trees) > COLUMNS_MAX:
        raise source.error(trees[COLUMNS_MAX], f"at most {COLUMNS_MAX} columns can be selected")
    found: dict[str, NamedExpression] = {}
    for tree in trees:
        inner = tree.this if isinstance(tree, exp.Alias) else tree
        name = tree.alias if isinstance(tree, exp.Alias) else last_name(tree)
        if not name:
            raise source.error(tree, "the expression needs a name: write it as `expression AS name`")
        if name in found:
            raise source.error(tree, f"{name} is selected twice; AS gives it another name")
        found[name] = NamedExpression(name, reader.read(inner))
    return list(found.values())


class _Reader:
    def __init__(self, source: Source, sizes: QuerySizes) -> None:
        self._source = source
        self._sizes = sizes
        self._depth = 0

    def read(self, node: exp.Expression) -> Expression:
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise self._source.error(node, f"nested more than {_DEPTH_MAX} times")
        self._refuse_other_parts(node)
        try:
            expression = folded(self._read(node))
        finally:
            self._depth -= 1
        if self._sizes.has_too_many_parts(expression):
            raise self._source.error(node, TOO_MANY_PARTS)
        return expression

    def _refuse_other_parts(self, node: exp.Expression) -> None:
        """Refuse unknown parts: ignoring one would silently change the meaning."""
        known = _KNOWN_PARTS | _MORE_PARTS.get(type(node), set())
        for name, part in node.args.items():
            if part and name not in known:
                raise self._source.error(node, f"{node.key.upper()} with {name} cannot be used in a view")

    def condition(self, node: exp.Expression) -> Expression:
        """An expression that can be true or false."""
        expression = self.read(node)
        if not may_be_condition(expression):
            raise self._source.error(node, "this is no condition: it is neither true nor false")
        return expression

    def _read(self, node: exp.Expression) -> Expression:
        match node:
            case exp.Paren():
                return self.read(node.this)
            case exp.Column() | exp.Dot() | exp.Bracket():
                return read_name(self._source, node)
            case exp.Literal():
                return read_literal(self._source, node)
            case exp.Boolean():
                return Const(bool(node.this))
            case exp.Null():
                return Const(None)
            case exp.Neg():
                return self._negated(node)
            case exp.Interval():
                return read_interval(self._source, node)
            case exp.Cast():
                return self._cast(node)
            case exp.DPipe():
                return Concat(self.read(node.this), self.read(node.expression))
            case exp.Case() | exp.If():
                return self._case(node)
        if type(node) in _ARITHMETIC:
            return Arithmetic(_ARITHMETIC[type(node)], self.read(node.this), self.read(node.expression))
        return self._read_condition(node)

    def _read_condition(self, node: exp.Expression) -> Expression:
        match node:
            case exp.And():
                return And(tuple(map(self.condition, _chain(node, exp.And))))
            case exp.Or():
                return Or(tuple(map(self.condition, _chain(node, exp.Or))))
            case exp.Not():
                return Not(self.condition(node.this))
            case exp.NullSafeEQ():
                return Not(IsDistinct(self.read(node.this), self.read(node.expression)))
            case exp.NullSafeNEQ():
                return IsDistinct(self.read(node.this), self.read(node.expression))
            case exp.Is():
                return self._is(node)
            case exp.Between():
                item = self.read(node.this)
                low, high = self.read(node.args["low"]), self.read(node.args["high"])
                return And((self._compare(node, ">=", item, low), self._compare(node, "<=", item, high)))
            case exp.In() if node.expressions:
                found = In(self.read(node.this), tuple(map(self.read, node.expressions)))
                require_one_kind(self._source, node, [found.item, *found.choices])
                return found
            case exp.Escape() | exp.Like() | exp.ILike():
                return self._like(node)
            case exp.RegexpLike():
                item = self.read(node.this)
                require_text(self._source, node, item)
                return self._matches(node.expression, item)
        if type(node) in _COMPARISONS:
            operator = _COMPARISONS[type(node)]
            return self._compare(node, operator, self.read(node.this), self.read(node.expression))
        return read_call(self._source, node, self.read)

    def _cast(self, node: exp.Cast) -> Expression:
        item = self.read(node.this)
        cast = folded(Cast(item, read_type(self._source, node, node.args["to"])))
        fails = cast == Const(None) != item
        if fails and not isinstance(node, exp.TryCast):
            raise self._source.error(node, f"{node.this.sql()} is no {node.args['to'].sql().lower()}")
        return cast

    def _negated(self, node: exp.Neg) -> Expression:
        match self.read(node.this):
            case Const(int() | float() as number) if type(number) is not bool:
                return Const(fitting(-number))
            case item:
                return Arithmetic("-", Const(0), item)

    def _compare(
        self, node: exp.Expression, operator: str, left: Expression, right: Expression
    ) -> Expression:
        """A constant goes to the right, where the compiler and the prefilter look for it."""
        require_one_kind(self._source, node, [left, right])
        if isinstance(left, Const) and not isinstance(right, Const):
            return Compare(_MIRRORED[operator], right, left)
        return Compare(operator, left, right)

    def _is(self, node: exp.Is) -> Expression:
        item = self.read(node.this)
        match node.expression:
            case exp.Null():
                return IsNull(item)
            case exp.Boolean():
                return IsTruth(item, bool(node.expression.this))
        raise self._source.error(node, "IS is followed by NULL, TRUE or FALSE, or by NOT and one of them")

    def _case(self, node: exp.Expression) -> Expression:
        if isinstance(node, exp.If):
            ifs, operand, default = [node], None, node.args.get("false")
        else:
            ifs, operand, default = node.args["ifs"], node.this, node.args.get("default")
        subject = None if operand is None else self.read(operand)
        branches = []
        for branch in ifs:
            if subject is None:
                condition = self.condition(branch.this)
            else:
                condition = self._compare(branch.this, "=", subject, self.read(branch.this))
            branches.append((condition, self.read(branch.args["true"])))
        return Case(tuple(branches), Const(None) if default is None else self.read(default))

    def _like(self, node: exp.Expression) -> Expression:
        escape = None
        if isinstance(node, exp.Escape):
            escape = self._text(node.expression)
            if len(escape) != 1:
                raise self._source.error(node, "ESCAPE is followed by one character")
            node = node.this
            self._refuse_other_parts(node)
        if not isinstance(node, exp.Like | exp.ILike):
            raise self._source.error(node, "ESCAPE belongs to LIKE")
        ignores_case = isinstance(node, exp.ILike)
        item = self.read(node.this)
        require_text(self._source, node, item)
        text = self._text(node.expression)
        try:
            like = Like(item, read_like(text, escape), ignores_case)
            self._sizes.add_pattern(like)
        except ValueError as error:
            raise self._source.error(node, str(error)) from None
        return Not(like) if node.args.get("negate") else like

    def _matches(self, node: exp.Expression, item: Expression) -> Expression:
        matches = Matches(item, self._text(node))
        try:
            self._sizes.add_pattern(matches)
        except ValueError as error:
            raise self._source.error(node, f"the regular expression cannot be used: {error}") from None
        return matches

    def _text(self, node: exp.Expression) -> str:
        match self.read(node):
            case Const(str(text)):
                return text
        raise self._source.error(node, "the pattern must be a text in quotes")


def _chain(node: exp.Expression, kind: type[exp.Expression]) -> list[exp.Expression]:
    """The conditions that AND or OR joins. The parser nests them, one level for each."""
    found: list[exp.Expression] = []
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, kind):
            waiting += [one.expression, one.this]
        elif isinstance(one, exp.Paren) and isinstance(one.this, kind):
            waiting.append(one.this)
        else:
            found.append(one)
    return found
