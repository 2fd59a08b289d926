"""`forebay log dump` on good, damaged and torn segments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forebay.cli.log.commands import log
from forebay.cli.log.dump import Batch, Damage, walk
from forebay.wire.batch import LOG_APPEND_TIME, build_batch
from forebay.wire.compression import Codec
from forebay.wire.records import Record

T0 = 1_700_000_000_000


def batch(base_offset: int, count: int = 2, **options: Any) -> bytes:
    made = [
        Record(base_offset + n, T0 + n, b"key-%d" % n, b"value-%d" % n, [("h", b"1")]) for n in range(count)
    ]
    return bytes(build_batch(made, base_offset=base_offset, **options))


def dump(tmp_path: Path, content: bytes, *options: str) -> Result:
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(content)
    return CliRunner().invoke(log, ["dump", str(file), *options], standalone_mode=False)


def json_lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_good_segment(tmp_path: Path) -> None:
    content = batch(0) + batch(2, 3, codec=Codec.ZSTD, producer_id=7, producer_epoch=1, base_sequence=4)
    result = dump(tmp_path, content)
    lines = result.stdout.splitlines()
    assert result.return_value == 0
    assert len(lines) == 4
    assert lines[1].split()[:4] == ["0", "0", "1", "2"]
    assert "zstd" in lines[2]
    assert "7/1/4" in lines[2]
    assert lines[3] == f"2 batches, 5 records, {len(content)} bytes: all good"


@pytest.mark.parametrize("codec", list(Codec))
def test_records_of_every_codec(tmp_path: Path, codec: Codec) -> None:
    result = dump(tmp_path, batch(5, 2, codec=codec), "--records", "--json")
    (read,) = json_lines(result)
    assert read["codec"] == codec.name.lower()
    assert read["crc_ok"] is True
    assert read["records"] == [
        {
            "offset": 5 + n,
            "timestamp": T0 + n,
            "key": f"key-{n}",
            "value": f"value-{n}",
            "headers": [{"name": "h", "value": "1"}],
        }
        for n in range(2)
    ]


def test_records_in_the_table_stand_below_their_batch(tmp_path: Path) -> None:
    lines = dump(tmp_path, batch(0, attributes=LOG_APPEND_TIME), "--records").stdout.splitlines()
    assert lines[1].endswith("append-time")
    assert json.loads(lines[2])["value"] == "value-0"
    assert lines[2].startswith("    ")


def test_wrong_crc_in_the_middle_is_named_and_the_rest_still_shown(tmp_path: Path) -> None:
    first = bytearray(batch(0))
    first[-1] ^= 1
    result = dump(tmp_path, bytes(first) + batch(2))
    lines = result.stdout.splitlines()
    assert result.return_value == 1
    assert " BAD" in lines[1]
    assert " ok" in lines[2]
    assert lines[3].endswith("1 bad")


def test_torn_tail(tmp_path: Path) -> None:
    whole = batch(0)
    result = dump(tmp_path, whole + batch(2)[:-3], "--json")
    good, torn = json_lines(result)
    assert result.return_value == 1
    assert good["crc_ok"] is True
    assert torn["position"] == len(whole)
    assert "torn tail" in torn["error"]


def test_bytes_that_are_no_batch_end_the_walk(tmp_path: Path) -> None:
    result = dump(tmp_path, batch(0) + bytes(200))
    assert result.return_value == 1
    assert "no batch here" in result.stdout


def test_empty_segment_is_no_error(tmp_path: Path) -> None:
    result = dump(tmp_path, b"")
    assert result.return_value == 0
    assert "empty" in result.stderr


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "00000000000000000000.index"
    file.write_bytes(b"x")
    result = CliRunner().invoke(log, ["dump", str(file)])
    assert result.exit_code == 2
    assert ".log" in result.stderr


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_flipped_byte_is_noticed_unless_it_is_one_the_broker_owns(data: st.DataObject) -> None:
    """The CRC covers all but the base offset, the length and the leader epoch."""
    content = bytearray(batch(0) + batch(2))
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    found = list(walk(memoryview(content)))
    noticed = any(isinstance(item, Damage) or not item.crc_ok for item in found)
    size = len(content) // 2
    owned = position % size < 8 or 12 <= position % size < 16
    assert noticed is not owned


@given(st.binary(max_size=300))
def test_any_bytes_can_be_walked(content: bytes) -> None:
    found = list(walk(memoryview(content)))
    assert all(isinstance(item, Batch) for item in found[:-1])
