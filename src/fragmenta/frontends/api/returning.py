"""Functions of the rooms below that return records, made to return public objects."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import update_wrapper
from typing import Concatenate, ParamSpec, TypeVar

Given = ParamSpec("Given")
Owner = TypeVar("Owner")
Found = TypeVar("Found")
Made = TypeVar("Made")


def returning(
    function: Callable[Given, Found],
    dress: Callable[[Found], Made],
    returns: str,
    home: str,
) -> Callable[Given, Made]:
    """The function with its arguments and its help; ``dress`` changes its result.

    ``returns`` is the type that its signature names, ``home`` the module that has it.

    >>> def third(number):
    ...     "A third of a number."
    ...     return number // 3
    >>> exact = returning(third, float, "float", __name__)
    >>> exact(9), exact.__doc__, str(inspect.signature(exact))
    (3.0, 'A third of a number.', "(number) -> 'float'")
    """

    def made(*operands: Given.args, **options: Given.kwargs) -> Made:
        return dress(function(*operands, **options))

    update_wrapper(made, function)
    made.__module__ = home
    shown = inspect.signature(function).replace(return_annotation=returns)
    made.__signature__ = shown  # type: ignore[attr-defined]
    return made


def like(
    method: Callable[Concatenate[Owner, Given], Found], returns: str
) -> Callable[[Callable[..., Made]], Callable[Concatenate[Owner, Given], Made]]:
    """Decorate a method that extends another: same arguments, same help.

    >>> class Text(str):
    ...     @like(str.upper, "Text")
    ...     def upper(self):
    ...         return Text(str.upper(self))
    >>> type(Text("a").upper()).__name__, Text.upper.__doc__ == str.upper.__doc__
    ('Text', True)
    """

    def decorate(
        extended: Callable[..., Made],
    ) -> Callable[Concatenate[Owner, Given], Made]:
        home = extended.__module__
        update_wrapper(extended, method)
        extended.__module__ = home
        shown = inspect.signature(method).replace(return_annotation=returns)
        extended.__signature__ = shown  # type: ignore[attr-defined]
        return extended

    return decorate
