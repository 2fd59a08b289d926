"""Safety of the console against other web pages: one layer around everything that is served.

- The `Host` must be an address, localhost, or a name that the console was started with. A page of another
  site whose name was made to point here (DNS rebinding) has another one.
- A change needs a header that forms of other sites cannot send, JSON, and the console's own origin.
- The browser gets a strict content security policy: scripts, styles and pictures from here only, no frames.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CHANGE_HEADER = "x-forebay-console"
_SAFE_METHODS = ("GET", "HEAD")


def policy(script_hashes: Iterable[str]) -> str:
    """The content security policy; the hashes are those of the import map, which browsers want inline."""
    scripts = " ".join(["'self'", *(f"'sha256-{each}'" for each in script_hashes)])
    return "; ".join(
        [
            "default-src 'none'",
            f"script-src {scripts}",
            "style-src 'self'",
            "img-src 'self' data:",
            "font-src 'self'",
            "connect-src 'self'",
            "form-action 'self'",
            "frame-ancestors 'none'",
            "base-uri 'none'",
        ]
    )


class Safety:
    def __init__(self, app: ASGIApp, *, policy: str, names: Collection[str] = ()) -> None:
        self._app = app
        self._names = {name.lower() for name in names} | {"localhost"}
        self._headers = {
            "content-security-policy": policy,
            "x-frame-options": "DENY",
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        problem = self._problem(scope["method"], Headers(scope=scope))
        if problem is not None:
            await PlainTextResponse(problem, status_code=403)(scope, receive, send_safely)
            return
        await self._app(scope, receive, send_safely)

    def _problem(self, method: str, headers: Headers) -> str | None:
        host = headers.get("host", "")
        if not is_known_host(host, self._names):
            return f"this console is not called {host}: start it with --name to allow that name\n"
        if method in _SAFE_METHODS:
            return None
        if headers.get(CHANGE_HEADER) != "1":
            return f"changes need the header {CHANGE_HEADER}: 1\n"
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return "changes are possible from the console's own pages only\n"
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return "changes are possible from the console's own pages only\n"
        if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return "changes are sent as application/json\n"
        return None


def is_known_host(host: str, names: Collection[str]) -> bool:
    """True for addresses and known names, with any port."""
    name = urlsplit(f"//{host}").hostname if host else None
    if name is None:
        return False
    if name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
