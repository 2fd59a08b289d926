"""Values of a schema registry as JSON: Avro, Protobuf and JSON Schema, read as the pipelines on Spark do.

A registry that does not answer must not hold up a page: it is asked once, and then not for a while.
"""

from __future__ import annotations

import functools
import json
import threading
import time
from collections.abc import Callable
from typing import Any

from forebay.errors import ForebayError
from forebay.operations.client import CommandError

FRAME_BYTES = 5
"""A zero and the number of the schema."""
_PAUSE_SECONDS = 10.0
_READERS_MAX = 500

ReadValue = Callable[[bytes | None], dict[str, Any]]


class RegistryDecoder:
    """Thread-safe."""

    def __init__(self, url: str, now: Callable[[], float] = time.monotonic) -> None:
        """Raises CommandError if packages are missing, or this is no address."""
        try:
            from forebay.spark.schemas.registry import Registry
        except ImportError as error:
            raise CommandError(
                f"values of a registry need more packages ({error.name}): pip install 'forebay[spark,avro]'"
            ) from None
        self._registry = Registry(url, pauses_s=())
        self._now = now
        self._lock = threading.Lock()
        self._readers: dict[int, ReadValue] = {}
        self._quiet_until = 0.0

    def decoded(self, data: bytes) -> str | None:
        """The value as JSON; None if it is not one of the registry, or that cannot be found out now."""
        if len(data) <= FRAME_BYTES or data[0] != 0:
            return None
        try:
            read = self._reader(int.from_bytes(data[1:FRAME_BYTES], "big"))
            row = None if read is None else read(data)
        except ForebayError:
            return None
        except Exception:  # bytes of another schema fail in any way that decoding can
            return None
        if row is None or "_corrupt_record" in row:
            return None
        return json.dumps(row, default=_as_text, ensure_ascii=False)

    def _reader(self, schema_id: int) -> ReadValue | None:
        with self._lock:
            if schema_id in self._readers:
                return self._readers[schema_id]
            if self._now() < self._quiet_until:
                return None
            from forebay.spark.schemas.registry import RegistryError

            try:
                made = _make_reader(self._registry.schema_of_any_kind(schema_id))
            except RegistryError:
                self._quiet_until = self._now() + _PAUSE_SECONDS
                raise
            if len(self._readers) >= _READERS_MAX:
                self._readers.clear()
            self._readers[schema_id] = made
            return made


def _make_reader(schema: Any) -> ReadValue:
    from forebay.spark.schemas import protobuf
    from forebay.spark.schemas.codecs import planned, reader
    from forebay.spark.schemas.decoding import Decoding
    from forebay.spark.schemas.registry import PROTOBUF

    how = planned(Decoding(schema=schema))
    if schema.kind != PROTOBUF:
        return reader(how)
    read = protobuf.reader_of_any(how)
    return lambda value: {} if value is None else read(value)


def _as_text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


@functools.lru_cache(4)
def shared_decoder(url: str) -> RegistryDecoder:
    """One for all pages of this console."""
    return RegistryDecoder(url)
