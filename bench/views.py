"""Views: how many records one core filters in a second, where bytes decide and where every value is parsed.

The records have JSON values of 200 bytes, in batches of 500, as a broker reads them from its log. Nothing but
the filter is measured, by the CPU time of one thread.
"""

from __future__ import annotations

import json
import random
import time
from statistics import median

from bench.report import Figure
from bench.suite import Suite
from forebay.core.views.filtering import filter_batches
from forebay.core.views.view import CompiledView, compile_view
from forebay.wire.batch import build_batch
from forebay.wire.compression import MAX_OUTPUT_BYTES, Codec
from forebay.wire.records import Record

VALUE_BYTES = 200
BATCH_RECORDS = 500
BATCHES = 8
REGIONS = ("eu-north", "eu-south", "us-east", "us-west", "ap-east", "ap-south")
RARE = 2000
"""One record of so many is of the rare region."""

LOADS = [
    # name, condition, selection, codec, records per second that are asked for
    ("prefilter decides", "value.region = 'antarctica'", None, Codec.NONE, 300_000),
    ("prefilter decides, by header", "headers['region'] = 'antarctica'", None, Codec.NONE, 300_000),
    ("prefilter decides, lz4", "value.region = 'antarctica'", None, Codec.LZ4, 300_000),
    ("prefilter leaves a sixth", "value.region = 'eu-north' AND value.amount > 500", None, Codec.NONE, None),
    ("every value is parsed", "value.amount > 990", None, Codec.NONE, 150_000),
    ("every value is parsed, half delivered", "value.amount > 500", None, Codec.NONE, 150_000),
    ("every value is parsed, lz4", "value.amount > 990", None, Codec.LZ4, 150_000),
    ("every value is parsed, selection", "value.amount > 990", "value.id, value.amount", Codec.NONE, None),
    ("key alone", "key LIKE 'k1%'", None, Codec.NONE, None),
]


def view_figures(suite: Suite) -> list[Figure]:
    return [
        Figure(
            group="views",
            name=f"filter, {name}",
            value=median(_records_per_s(where, select, codec) for _ in suite.each_round(f"views: {name}")),
            unit="records/s",
            at_least=target,
            judged="value",
        )
        for name, where, select, codec, target in LOADS
    ]


def _records_per_s(where: str, select: str | None, codec: Codec) -> float:
    view, data = compile_view(where, select), stored(codec)
    _filter(view, data)
    started, filtered = time.thread_time(), 0
    while time.thread_time() - started < 0.5:
        _filter(view, data)
        filtered += BATCHES * BATCH_RECORDS
    return filtered / (time.thread_time() - started)


def _filter(view: CompiledView, data: bytes) -> None:
    filter_batches(
        view,
        memoryview(data),
        0,
        BATCHES * BATCH_RECORDS,
        topic="orders",
        partition=0,
        now_ms=0,
        decompress_max_bytes=MAX_OUTPUT_BYTES,
    )


def stored(codec: Codec) -> bytes:
    """Batches of orders, the same on every run."""
    chance = random.Random(1)
    data = bytearray()
    for batch in range(BATCHES):
        first = batch * BATCH_RECORDS
        made = [_order(first + number, chance) for number in range(BATCH_RECORDS)]
        data += build_batch(made, codec=codec, base_offset=first)
    return bytes(data)


def _order(offset: int, chance: random.Random) -> Record:
    region = "antarctica" if offset % RARE == RARE - 1 else chance.choice(REGIONS)
    document = {
        "id": 1_000_000 + offset,
        "region": region,
        "amount": round(chance.uniform(0, 1000), 2),
        "customer": {"name": f"customer {chance.randrange(10_000)}", "vip": chance.random() < 0.1},
        "items": [{"sku": f"sku-{chance.randrange(1000)}", "count": chance.randrange(1, 5)}],
        "note": "",
    }
    short = VALUE_BYTES - len(json.dumps(document, separators=(",", ":")))
    document["note"] = "x" * max(short, 0)
    value = json.dumps(document, separators=(",", ":")).encode()
    return Record(
        offset,
        1_700_000_000_000 + offset,
        f"k{chance.randrange(1000)}".encode(),
        value,
        [("region", region.encode())],
    )
