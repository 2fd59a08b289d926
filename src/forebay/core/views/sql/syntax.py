"""Parses SQL text into the tree of sqlglot, within bounds.

The text comes from a client. Its length and its nesting are limited, so that neither the parser nor the code
that walks its tree comes near the end of Python's stack: both are recursive. The parser also backtracks, at
some places on each level of nesting: a possible type name, as in `date(date(...`, would double its work with
each level. So the number of steps for each token is limited.

The dialect is sqlglot's own, which is standard SQL with additions: texts in single quotes, names as they are
or in double quotes, arrays counted from 0. With one exception: `a = 1 IS NOT TRUE` is about the comparison,
as in standard SQL, and not `a = (1 IS NOT TRUE)`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import sqlglot
from sqlglot import Dialect, ParseError, Token, TokenError, TokenType, exp
from sqlglot.parser import IsPredicatePrecedence

from forebay.core.views.view_error import ViewError, error_at

if TYPE_CHECKING:
    from sqlglot import Parser as _DialectParser
else:
    _DialectParser = Dialect.parser_class

TEXT_CHARS_MAX = 32_768
NESTING_MAX = 24
_PREFIXES_MAX = 8
_STEPS_MIN = 1_000
_STEPS_PER_TOKEN = 20
"""A valid view takes less than two."""

_SELECT = "SELECT "
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
_NAMES_TOO = {TokenType.CASE, TokenType.END}
"""After a dot they are field names, and nest nothing."""
_PREFIXES = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.INTERVAL}


class _TooManySteps(Exception):
    """Not one of the parser's own errors, after which it would try an alternative."""


class _BoundedParser(_DialectParser):
    """sqlglot's parser, limited to a number of steps forward or back."""

    IS_PREDICATE_PRECEDENCE = IsPredicatePrecedence.LOW

    def __init__(self, steps_max: int, **options: Any) -> None:
        super().__init__(**options)
        self._steps_left = steps_max

    def _advance(self, times: int = 1) -> None:
        self._steps_left -= 1
        if self._steps_left < 0:
            raise _TooManySteps
        super()._advance(times)


class Source:
    """The text of a view, in which errors show their place."""

    def __init__(self, text: str, prefix: str = "") -> None:
        self.text = text
        self._prefix = prefix

    def parse(self, into: Any = None) -> exp.Expression:
        _check_text(self.text)
        sql = self._prefix + self.text
        try:
            tokens = sqlglot.tokenize(sql)
            self._check_tokens(tokens)
            return _tree_of(tokens, sql, into)
        except ParseError as error:
            raise self._of_parser(error) from None
        except _TooManySteps:
            raise ViewError("the expression is too complicated: it nests what cannot be in a view") from None
        except TokenError:
            raise ViewError("a text in quotes, a quoted name or a comment has no end") from None
        except RecursionError:
            raise ViewError("the expression is nested too deeply") from None

    def error(self, node: exp.Expression, message: str) -> ViewError:
        """An error at the place of a node: that of its first part that has one, or of its parent."""
        around: Any = node
        while around is not None:
            starts = [part.meta["start"] for part in around.walk() if "start" in part.meta]
            if starts:
                return self.error_at(min(starts), message)
            around = around.parent
        return ViewError(message)

    def error_at(self, position: int | None, message: str) -> ViewError:
        return error_at(self.text, None if position is None else position - len(self._prefix), message)

    def _of_parser(self, error: ParseError) -> ViewError:
        if not error.errors:
            return ViewError(f"this is no SQL: {error}")
        first = error.errors[0]
        description = str(first.get("description") or "").rstrip(".")
        if not description or "<class" in description:
            description = "something is missing here, or too much"
        context = first.get("start_context")
        return self.error_at(None if context is None else len(context), description)

    def _check_tokens(self, tokens: Iterable[Token]) -> None:
        depth = prefixes = 0
        before: TokenType | None = None
        for token in tokens:
            prefixes = prefixes + 1 if token.token_type in _PREFIXES else 0
            if before is not TokenType.DOT or token.token_type not in _NAMES_TOO:
                depth += token.token_type in _OPENING
                depth -= token.token_type in _CLOSING
            before = token.token_type
            if token.token_type is TokenType.SEMICOLON:
                raise self.error_at(token.start, "one expression is expected, without a semicolon")
            if depth > NESTING_MAX or prefixes > _PREFIXES_MAX:
                raise self.error_at(token.start, f"nested more than {NESTING_MAX} times")


def _tree_of(tokens: list[Token], sql: str, into: Any) -> exp.Expression:
    # With all of the text as context, the length of what precedes an error is its place.
    steps_max = _STEPS_MIN + _STEPS_PER_TOKEN * len(tokens)
    parser = _BoundedParser(steps_max, error_message_context=len(sql))
    trees = parser.parse(tokens, sql) if into is None else parser.parse_into(into, tokens, sql)
    if len(trees) != 1 or trees[0] is None:
        raise ParseError("one expression is expected")
    return cast(exp.Expression, trees[0])


def _check_text(text: str) -> None:
    if not text.strip():
        raise ViewError("the expression is empty")
    if len(text) > TEXT_CHARS_MAX:
        raise ViewError(f"the expression is longer than {TEXT_CHARS_MAX} characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ViewError("the expression has characters that are no Unicode") from None


def condition_tree(text: str) -> tuple[Source, exp.Expression]:
    source = Source(text)
    return source, source.parse(exp.Condition)


def selection_trees(text: str) -> tuple[Source, list[exp.Expression]]:
    """The expressions between SELECT and FROM."""
    source = Source(text, _SELECT)
    tree = source.parse()
    if not isinstance(tree, exp.Select):
        raise ViewError("a selection is a list of expressions with commas between them")
    for name, part in tree.args.items():
        if name != "expressions" and part:
            node = part[0] if isinstance(part, list) else part
            place = node if isinstance(node, exp.Expression) else tree
            raise source.error(place, "a selection has nothing but expressions, and no FROM or WHERE")
    if not tree.expressions:
        raise ViewError("the selection is empty")
    return source, tree.expressions
