"""Reads what precedes the body of a function."""

from __future__ import annotations

from fragmenta.ptx.module import Function
from fragmenta.ptx.reading import declarations
from fragmenta.ptx.reading.lexer import Cursor

DIRECTIVES = (
    ".maxntid",
    ".reqntid",
    ".minnctapersm",
    ".maxnctapersm",
    ".maxnreg",
    ".reqnctapercluster",
    ".maxclusterrank",
    ".explicitcluster",
    ".blocksareclusters",
    ".language",
    ".noreturn",
    ".abi_preserve",
    ".abi_preserve_control",
    ".pragma",
    ".attribute",
)
"""What may stand between the parameters of a function and its body."""


def signature(cursor: Cursor, name: str = "", kernel: bool = False) -> Function:
    """Take returns, name, parameters and directives of a function.

    A prototype has a name already; ``_`` stands in the place of one.
    """
    line = cursor.text.place(cursor.at)[0]
    marks = list(_attributes(cursor))
    returns = () if kernel else declarations.parameters(cursor)
    marks += _attributes(cursor)
    own = cursor.name("'_'" if name else "the name of a function")
    given = declarations.parameters(cursor)
    directives: dict[str, list[int | str]] = {}
    while cursor.kind == "directive":
        if cursor.word not in DIRECTIVES:
            cursor.fail("'{'", "';'", *DIRECTIVES)
        words = directives.setdefault(cursor.word[1:], [])
        words += _values(cursor)
    if marks:
        directives.setdefault("attribute", []).extend(marks)
    return Function(
        name or own,
        kernel,
        given,
        returns,
        instructions=(),
        labels={},
        registers=(),
        variables={},
        directives={key: tuple(words) for key, words in directives.items()},
        declared_only=True,
        line=line,
    )


def _attributes(cursor: Cursor) -> list[str]:
    if cursor.word != ".attribute":
        return []
    return list(declarations.attributes(cursor))


def _values(cursor: Cursor) -> list[int] | list[str]:
    """Take a directive and the numbers after it."""
    if cursor.word == ".pragma":
        return pragma(cursor)
    if cursor.word == ".attribute":
        return _attributes(cursor)
    cursor.step()
    numbers = []
    if cursor.kind == "number":
        numbers.append(cursor.number())
        while cursor.accept(","):
            numbers.append(cursor.number())
    return numbers


def pragma(cursor: Cursor) -> list[str]:
    """Take ``.pragma "nounroll";``."""
    cursor.expect(".pragma")
    words = [cursor.string()]
    while cursor.accept(","):
        words.append(cursor.string())
    cursor.expect(";", "','")
    return words
