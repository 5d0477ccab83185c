"""The messages of CUDA's compilers for people: ``file:line``, in 80 columns."""

from __future__ import annotations

import os
import re
import textwrap

MOST = 8
"""How many errors are shown."""
_WIDTH = 80
_SAID = re.compile(
    r"^(?P<file>[^\n(]+)\((?P<line>\d+)\): (?P<kind>(?:catastrophic )?error)"
    r"(?: #[\w-]+)?: (?P<message>.*(?:\n {10}\S.*)*)"
    r"(?:\n  (?P<text>.*)\n  (?P<blank>\s*)\^)?",
    re.MULTILINE,
)
_PACKAGE = re.compile(r".*/(?:site|dist)-packages/nvidia/\w+/include/(?:cccl/)?")


def shown(said: str) -> str:
    r"""The errors in a compiler's log, each with its line.

    >>> print(shown('k.cu(3): error: identifier "g" is undefined\n  g();\n  ^\n'))
    k.cu:3:1: error: identifier "g" is undefined
      g();
      ^
    """
    errors = [*_SAID.finditer(said)]
    if not errors:
        return "\n".join(line[:400] for line in said.rstrip().splitlines()[:40])
    lines = [line for each in errors[:MOST] for line in _lines(each)]
    more = len(errors) - MOST
    if more > 0:
        lines.append(f"and {more} more error{'s' * (more > 1)}")
    return "\n".join(lines)


def places(said: str) -> set[tuple[str, str]]:
    """The line of each error in a log, and its message."""
    return {(each["line"], each["message"]) for each in _SAID.finditer(said)}


def _lines(said: re.Match[str]) -> list[str]:
    """One error: its place and message, then the line and a mark below."""
    column = "" if said["blank"] is None else f":{len(said['blank']) + 1}"
    message = " ".join(said["message"].split())
    head = f"{_file(said['file'])}:{said['line']}{column}: error: {message}"
    wrapped = textwrap.wrap(
        head,
        _WIDTH,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return wrapped + ([] if said["text"] is None else _marked(said))


def _marked(said: re.Match[str]) -> list[str]:
    """The line, or the part of it around the mark."""
    text, at = said["text"].replace("\t", " ").rstrip(), len(said["blank"])
    indent = len(text) - len(text.lstrip())
    text, at = text[indent:], max(0, at - indent)
    room = _WIDTH - 2
    if len(text) > room:
        cut = max(0, min(at - room // 3, len(text) - room))
        text, at = text[cut : cut + room], at - cut
    return [f"  {text}", f"  {' ' * at}^"]


def _file(path: str) -> str:
    """A file as the user calls it: from here if it is below, a header by its name."""
    short = _PACKAGE.sub("", path.replace(os.sep, "/"))
    if short != path or not os.path.isabs(path):
        return short
    below = os.path.relpath(path)
    return path if below.startswith(os.pardir) else below
