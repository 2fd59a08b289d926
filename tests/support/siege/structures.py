"""Malformed requests made from the declarations of messages, as many as a machine has time for.

A `Form` is one request of one version, in pieces: a piece is a number, a length, a count, the content of a
string, and so on, and the form knows which is which. An input is a form with one to three of its pieces
replaced by extremes of their kind, or repeated; then it may be cut short, or something follows it. So most
inputs are right up to one place, and reach every line of a decoder. Making one is cheap: a copy of a list,
and a join.
"""

from __future__ import annotations

from random import Random
from struct import calcsize, pack
from typing import NamedTuple

from forebay.wire.api_keys import OWN_KEYS_FROM
from forebay.wire.codec.layout import Layout, uvarint
from forebay.wire.fields import FORMATS, Field, Request, Struct
from forebay.wire.messages import API_KEYS, api

_ENDLESS = (b"\xff", b"\x80\x80\x80\x80\x80\x01", b"\xff\xff\xff\xff\x7f", b"\x80\x80\x80\x80\x00")
"""Varints that do not end, are too long, too large, or longer than they need be."""
_COMPACT = tuple(uvarint(n) for n in (0, 1, 2, 3, 127, 128, 300, 1 << 14, 32_768, 32_769, 1 << 21, 1 << 28))
_COMPACT_LENGTHS = (*_COMPACT, *(uvarint(n) for n in (2**31 - 1, 2**31, 2**32 - 1)), *_ENDLESS)
_SHORT_LENGTHS = tuple(pack(">h", n) for n in (-1, -2, 0, 1, 2, 127, 300, 2**15 - 1, -(2**15)))
_LONG_LENGTHS = tuple(
    pack(">i", n) for n in (-1, -2, 0, 1, 2, 255, 65_536, 100_001, 1 << 24, 2**31 - 1, -(2**31))
)
_CONTENTS = (
    b"",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\0",
    b"\xc3",
    "\U0001f600".encode(),
    b"a" * 300,
    b"a" * 40_000,
)
"""Of strings: also what is no UTF-8."""
_MARKERS = (b"\xff", b"\x00", b"\x01", b"\x02", b"\x7f", b"\x80")
_REPEATS = (2, 2, 3, 3, 126, 127, 128, 300)
_MANY = 20_000
_MANY_CHANCE = 0.002
_CUT_CHANCE = 0.2
_MORE_CHANCE = 0.05
_EMPTY_TAGS = (1, 2, 2, 3, 127, 128, 300)
_FORMS_TRIED = 20
_OWN_KEYS_MAX = 100
_GROWN_BYTES_MAX = 200_000
FORM_BYTES_MAX = 400


class Slot(NamedTuple):
    """A piece that can be replaced. An array has its elements at `start` to `end`, and none if they are 0."""

    at: int
    extremes: tuple[bytes, ...]
    width: int = 0
    start: int = 0
    end: int = 0


def every_request() -> list[tuple[type[Request], int]]:
    """In each version that is declared; also those that only our own clients and brokers send."""
    own = [key for key in range(OWN_KEYS_FROM, OWN_KEYS_FROM + _OWN_KEYS_MAX) if _is_declared(key)]
    assert own, "there are APIs of our own"
    return [
        (known.request, version)
        for known in map(api, [*API_KEYS, *own])
        for version in range(known.min_version, known.max_version + 1)
    ]


def _is_declared(key: int) -> bool:
    try:
        return api(key) is not None
    except KeyError:
        return False


