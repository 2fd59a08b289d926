"""A `Decoding` says how values are to be decoded, in every format; it is sent to the workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from forebay.errors import ForebayError
from forebay.lazy import dataclass
from forebay.spark.schemas.registry import Schema

Row = dict[str, Any]
ReadValue = Callable[[bytes], Row]
"""Any exception says that the value does not fit."""
WriteValue = Callable[[Row], bytes]


class SchemaError(ForebayError):
    """A schema that cannot be understood, or that has no columns in Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    schema: Schema
    """The columns are made of it: the latest schema of a subject, or a file."""
    schema_id: int | None = None
    """Its number in the registry, if it has one."""
    registry: str = ""
    """Where the schemas of single values are asked for; without it all are of this one."""
    framed: bool = True
    """True if values begin with the five bytes of a registry."""
    message: str = ""
    """Protobuf: which message of the schema; the first unless given."""
    compiled: bytes = b""
    """Protobuf: the schema as its compiler has read it, so that workers do without one."""
