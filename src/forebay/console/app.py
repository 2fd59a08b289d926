"""The console's web application: pages, sessions, live streams and static files, put together.

A page has one module below `pages/` with a `PAGE`, and one module in `static/pages/`, named in
`static/pages/index.js`. docs/console.md says how to add one.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import os
import pkgutil
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from forebay.console import pages
from forebay.console.settings import ConsoleSettings
from forebay.console.web.answering import Answering, json_answer, problem, read_body
from forebay.console.web.live import Live, LiveSource
from forebay.console.web.page import Page
from forebay.console.web.safety import Safety, policy
from forebay.console.web.sessions import LoginRefused, Session, Sessions

STATIC = Path(__file__).parent / "static"


def make_app(settings: ConsoleSettings, *, cookie_name: str = "forebay_console") -> Starlette:
    sessions = Sessions(settings)
    answering = Answering(settings, sessions, cookie_name)
    entrance = _Entrance(settings, answering)
    routes: list[BaseRoute] = [
        Route("/api/session", entrance.session),
        Route("/api/login", entrance.log_in, methods=["POST"]),
        Route("/api/logout", entrance.log_out, methods=["POST"]),
    ]
    sources: dict[str, LiveSource] = {}
    for module in _page_modules():
        page: Page = module.PAGE
        sources |= getattr(module, "LIVE", {})
        for route in page.routes:
            methods = ["GET"] if route.read is not None else ["POST"]
            routes.append(Route(f"/api/{{cluster}}{route.path}", answering.endpoint(route), methods=methods))
    routes += [
        Route("/api/{cluster}/events", Live(answering, sources).endpoint),
        Route("/api/{rest:path}", _no_such_address),
        Mount("/static", _Files(directory=STATIC)),
        Route("/{rest:path}", entrance.page),
    ]

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        sessions.start()
        yield
        sessions.close()

    page_text = (STATIC / "index.html").read_text(encoding="utf-8")
    safety = Middleware(Safety, policy=policy(inline_hashes(page_text)), names=settings.names)
    return Starlette(routes=routes, middleware=[safety], lifespan=lifespan)


def _page_modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(pages.__path__, f"{pages.__name__}."):
        if not found.ispkg:
            yield importlib.import_module(found.name)


def inline_hashes(page: str) -> list[str]:
    """The hashes of the import map. Browsers want it inline, and the policy allows just this text."""
    maps = re.findall(r'<script type="importmap">(.*?)</script>', page, re.S)
    return [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in maps]


class _Files(StaticFiles):
    """Files that browsers may keep but ask about each time: an upgrade is seen at once."""

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers["cache-control"] = "no-cache"
        return response


async def _no_such_address(_request: Request) -> Response:
    return problem(404, "there is nothing at this address")


class _Entrance:
    """The page itself, and the ways in and out."""

    def __init__(self, settings: ConsoleSettings, answering: Answering) -> None:
        self._settings = settings
        self._answering = answering
        self._page = (STATIC / "index.html").read_bytes()

    async def page(self, request: Request) -> Response:
        """The same page at every address: its script shows the view. A token is taken out of the address."""
        token = request.query_params.get("token")
        if token is None:
            return Response(self._page, media_type="text/html; charset=utf-8")
        rest = "&".join(part for part in request.url.query.split("&") if not part.startswith("token="))
        target = "/" + request.url.path.lstrip("/") + (f"?{rest}" if rest else "")
        response: Response = RedirectResponse(target, status_code=303)
        session = self._answering.sessions.with_token(token)
        if session is not None:
            self._set_cookie(response, session)
        return response

    async def session(self, request: Request) -> Response:
        """Answers the first question of the script: who is this, and which clusters are there."""
        session = self._answering.session_of(request)
        if session is None:
            return self._answering.unauthorized()
        return json_answer(self._described(session))

    async def log_in(self, request: Request) -> Response:
        body = await read_body(request)
        if isinstance(body, Response):
            return body
        if not self._settings.login:
            session = self._answering.sessions.with_token(_text(body, "token"))
            return problem(403, "this is not the token") if session is None else self._begin(session)
        user, password = _text(body, "user"), _text(body, "password")
        if not user or not password:
            return problem(422, "give a name and a password", field="user" if not user else "password")

        def logged_in() -> Response:
            try:
                return self._begin(self._answering.sessions.log_in(user, password))
            except LoginRefused as error:
                return problem(403, str(error))

        return await self._answering.in_thread(logged_in)

    async def log_out(self, request: Request) -> Response:
        session = self._answering.session_of(request)
        if session is not None:
            self._answering.sessions.log_out(session)
        response = json_answer({})
        response.delete_cookie(self._answering.cookie_name, samesite="strict", httponly=True)
        return response

    def _begin(self, session: Session) -> Response:
        response = json_answer(self._described(session))
        self._set_cookie(response, session)
        return response

    def _set_cookie(self, response: Response, session: Session) -> None:
        response.set_cookie(
            self._answering.cookie_name,
            session.id,
            httponly=True,
            samesite="strict",
            secure=bool(self._settings.certificate),
        )

    def _described(self, session: Session) -> Mapping[str, object]:
        return {
            "user": session.user,
            "clusters": [
                {"name": each.name, "bootstrap": each.client.bootstrap} for each in session.clusters.values()
            ],
            "problems": session.problems,
            "read_only": self._settings.read_only,
            "login": "password" if self._settings.login else "token",
        }


def _text(body: Mapping[str, object], name: str) -> str:
    value = body.get(name, "")
    return value if isinstance(value, str) else ""
