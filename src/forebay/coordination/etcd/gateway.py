"""Sends requests to whichever etcd server answers.

One server is used until it fails, then the next one. A request that was certainly not applied is sent again,
to another server; one that may have been applied is sent again only if it is `repeatable`, that is, a read.
An expired login is renewed on the way.

Every request carries `hasleader`: a server that is cut off from the others then says so instead of staying
silent. A server whose raft term is older than one seen before is cut off too, and not trusted.

Nor is a server of another etcd, or of one that has lost data that it had returned (`store_identity.py`). Such
an answer is ignored. If no server gives a better one, StoreMismatch is raised.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from forebay.config import ClusterConfig
from forebay.coordination.etcd.answers import Json, read_answer, read_messages, version_in
from forebay.coordination.etcd.failures import (
    Failure,
    NoAnswer,
    NotOurs,
    Refused,
    Unreachable,
    broken,
    connecting_failed,
)
from forebay.coordination.etcd.http import Connection, HttpError, Response
from forebay.coordination.etcd.messages import has_put, key_text
from forebay.coordination.etcd.tls import EtcdClientTls
from forebay.coordination.store import StoreAway, StoreClosed, StoreError, StoreMismatch
from forebay.coordination.store_identity import Header, KnownStore, Position

T = TypeVar("T")

CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 4.0
"""The time limit of one server for one request."""
REQUEST_TIMEOUT_S = 8.0
"""The time limit of all servers together for one request."""
_REQUESTS_MAX = 16
_BACKOFF_MIN_S = 0.05
_BACKOFF_MAX_S = 0.5
_LOGINS_MAX = 3
RANGE = "/v3/kv/range"
TXN = "/v3/kv/txn"
_LINEARIZABLE = (RANGE, TXN)
"""The answers to these show the newest state of the cluster, whichever server gives them."""


class Gateway:
    def __init__(
        self,
        config: ClusterConfig,
        *,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        known: KnownStore | None = None,
    ) -> None:
        self.known = known or KnownStore()
        self.user = config.user
        self._password = config.password
        self._endpoints = config.endpoints
        self._probe: Json = {"key": key_text(f"/forebay/{config.name}/")}
        self._tls = EtcdClientTls(config) if config.tls else None
        self.answer_timeout_s = answer_timeout_s
        self.request_timeout_s = request_timeout_s
        # Brokers that all begin with the first server named would leave the others idle.
        self.current = random.randrange(len(config.endpoints))
        self.token: str | None = None
        self._idle: list[list[Connection]] = [[] for _ in config.endpoints]
        """For each server, the connections that wait for a request."""
        self._streams: set[Connection] = set()
        self._slots = asyncio.Semaphore(_REQUESTS_MAX)
        self._running: set[asyncio.Task[Any]] = set()
        self._closed = False

    # -- requests ----------------------------------------------------------------------------------

    async def call(self, path: str, body: Json | bytes, *, repeatable: bool = False) -> Json:
        """The answer of the first server that gives one.

        Raises Refused if etcd itself refuses, StoreError if nobody answers, and StoreMismatch if only another
        store answers than the one used so far.
        """

        async def ask(index: int, left_s: float) -> Json:
            return await self._ask(index, path, body, left_s)

        try:
            answer = await self.guard(self._try_servers(ask, repeatable))
        except StoreMismatch as error:
            self.known.refused = error
            raise
        if path in _LINEARIZABLE:
            self.known.refused = None
        return answer

    async def confirm(self) -> None:
        """Raises StoreMismatch while another store answers; a good answer ends the refusal."""
        await self.call(RANGE, self._probe, repeatable=True)

    async def version(self) -> str:
        """The version of etcd: a request that needs no login, and distinguishes etcd from anything else."""

        async def ask(index: int, left_s: float) -> str:
            connection = await self._connection(index)
            timeout_s = min(left_s, self.answer_timeout_s)
            return version_in(await self._exchange(index, connection, "/version", {}, None, timeout_s))

        return await self.guard(self._try_servers(ask, True))

    async def check(self, index: int) -> None:
        """Raises NoAnswer, Unreachable or Refused unless this very server is part of the working cluster.

        Its status shows its health, and a read of any key that the cluster has not gone back.
        """
        answer = await self.guard(self._ask(index, "/v3/maintenance/status", {}, self.answer_timeout_s))
        if int(answer.get("leader", 0)) == 0:
            raise NoAnswer("it has no leader")
        await self.guard(self._ask(index, RANGE, self._probe, self.answer_timeout_s))

    @asynccontextmanager
    async def stream(self, path: str, body: Json) -> AsyncIterator[tuple[int, AsyncIterator[Json]]]:
        """A streamed answer, and the number of the server that sends it.

        The messages are read by the caller, and may raise OSError and HttpError.
        """
        index = self.current
        try:
            headers = await self.guard(self._headers(index))
            connection = await self.guard(self._connection(index))
        except (Unreachable, NoAnswer):
            self.leave(index)
            raise
        self._streams.add(connection)
        try:
            async with asyncio.timeout(self.answer_timeout_s):
                response = await self.guard(_send(connection, path, headers, body))
            yield index, read_messages(response)
        except (Refused, NoAnswer) as error:
            if isinstance(error, Refused) and (error.stale_token or error.denied):
                self.token = None
            self.leave(index)
            raise
        except (OSError, HttpError, TimeoutError) as error:
            self.check_open()
            self.leave(index)
            self._doubt_token(error)
            raise broken(error, tls=self._tls is not None) from error
        finally:
            self._streams.discard(connection)
            connection.abort()

    async def _try_servers(self, ask: Callable[[int, float], Awaitable[T]], repeatable: bool) -> T:
        attempts = _Attempts(self, self.request_timeout_s)
        async with self._slots:
            while True:
                index = self.current
                try:
                    return await ask(index, attempts.left_s)
                except Unreachable as error:
                    await attempts.failed(index, error)
                except NoAnswer as error:
                    if isinstance(error, NotOurs) and not repeatable and not error.not_applied:
                        self.leave(index)
                        raise error.mismatch from error
                    if not repeatable and not isinstance(error, NotOurs):
                        self.leave(index)
                        raise StoreAway(
                            f"etcd at {self.address(index)}: {error}; whether the change was made is unknown"
                        ) from error
                    await attempts.failed(index, error)
                except Refused as error:
                    if error.stale_token and attempts.may_log_in():
                        self.token = None
                    elif error.not_applied or (repeatable and error.unavailable):
                        await attempts.failed(index, error)
                    else:
                        raise

    async def _ask(self, index: int, path: str, body: Json | bytes, timeout_s: float) -> Json:
        headers = await self._headers(index)
        connection = await self._connection(index)
        timeout_s = min(timeout_s, self.answer_timeout_s)
        asked_at = self.known.position() if path in _LINEARIZABLE else None
        try:
            answer = await self._exchange(index, connection, path, headers, body, timeout_s)
        except NoAnswer as error:
            self._doubt_token(error.__cause__)
            raise
        wrote = isinstance(body, bytes) and answer.get("succeeded", False) and has_put(body)
        self.check_origin(answer, asked_at, wrote=wrote)
        return answer

    async def _exchange(
        self,
        index: int,
        connection: Connection,
        path: str,
        headers: dict[str, str],
        body: Json | bytes | None,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> Json:
        try:
            async with asyncio.timeout(timeout_s):
                return await read_answer(await _send(connection, path, headers, body))
        except (OSError, HttpError, TimeoutError) as error:
            raise broken(error, tls=self._tls is not None) from error
        finally:
            self._give_back(index, connection)

    async def _headers(self, index: int) -> dict[str, str]:
        headers = {"Grpc-Metadata-hasleader": "true"}
        if self.user is not None and self.token is None:
            self.token = await self._log_in(index)
        if self.token:
            headers["Authorization"] = self.token
        return headers

    def _doubt_token(self, failure: BaseException | None) -> None:
        """Log in again after a request that got no answer in time.

        etcd waits until it has reached the index in a token. An etcd that was restored from a backup may take
        days for that.
        """
        if isinstance(failure, TimeoutError):
            self.token = None

    async def _log_in(self, index: int) -> str:
        """A token; empty if this etcd has no users, so that none is needed.

        Checking a password is slow on purpose, so this may take longer than other requests.
        """
        connection = await self._connection(index)
        login = {"name": self.user, "password": self._password}
        try:
            answer = await self._exchange(index, connection, "/v3/auth/authenticate", {}, login)
        except Refused as error:
            if "not enabled" in error.message:
                return ""
            raise
        except NoAnswer as error:
            # The request itself has not been sent.
            raise Unreachable(str(error), hopeless=error.hopeless) from error
        return str(answer["token"])

    # -- servers -------------------------------------------------------------------------------------

    @property
    def count(self) -> int:
        return len(self._endpoints)

    def address(self, index: int) -> str:
        host, port = self._endpoints[index]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def check_origin(self, answer: Json, asked_at: Position | None = None, *, wrote: bool = False) -> None:
        """Raises NotOurs for an answer of another store, NoAnswer for a server that missed an election.

        `wrote`: the request has changed the store.
        """
        header = answer.get("header") or answer.get("result", {}).get("header")
        if header is None:
            return
        seen = self.known.position()
        term = int(header.get("raft_term", seen.term))
        found = Header(str(header.get("cluster_id", "")), int(header.get("revision", 0)), term)
        mismatch = self.known.mismatch(found, asked_at, wrote=wrote)
        if mismatch is not None:
            self.token = None  # the store to return to may not know it any more, or have other users
            raise NotOurs(mismatch)
        if term < seen.term:
            raise NoAnswer(f"it is at raft term {term}, others at {seen.term}: it is cut off from them")

    def leave(self, index: int) -> None:
        """Use another server from now on; does nothing if that has already been decided."""
        if self.current == index:
            self.current = (index + 1) % self.count
        for connection in self._idle[index]:
            connection.abort()

    async def _connection(self, index: int) -> Connection:
        while self._idle[index]:
            connection = self._idle[index].pop()
            if connection.usable:
                return connection
            connection.abort()
        host, port = self._endpoints[index]
        try:
            async with asyncio.timeout(min(CONNECT_TIMEOUT_S, self.answer_timeout_s)):
                tls = None if self._tls is None else self._tls.context()
                return await Connection.open(host, port, tls)
        except (OSError, TimeoutError) as error:
            raise connecting_failed(error, tls=self._tls is not None) from error

    def _give_back(self, index: int, connection: Connection) -> None:
        if connection.usable and len(self._idle[index]) < _REQUESTS_MAX and not self._closed:
            self._idle[index].append(connection)
        else:
            connection.abort()

    # -- life ----------------------------------------------------------------------------------------

    def check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")

    async def guard(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs it, unless the store is closed first: then StoreClosed is raised at once."""
        if self._closed:
            work.close()
            self.check_open()
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is None or not current.cancelling():
                self.check_open()
            raise

    def close(self) -> None:
        self._closed = True
        for task in self._running:
            task.cancel()
        for connection in itertools.chain(self._streams, *self._idle):
            connection.abort()


