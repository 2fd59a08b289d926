"""Interprets the answers of etcd's gateway: a result, etcd's own refusal, or something that is not etcd."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from forebay.coordination.etcd.failures import NoAnswer, refusal, shown
from forebay.coordination.etcd.http import HttpError, Response

Json = dict[str, Any]

_OK = 200


async def read_answer(response: Response) -> Json:
    """Raises Refused, or NoAnswer if the answer is not from etcd."""
    body = await response.read()
    if b"HTTP request to an HTTPS server" in body:
        raise NoAnswer("it speaks TLS: write etcds:// for etcd://", hopeless=True)
    if response.status != _OK:
        raise refusal(response.status, body)
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise NoAnswer(
            f"it answers {shown(body)!r}, which is not etcd's way: is this its client port?", hopeless=True
        )
    return answer


async def read_messages(response: Response) -> AsyncIterator[Json]:
    """A streamed answer, one message after the other."""
    if response.status != _OK:
        await read_answer(response)
    async for line in response.lines():
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise HttpError(f"a message that is not etcd's: {shown(line)!r}")
        yield message


def version_in(answer: Json) -> str:
    if "etcdserver" not in answer:
        raise NoAnswer("something answers there, but it is not etcd", hopeless=True)
    return str(answer["etcdserver"])
