"""Finds the names of a kernel's parameters in its C++ source."""

from __future__ import annotations

import re


def parameter_names(code: str, kernel: str, count: int) -> tuple[str, ...]:
    """The names of a kernel's parameters in C++; none if they are not found.

    >>> code = "template <int N> __global__ void f(const float *x, int (&n)[2], T) {}"
    >>> parameter_names(code, "f<4>", 3)
    ('x', 'n', '')
    >>> parameter_names(code, "g", 3)
    ()
    """
    own = re.escape(kernel.partition("<")[0].rpartition("::")[2])
    for found in re.finditer(rf"\b{own}\s*\(", _without_comments(code)):
        parts = _parameters(_without_comments(code)[found.end() :])
        if len(parts) == count:
            return tuple(map(_declared, parts))
    return ()


def _without_comments(code: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", code, flags=re.DOTALL)


def _parameters(text: str) -> list[str]:
    """The parameters between an opening parenthesis and the one that closes it."""
    depth, parts = 0, [""]
    for letter in text:
        if letter in "([{<":
            depth += 1
        elif letter in ")]}>":
            depth -= 1
        if depth < 0:
            break
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [each for each in map(str.strip, parts) if each and each != "void"]


def _declared(parameter: str) -> str:
    """The name that a parameter declares; nothing if it has only a type."""
    plain = re.sub(r"=.*|\[[^\]]*\]|<.*>", "", parameter, flags=re.DOTALL)
    inner = re.search(r"\(\s*[*&]+\s*(\w+)\s*\)", plain)  # int (&n)[2]
    if inner is not None:
        return inner[1]
    words = re.findall(r"\w+|[*&]", plain)
    types = {
        "int",
        "char",
        "short",
        "long",
        "unsigned",
        "signed",
        "float",
        "double",
        "bool",
        "const",
        "__restrict__",
    }
    last = words[-1] if len(words) > 1 else ""
    return last if last.isidentifier() and last not in types else ""