class _Attempts:
    """The attempts of one request: at all servers in turn, then again after a pause."""

    def __init__(self, gateway: Gateway, timeout_s: float) -> None:
        self._gateway = gateway
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + timeout_s
        self._problems: dict[int, Failure] = {}
        self._in_round = 0
        self._backoff_s = _BACKOFF_MIN_S
        self._logins = 0
        self._suspicious = True

    @property
    def left_s(self) -> float:
        return max(0.0, self._deadline - self._loop.time())

    async def failed(self, index: int, error: Failure) -> None:
        """Continue with the next server; raises StoreError when the time is up or a retry is pointless."""
        self._gateway.leave(index)
        # Running out of time says less than the error before.
        if not isinstance(error.__cause__, TimeoutError) or index not in self._problems:
            self._problems[index] = error
        self._in_round += 1
        if self._in_round < self._gateway.count and self.left_s:
            return
        self._in_round = 0
        hopeless = all(problem.hopeless for problem in self._problems.values())
        self._suspicious = self._suspicious and all(each.suspicious for each in self._problems.values())
        if hopeless or self.left_s <= self._backoff_s:
            raise self._outcome(hopeless or self._suspicious) from error
        await asyncio.sleep(self._backoff_s)
        self._backoff_s = min(self._backoff_s * 2, _BACKOFF_MAX_S)

    def may_log_in(self) -> bool:
        self._logins += 1
        return self._gateway.user is not None and self._logins < _LOGINS_MAX

    def _outcome(self, hopeless: bool) -> StoreError:
        for index, problem in self._problems.items():
            if isinstance(problem, NotOurs):
                found = problem.mismatch
                return StoreMismatch(found.reason, f"etcd at {self._gateway.address(index)}: {found.message}")
        return StoreError(self._summary()) if hopeless else StoreAway(self._summary())

    def _summary(self) -> str:
        told = (f"{self._gateway.address(index)}: {error}" for index, error in self._problems.items())
        return f"no etcd server answers ({'; '.join(told)}): start etcd, or correct forebay.cluster"


async def _send(
    connection: Connection, path: str, headers: dict[str, str], body: Json | bytes | None
) -> Response:
    encoded = json.dumps(body, separators=(",", ":")).encode() if isinstance(body, dict) else body
    return await connection.request(path, headers, encoded)