class Form:
    """One well-formed request in pieces, chosen by chance, without the length in front of its frame."""

    def __init__(self, chance: Random, request: type[Request], version: int) -> None:
        self.pieces: list[bytes] = []
        self.slots: list[Slot] = []
        self._chance = chance
        self._layout = Layout(request, version)
        self.flexible = self._layout.flexible
        self._bytes = 0
        self._header(request, version)
        self._struct(request)

    def _header(self, request: type[Request], version: int) -> None:
        self._piece(pack(">hhi", request.API_KEY, version, 7))
        self._slot(pack(">h", 6), _SHORT_LENGTHS)
        self._slot(b"client", _CONTENTS)
        if self._layout.flexible:
            self._tags(())

    # -- pieces ------------------------------------------------------------------------------------------

    def _piece(self, data: bytes) -> int:
        self.pieces.append(data)
        self._bytes += len(data)
        return len(self.pieces) - 1

    def _slot(self, data: bytes, extremes: tuple[bytes, ...]) -> None:
        self.slots.append(Slot(self._piece(data), extremes))

    def _struct(self, cls: type[Struct]) -> None:
        for _, field in self._layout.plain(cls):
            self._field(field)
        if self._layout.flexible:
            self._tags(tuple(field for _, field in self._layout.tagged(cls)))

    def _field(self, field: Field) -> None:
        if field.kind in FORMATS:
            width = calcsize(">" + FORMATS[field.kind])
            most, least = b"\x7f" + b"\xff" * (width - 1), b"\x80" + bytes(width - 1)
            extremes = (bytes(width), b"\xff" * width, most, least)
            self._slot(self._chance.choice(extremes), extremes)
        elif field.struct is not None:
            if self._layout.nullable(field):
                self._slot(b"\x01", _MARKERS)
            self._struct(field.struct)
        elif field.element is not None:
            self._array(field, field.element)
        else:
            content = self._chance.choice((b"", b"a", b"orders", b"a" * 130))
            self._slot(self._length(field, len(content)), self._lengths(field))
            self._slot(content, _CONTENTS)

    def _array(self, field: Field, element: Field) -> None:
        count = self._chance.choice((1, 1, 2, 3)) if self._bytes < FORM_BYTES_MAX else 0
        at = self._piece(self._length(field, count))
        start = len(self.pieces)
        end = start
        for number in range(count):
            self._field(element)
            if number == 0:
                end = len(self.pieces)
        width = self._layout.size_min(element)
        self.slots.append(Slot(at, self._lengths(field), width, start if count == 1 else 0, end))

    def _length(self, field: Field, value: int) -> bytes:
        if self._layout.flexible:
            return uvarint(value + 1)
        return pack(">" + self._layout.length_format(field), value)

    def _lengths(self, field: Field) -> tuple[bytes, ...]:
        if self._layout.flexible:
            return _COMPACT_LENGTHS
        return _SHORT_LENGTHS if self._layout.length_format(field) == "h" else _LONG_LENGTHS

    def _tags(self, known: tuple[Field, ...]) -> None:
        """None of them, mostly; else tags that nobody knows, and known ones with contents that are none."""
        extremes = [*_COMPACT_LENGTHS]
        extremes += [uvarint(count) + bytes(2 * count) for count in _EMPTY_TAGS]
        for field in known:
            assert field.tag is not None
            for content in (b"", b"\0", b"\x01", b"\xff" * 4, bytes(40)):
                extremes.append(b"\x01" + uvarint(field.tag) + uvarint(len(content)) + content)
                extremes.append(b"\x02" + 2 * (uvarint(field.tag) + uvarint(len(content)) + content))
        extremes += [b"\x01\x05" + length for length in _COMPACT_LENGTHS]
        self._slot(b"\0", tuple(extremes))


def wide_request(chance: Random, request: type[Request], version: int, count: int) -> bytes | None:
    """A request, without its length in front, whose outermost list has this many elements; None if it has no
    list. All elements are the same."""
    for _ in range(_FORMS_TRIED):
        form = Form(chance, request, version)
        whole = [slot for slot in form.slots if slot.start]
        if whole:
            slot = min(whole)  # the outermost
            repeat(form.pieces, form.pieces, slot, count, flexible=form.flexible)
            return b"".join(form.pieces)
    return None


def repeat(pieces: list[bytes], original: list[bytes], slot: Slot, count: int, *, flexible: bool) -> None:
    """Put the one element of an array there again and again, as it is in the original."""
    element = b"".join(original[slot.start : slot.end])
    pieces[slot.start] = element * count
    pieces[slot.start + 1 : slot.end] = [b""] * (slot.end - slot.start - 1)
    pieces[slot.at] = uvarint(count + 1) if flexible else pack(">i", count)


class Malformed:
    """Inputs made from one form."""

    def __init__(self, chance: Random, form: Form) -> None:
        self._chance = chance.random
        self._pieces, self._slots = form.pieces, form.slots
        self._flexible = form.flexible
        self._wholes = [slot for slot in form.slots if slot.start]
        """Arrays that have one element."""

    def make(self) -> bytes:
        chance = self._chance
        pieces = self._pieces.copy()
        slots = self._slots
        for _ in range(1 + int(chance() * 3)):
            slot = slots[int(chance() * len(slots))]
            if slot.width and chance() < 0.5:
                self._recount(pieces, slot)
            else:
                pieces[slot.at] = slot.extremes[int(chance() * len(slot.extremes))]
        if chance() < _MANY_CHANCE:
            self._grow(pieces)
        data = b"".join(pieces)
        luck = chance()
        if luck < _CUT_CHANCE:
            return data[: int(chance() * len(data))]
        if luck < _CUT_CHANCE + _MORE_CHANCE:
            return data + data[:50]
        return data

    def _recount(self, pieces: list[bytes], slot: Slot) -> None:
        """Some elements, and they are there; or as many as the rest of the frame just holds, or one more."""
        chance = self._chance
        if slot.start and chance() < 0.5:
            count = _REPEATS[int(chance() * len(_REPEATS))]
            element = b"".join(pieces[slot.start : slot.end])
            if len(element) < FORM_BYTES_MAX:
                pieces[slot.start] = element * count
                pieces[slot.start + 1 : slot.end] = [b""] * (slot.end - slot.start - 1)
        else:
            rest = sum(map(len, pieces[slot.at + 1 :]))
            count = rest // slot.width + int(chance() * 3) - 1
        pieces[slot.at] = uvarint(max(count, 0) + 1) if self._flexible else pack(">i", count)

    def _grow(self, pieces: list[bytes]) -> None:
        """Tens of thousands of elements, or of tagged fields: what costs the most for its bytes."""
        chance = self._chance
        if self._wholes and (not self._flexible or chance() < 0.6):
            slot = self._wholes[int(chance() * len(self._wholes))]
            size = sum(map(len, self._pieces[slot.start : slot.end]))
            count = min(_MANY, _GROWN_BYTES_MAX // max(size, 1))
            repeat(pieces, self._pieces, slot, count, flexible=self._flexible)
        elif self._flexible:
            pieces[-1] = uvarint(_MANY) + bytes(2 * _MANY)
