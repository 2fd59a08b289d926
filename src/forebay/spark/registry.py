"""A schema registry by its REST interface, as Confluent's, Karapace and others have it.

Only what decoding and encoding need: a schema by its number, the latest of a subject, and registering one.
A value begins with five bytes, a zero and the number of its schema. Answers are kept for as long as
the process lives, since a number stands for the same schema for ever.
"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NamedTuple

from forebay.errors import ForebayError

FRAME_BYTES = 5
TIMEOUT_S = 20.0
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_NOT_FOUND = 404


class RegistryError(ForebayError):
    """The registry cannot be reached, or refuses; the message says what to do."""


class NoSchemaError(ForebayError):
    """The registry has no such schema or subject."""


class Registered(NamedTuple):
    id: int
    schema: str


class Registry:
    def __init__(self, url: str) -> None:
        """`url` may hold a user and a password: http://user:password@host:8081."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RegistryError(f"{url!r} is no address of a schema registry: give http://HOST:8081")
        where = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
        self.address = f"{parts.scheme}://{where}{parts.path.rstrip('/')}"
        self._headers = {"Accept": _CONTENT_TYPE, "Content-Type": _CONTENT_TYPE}
        if parts.username is not None:
            pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        self._by_id: dict[int, str] = {}

    def schema(self, schema_id: int) -> str:
        if schema_id not in self._by_id:
            answer = self._ask(f"schemas/ids/{schema_id}", f"schema {schema_id}")
            self._by_id[schema_id] = _own(answer, f"schema {schema_id}")
        return self._by_id[schema_id]

    def latest(self, subject: str) -> Registered:
        what = f"subject {subject}"
        answer = self._ask(f"subjects/{_quoted(subject)}/versions/latest", what)
        return Registered(int(answer["id"]), _own(answer, what))

    def register(self, subject: str, schema: str) -> int:
        """The number of a schema, which is registered if it is not yet."""
        content = json.dumps({"schema": schema}).encode()
        answer = self._ask(f"subjects/{_quoted(subject)}/versions", f"subject {subject}", content)
        return int(answer["id"])

    def _ask(self, path: str, what: str, content: bytes | None = None) -> Any:
        request = urllib.request.Request(f"{self.address}/{path}", content, self._headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            said = _said(error)
            if error.code == _NOT_FOUND:
                raise NoSchemaError(f"the registry at {self.address} has no {what}: {said}") from None
            raise RegistryError(f"the registry at {self.address} refuses {what}: {said}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise RegistryError(f"no schema registry answers at {self.address} ({reason})") from None


def _own(answer: Any, what: str) -> str:
    if answer.get("schemaType", "AVRO") != "AVRO":
        raise NoSchemaError(f"{what} is {answer['schemaType']}, not Avro")
    if answer.get("references"):
        raise NoSchemaError(f"{what} refers to other schemas, which are not supported here")
    return str(answer["schema"])


def _said(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["message"])
    except (ValueError, KeyError, TypeError):
        return f"status {error.code}"


def _quoted(subject: str) -> str:
    return urllib.parse.quote(subject, safe="")


def frame(schema_id: int) -> bytes:
    """The bytes before a value of this schema."""
    return b"\0" + schema_id.to_bytes(4, "big")


def schema_id_of(value: bytes) -> int:
    """ValueError unless the value begins as one of a registry does."""
    if len(value) < FRAME_BYTES or value[0]:
        raise ValueError("the value does not begin with the five bytes of a schema registry")
    return int.from_bytes(value[1:FRAME_BYTES], "big")
