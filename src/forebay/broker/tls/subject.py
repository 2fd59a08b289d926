"""The name in a certificate, as Java writes it: the most specific part first, `CN=ada,OU=people,O=us`.

Rules and access lists that were made for Kafka hold such names, so they have to be the same to the letter.
Attributes without a short name appear by their number, with the bytes of their value in hex.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cryptography import x509

_SHORT_NAMES = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ENCODINGS = {
    0x0C: "utf-8",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
"""How text is written, by the tag of its type."""
_ESCAPED = frozenset(',=+<>#;"\\')


class _Value(NamedTuple):
    """One value of DER: its tag, what it holds, and all its bytes."""

    tag: int
    content: bytes
    whole: bytes


def subject_of(certificate: bytes) -> str:
    """Raises ValueError for what is not a certificate (DER)."""
    name = x509.load_der_x509_certificate(certificate).subject.public_bytes()
    parts = _values(next(_values(name)).content)
    written = ["+".join(_attribute(each) for each in _values(part.content)) for part in parts]
    return ",".join(reversed(written))


def _attribute(attribute: _Value) -> str:
    kind, value = _values(attribute.content)
    number = _number(kind.content)
    short, encoding = _SHORT_NAMES.get(number), _ENCODINGS.get(value.tag)
    if short is None or encoding is None:
        return f"{short or number}=#{value.whole.hex()}"
    return f"{short}={_escaped(value.content.decode(encoding))}"


def _escaped(text: str) -> str:
    bare = text.strip(" ")
    begin = text.index(bare) if bare else len(text)
    end = begin + len(bare)
    written = "".join(
        f"\\{character}" if character in _ESCAPED or not begin <= place < end else character
        for place, character in enumerate(text)
    )
    return written.replace("\0", "\\00")


def _values(der: bytes) -> Iterator[_Value]:
    """The values that follow each other. What cryptography has written is well formed."""
    position = 0
    while position < len(der):
        start, size = position + 2, der[position + 1]
        if size & 0x80:
            start += size & 0x7F
            size = int.from_bytes(der[position + 2 : start])
        yield _Value(der[position], der[start : start + size], der[position : start + size])
        position = start + size


def _number(content: bytes) -> str:
    """An object identifier with dots."""
    arcs, arc = [], 0
    for byte in content:
        arc = arc << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(arc)
            arc = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))
