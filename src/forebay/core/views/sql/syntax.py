"""SQL text to the tree of sqlglot, within bounds.

The text comes from a client. It may be only so long, and nested only so deep that neither the parser nor what
walks its tree comes near the end of Python's stack: both are recursive.

The dialect is sqlglot's own, which is standard SQL with additions: texts in single quotes, names as they are
or in double quotes, arrays counted from 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlglot
from sqlglot import ParseError, Token, TokenError, TokenType, exp

from forebay.core.views.view_error import ViewError, error_at

TEXT_CHARS_MAX = 32_768
NESTING_MAX = 24
_PREFIXES_MAX = 8

_SELECT = "SELECT "
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
_PREFIXES = {TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.INTERVAL}


class Source:
    """A text of a view, which errors show the place in."""

    def __init__(self, text: str, prefix: str = "") -> None:
        self.text = text
        self._prefix = prefix

    def parse(self, into: Any = None) -> exp.Expression:
        _check_text(self.text)
        sql = self._prefix + self.text
        try:
            self._check_tokens(sqlglot.tokenize(sql))
            # With all of the text as context, the length of what precedes an error is its place.
            tree: exp.Expression = sqlglot.parse_one(sql, into=into, error_message_context=len(sql))
        except ParseError as error:
            raise self._of_parser(error) from None
        except TokenError:
            raise ViewError("a text in quotes, a quoted name or a comment has no end") from None
        except RecursionError:
            raise ViewError("the expression is nested too deeply") from None
        return tree

    def error(self, node: exp.Expression, message: str) -> ViewError:
        """An error at the place of a node: that of its first part that has one, or of what it is in."""
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
        for token in tokens:
            prefixes = prefixes + 1 if token.token_type in _PREFIXES else 0
            depth += token.token_type in _OPENING
            depth -= token.token_type in _CLOSING
            if token.token_type is TokenType.SEMICOLON:
                raise self.error_at(token.start, "one expression is expected, without a semicolon")
            if depth > NESTING_MAX or prefixes > _PREFIXES_MAX:
                raise self.error_at(token.start, f"nested more than {NESTING_MAX} times")


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
    """What stands between SELECT and FROM."""
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
