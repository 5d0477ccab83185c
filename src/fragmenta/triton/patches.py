"""Attributes of others' modules and classes that are replaced for a time."""

from __future__ import annotations


class Patches:
    """Attributes that are replaced, and put back in the end.

    >>> class Other:
    ...     name = 1
    >>> patches = Patches()
    >>> patches.set(Other, "name", 2)
    >>> patches.set(Other, "more", 3)
    >>> Other.name, Other.more
    (2, 3)
    >>> patches.undo()
    >>> Other.name, hasattr(Other, "more")
    (1, False)
    """

    def __init__(self) -> None:
        self._before: list[tuple[object, str, object]] = []

    def set(self, where: object, name: str, value: object) -> None:
        """Replace or add an attribute."""
        self._before.append((where, name, vars(where).get(name, _MISSING)))
        setattr(where, name, value)

    def undo(self) -> None:
        """Put everything back, the last one first."""
        while self._before:
            where, name, value = self._before.pop()
            if value is _MISSING:
                delattr(where, name)
            else:
                setattr(where, name, value)


_MISSING = object()
