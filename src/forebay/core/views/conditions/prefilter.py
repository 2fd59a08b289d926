"""Finds bytes that every matching record must have, so that records without them need not be read.

A condition such as `value.region = 'eu'` can be true only for a record whose bytes contain `"eu"`.
`bytes.find` searches the records of a whole batch in a few microseconds; most batches of a selective view do
not contain it, and are done.

JSON can write a character in more than one way. Letters and digits have only one other, `\\u0065`, so a
record with any `\\u` in it is examined too. Characters that have shorter escapes, such as quotes and slashes,
are left out of the needles. The lengths before keys and headers are varints, which may be longer than
necessary; the needles allow for that.

The result is a set of needles, one of which is in every record that matches; an empty set means that none
matches, and None that nothing is known. The exact condition is then tested on the records found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from forebay.core.views.conditions.expressions import (
    And,
    Arithmetic,
    Call,
    Cast,
    Column,
    ColumnName,
    Compare,
    Const,
    Expression,
    HeaderOf,
    In,
    IsNull,
    IsTruth,
    Like,
    Matches,
    Not,
    Or,
    Path,
)
from forebay.wire.varint import write_varint

_NEEDLES_MAX = 16
"""Each needle is a search over the whole batch. With more of them, reading the records is cheaper."""
_LENGTH_MAX = 1 << 20
_UNICODE_ESCAPE = b"\\u"
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""Replaces invalid bytes in texts, so it is not what the record contains."""
_PLAIN = re.compile(r"[^\x00-\x1f\"\\/\x7f]+")
"""Characters that JSON writes as they are, or with \\u."""
_CONTINUES = 0x80
"""The bit of a varint's byte that says that more bytes follow."""


class Required(NamedTuple):
    """Needles, one of which every matching record has, and a rank: how few other records may have them."""

    needles: frozenset[bytes]
    rank: tuple[bool, int]
    """Constants rank before field names, which often all records have; long ones before short ones."""


def needles_of(condition: Expression) -> frozenset[bytes] | None:
    """Needles, one of which is in every record for which the condition is true; None if nothing is known."""
    found = _required(condition)
    return None if found is None or len(found.needles) > _NEEDLES_MAX else found.needles


def _required(condition: Expression) -> Required | None:
    match condition:
        case And(items):
            return _best(_required(item) for item in items)
        case Or(items):
            return _either(_required(item) for item in items)
        case IsTruth(item, True):
            return _required(item)
        case Compare("=", item, Const(str(text))):
            return _best([_equal(item, text), _present(item)])
        case Compare(_, left, right) | Not(Compare(_, left, right)):
            return _best([_present(left), _present(right)])
        case In(item, choices):
            return _best([_among(item, choices), _present(item)])
        case Like(item, pattern, ignores_case):
            texts = [] if ignores_case else [part for part in pattern if isinstance(part, str)]
            return _best([*(_containing(item, text) for text in texts), _present(item)])
        case Call("starts_with" | "ends_with" | "contains", (item, Const(str(text)))):
            return _best([_containing(item, text), _present(item)])
        case Not(IsNull(item)) | Not(Like(item)) | Not(In(item)) | Matches(item) | Not(Matches(item)):
            return _present(item)
        case Path():
            return _present(condition)
    return None


def _best(found: Iterable[Required | None]) -> Required | None:
    """All of these are required: any one will do."""
    return max((one for one in found if one is not None), key=attrgetter("rank"), default=None)


def _either(found: Iterable[Required | None]) -> Required | None:
    needles: frozenset[bytes] = frozenset()
    rank = (True, _LENGTH_MAX)
    for one in found:
        if one is None or len(needles) > _NEEDLES_MAX:
            return None
        needles |= one.needles
        rank = min(rank, one.rank)
    return Required(needles, rank)


def _among(item: Expression, choices: Sequence[Expression]) -> Required | None:
    found: list[Required | None] = []
    for choice in choices:
        match choice:
            case Const(None):
                continue  # equal to nothing
            case Const(str(text)) if len(found) <= _NEEDLES_MAX:
                found.append(_equal(item, text))
            case _:
                return None
    return _either(found)


def _equal(item: Expression, text: str) -> Required | None:
    match item:
        case Path() if not text or _PLAIN.fullmatch(text):
            return _constant(text, f'"{text}"'.encode(), _UNICODE_ESCAPE)
        case HeaderOf(name) if _is_exact(name + text):
            return _constant(text, *_header_needles(name.encode(), text.encode()))
        case Column(ColumnName.KEY) if text and _is_exact(text):
            key = text.encode()
            # A varint that is longer than need be ends with a byte of zero.
            return _constant(text, _varint(len(key))[-1:] + key, b"\x00" + key)
    return _containing(item, text)


def _header_needles(name: bytes, value: bytes) -> list[bytes]:
    length = _varint(len(value))
    if length[0] & _CONTINUES:
        return [name + length[:1]]
    return [name + length + value, name + bytes([length[0] | _CONTINUES])]


def _containing(item: Expression, text: str) -> Required | None:
    match item:
        case Path():
            part = max(_PLAIN.findall(text), key=len, default="")
            return _constant(part, part.encode(), _UNICODE_ESCAPE) if part else None
        case HeaderOf() | Column(ColumnName.KEY) if text and _is_exact(text):
            return _constant(text, text.encode())
    return None


def _present(item: Expression) -> Required | None:
    """The needles of a record for which an expression is not NULL: the names of the fields that it uses."""
    match item:
        case Path(steps):
            return _best(_field(step) for step in steps if isinstance(step, str))
        case HeaderOf(name) if name and _is_exact(name):
            return Required(frozenset([name.encode()]), (False, len(name)))
        case Cast(inner) | Call("lower" | "upper" | "trim" | "length" | "substring" | "abs", (inner, *_)):
            return _present(inner)
        case Arithmetic(_, left, right):
            return _best([_present(left), _present(right)])
    return None


def _field(name: str) -> Required | None:
    if name and not _PLAIN.fullmatch(name):
        return None
    return Required(frozenset([f'"{name}"'.encode(), _UNICODE_ESCAPE]), (False, len(name)))


def _constant(text: str, *needles: bytes) -> Required:
    return Required(frozenset(needles), (True, len(text)))


def _is_exact(text: str) -> bool:
    return _REPLACEMENT not in text


def _varint(number: int) -> bytes:
    out = bytearray()
    write_varint(out, number)
    return bytes(out)
