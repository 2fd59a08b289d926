"""The settings of OAUTHBEARER logins: which tokens are accepted. They have Kafka's names."""

from __future__ import annotations

from urllib.parse import urlsplit

from forebay.config.declared_settings import settings_group
from forebay.config.listeners import is_this_machine
from forebay.config.values import Value, bool_key, int_key, list_key, long_key, text_key
from forebay.errors import ConfigError

MECHANISM = "OAUTHBEARER"
_SCHEMES = ("https", "http", "file")


def _url(value: Value) -> None:
    if value and urlsplit(str(value)).scheme not in _SCHEMES:
        raise ValueError("write an https: or file: URL")


@settings_group
class OAuthConfig:
    jwks_url: str | None = text_key(
        "sasl.oauthbearer.jwks.endpoint.url",
        None,
        "Where the keys are that tokens are signed with (JWKS): an https: or file: URL.",
        validate=_url,
    )
    refresh_ms: int = long_key(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        3_600_000,
        "How often the keys are fetched again.",
        1000,
    )
    refetch_ms: int = int_key(
        "forebay.oauthbearer.jwks.refetch.ms",
        5_000,
        "The least time between two fetches, however many tokens name keys that are not known.",
        10,
    )
    audience: tuple[str, ...] = list_key(
        "sasl.oauthbearer.expected.audience",
        (),
        "A token must be for one of these (claim aud).",
    )
    issuer: str | None = text_key(
        "sasl.oauthbearer.expected.issuer", None, "A token must be from this issuer (claim iss)."
    )
    allow_unverified_audience: bool = bool_key(
        "sasl.oauthbearer.allow.unverified.audience", False, "Accept tokens that are for anybody."
    )
    allow_unverified_issuer: bool = bool_key(
        "sasl.oauthbearer.allow.unverified.issuer", False, "Accept tokens from any issuer that has the keys."
    )
    clock_skew_s: int = int_key(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        "How far the clock of the issuer may differ from the broker's.",
        0,
        3600,
    )
    user_claim: str = text_key(
        "sasl.oauthbearer.sub.claim.name", "sub", "The claim of a token that names the user."
    )


def check_oauth(config: OAuthConfig, *, allow_insecure: bool) -> None:
    """Check the settings of brokers with OAUTHBEARER; raises ConfigError."""
    if not config.jwks_url:
        raise ConfigError(
            f"{MECHANISM} needs the keys that tokens are signed with: set sasl.oauthbearer.jwks.endpoint.url"
        )
    url = urlsplit(config.jwks_url)
    if url.scheme == "http" and not is_this_machine(url.hostname or "") and not allow_insecure:
        raise ConfigError(
            "sasl.oauthbearer.jwks.endpoint.url is http: whoever stands between could answer with keys of "
            "his own, and log in as anybody; use https:, or set forebay.allow.insecure=true"
        )
    if not config.audience and not config.allow_unverified_audience:
        raise ConfigError(
            "set sasl.oauthbearer.expected.audience, or every token of the issuer is accepted, whatever it "
            "was made for; sasl.oauthbearer.allow.unverified.audience=true says that this is meant"
        )
    if not config.issuer and not config.allow_unverified_issuer:
        raise ConfigError(
            "set sasl.oauthbearer.expected.issuer, or sasl.oauthbearer.allow.unverified.issuer=true"
        )
