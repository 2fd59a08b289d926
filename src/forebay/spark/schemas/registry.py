"""A schema registry by its REST interface, as Confluent's, Karapace and others have it.

Only what decoding and encoding need: a schema by its number, the latest of a subject, what they refer to, and
registering one. A value begins with five bytes, a zero and the number of its schema. Answers are kept for as
long as the process lives, since a number stands for the same schema for ever. That a number is not known is
kept for a while: a topic may be full of values that begin with it.

A registry that does not answer, or cannot just now, is asked again a few times.
"""

from __future__ import annotations

import base64
import functools
import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from forebay.errors import ForebayError

AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
"""Kinds of schemas, as registries name them."""
FRAME_BYTES = 5
TIMEOUT_S = 20.0
REFERENCES_MAX = 1000
"""The most schemas that one may refer to, directly and by way of others."""
PAUSES_S = (0.25, 0.5, 1.0, 2.0)
"""Before each time that a question is asked again."""
PATIENCE_S = 60.0
"""After which it is not asked again."""
MISSING_S = 30.0
"""How long a number that the registry does not know is not asked for again."""
MISSING_MAX = 10_000
_AT_ONCE = 16
"""Registries that a process keeps in mind."""
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_NOT_FOUND = 404
_FOR_NOW = (408, 429, 500, 502, 503, 504)


class RegistryError(ForebayError):
    """The registry cannot be reached, or refuses; the message says what to do."""


class _Unavailable(ForebayError):
    """The same, which may be over soon."""


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
    def __init__(
        self,
        url: str,
        *,
        pauses_s: Sequence[float] = PAUSES_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
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
        self._pauses_s = pauses_s
        self._clock = clock
        self._by_id: dict[int, Schema] = {}
        self._missing: dict[int, tuple[float, str]] = {}
        """When a number was not known, and what the registry said."""

    def schema(self, schema_id: int, kind: str) -> Schema:
        """NoSchemaError if it is of another kind."""
        return _checked(self.schema_of_any_kind(schema_id), kind, f"schema {schema_id}")

    def schema_of_any_kind(self, schema_id: int) -> Schema:
        if schema_id not in self._by_id:
            self._by_id[schema_id] = self._found(schema_id)
        return self._by_id[schema_id]

    def _found(self, schema_id: int) -> Schema:
        since_s, said = self._missing.get(schema_id, (0.0, ""))
        if said and self._clock() - since_s < MISSING_S:
            raise NoSchemaError(said)
        try:
            return self._resolved(self._ask(f"schemas/ids/{schema_id}", f"schema {schema_id}"))
        except NoSchemaError as error:
            if len(self._missing) >= MISSING_MAX:
                self._missing.clear()
            self._missing[schema_id] = self._clock(), str(error)
            raise

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
        """All questions can be asked again: a schema that is registered already keeps its number."""
        request = urllib.request.Request(f"{self.address}/{path}", content, self._headers)
        started_s = self._clock()
        for pause_s in (*self._pauses_s, None):
            try:
                return self._ask_once(request, what)
            except _Unavailable as error:
                if pause_s is None or self._clock() - started_s > PATIENCE_S:
                    raise RegistryError(str(error)) from None
                time.sleep(pause_s)
        raise AssertionError("the last time either answers or fails")

    def _ask_once(self, request: urllib.request.Request, what: str) -> Any:
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            said = _said(error)
            if error.code == _NOT_FOUND:
                raise NoSchemaError(f"the registry at {self.address} has no {what}: {said}") from None
            kind = _Unavailable if error.code in _FOR_NOW else RegistryError
            raise kind(f"the registry at {self.address} refuses {what}: {said}") from None
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise _Unavailable(f"no schema registry answers at {self.address} ({reason})") from None
        except (ValueError, http.client.HTTPException) as error:
            raise _Unavailable(f"no schema registry answers at {self.address} ({error})") from None


@functools.lru_cache(_AT_ONCE)
def shared_registry(url: str) -> Registry:
    """One for all tasks of this process, with the answers that it has."""
    return Registry(url)


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
