"""A malicious or broken client: garbage in place of requests, and batches that lie.

Its requests may be refused or its connections closed, without effect on other clients. Its batches go to a
compacted topic, under the keys of honest writers: there a lie would do the most harm. None of them may be
accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from forebay.core.topic_partition import TopicPartition
from forebay.sim.actors.actor import Actor
from forebay.sim.actors.client import Client, Failed, Refused
from forebay.sim.models.messages import Model
from forebay.wire.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    BatchHeader,
    assemble,
    build_batch,
    read_header,
)
from forebay.wire.compression import Codec, compress
from forebay.wire.records import Record, write_record

_PAUSE_S = 1.5
_GARBAGE_CHANCE = 0.5
_APIS = 92
_REQUEST = Struct(">ihhi")
_FAR_MS = 2**63 - 10


class Hostile(Actor):
    def __init__(self, client: Client, model: Model, at: TopicPartition, keys: Sequence[bytes]) -> None:
        super().__init__(client, model)
        self._at = at
        self._keys = keys

    async def act(self) -> None:
        while not self.stopping:
            try:
                if self.chance.random() < _GARBAGE_CHANCE:
                    await self.client.send_bytes(self._garbage())
                else:
                    await self._lie(*self.chance.choice(self._lies()))
            except Failed:
                self.client.forget(self._at)
            await self.rest(_PAUSE_S)

    async def _lie(self, name: str, batch: bytes) -> None:
        try:
            await self.client.produce(self._at, batch, acks=-1)
        except Refused:
            return
        self.world.fail(f"a batch was accepted that is not what it says: {name}")

    # -- lies --------------------------------------------------------------------------------------------

    def _lies(self) -> list[tuple[str, bytes]]:
        key, now_ms = self.chance.choice(self._keys), self.now_ms()
        plain = build_batch([Record(number, now_ms, key, b"a lie") for number in range(3)])
        header = read_header(plain)
        payload = bytes(plain[HEADER_SIZE:])
        deltas = self._records([Record(delta, now_ms, key, b"a lie") for delta in (0, 100, 1)])
        backwards = self._records([Record(delta, now_ms, key, b"a lie") for delta in (2, 1, 0)])
        many = header._replace(record_count=1_000_000, last_offset_delta=999_999)
        zipped = compress(Codec.ZSTD, payload)
        return [
            ("offsets that jump", _assembled(header, deltas)),
            ("offsets that fall", _assembled(header, backwards)),
            ("a time beyond all times", _assembled(header._replace(base_timestamp=_FAR_MS), payload)),
            ("more records than bytes", _assembled(many, payload)),
            ("more records than are in it", _assembled(many._replace(attributes=Codec.ZSTD), zipped)),
            ("a control batch", _assembled(header._replace(attributes=CONTROL), payload)),
            ("a cleaned batch", _assembled(header._replace(attributes=DELETE_HORIZON), payload)),
            ("records without keys", bytes(build_batch([Record(0, now_ms, None, b"a lie")]))),
            ("a wrong checksum", bytes(plain[:-1]) + b"\xff"),
            ("half a batch", bytes(plain[: len(plain) // 2])),
            ("nonsense as records", _assembled(header, self.chance.randbytes(len(payload)))),
        ]

    def _records(self, made: Sequence[Record]) -> bytes:
        payload = bytearray()
        for record in made:
            write_record(payload, record, 0, made[0].timestamp)
        return bytes(payload)

    # -- garbage -----------------------------------------------------------------------------------------

    def _garbage(self) -> bytes:
        body = self.chance.randbytes(self.chance.randint(0, 60))
        size, api, version = len(body) + 8, self.chance.randrange(_APIS), self.chance.randrange(15)
        return self.chance.choice(
            (
                body,
                _REQUEST.pack(size, api, version, 1) + body,
                _REQUEST.pack(-1, api, version, 1),
                _REQUEST.pack(2**31 - 1, api, version, 1) + body,
                _REQUEST.pack(size + 100, api, version, 1) + body,
            )
        )


def _assembled(header: BatchHeader, payload: bytes) -> bytes:
    return bytes(assemble(header, payload))
