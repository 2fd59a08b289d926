"""`forebay log dump FILE`: the contents of a segment, read from the file, without a broker.

The walk goes from header to header and distinguishes three things: a batch whose CRC does not match
(reported, the walk continues), bytes that are not a batch (reported, nothing after them can be found), and an
incomplete tail (left by a crash; the broker truncates it at its next start).
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from forebay.errors import ProtocolError
from forebay.operations.messages.message_formats import iso_time, json_bytes, json_headers
from forebay.wire.batch import HEADER_SIZE, LENGTH_PREFIX, MAGIC, BatchHeader, crc_ok, read_header, records
from forebay.wire.compression import Codec


class Batch(NamedTuple):
    position: int
    header: BatchHeader
    crc_ok: bool


class Damage(NamedTuple):
    """The place where the walk had to end, and the reason."""

    position: int
    reason: str


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--records", "with_records", is_flag=True, help="Also every record of every batch.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per batch and line.")
def dump(file: Path, with_records: bool, as_json: bool) -> int:
    """Show the batches of a segment (a .log file) and whether each CRC holds.

    Exit code 1 when a CRC is wrong or the file does not end with a whole batch.
    """
    if file.suffix != ".log":
        raise click.UsageError(f"{file.name} is not a segment: give a file that ends in .log")
    if file.stat().st_size == 0:
        click.echo("empty segment", err=True)
        return 0
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        try:
            return _Dump(view, with_records=with_records, as_json=as_json).run()
        finally:
            view.release()


def walk(view: memoryview) -> Iterator[Batch | Damage]:
    """Every batch in order; a Damage, if there is one, comes last."""
    position = 0
    while position < len(view):
        problem = _problem(view, position)
        if problem is not None:
            yield Damage(position, problem)
            return
        header = read_header(view, position)
        yield Batch(position, header, crc_ok(view, position, header.size))
        position += header.size


def _problem(view: memoryview, position: int) -> str | None:
    left = len(view) - position
    if left < HEADER_SIZE:
        return f"torn tail: {left} bytes are less than a batch header"
    header = read_header(view, position)
    if header.magic != MAGIC or header.batch_length < HEADER_SIZE - LENGTH_PREFIX:
        return (
            f"no batch here (magic {header.magic}, length {header.batch_length}), {left} bytes cannot be read"
        )
    if header.size > left:
        return f"torn tail: the batch at offset {header.base_offset} has {left} of its {header.size} bytes"
    return None


class _Dump:
    """One run over one file: prints as it goes, so that a large segment needs no memory, and counts."""

    def __init__(self, view: memoryview, *, with_records: bool, as_json: bool) -> None:
        self._view = view
        self._with_records = with_records
        self._as_json = as_json
        self._batches = self._records = self._bad = 0

    def run(self) -> int:
        if not self._as_json:
            click.echo(_HEADING)
        for found in walk(self._view):
            if isinstance(found, Damage):
                self._bad += 1
                self._print_damage(found)
            else:
                self._count(found)
                self._print_batch(found)
        if not self._as_json:
            click.echo(self._summary())
        return 1 if self._bad else 0

    def _count(self, batch: Batch) -> None:
        self._batches += 1
        self._records += batch.header.record_count
        self._bad += not batch.crc_ok

    def _print_batch(self, batch: Batch) -> None:
        listed = self._records_of(batch) if self._with_records else []
        if self._as_json:
            extra = {"records": listed} if self._with_records else {}
            click.echo(json.dumps({**_batch_json(batch), **extra}, ensure_ascii=False))
            return
        click.echo(_batch_row(batch))
        for record in listed:
            click.echo("    " + json.dumps(record, ensure_ascii=False))

    def _print_damage(self, damage: Damage) -> None:
        if self._as_json:
            click.echo(json.dumps({"position": damage.position, "error": damage.reason}))
        else:
            click.echo(f"{damage.position:>12}  {damage.reason}")

    def _records_of(self, batch: Batch) -> list[dict[str, Any]]:
        """The records, or one entry that says why they cannot be read."""
        end = batch.position + batch.header.size
        with self._view[batch.position : end] as whole:
            try:
                return [
                    {
                        "offset": record.offset,
                        "timestamp": record.timestamp,
                        **json_bytes("key", record.key),
                        **json_bytes("value", record.value),
                        "headers": json_headers(record.headers),
                    }
                    for record in records(bytes(whole))
                ]
            except ProtocolError as error:
                self._bad += batch.crc_ok
                return [{"error": str(error)}]

    def _summary(self) -> str:
        verdict = "all good" if not self._bad else f"{self._bad} bad"
        return f"{self._batches} batches, {self._records} records, {len(self._view)} bytes: {verdict}"


_HEADING = (
    f"{'POSITION':>12}  {'BASE':>12}  {'LAST':>12}  {'RECORDS':>7}  {'BYTES':>9}  {'CODEC':<6}  "
    f"{'MAX TIMESTAMP':<24}  {'EPOCH':>5}  {'PRODUCER':<16}  {'CRC':<3}  FLAGS"
)


def _batch_row(batch: Batch) -> str:
    header = batch.header
    return (
        f"{batch.position:>12}  {header.base_offset:>12}  {header.last_offset:>12}  "
        f"{header.record_count:>7}  {header.size:>9}  {_codec_name(header):<6}  "
        f"{iso_time(header.max_timestamp):<24}  {header.partition_leader_epoch:>5}  {_producer(header):<16}  "
        f"{'ok' if batch.crc_ok else 'BAD':<3}  {','.join(_flags(header))}"
    ).rstrip()


def _batch_json(batch: Batch) -> dict[str, Any]:
    header = batch.header
    return {
        "position": batch.position,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "record_count": header.record_count,
        "size": header.size,
        "codec": _codec_name(header),
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "partition_leader_epoch": header.partition_leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "flags": _flags(header),
        "crc": header.crc,
        "crc_ok": batch.crc_ok,
    }


def _producer(header: BatchHeader) -> str:
    """Producer id, epoch and first sequence of an idempotent batch."""
    if header.producer_id < 0:
        return "-"
    return f"{header.producer_id}/{header.producer_epoch}/{header.base_sequence}"


def _codec_name(header: BatchHeader) -> str:
    try:
        return Codec(header.codec).name.lower()
    except ValueError:
        return f"? {header.codec}"


def _flags(header: BatchHeader) -> list[str]:
    flags = {
        "transactional": header.is_transactional,
        "control": header.is_control,
        "append-time": header.is_log_append_time,
    }
    return [name for name, is_set in flags.items() if is_set]
