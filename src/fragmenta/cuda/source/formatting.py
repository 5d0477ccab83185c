"""Formats C++ source in lines of at most 88 columns.

Heads of functions, comments and mnemonics are broken where C++ allows it, however
long the names are.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

from fragmenta.errors import BadCall, shortened

WIDTH = 88


def comment(text: str) -> list[str]:
    """Prose as comment lines.

    >>> comment("Each lane holds two elements.")
    ['// Each lane holds two elements.']
    """
    lines = textwrap.wrap(
        text, WIDTH - 3, break_long_words=False, break_on_hyphens=False
    )
    return [f"// {line}" for line in lines]


def signature(head: str, parameters: Sequence[str]) -> str:
    """A function's head, its parameters wrapped and indented.

    >>> print(signature("void f", ["int a", "int b"]))
    void f(int a, int b)
    """
    line = f"{head}({', '.join(parameters)})"
    if len(line) <= WIDTH:
        return line
    if len(head) >= WIDTH:  # a long name begins a line
        before, _, name = head.rpartition(" ")
        head = f"{before}\n{name}"
    lines = wrapped([f"{text}," for text in parameters[:-1]] + [parameters[-1] + ")"])
    return "\n".join([f"{head}(", *(f"    {line}" for line in lines)])


def template(parameters: Sequence[str]) -> str:
    """The line above a function that makes it a template, if it is one.

    >>> print(template(["int selector"]), end="")
    template <int selector>
    """
    if not parameters:
        return ""
    line = f"template <{', '.join(parameters)}>"
    if len(line) <= WIDTH:
        return line + "\n"
    words = [f"{text}," for text in parameters[:-1]] + [parameters[-1] + ">"]
    return "\n".join(["template <", *(f"    {w}" for w in wrapped(words))]) + "\n"


def wrapped(words: Iterable[str], width: int = WIDTH - 4) -> list[str]:
    """Words filled into lines, none of them broken.

    >>> wrapped(["a,", "b,", "c"], width=5)
    ['a, b,', 'c']
    """
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def legal_values(name: str, values: Sequence[int]) -> str:
    """A check that a template parameter is one of some values.

    >>> print(legal_values("selector", [0, 1]))
    static_assert(selector == 0 || selector == 1, "selector is 0 or 1");
    """
    if list(values) == list(range(len(values))) and len(values) > 2:
        test = f"0 <= {name} && {name} < {len(values)}"
        return f'static_assert({test}, "{name} is 0 to {len(values) - 1}");'
    test = " || ".join(f"{name} == {value}" for value in values)
    words = " or ".join(map(str, values))
    return f'static_assert({test}, "{name} is {words}");'


def broken(mnemonic: str, width: int) -> list[str]:
    """A mnemonic that is too long for a line, broken before a dot.

    >>> broken("mma.sync.aligned.m16n8k16", 16)
    ['mma.sync.aligned', '.m16n8k16']
    """
    first, *words = mnemonic.split(".")
    lines = [first]
    for word in words:
        if len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += f".{word}"
    return lines


_IDENTIFIER = re.compile(r"[A-Za-z]\w*|_\w+", re.ASCII)
LONGEST_NAME = 1024
"""The C++ standard requires compilers to support names of this length only."""


def check_identifier(what: str, name: object) -> None:
    """Refuse what is not an identifier of C++ and of PTX.

    >>> check_identifier("name", "two words")
    Traceback (most recent call last):
    fragmenta.errors.BadCall: the name is an identifier, letters, digits and \
underscores, of at most 1024 characters; given 'two words'
    """
    fits = isinstance(name, str) and _IDENTIFIER.fullmatch(name)
    if not fits or len(str(name)) > LONGEST_NAME:
        given = shortened(name) if isinstance(name, str) else repr(name)
        raise BadCall(
            f"the {what} is an identifier, letters, digits and underscores, of at "
            f"most {LONGEST_NAME} characters; given {given}"
        )
