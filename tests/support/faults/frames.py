"""Frames of the protocol, for proxies that look into what they pass on."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_SIZE = struct.Struct(">i")


class Frames:
    """Whole frames out of the pieces in which one direction of a connection arrives."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, chunk: bytes) -> Iterator[bytes]:
        self._rest += chunk
        while len(self._rest) >= _SIZE.size:
            end = _SIZE.size + _SIZE.unpack_from(self._rest)[0]
            if len(self._rest) < end:
                return
            frame, self._rest = self._rest[_SIZE.size : end], self._rest[end:]
            yield frame
