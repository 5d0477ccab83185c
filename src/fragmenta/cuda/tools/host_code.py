"""Leaves the host's code out of CUDA C++ for NVRTC.

NVRTC compiles what runs on the GPU and refuses everything else, with the place of each
declaration: ``main``, functions that launch kernels, variables of the host.  Here each
of them is replaced by blanks, so that all other lines keep their numbers.  A
``constexpr`` function stays, for both sides.

The end of a declaration is found by its brackets.  Where macros hide those, the rest is
wrong C++, and ``nvcc`` is asked instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_REFUSED = re.compile(
    r"^(?P<file>.*)\((?P<line>\d+)\): error: .*\b(?:not allowed in JIT mode)\b.*\n"
    r"  (?P<text>.*)\n  (?P<blank>\s*)\^",
    re.MULTILINE,
)
_HIDDEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"'
    r'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'',
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
_QUALIFIED = re.compile(
    r"\s*(?:\b(?:const|noexcept|override|final|mutable|try)\s*|->[^{}()]*)+$"
)
_OPEN, _CLOSE = "([{", ")]}"


class HostCode(NamedTuple):
    """Where NVRTC found code of the host."""

    line: int
    column: int
    function: bool


class Omitted(NamedTuple):
    """A declaration that was left out."""

    name: str
    line: int


def refused(said: str, file: str) -> list[HostCode]:
    r"""The declarations of the host that NVRTC's log names in a file, in order.

    >>> refused('''k.cu(3): error: A function without execution space annotations
    ... is not allowed in JIT mode'''.replace("\n", " ") + '''
    ...   int main() { }
    ...       ^
    ... ''', "k.cu")
    [HostCode(line=3, column=4, function=True)]
    """
    return [
        HostCode(int(each["line"]), len(each["blank"]), "variable" not in each[0])
        for each in _REFUSED.finditer(said)
        if each["file"] == file
    ]


def without(source: str, places: list[HostCode]) -> tuple[str, list[Omitted]]:
    r"""The source without the declarations at some places, and what they declare.

    >>> found = [HostCode(1, 4, True)]
    >>> text, left = without("int f(int x) { return 1; }\nint g;", found)
    >>> text, left
    ('                          \nint g;', [Omitted(name='f', line=1)])
    """
    plain = _masked(source)
    starts = [0, *(each.end() for each in re.finditer("\n", source))]
    left: list[Omitted] = []
    cuts: list[tuple[int, int, bool]] = []
    for place in places:
        if place.line > len(starts):
            continue
        at = starts[place.line - 1] + place.column
        first, end = _start(plain, at), _end(plain, at, place.function)
        if any(first < stop and at >= begin for begin, stop, _ in cuts):
            continue  # a lambda in a function that is left out
        constant = re.search(r"\bconstexpr\b", plain[first:at]) is not None
        kept = place.function and constant
        cuts.append((first, end, kept))
        if not kept:
            name = re.match(r"(?:operator\s*\W+|~?\w+)", plain[at:])
            left.append(Omitted(name[0] if name else "", place.line))
    for first, end, kept in sorted(cuts, reverse=True):
        if kept:
            source = f"{source[:first]}__host__ __device__ {source[first:]}"
        else:
            source = source[:first] + _blank(source[first:end]) + source[end:]
    return source, left


def launched_templates(source: str) -> list[str]:
    """The instances of templates that the host launches, as it writes them.

    >>> launched_templates("int main() { scale<float, 4><<<1, 32>>>(x); }")
    ['scale<float, 4>']
    """
    found = re.findall(r"((?:\w+::)*\w+\s*<[^;{}()]*?>)\s*<<<", _masked(source))
    return list(dict.fromkeys(found))


def _masked(source: str) -> str:
    """The source with blanks for comments, strings and directives, of equal length."""
    hidden = _HIDDEN.sub(lambda found: _blank(found[0]), source)
    return _DIRECTIVE.sub(lambda found: _mark(found[0]), hidden)


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _mark(text: str) -> str:
    """A directive as blanks that end with the end of a declaration."""
    return _blank(text)[:-1] + ";"


def _start(plain: str, at: int) -> int:
    """Where the declaration of a name begins: behind the one before it."""
    depth = 0
    for place in range(at - 1, -1, -1):
        letter = plain[place]
        depth += (letter in ")]>") - (letter in "([<")
        if letter in ";{}" and depth <= 0:
            return _behind(plain, place + 1)
        if letter == ":" and re.search(
            r"\b(public|private|protected)\s*$", plain[:place]
        ):
            return _behind(plain, place + 1)
    return _behind(plain, 0)


def _behind(plain: str, at: int) -> int:
    """The first letter that is not blank."""
    return at + len(plain[at:]) - len(plain[at:].lstrip())


def _end(plain: str, at: int, function: bool) -> int:
    """Behind the last letter of a declaration."""
    for place, letter, before in _outside(plain, at):
        if letter == ";":
            return place + 1
        if letter == "}" and function and before in ")}":
            rest = re.match(r"\s*;", plain[place + 1 :])
            return place + 1 + (rest.end() if rest else 0)
    return len(plain)


def _outside(plain: str, at: int) -> Iterator[tuple[int, str, str]]:
    """Letters outside of brackets; for a closing one, what was before it opened.

    That is ``)`` for the body of a function, also behind ``const`` and the like, and a
    letter for ``a{0}`` in a list of initialisers.
    """
    depth, before, initialising = 0, "", False
    for place in range(at, len(plain)):
        letter = plain[place]
        if letter in _OPEN:
            if not depth:
                head = plain[at:place].rstrip()
                before = (head if initialising else _QUALIFIED.sub("", head))[-1:]
            depth += 1
        elif letter in _CLOSE:
            depth -= 1
            if not depth:
                yield place, letter, before
        elif not depth:
            single = letter == ":" and ":" not in plain[place - 1 : place + 2 : 2]
            initialising = initialising or single
            yield place, letter, before
