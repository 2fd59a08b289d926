"""Declarations of messages.

A message is a class whose annotated attributes are given field specifiers:

    class HeartbeatRequest(Request, api_key=ApiKey.HEARTBEAT, versions=(0, 4), flexible=4):
        group_id: str = string()
        generation_id: int = int32()
        member_id: str = string()
        group_instance_id: str | None = string("3+", nullable="3+", default=None)

Names, types, versions, tags and defaults are those of Kafka's message definitions, in snake case; except that
a nullable `error_message` is null by default. One class covers all versions; `codec` compiles it for each
version that is spoken.

A broker imports dozens of these modules before it serves, so declaring is cheap: the metaclass only moves
the specifiers out of the way, because a slot cannot share its name with a class attribute. The constructor
of a class is compiled when it is called first. Values are to be treated as immutable: a struct that was left
out is one shared default, which refuses assignment.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, NamedTuple, TypeVar, cast, dataclass_transform

ZERO_UUID = bytes(16)

# Forebay's own tagged fields begin here, far from any that Kafka may use. Others skip them.
OWN_TAGS_FROM = 10_000

# Beyond every version: the first flexible version of a message that has none.
NEVER = 1 << 15

# The types that always take the same number of bytes, as struct formats.
FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}


class Field(NamedTuple):
    kind: str  # a key of FORMATS, or string, bytes, records, array, struct
    versions: str  # as Kafka writes ranges: "0+", "3-5", "2"
    nullable: str  # the same, or "" for never
    default: Any
    tag: int | None = None
    struct: type[Struct] | None = None
    element: Field | None = None


class StructType(type):
    """Turns the specifiers in a class body into FIELDS and __slots__."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> StructType:
        fields = {key: value for key, value in namespace.items() if type(value) is Field}
        for key in fields:
            del namespace[key]
        namespace["__slots__"] = tuple(fields)
        if fields:
            namespace["FIELDS"] = fields
        return super().__new__(mcs, name, bases, namespace, **options)


@dataclass_transform(kw_only_default=True)
class Struct(metaclass=StructType):
    """A group of fields inside a message."""

    FIELDS: ClassVar[dict[str, Field]] = {}

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        cls.__init__ = _compile_init(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or other.FIELDS is not self.FIELDS:
            return NotImplemented
        for name in self.FIELDS:  # noqa: SIM110 - encoders compare each struct with its default
            if getattr(self, name) != getattr(other, name):
                return False
        return True

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.FIELDS)
        return f"{type(self).__name__}({values})"


class Message(Struct):
    """A struct that stands alone, in a range of versions; from `flexible` on it has tagged fields."""

    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]

    def __init_subclass__(cls, *, versions: tuple[int, int] = (0, 0), flexible: int | None = None) -> None:
        cls.MIN_VERSION, cls.MAX_VERSION = versions
        cls.FLEXIBLE_FROM = NEVER if flexible is None else flexible


class ApiMessage(Message):
    API_KEY: ClassVar[int]

    def __init_subclass__(
        cls, *, api_key: int = -1, versions: tuple[int, int] = (0, 0), flexible: int | None = None
    ) -> None:
        super().__init_subclass__(versions=versions, flexible=flexible)
        cls.API_KEY = int(api_key)  # as it comes over the wire


class Request(ApiMessage):
    pass


class Response(ApiMessage):
    pass


S = TypeVar("S", bound=Struct)


@cache
def shared_default(cls: type[S]) -> S:
    """The shared value of an omitted struct; it cannot be changed."""
    value = cls()
    value.__class__ = cast(type[S], StructType(cls.__name__, (cls,), {"__setattr__": _refuse_assignment}))
    return value


def changed(struct: S, **values: Any) -> S:
    """A copy with other values in some fields."""
    fields = {name: getattr(struct, name) for name in struct.FIELDS}
    return type(struct)(**(fields | values))


def _refuse_assignment(self: Struct, name: str, _: object) -> None:
    raise AttributeError(f"a default {type(self).__name__} is shared; make a new one to set {name}")


def default_source(field: Field, names: dict[str, Any]) -> str:
    """The default as an expression; a value without a literal form is put into `names`."""
    if field.default is not None and field.kind == "array":
        return "[]"
    if field.default is not None and field.struct is not None:
        name = f"default_{field.struct.__name__}"
        names[name] = shared_default(field.struct)
        return name
    return repr(field.default)


_LEFT_OUT = object()


def _compile_init(cls: type[Struct]) -> Callable[..., None]:
    names: dict[str, Any] = {"left_out": _LEFT_OUT}
    parameters, body = [], []
    for name, field in cls.FIELDS.items():
        default = default_source(field, names)
        if default == "[]":
            parameters.append(f"{name}=left_out")
            body.append(f" self.{name} = [] if {name} is left_out else {name}")
        else:
            parameters.append(f"{name}={default}")
            body.append(f" self.{name} = {name}")
    signature = ", ".join(["self", "*", *parameters] if parameters else ["self"])
    exec("\n".join([f"def __init__({signature}):", *(body or [" pass"])]), names)
    init: Callable[..., None] = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


# The specifiers. They say Any because the annotation beside them says the type.


def _fixed(kind: str, zero: Any) -> Callable[..., Any]:
    def specifier(versions: str = "0+", *, default: Any = zero, tag: int | None = None) -> Any:
        return Field(kind, versions, "", default, tag)

    return specifier


boolean = _fixed("bool", False)
int8 = _fixed("int8", 0)
int16 = _fixed("int16", 0)
uint16 = _fixed("uint16", 0)
int32 = _fixed("int32", 0)
int64 = _fixed("int64", 0)
float64 = _fixed("float64", 0.0)
uuid = _fixed("uuid", ZERO_UUID)


def string(
    versions: str = "0+", *, nullable: str = "", default: str | None = "", tag: int | None = None
) -> Any:
    return Field("string", versions, nullable, default, tag)


def binary(
    versions: str = "0+", *, nullable: str = "", default: bytes | None = b"", tag: int | None = None
) -> Any:
    return Field("bytes", versions, nullable, default, tag)


def records(versions: str = "0+", *, nullable: str = "") -> Any:
    """Record batches: decoded without a copy, encoded from memory or from ranges of files."""
    return Field("records", versions, nullable, None if nullable else b"")


def struct(
    cls: type[Struct],
    versions: str = "0+",
    *,
    nullable: str = "",
    default: type[Struct] | None = Struct,
    tag: int | None = None,
) -> Any:
    """One struct. Left out it is that struct with its own defaults, or None if `default=None`."""
    return Field("struct", versions, nullable, default, tag, cls)


def array(
    element: Callable[..., Any],
    versions: str = "0+",
    *,
    nullable: str = "",
    default: tuple[()] | None = (),
    tag: int | None = None,
) -> Any:
    """Many of one kind: `array(TopicProduceData)` or, of a plain type, `array(int32)`."""
    return Field("array", versions, nullable, default, tag, None, _element(element))


def _element(element: Callable[..., Any]) -> Field:
    if isinstance(element, type) and issubclass(element, Struct):
        return Field("struct", "0+", "", None, None, element)
    return cast(Field, element())
