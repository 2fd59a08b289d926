"""The claims of a token, and the decision to accept it, once its signature has been checked."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Any

from forebay.config.names import is_trimmed
from forebay.core.security.sasl.exchange import Accepted, Rejected, Verdict
from forebay.lazy import dataclass

ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""Signatures by a private key, and no others. `none` is no signature. HS256 uses a shared key, and an
attacker could sign with the public key if that were taken for it."""
USER_CHARS_MAX = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    audience: tuple[str, ...]
    """Empty: any audience."""
    issuer: str | None
    """None: anybody who has the keys."""
    user_claim: str
    clock_skew_s: int


def key_id(token: str) -> tuple[str, str | None] | None:
    """The algorithm and the key's id that a token names; None if it could not be accepted anyway."""
    try:
        first = token.split(".")[0]
        header = json.loads(urlsafe_b64decode(first + "=" * (-len(first) % 4)))
        algorithm, kid = header["alg"], header.get("kid")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    known = algorithm in ALGORITHMS and (kid is None or isinstance(kid, str)) and token.count(".") == 2
    return (algorithm, kid) if known else None


def judge(claims: Mapping[str, Any], rules: TokenRules, now_ms: int) -> Verdict:
    user: Any = claims.get(rules.user_claim)
    expires_s: Any = claims.get("exp")
    skew_ms = rules.clock_skew_s * 1000
    if not _is_user(user):
        return Rejected(reason=f"the token has no claim {rules.user_claim} that could be a user")
    if not _is_time(expires_s):
        return Rejected(reason="the token does not say when it expires", user=user)
    if expires_s * 1000 + skew_ms <= now_ms:
        return Rejected(reason="the token has expired", user=user)
    for name in ("nbf", "iat"):
        begins_s = claims.get(name)
        if begins_s is not None and (not _is_time(begins_s) or begins_s * 1000 - skew_ms > now_ms):
            return Rejected(reason=f"the token is not valid yet ({name})", user=user)
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        return Rejected(reason="the token is from another issuer", user=user)
    if rules.audience and not _audience(claims) & set(rules.audience):
        return Rejected(reason="the token is for another audience", user=user)
    # The issuer's clock may be behind: such a token is valid for the skew at most.
    return Accepted(user=user, expires_ms=max(int(expires_s * 1000), now_ms + min(skew_ms, 1000)))


def _is_user(claim: Any) -> bool:
    if not isinstance(claim, str) or not 0 < len(claim) <= USER_CHARS_MAX:
        return False
    return claim.isprintable() and is_trimmed(claim)


def _audience(claims: Mapping[str, Any]) -> set[str]:
    audience = claims.get("aud")
    found = audience if isinstance(audience, list) else [audience]
    return {each for each in found if isinstance(each, str)}


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12
