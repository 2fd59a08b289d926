"""Makes things when they are first used, so that a process pays for nothing else.

`dataclass` is Python's, but the methods of a class with slots are compiled when the first of them is called:
compiling them takes most of the time in which a module with such classes is imported. `load` imports what a
table names as "module:attribute".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any

_ORDER = ("__lt__", "__le__", "__gt__", "__ge__")
_COMPILING = RLock()
"""A class that is compiled may have its base compiled first."""
_EXTRAS = ("__replace__",)
"""Methods of later Pythons, which nobody calls without an instance."""
_NO_FIELDS = ("ClassVar", "typing.ClassVar", "KW_ONLY")


def load(reference: str) -> Any:
    """The object that "module:attribute" names."""
    module, _, attribute = reference.partition(":")
    return getattr(import_module(module), attribute)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(**options: bool) -> Callable[[type], type]:
        """Like Python's, for classes with slots."""
        has_slots = options.pop("slots")
        assert has_slots, "a class without slots has nothing to gain"
        return lambda cls: _slotted(cls, options)


def _slotted(declared: type, options: dict[str, bool]) -> type:
    """The class with slots, and a stand-in for each method that is to be compiled."""
    eq, frozen = options.get("eq", True), options.get("frozen", False)
    names = [
        name
        for name, kind in vars(declared).get("__annotations__", {}).items()
        if not str(kind).startswith(_NO_FIELDS)
    ]
    inherited = {name for base in declared.__mro__[1:] for name in vars(base).get("__slots__", ())}
    body = {
        name: value
        for name, value in vars(declared).items()
        if name not in names and name not in ("__dict__", "__weakref__")
    }
    body["__slots__"] = tuple(name for name in names if name not in inherited)
    lazy = ["__init__", "__repr__", "__match_args__", "__dataclass_fields__", "__dataclass_params__"]
    if eq:
        lazy.append("__eq__")
        if body.get("__hash__") is None:  # Python puts None there if a class has an `__eq__` of its own
            body.pop("__hash__", None)
            lazy += ["__hash__"] if frozen else []
    if options.get("order"):
        lazy += _ORDER
    if frozen:
        body |= {"__setattr__": _refuse_change, "__delattr__": _refuse_change}
        body |= {"__getstate__": _state, "__setstate__": _set_state}
    compiled = _Compiled(declared, options, [name for name in lazy if name not in body])
    body |= {name: _StandIn(compiled, name) for name in compiled.names}
    made = compiled.target = type(declared)(declared.__name__, declared.__bases__, body)
    made.__qualname__ = declared.__qualname__
    return made


class _Compiled:
    """The methods of one class, once they are needed."""

    def __init__(self, declared: type, options: dict[str, bool], names: list[str]) -> None:
        self._declared = declared
        self._options = options
        self.names = names
        self.target: type = declared
        self._is_done = False

    def put_in_place(self) -> None:
        with _COMPILING:
            if self._is_done:
                return
            self._declared.__doc__ = self._declared.__name__  # else one is made of its signature
            source = vars(dataclasses.dataclass(**self._options)(self._declared))
            for name in (*self.names, *(extra for extra in _EXTRAS if extra in source)):
                setattr(self.target, name, source[name])
            self._is_done = True


class _StandIn:
    """Stands where a method will be. Whoever looks the method up has all of them compiled."""

    def __init__(self, compiled: _Compiled, name: str) -> None:
        self._compiled = compiled
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        self._compiled.put_in_place()
        # Of this class, not of the one that the instance is of: a subclass may call it by super().
        found = vars(self._compiled.target)[self._name]
        return found.__get__(instance, owner) if hasattr(found, "__get__") else found


def _refuse_change(_self: object, name: str, *_: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
