"""The compiled codecs: exact bytes of a small declaration, round trips of all of them, and refusals."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.errors import ErrorCode, KafkaError, ProtocolError
from forebay.wire.codec.compiled import decode, decoder, encode, encoder
from forebay.wire.codec.encoding import COPIED_BYTES_MAX
from forebay.wire.codec.layout import STRING_BYTES_MAX, in_range
from forebay.wire.fields import (
    Message,
    Request,
    Struct,
    array,
    binary,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    records,
    string,
    struct,
    uint16,
    uuid,
)
from forebay.wire.parts import FileRange, Part, Records, join, size_of
from wire.message_values import every_message, random_message, sparse_message

CASES = every_message()


class Spot(Struct):
    x: int = int16()
    label: str = string()


class Everything(Message, versions=(0, 3), flexible=2):
    flag: bool = boolean()
    tiny: int = int8()
    port: int = uint16()
    mask: int = uint16("1+", default=7)
    wide: int = int64()
    ratio: float = float64()
    id: bytes = uuid()
    name: str = string()
    nick: str | None = string(nullable="1+")
    blob: bytes = binary()
    spot: Spot = struct(Spot)
    maybe: Spot | None = struct(Spot, "2+", nullable="2+", default=None)
    numbers: list[int] = array(int32)
    words: list[str] | None = array(string, nullable="0+")
    spots: list[Spot] = array(Spot)
    late: int = int32("2+", default=-1, tag=3)
    early: str | None = string("2+", nullable="2+", default=None, tag=0)
    place: Spot = struct(Spot, "3+", tag=1)
    more: list[int] = array(int32, "3+", tag=200)


class Carrier(Message, versions=(0, 1), flexible=1):
    before: int = int32()
    records: Records = records(nullable="0+")
    after: int = int32()


FULL: dict[str, Any] = {
    "flag": True,
    "tiny": -2,
    "port": 0xFFFE,
    "wide": -1,
    "ratio": 1.5,
    "id": bytes(range(16)),
    "name": "né",
    "nick": "n",
    "blob": b"\x01\x02",
    "spot": Spot(x=5, label="s"),
    "numbers": [1, -1],
    "words": ["a", ""],
    "spots": [Spot(x=1), Spot(x=2, label="two")],
}


class HeldFile:
    def __init__(self, content: bytes) -> None:
        self._content = content

    def fileno(self) -> int:
        return -1

    def pread(self, length: int, position: int) -> bytes:
        return self._content[position : position + length]

    def cached(self, position: int, length: int) -> bool:
        return True


def in_file(content: bytes) -> FileRange:
    return FileRange(HeldFile(b"junk" + content), 4, len(content))


class TestExactBytes:
    def test_plain_version(self) -> None:
        expected = (
            b"\x01\xfe\xff\xfe" + b"\xff" * 8 + b"\x3f\xf8" + bytes(6) + bytes(range(16))
            + b"\x00\x03n\xc3\xa9" + b"\x00\x01n" + b"\x00\x00\x00\x02\x01\x02"
            + b"\x00\x05\x00\x01s"
            + b"\x00\x00\x00\x02\x00\x00\x00\x01\xff\xff\xff\xff"
            + b"\x00\x00\x00\x02\x00\x01a\x00\x00"
            + b"\x00\x00\x00\x02\x00\x01\x00\x00\x00\x02\x00\x03two"
        )  # fmt: skip
        value = Everything(**FULL)
        assert encode(value, 0) == expected
        assert decode(Everything, 0, expected) == value

    def test_flexible_version(self) -> None:
        expected = (
            b"\x01\xfe\xff\xfe\x00\x07" + b"\xff" * 8 + b"\x3f\xf8" + bytes(6) + bytes(range(16))
            + b"\x04n\xc3\xa9" + b"\x02n" + b"\x03\x01\x02"
            + b"\x00\x05\x02s\x00"
            + b"\x01\x00\x06\x01\x00"
            + b"\x03\x00\x00\x00\x01\xff\xff\xff\xff"
            + b"\x03\x02a\x01"
            + b"\x03\x00\x01\x01\x00\x00\x02\x04two\x00"
            + b"\x00"
        )  # fmt: skip
        value = Everything(**FULL, maybe=Spot(x=6))
        assert encode(value, 2) == expected
        assert decode(Everything, 2, expected) == value

    def test_nulls(self) -> None:
        value = Everything(nick=None, words=None)
        plain = encode(value, 1)
        assert plain[-24:] == bytes(2) + b"\xff\xff" + bytes(4) + bytes(4) + bytes(4) + b"\xff" * 4 + bytes(4)
        flexible = encode(value, 2)
        # name, nick, blob, spot, maybe, numbers, words, spots, tagged fields
        assert flexible[-12:] == b"\x01\x00\x01\x00\x00\x01\x00\xff\x01\x00\x01\x00"
        assert decode(Everything, 1, plain) == decode(Everything, 2, flexible) == value

    def test_tagged_fields_differ_from_their_defaults_and_come_in_order(self) -> None:
        value = Everything(late=9, early="e", place=Spot(x=1), more=[5])
        plain = len(encode(Everything(), 3))
        tagged = encode(value, 3)[plain - 1 :]
        assert tagged == (
            b"\x04"
            b"\x00\x02\x02e"
            b"\x01\x04\x00\x01\x01\x00"
            b"\x03\x04\x00\x00\x00\x09"
            b"\xc8\x01\x05\x02\x00\x00\x00\x05"
        )
        assert encode(Everything(late=-1, early=None, place=Spot()), 3) == encode(Everything(), 3)

    def test_long_lengths_take_more_bytes(self) -> None:
        for size in (126, 127, 128, 16382, 16383, 16384):
            value = Everything(name="x" * size, numbers=list(range(size)))
            assert decode(Everything, 3, encode(value, 3)) == value


class TestRoundTrips:
    @pytest.mark.parametrize("seed", range(4))
    def test_every_message(self, seed: int) -> None:
        for cls, version in CASES:
            value = random_message(Random(f"{seed} {cls.__name__} {version}"), cls, version)
            assert decode(cls, version, encode(value, version)) == value

    def test_every_struct_can_be_sent_with_its_defaults(self) -> None:
        for cls, version in CASES:
            value = sparse_message(cls, version)
            assert decode(cls, version, encode(value, version)) == value

    @given(st.sampled_from(CASES), st.integers(min_value=0))
    def test_any_message(self, case: tuple[type[Message], int], seed: int) -> None:
        cls, version = case
        value = random_message(Random(seed), cls, version)
        data = encode(value, version)
        assert decode(cls, version, data) == value
        assert join(encoder(cls, version)(value)) == data

    @given(st.integers(0, 3), st.text(), st.none() | st.text(), st.lists(st.integers(-(2**31), 2**31 - 1)))
    def test_any_text(self, version: int, name: str, nick: str | None, numbers: list[int]) -> None:
        value = Everything(name=name, nick=nick if version else "", numbers=numbers)
        assert decode(Everything, version, encode(value, version)) == value

    def test_a_decoder_starts_and_stops_where_it_should(self) -> None:
        data = b"ab" + encode(Everything(**FULL), 1) + b"cd"
        value, position = decoder(Everything, 1)(memoryview(data), 2)
        assert (value, position) == (Everything(**FULL), len(data) - 2)

    def test_fields_of_other_versions_are_left_out_and_come_back_as_defaults(self) -> None:
        value = decode(Everything, 0, encode(Everything(mask=1, late=5, maybe=Spot()), 0))
        assert (value.mask, value.late, value.maybe, value.more) == (7, -1, None, [])


class TestRecords:
    @pytest.mark.parametrize("version", [0, 1])
    def test_decoded_records_are_a_view_of_the_frame(self, version: int) -> None:
        frame = bytearray(encode(Carrier(before=1, records=b"batch", after=2), version))
        value = decode(Carrier, version, frame)
        assert isinstance(value.records, memoryview)
        assert value.records.tobytes() == b"batch"
        assert value.records.obj is frame
        frame[frame.index(b"batch")] = ord("B")
        assert value.records.tobytes() == b"Batch"

    @pytest.mark.parametrize("version", [0, 1])
    @pytest.mark.parametrize("empty", [None, b"", []])
    def test_no_records(self, version: int, empty: Any) -> None:
        value = decode(Carrier, version, encode(Carrier(records=empty, after=2), version))
        assert value.records == (None if empty is None else b"")
        assert value.after == 2

    def test_a_file_range_is_a_part_of_its_own(self) -> None:
        stored = in_file(b"batch")
        parts = encoder(Carrier, 0)(Carrier(before=1, records=stored, after=2))
        assert parts == [b"\0\0\0\1\0\0\0\5", stored, b"\0\0\0\2"]
        assert parts[1] is stored
        assert size_of(parts) == 17
        assert join(parts) == encode(Carrier(before=1, records=b"batch", after=2), 0)

    def test_large_memory_is_not_copied_and_small_memory_is(self) -> None:
        large, small = memoryview(bytes(COPIED_BYTES_MAX)), memoryview(bytes(COPIED_BYTES_MAX - 1))
        parts = encoder(Carrier, 1)(Carrier(records=large))
        assert len(parts) == 3
        assert parts[1] is large
        assert len(encoder(Carrier, 1)(Carrier(records=small))) == 1

    @given(st.lists(st.tuples(st.booleans(), st.sampled_from([0, 1, 4095, 4096, 5000]))), st.integers(0, 1))
    def test_any_mixture_of_parts(self, pieces: list[tuple[bool, int]], version: int) -> None:
        contents = [bytes([65 + i % 26]) * size for i, (_, size) in enumerate(pieces)]
        mixture: list[Part] = [
            in_file(content) if file else content for content, (file, _) in zip(contents, pieces, strict=True)
        ]
        parts = encoder(Carrier, version)(Carrier(before=1, records=mixture, after=2))
        whole = encode(Carrier(before=1, records=b"".join(contents), after=2), version)
        assert join(parts) == whole
        assert size_of(parts) == len(whole)

    def test_encode_needs_records_in_memory(self) -> None:
        with pytest.raises(ValueError, match="records in a file"):
            encode(Carrier(records=in_file(b"batch")), 0)


class TestUnknownTags:
    def test_are_skipped_in_any_struct(self) -> None:
        plain = encode(Everything(spots=[Spot(x=1, label="l")]), 2)
        # the last three bytes: label, no tags of the spot, no tags of the message
        assert plain[-3:] == b"l\0\0"
        unknown = b"\x02" + b"\x05\x03abc" + b"\x90\x01\x00"
        value = decode(Everything, 2, plain[:-2] + unknown + unknown)
        assert value == decode(Everything, 2, plain)

    def test_are_skipped_between_known_ones(self) -> None:
        data = (
            encode(Everything(), 2)[:-1] + b"\x03" + b"\x02\x01z" + b"\x03\x04\x00\x00\x00\x09" + b"\x63\x00"
        )
        assert decode(Everything, 2, data) == Everything(late=9)

    @pytest.mark.parametrize(
        "tags",
        [
            b"\x01\x05\x03ab",
            b"\x01\x05",
            b"\x02\x05\x00",
            b"\x80",
            b"\xff\xff\xff\xff\x0f",
            b"\x01\xff\xff\xff\xff\x7f\x00",
        ],
    )
    def test_must_be_whole(self, tags: bytes) -> None:
        with pytest.raises(ProtocolError):
            decode(Everything, 2, encode(Everything(), 2)[:-1] + tags)

    @pytest.mark.parametrize("tags", [b"\x01\x03\x03\x00\x00\x09", b"\x01\x03\x05\x00\x00\x00\x09\x00"])
    def test_a_known_tag_must_have_its_own_size(self, tags: bytes) -> None:
        with pytest.raises(ProtocolError):
            decode(Everything, 2, encode(Everything(), 2)[:-1] + tags)


class Text(Message, versions=(0, 1), flexible=1):
    text: str = string()


class MaybeText(Message, versions=(0, 1), flexible=1):
    text: str | None = string(nullable="0+")


class Numbers(Message, versions=(0, 1), flexible=1):
    numbers: list[int] = array(int64)


class Inner(Message, versions=(0, 0), flexible=0):
    spot: Spot | None = struct(Spot, nullable="0+", default=None)


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        pytest.param(Text, 0, b"", id="empty"),
        pytest.param(Text, 0, b"\x00\x05abcd", id="short string"),
        pytest.param(Text, 1, b"\x06abcd\x00", id="string that swallows the tags"),
        pytest.param(Text, 0, b"\xff\xff", id="null string"),
        pytest.param(Text, 1, b"\x00\x00", id="null compact string"),
        pytest.param(MaybeText, 0, b"\xff\xfe", id="length -2"),
        pytest.param(Text, 0, b"\x00\x01a!", id="bytes behind the end"),
        pytest.param(Text, 0, b"\x00\x01\xff", id="not UTF-8"),
        pytest.param(Text, 1, b"\x03\xc3\x28\x00", id="not UTF-8 in two bytes"),
        pytest.param(Text, 0, b"\x00\x03\xed\xa0\x80", id="a surrogate"),
        pytest.param(Text, 1, b"\x80", id="varint cut short"),
        pytest.param(Text, 1, b"\xff\xff\xff\xff\xff\x01", id="varint of six bytes"),
        pytest.param(Text, 1, b"\xff\xff\xff\xff\x7f", id="varint of 35 bits"),
        pytest.param(Numbers, 0, b"\x7f\xff\xff\xff", id="huge count"),
        pytest.param(Numbers, 0, b"\xff\xff\xff\xff", id="null array"),
        pytest.param(Numbers, 0, b"\x80\x00\x00\x00", id="negative count"),
        pytest.param(Numbers, 0, b"\x00\x00\x00\x02" + bytes(15), id="one byte too few"),
        pytest.param(Numbers, 1, b"\xff\xff\xff\xff\x0f", id="huge compact count"),
        pytest.param(Inner, 0, b"\x02\x00\x00\x01\x00\x00", id="neither present nor null"),
        pytest.param(Inner, 0, b"\x01\x00", id="struct cut short"),
    ],
)  # fmt: skip
def test_malformed_bytes_are_a_protocol_error(cls: type[Message], version: int, data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(cls, version, data)


class Asked(Request, api_key=-2, versions=(0, 1), flexible=1):
    text: str | None = string(nullable="0+")
    words: list[str] = array(string)
    late: str = string("1+", tag=0)


class TestLongStrings:
    """No request may hold a string that the older versions, and our own records, could not."""

    @pytest.mark.parametrize("field", ["text", "words", "late"])
    @pytest.mark.parametrize("character", ["a", "\u00e9"])
    def test_are_refused_in_requests(self, field: str, character: str) -> None:
        def asked(size: int) -> Asked:
            text = character * (size // len(character.encode())) + "a" * (size % len(character.encode()))
            values: dict[str, Any] = {field: [text] if field == "words" else text}
            return Asked(**values)

        fits = asked(STRING_BYTES_MAX)
        assert decode(Asked, 1, encode(fits, 1)) == fits
        for size in (STRING_BYTES_MAX + 1, 1_000_000):
            with pytest.raises(ProtocolError, match=f"{field}: a string of {size} bytes"):
                decode(Asked, 1, encode(asked(size), 1))

    def test_that_were_stored_before_are_read(self) -> None:
        stored = Text(text="a" * (STRING_BYTES_MAX + 1))
        assert decode(Text, 1, encode(stored, 1)) == stored


class TestValues:
    def test_left_out_lists_are_not_shared(self) -> None:
        one, two = Everything(), Everything()
        one.numbers.append(1)
        assert two.numbers == Everything().numbers == []

    def test_left_out_structs_are_shared_and_cannot_be_changed(self) -> None:
        value = Everything()
        assert value.spot == Spot()
        assert isinstance(value.spot, Spot)
        with pytest.raises(AttributeError, match="shared"):
            value.spot.x = 1
        assert Everything().spot == Spot(x=0)

    def test_equality_and_repr(self) -> None:
        assert Spot(x=1, label="a") == Spot(x=1, label="a")
        assert Spot(x=1) != Spot(x=2)
        assert Spot() != Text()
        assert Spot() != "spot"
        assert repr(Spot(x=1, label="a")) == "Spot(x=1, label='a')"

    def test_unknown_names_are_refused(self) -> None:
        with pytest.raises(TypeError, match="colour"):
            Spot(colour="red")  # type: ignore[call-arg]
        with pytest.raises(AttributeError):
            Spot().colour = "red"  # type: ignore[attr-defined]

    @pytest.mark.parametrize("version", [-1, 4])
    def test_undeclared_versions_are_refused(self, version: int) -> None:
        with pytest.raises(KafkaError, match="versions 0 to 3") as refused:
            encode(Everything(), version)
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
        with pytest.raises(KafkaError):
            decode(Everything, version, b"")

    def test_version_ranges(self) -> None:
        for text, inside in {
            "0+": range(20),
            "3+": range(3, 20),
            "3-5": range(3, 6),
            "12": [12],
            "": [],
        }.items():
            assert [version for version in range(20) if in_range(text, version)] == list(inside)
