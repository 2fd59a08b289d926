"""Fetches the keys that tokens are checked with, over HTTP or from a file."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from jwt import PyJWK
from jwt.exceptions import PyJWTError

_FETCH_TIMEOUT_S = 10.0
_KEYS_BYTES_MAX = 1 << 20
_KEY_TYPES = ("RSA", "EC", "OKP")


class _RedirectToHttpsOnly(urllib.request.HTTPRedirectHandler):
    """Keys that came by plain `http:` would let whoever stands between log in as anybody."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme != "https":
            raise ValueError("the server redirects to a URL that is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def fetch_keys(url: str) -> Mapping[str | None, PyJWK]:
    """Blocks. Raises OSError or ValueError."""
    with urllib.request.build_opener(_RedirectToHttpsOnly).open(url, timeout=_FETCH_TIMEOUT_S) as answer:
        text = answer.read(_KEYS_BYTES_MAX + 1)
    if len(text) > _KEYS_BYTES_MAX:
        raise ValueError(f"there are more than {_KEYS_BYTES_MAX} bytes of keys")
    found: dict[str | None, PyJWK] = {}
    entries = json.loads(text)
    if not isinstance(entries, dict) or not isinstance(entries.get("keys"), list):
        raise ValueError("this is no set of keys (JWKS)")
    for entry in entries["keys"]:
        # Other kinds of keys, and those for encryption, sign nothing that is accepted here.
        if isinstance(entry, dict) and entry.get("kty") in _KEY_TYPES and entry.get("use", "sig") == "sig":
            try:
                found[entry.get("kid")] = PyJWK(entry)
            except PyJWTError:
                continue  # an algorithm that this version does not know
    if len(found) == 1:
        found[None] = next(iter(found.values()))
    return found
