"""Dataclasses written late are those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import threading
from collections.abc import Callable
from dataclasses import KW_ONLY, field
from typing import Any

import pytest

from fragmenta.base.arrays import lazy_dataclass

KINDS: list[dict[str, bool]] = [
    {},
    {"frozen": True},
    {"frozen": True, "slots": True},
    {"slots": True},
    {"eq": False},
    {"frozen": True, "eq": False, "repr": False},
    {"kw_only": True},
]


def zoo(dataclass: Callable[..., Any], **kind: bool) -> list[type[Any]]:
    """Classes with every kind of field that the package has."""

    @dataclass(**kind)
    class First:
        """Fields, with and without defaults."""

        a: int
        b: str = "b"
        c: list[int] = field(default_factory=list, compare=False)
        d: float = field(default=1.5, repr=False)

    @dataclass(**kind)
    class Second(First):
        """More fields, behind those of the first."""

        e: tuple[int, ...] = ()
        f: int = field(init=False, default=7)
        _: KW_ONLY
        g: int = 3

        def doubled(self) -> int:
            return 2 * self.a

    @dataclass(**kind)
    class Computed:
        """What is computed after the others."""

        a: int
        twice: int = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "twice", 2 * self.a)

    @dataclass(**kind)
    class Own:  # noqa: PLW1641  what it gets is tested
        """Methods of its own."""

        a: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

        def __repr__(self) -> str:
            return "own"

    return [First, Second, Computed, Own]


def described(cls: type[Any]) -> list[object]:
    """What can be seen of a class and its objects."""
    one, same, other = cls(a=1), cls(a=1), cls(a=2)
    shown = [str(inspect.signature(cls)), cls.__match_args__, one == same, one == other]
    shown += [
        one != 1,
        cls.__doc__,
        [(f.name, f.type) for f in dataclasses.fields(cls)],
    ]
    if "object at" not in repr(one):
        shown.append(repr(dataclasses.replace(one, a=5)))
    shown.append(cls.__hash__ is None)
    if cls.__hash__ not in (None, object.__hash__):
        shown.append(hash(one) == hash(same))
    shown.append(dataclasses.asdict(one))
    shown.append(getattr(copy.deepcopy(other), "a", None))
    for change in (lambda: setattr(one, "a", 3), lambda: delattr(other, "a")):
        try:
            change()
        except dataclasses.FrozenInstanceError as why:
            shown.append(str(why))
    try:
        cls()
    except TypeError as why:
        shown.append(str(why))
    return [*shown, hasattr(same, "__dict__")]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_it_is_that_of_the_standard_library(kind: dict[str, bool]) -> None:
    expected = zoo(dataclasses.dataclass, **kind)
    found = zoo(lazy_dataclass.dataclass, **kind)
    for one, other in zip(found, expected, strict=True):
        assert described(one) == described(other)


def test_methods_are_written_when_they_are_looked_up() -> None:
    first, *_ = zoo(lazy_dataclass.dataclass, frozen=True)
    assert not inspect.isfunction(vars(first)["__init__"])
    first(1)
    assert inspect.isfunction(vars(first)["__init__"])
    assert not inspect.isfunction(vars(first)["__eq__"])
    assert first(1) == first(1)
    assert inspect.isfunction(vars(first)["__eq__"])
    assert first.__init__.__qualname__.endswith("First.__init__")


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Kept:
    """A class that pickle finds."""

    a: int
    b: tuple[int, ...] = ()


def test_it_is_pickled() -> None:
    assert pickle.loads(pickle.dumps(Kept(1, (2,)))) == Kept(1, (2,))


def test_many_threads_make_the_first_object() -> None:
    for _ in range(20):
        first, *_ = zoo(lazy_dataclass.dataclass, frozen=True, slots=True)
        ready, made = threading.Barrier(4), []

        def make(cls: type[Any] = first, go: Any = ready, into: Any = made) -> None:
            go.wait()
            into.append(cls(1) == cls(1))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert made == [True] * 4
