"""Turns a page's functions into endpoints: finds the session and the cluster, runs the function in a thread,
asks before a change, and turns every error into an answer that says what to do.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio.to_thread
import orjson
from starlette.requests import Request
from starlette.responses import Response

from forebay.console.settings import ConsoleSettings
from forebay.console.watch.cluster_access import ClusterAccess
from forebay.console.web.asking import Ask, Change, Download, NotThere, WrongInput
from forebay.console.web.page import Changer, PageRoute, Reader
from forebay.console.web.sessions import Session, Sessions
from forebay.errors import ForebayError

log = logging.getLogger(__name__)
changes = logging.getLogger("forebay.console.changes")

BODY_BYTES_MAX = 32 << 20
Endpoint = Callable[[Request], Awaitable[Response]]


class Answering:
    """Answers requests: finds the session, runs a page's function in a thread, makes answers of errors."""

    def __init__(self, settings: ConsoleSettings, sessions: Sessions, cookie_name: str) -> None:
        self.settings = settings
        self.sessions = sessions
        self.cookie_name = cookie_name
        self._limiter: anyio.CapacityLimiter | None = None

    def endpoint(self, route: PageRoute) -> Endpoint:
        async def answer(request: Request) -> Response:
            session = self.session_of(request)
            if session is None:
                return self.unauthorized()
            cluster = session.clusters.get(request.path_params["cluster"])
            if cluster is None:
                return problem(404, "there is no such cluster here, or this user may not use it")
            body = await read_body(request)
            if isinstance(body, Response):
                return body
            ask = Ask(
                cluster=cluster,
                path=request.path_params,
                query=dict(request.query_params),
                body=body,
                user=session.user,
                read_only=self.settings.read_only,
            )
            return await self.in_thread(lambda: self._answer(route, ask))

        return answer

    def session_of(self, request: Request) -> Session | None:
        cookie = request.cookies.get(self.cookie_name)
        return None if cookie is None else self.sessions.find(cookie)

    def unauthorized(self) -> Response:
        if self.settings.login:
            return problem(401, "log in first", login="password")
        return problem(401, "open the address that `forebay console` has printed", login="token")

    async def in_thread(self, work: Callable[[], Response]) -> Response:
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self.settings.threads)
        return await anyio.to_thread.run_sync(work, limiter=self._limiter)

    # -- in a thread ---------------------------------------------------------------------------------

    def _answer(self, route: PageRoute, ask: Ask) -> Response:
        try:
            if route.read is not None:
                return _read(route.read, ask)
            assert route.change is not None
            return self._change(route.change, ask)
        except NotThere as error:
            return problem(404, str(error))
        except WrongInput as error:
            return problem(422, str(error), field=error.field)
        except ForebayError as error:
            return problem(502, str(error))
        except Exception:
            log.exception("a page failed")
            return problem(500, "the console has failed: its log says why")

    def _change(self, function: Changer, ask: Ask) -> Response:
        if self.settings.read_only:
            return problem(403, "this console is read-only: it was started with --read-only")
        change = function(ask)
        if ask.body.get("confirmed") is not True:
            return json_answer(
                {
                    "question": change.question,
                    "details": list(change.details),
                    "command": change.command_line,
                    "danger": change.danger,
                    "verb": change.verb or ("Delete" if change.danger else "Do it"),
                    "name": change.name,
                }
            )
        return self._act(change, ask)

    def _act(self, change: Change, ask: Ask) -> Response:
        user = ask.user or "token"
        try:
            said = change.act()
        except ForebayError as error:
            changes.warning("%s on %s failed: %s: %s", user, ask.cluster.name, change.command_line, error)
            raise
        changes.info("%s on %s: %s", user, ask.cluster.name, change.command_line)
        _look_again(ask.cluster)
        done = said if isinstance(said, str) else change.done
        return json_answer({"done": done, "command": change.command_line})


def _look_again(cluster: ClusterAccess) -> None:
    """The lists of the next page should show the change."""
    cluster.watcher.refreshed()


def _read(function: Reader, ask: Ask) -> Response:
    found = function(ask)
    if isinstance(found, Download):
        # Never a page of ours, whatever the bytes are.
        return Response(
            found.data,
            media_type=found.content_type,
            headers={
                "content-disposition": f'attachment; filename="{_safe_name(found.filename)}"',
                "content-security-policy": "sandbox; default-src 'none'",
            },
        )
    return json_answer(found)


def _safe_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name) or "file"


async def read_body(request: Request) -> Mapping[str, Any] | Response:
    """The JSON object of a change; empty for other requests."""
    if request.method in ("GET", "HEAD"):
        return {}
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > BODY_BYTES_MAX:
            return problem(413, f"this is more than {BODY_BYTES_MAX >> 20} MB")
    try:
        body = orjson.loads(bytes(data) or b"{}")
    except orjson.JSONDecodeError:
        return problem(400, "the body is not JSON")
    return body if isinstance(body, dict) else problem(400, "the body is not a JSON object")


def json_answer(value: Any, status: int = 200) -> Response:
    return Response(
        orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS), status_code=status, media_type="application/json"
    )


def problem(status: int, message: str, **more: Any) -> Response:
    return json_answer({"error": message, **more}, status)
