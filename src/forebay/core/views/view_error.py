"""Errors in the text of a view, with their place."""

from __future__ import annotations

from forebay.errors import ForebayError

_LINE_CHARS_MAX = 120
_BEFORE_CHARS = 80


class ViewError(ForebayError):
    """A view cannot be made of these texts. The message says why, and shows the place."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def error_at(text: str, position: int | None, message: str) -> ViewError:
    """The error with its line of the text, and a caret under the place."""
    if position is None:
        return ViewError(message)
    position = min(max(position, 0), len(text))
    start = text.rfind("\n", 0, position) + 1
    stop = text.find("\n", position)
    line = text[start : stop if stop >= 0 else len(text)]
    column = position - start
    number = text.count("\n", 0, start) + 1
    shown, caret = _window(line, column)
    return ViewError(f"{message} (line {number}, column {column + 1})\n  {shown}\n  {caret}")


def _window(line: str, column: int) -> tuple[str, str]:
    """The part of a line around a column, and the line with the caret."""
    first = max(0, column - _BEFORE_CHARS) if len(line) > _LINE_CHARS_MAX else 0
    shown = line[first : first + _LINE_CHARS_MAX].replace("\t", " ")
    prefix = "..." if first else ""
    suffix = "..." if first + _LINE_CHARS_MAX < len(line) else ""
    return f"{prefix}{shown}{suffix}", f"{' ' * (len(prefix) + column - first)}^"
