"""Dataclasses whose methods are written when they are first used.

``dataclasses.dataclass`` writes and compiles the text of up to six methods for each
class, a millisecond in all.  A command imports a hundred of them and uses a few.  Here
the fields are found at once, by ``dataclasses`` itself, so ``fields``, ``replace``,
``asdict`` and ``match`` work as ever; ``__init__``, ``__eq__`` and ``__hash__`` are
written when they are first looked up.  From then on they are the methods that
``dataclasses`` would have made.

Not supported: ``order``, ``unsafe_hash``, ``InitVar``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from reprlib import recursive_repr
from types import FunctionType
from typing import TYPE_CHECKING

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass

    from _typeshed import DataclassInstance
else:

    def dataclass(
        cls=None,
        /,
        *,
        frozen=False,
        slots=False,
        eq=True,
        repr=True,
        kw_only=False,
    ):
        """As ``dataclasses.dataclass``; see the module.

        >>> @dataclass(frozen=True)
        ... class Point:
        ...     x: int
        ...     y: int = 0
        >>> Point(3), Point(3) == Point(3, 0), hash(Point(1)) == hash(Point(1))
        (Point(x=3, y=0), True, True)
        """

        def made(cls):
            own = set(vars(cls))
            if "__eq__" in own and vars(cls)["__hash__"] is None:
                own.remove("__hash__")  # Python's, not the class's
            cls = dataclasses.dataclass(
                init=False, repr=False, eq=False, slots=slots, kw_only=kw_only
            )(cls)
            for name, method in _methods(cls, frozen, slots, eq, repr):
                if name not in own:
                    setattr(cls, name, method)
            return cls

        return made if cls is None else made(cls)


class _Factory:
    """What stands for an argument that a factory makes."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _methods(
    cls: type[DataclassInstance], frozen: bool, slots: bool, eq: bool, shown: bool
) -> Iterable[tuple[str, object]]:
    """The methods of a class, by name."""
    yield "__init__", _Later(cls, "__init__", lambda: _init(cls, frozen))
    if shown:
        yield "__repr__", _repr
    if eq:
        yield "__eq__", _Later(cls, "__eq__", lambda: _eq(cls))
        later = _Later(cls, "__hash__", lambda: _hash(cls))
        yield "__hash__", later if frozen else None
    if frozen:
        names = frozenset(each.name for each in dataclasses.fields(cls))
        yield "__setattr__", _refusing(cls, names, "__setattr__", "assign to")
        yield "__delattr__", _refusing(cls, names, "__delattr__", "delete")
    if frozen and slots:
        yield "__getstate__", _getstate
        yield "__setstate__", _setstate


class _Later:
    """A method that is written when it is first looked up."""

    def __init__(self, cls: type, name: str, write: Callable[[], FunctionType]) -> None:
        self.cls, self.name, self.write = cls, name, write

    def __get__(self, instance: object, owner: type) -> object:
        method = self.write()
        method.__qualname__ = f"{self.cls.__qualname__}.{self.name}"
        method.__module__ = self.cls.__module__
        setattr(self.cls, self.name, method)
        return method.__get__(instance, owner)


def _written(text: str, scope: dict[str, object]) -> FunctionType:
    """The function ``f`` of a text."""
    exec(text, scope)  # names of fields are all that it is made of
    made = scope["f"]
    assert isinstance(made, FunctionType)
    return made


def _init(cls: type[DataclassInstance], frozen: bool) -> FunctionType:
    """The constructor."""
    scope: dict[str, object] = {"_put_": object.__setattr__, "_missing_": _FACTORY}
    plain: list[str] = []
    named: list[str] = []
    lines: list[str] = []
    for each in dataclasses.fields(cls):
        parameter, value = _parameter(each, scope, "__slots__" in vars(cls))
        if each.init:
            (named if each.kw_only else plain).append(parameter)
        if value:
            put = f"_put_(self, {each.name!r}, {value})"
            lines.append(put if frozen else f"self.{each.name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join(["self", *plain, *(["*", *named] if named else [])])
    body = "\n ".join(lines or ["pass"])
    init = _written(f"def f({parameters}):\n {body}", scope)
    hints = {each.name: each.type for each in dataclasses.fields(cls) if each.init}
    init.__annotations__ = {**hints, "return": None}
    return init


def _parameter(
    each: dataclasses.Field[object], scope: dict[str, object], slots: bool
) -> tuple[str, str]:
    """How a field stands among the parameters, and its value; empty: it has none."""
    name, default = each.name, f"_default_{each.name}_"
    if each.default_factory is not dataclasses.MISSING:
        scope[default] = each.default_factory
        made = f"{default}()"
        value = f"{made} if {name} is _missing_ else {name}" if each.init else made
        return f"{name}=_missing_", value
    if each.default is not dataclasses.MISSING:
        scope[default] = each.default
        # Slots have no default in the class.
        return f"{name}={default}", name if each.init else default * slots
    return name, name if each.init else ""


def _values(names: Iterable[str], of: str) -> str:
    return "(" + "".join(f"{of}.{name}, " for name in names) + ")"


def _eq(cls: type[DataclassInstance]) -> FunctionType:
    """Equality: of the same class, and of equal fields."""
    names = [each.name for each in dataclasses.fields(cls) if each.compare]
    return _written(
        "def f(self, other):\n"
        " if other.__class__ is self.__class__:\n"
        f"  return {_values(names, 'self')} == {_values(names, 'other')}\n"
        " return NotImplemented",
        {},
    )


def _hash(cls: type[DataclassInstance]) -> FunctionType:
    """The hash of the fields that are compared."""
    names = [
        each.name
        for each in dataclasses.fields(cls)
        if (each.compare if each.hash is None else each.hash)
    ]
    return _written(f"def f(self):\n return hash({_values(names, 'self')})", {})


@recursive_repr()
def _repr(self: DataclassInstance) -> str:
    shown = ", ".join(
        f"{each.name}={getattr(self, each.name)!r}"
        for each in dataclasses.fields(self)
        if each.repr
    )
    return f"{type(self).__qualname__}({shown})"


def _refusing(cls: type, names: frozenset[str], method: str, what: str) -> object:
    """A method that refuses to change a field; a subclass may have more attributes."""

    def refuse(self: object, name: str, *value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot {what} field {name!r}")
        getattr(super(cls, self), method)(name, *value)

    return refuse


def _getstate(self: DataclassInstance) -> list[object]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _setstate(self: DataclassInstance, state: list[object]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
