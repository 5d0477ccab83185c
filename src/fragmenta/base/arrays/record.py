"""Records: dataclasses that the public classes on top of the house extend.

A room below passes records, such as a fragment or a loop.  The class that users see is
a subclass with more methods and the same fields.  Both are the same value: they are
equal, have one hash, and one is made from the other.
"""

from __future__ import annotations

from dataclasses import Field, fields
from typing import ClassVar, Self


class Record:
    """The base of a dataclass (made with ``eq=False``) that may be extended.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, eq=False)
    ... class Point(Record):
    ...     x: int
    >>> class Shown(Point):
    ...     pass
    >>> shown = Shown.of(Point(3))
    >>> shown.x, type(shown).__name__, shown == Point(3), hash(shown) == hash(Point(3))
    (3, 'Shown', True, True)
    >>> Shown.of(shown) is shown, shown == Point(4), shown == 3
    (True, False, False)
    """

    __dataclass_fields__: ClassVar[dict[str, Field[object]]]

    @classmethod
    def of(cls, record: object) -> Self:
        """The same record as an object of this class; what it has computed is left."""
        if isinstance(record, cls):
            return record
        made = object.__new__(cls)
        for each in fields(cls):
            vars(made)[each.name] = getattr(record, each.name)
        return made

    def _compared(self) -> tuple[object, ...]:
        return tuple(getattr(self, each.name) for each in fields(self) if each.compare)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        if not (isinstance(other, type(self)) or isinstance(self, type(other))):
            return NotImplemented
        return self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash(self._compared())
