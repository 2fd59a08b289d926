"""The settings of tracing: spans for messages whose producers sent a trace along."""

from __future__ import annotations

from forebay.config.declared_settings import settings_group
from forebay.config.values import Value, int_key, text_key


def _url(value: Value) -> None:
    if value and not str(value).startswith(("http://", "https://")):
        raise ValueError(f"{value!r} is no address of a collector: give http://HOST:4318/v1/traces")


@settings_group
class TracingConfig:
    endpoint: str | None = text_key(
        "forebay.tracing.endpoint",
        None,
        "Where spans are sent, by OTLP over HTTP as JSON: http://HOST:4318/v1/traces. A message with the "
        "header traceparent gets a span from when the broker has received it to when it is acknowledged. "
        "Nothing is looked at unless this is set; with it, produce requests take longer.",
        validate=_url,
    )
    spans_per_second_max: int = int_key(
        "forebay.tracing.spans.per.second.max",
        500,
        "How many spans are sent each second at most; forebay_spans_left_out_total counts the others.",
        1,
        100_000,
    )
    queue_bytes_max: int = int_key(
        "forebay.tracing.queue.bytes.max",
        8 << 20,
        "The memory for batches that wait to be looked at for traces.",
        4096,
    )
