"""Long polls end when another request comes behind them.

They are answered with what there is, which the protocol allows at any time. Only the API of the request
behind one is looked at. If that is another long poll, the first one goes on: otherwise a client that always
has two of them under way would be answered as fast as it can ask.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from forebay.broker.net.receiving import Receiving
from forebay.wire.api_keys import ApiKey

_API_KEY = Struct(">4xh")
_LONG_POLLS = (ApiKey.FETCH, ApiKey.SHARE_FETCH)


class Overtaking(Receiving):
    __slots__ = ()

    def end_long_poll(self) -> None:
        """Have a long poll that waits be answered with what there is now."""
        end_poll = self._end_of_poll()
        if end_poll is not None:
            end_poll()

    def _overtake(self) -> None:
        """Something has come behind a request that waits. If that is a long poll, see what it is."""
        if self._end_of_poll() is not None and self._input is None and not self._has_header():
            return  # the rest of it will come
        self._listen(False)
        self._end_poll_before(self._rest)

    def _has_header(self) -> bool:
        """True if enough of the next request is here to tell its API. Reads no more than that."""
        missing = _API_KEY.size - len(self._rest)
        if missing <= 0:
            return True
        header = bytearray(missing)
        try:
            received = self._stream.recv_into(memoryview(header))
        except BlockingIOError:
            return False
        except OSError:
            self.close()
            return False
        self._rest += header[:received]
        return received == missing

    def _end_poll_before(self, behind: bytes | memoryview) -> None:
        end_poll = self._end_of_poll()
        if end_poll is not None and len(behind) >= _API_KEY.size:
            (api_key,) = _API_KEY.unpack_from(behind)
            if api_key not in _LONG_POLLS:
                end_poll()

    def _end_of_poll(self) -> Callable[[], None] | None:
        """The function that ends the long poll which holds up further requests, if one does."""
        replies = self.replies
        return replies[-1].on_overtaken if replies and replies[-1].parts is None else None
