"""Places in JSON documents. A step that does not exist, or that leads into no object or array, is NULL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from forebay.core.views.conditions.values import Value

Get = Callable[[Any], Value]
Step = str | int


def path_getter(steps: Sequence[Step], *, takes_document: bool) -> Get:
    """The value at a place of the document, which is the argument itself or that of a Row."""
    if takes_document:
        return _in_document(steps)
    match steps:
        case []:
            return lambda row: row.document()
        case [str(name)]:
            return lambda row: _field(row.document(), name)
    get = _in_document(steps)
    return lambda row: get(row.document())


def _in_document(steps: Sequence[Step]) -> Get:
    match list(steps):
        case []:
            return lambda document: document
        case [str(name)]:
            return lambda document: document.get(name) if type(document) is dict else None
        case [str(outer), str(inner)]:
            return lambda document: _field(_field(document, outer), inner)
        case several:
            return lambda document: _follow(document, several)


def _field(document: Value, name: str) -> Value:
    return document.get(name) if type(document) is dict else None


def _follow(document: Value, steps: Sequence[Step]) -> Value:
    for step in steps:
        if type(step) is str:
            if type(document) is not dict:
                return None
            document = document.get(step)
        else:
            document = _element(document, step)
    return document


def _element(document: Value, index: Any) -> Value:
    """Elements are counted from 0, or with a negative index from the end."""
    if type(document) is not list or not -len(document) <= index < len(document):
        return None
    return document[index]
