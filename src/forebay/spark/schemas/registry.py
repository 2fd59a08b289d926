"""A schema registry by its REST interface, as Confluent's, Karapace and others have it.

Only what decoding and encoding need: a schema by its number, the latest of a subject, what they refer to, and
registering one. A value begins with five bytes, a zero and the number of its schema. Answers are kept for as
long as the process lives, since a number stands for the same schema for ever.
"""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NamedTuple

from forebay.errors import ForebayError

AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
"""Kinds of schemas, as registries name them."""
FRAME_BYTES = 5
TIMEOUT_S = 20.0
REFERENCES_MAX = 1000
"""What one schema may refer to, directly and by way of others."""
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_NOT_FOUND = 404


class RegistryError(ForebayError):
    """The registry cannot be reached, or refuses; the message says what to do."""


class NoSchemaError(ForebayError):
    """The registry has no such schema or subject."""


class Schema(NamedTuple):
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """Name and text of what it refers to, each behind those that it refers to itself."""


class Registered(NamedTuple):
    id: int
    schema: Schema


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
        self._by_id: dict[int, Schema] = {}

    def schema(self, schema_id: int, kind: str) -> Schema:
        """NoSchemaError if it is of another kind."""
        if schema_id not in self._by_id:
            answer = self._ask(f"schemas/ids/{schema_id}", f"schema {schema_id}")
            self._by_id[schema_id] = self._resolved(answer)
        return _checked(self._by_id[schema_id], kind, f"schema {schema_id}")

    def latest(self, subject: str, kind: str) -> Registered:
        what = f"subject {subject}"
        answer = self._ask(f"subjects/{_quoted(subject)}/versions/latest", what)
        return Registered(int(answer["id"]), _checked(self._resolved(answer), kind, what))

    def register(self, subject: str, schema: Schema) -> int:
        """The number of a schema, which is registered if it is not yet."""
        kind = {} if schema.kind == AVRO else {"schemaType": schema.kind}
        content = json.dumps({"schema": schema.text, **kind}).encode()
        answer = self._ask(f"subjects/{_quoted(subject)}/versions", f"subject {subject}", content)
        return int(answer["id"])

    def _resolved(self, answer: Any) -> Schema:
        found: dict[str, str] = {}
        self._collect(answer, found, set())
        return Schema(answer.get("schemaType", AVRO), str(answer["schema"]), tuple(found.items()))

    def _collect(self, answer: Any, found: dict[str, str], under_way: set[str]) -> None:
        for reference in answer.get("references") or ():
            name = str(reference["name"])
            if name in found or name in under_way:
                continue
            under_way.add(name)
            if len(under_way) > REFERENCES_MAX:
                raise NoSchemaError(f"a schema refers to more than {REFERENCES_MAX} others")
            subject, version = str(reference["subject"]), int(reference["version"])
            path = f"subjects/{_quoted(subject)}/versions/{version}"
            referred = self._ask(path, f"version {version} of subject {subject}")
            self._collect(referred, found, under_way)
            found[name] = str(referred["schema"])

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


def _checked(schema: Schema, kind: str, what: str) -> Schema:
    if schema.kind != kind:
        raise NoSchemaError(f"{what} is {schema.kind}, not {kind}")
    return schema


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
