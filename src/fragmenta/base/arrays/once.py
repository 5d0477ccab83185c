"""Objects that are made once for all threads.

``functools.cache`` and ``cached_property`` let two threads make an object each, and
give each thread its own.  That is of no harm for values.  It is wrong for an object
that is compared by identity, that is changed later, or whose memory is used by machine
code as long as the object lives: one thread would use an object that is gone.

Nothing is locked while an object is made, so that one maker may use another.  Two
threads may make the same object, but both get the one that was kept first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import update_wrapper
from typing import Generic, ParamSpec, TypeVar, overload
from weakref import ref

from fragmenta.base.arrays.forking import Lock

Given = ParamSpec("Given")
Made = TypeVar("Made")
Owner = TypeVar("Owner")


class Once(Generic[Given, Made]):
    """A function that makes one object for each list of arguments.

    >>> @once
    ... def box(size: int) -> list[int]:
    ...     return [0] * size
    >>> box(3) is box(3)
    True
    """

    def __init__(self, make: Callable[Given, Made], most: int | None = None) -> None:
        update_wrapper(self, make)
        self._make, self._most = make, most
        self._kept: dict[Hashable, Made] = {}
        self._lock = Lock()

    def __call__(self, *given: Given.args, **named: Given.kwargs) -> Made:
        """The object for these arguments."""
        key: Hashable = (given, *sorted(named.items())) if named else given
        try:
            return self._kept[key]
        except KeyError:
            made = self._make(*given, **named)
        with self._lock:
            found = self._kept.setdefault(key, made)
            if self._most is not None and len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]
        return found

    def cache_clear(self) -> None:
        """Forget every object."""
        with self._lock:
            self._kept.clear()


def once(make: Callable[Given, Made]) -> Once[Given, Made]:
    """Decorate a function whose objects all threads share."""
    return Once(make)


def once_of(
    most: int,
) -> Callable[[Callable[Given, Made]], Once[Given, Made]]:
    """The same for at most so many objects; the oldest is forgotten first."""

    def decorate(make: Callable[Given, Made]) -> Once[Given, Made]:
        return Once(make, most)

    return decorate


class OncePer(Generic[Owner, Made]):
    """A function that makes one thing of each object, kept as long as that lives.

    Objects are told apart by identity: they need not be hashable.

    >>> class Box: pass
    >>> room = OncePer(lambda box: [0])
    >>> box = Box()
    >>> room(box) is room(box)
    True
    """

    def __init__(self, make: Callable[[Owner], Made]) -> None:
        update_wrapper(self, make)
        self._make = make
        self._kept: dict[int, tuple[ref[Owner], Made]] = {}

    def __call__(self, of: Owner) -> Made:
        """What was made of the object."""
        key = id(of)
        found = self._kept.get(key)
        if found is None:
            kept = self._kept
            made = ref(of, lambda _: kept.pop(key, None)), self._make(of)
            found = kept.setdefault(key, made)
        return found[1]

    def cache_clear(self) -> None:
        """Forget everything."""
        self._kept.clear()


class OnceProperty(Generic[Owner, Made]):
    """A property that is made when it is first used, once for all threads.

    >>> class Box:
    ...     @once_property
    ...     def room(self) -> list[int]:
    ...         return [0]
    >>> box = Box()
    >>> box.room is box.room
    True
    """

    def __init__(self, make: Callable[[Owner], Made]) -> None:
        self.func = make
        self.__doc__ = make.__doc__
        self.__module__ = make.__module__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, of: None, owner: type) -> OnceProperty[Owner, Made]: ...
    @overload
    def __get__(self, of: Owner, owner: type) -> Made: ...
    def __get__(
        self, of: Owner | None, owner: type
    ) -> OnceProperty[Owner, Made] | Made:
        if of is None:
            return self
        # From now on, the object's own attribute is found before this one.
        kept: dict[str, Made] = of.__dict__
        if self.name in kept:
            return kept[self.name]
        return kept.setdefault(self.name, self.func(of))


once_property = OnceProperty
