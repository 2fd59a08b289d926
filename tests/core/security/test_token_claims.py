"""Which tokens are accepted, by what they say."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.core.security.sasl.exchange import Accepted, Rejected
from forebay.core.security.sasl.token_claims import ALGORITHMS, TokenRules, judge, key_id

NOW_S = 1_800_000_000
RULES = TokenRules(audience=("forebay", "kafka"), issuer="https://issuer", user_claim="sub", clock_skew_s=30)
GOOD = {"sub": "ada", "iss": "https://issuer", "aud": "forebay", "exp": NOW_S + 300}


def judged(changes: dict[str, Any], rules: TokenRules = RULES) -> Accepted | Rejected:
    claims = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    return judge(claims, rules, NOW_S * 1000)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"aud": ["x", "kafka"]},
        {"nbf": NOW_S + 20, "iat": NOW_S},
        {"exp": NOW_S + 0.5},
        {"exp": NOW_S - 29},
    ],
)
def test_a_good_token_is_accepted(changes: dict[str, Any]) -> None:
    verdict = judged(changes)
    assert isinstance(verdict, Accepted) and verdict.user == "ada"
    assert verdict.expires_ms is not None and verdict.expires_ms > NOW_S * 1000


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"exp": NOW_S - 30}, "expired"),
        ({"exp": None}, "when it expires"),
        ({"exp": "tomorrow"}, "when it expires"),
        ({"exp": True}, "when it expires"),
        ({"exp": float("nan")}, "when it expires"),
        ({"exp": 1e300}, "when it expires"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"iat": NOW_S + 31}, "not valid yet"),
        ({"nbf": "x"}, "not valid yet"),
        ({"iss": "https://issuer/"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"aud": "other"}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"aud": ["x", 1]}, "another audience"),
        ({"aud": {"forebay": 1}}, "another audience"),
        ({"sub": None}, "could be a user"),
        ({"sub": ""}, "could be a user"),
        ({"sub": " ada"}, "could be a user"),
        ({"sub": "ada "}, "could be a user"),
        ({"sub": 7}, "could be a user"),
        ({"sub": "a\nb"}, "could be a user"),
        ({"sub": "a" * 257}, "could be a user"),
    ],
)
def test_a_token_that_is_not_for_us_is_refused(changes: dict[str, Any], reason: str) -> None:
    verdict = judged(changes)
    assert isinstance(verdict, Rejected) and reason in verdict.reason


def test_what_need_not_be_verified_is_not() -> None:
    lax = TokenRules(audience=(), issuer=None, user_claim="name", clock_skew_s=0)
    assert judged({"iss": None, "aud": None, "name": "bob"}, lax) == Accepted(
        user="bob", expires_ms=(NOW_S + 300) * 1000
    )


def header(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode().rstrip("=") + ".e30.x"


def test_only_signatures_by_private_keys_are_looked_at() -> None:
    for algorithm in ALGORITHMS:
        assert key_id(header(f'{{"alg":"{algorithm}","kid":"k"}}')) == (algorithm, "k")
    assert key_id(header('{"alg":"RS256"}')) == ("RS256", None)
    for algorithm in ("none", "None", "HS256", "HS512", "rs256", "RS1", ""):
        assert key_id(header(f'{{"alg":"{algorithm}"}}')) is None
    for text in ("[]", "{}", '{"alg":["RS256"]}', '{"alg":"RS256","kid":7}', "x"):
        assert key_id(header(text)) is None
    assert key_id(header('{"alg":"RS256"}') + ".x.y") is None


@given(st.text(max_size=60))
def test_garbage_is_no_token(text: str) -> None:
    assert key_id(text) is None
