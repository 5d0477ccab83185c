r"""Links PTX texts: one text in which ``.extern`` names mean other texts' definitions.

Relocatable device code (``nvcc -rdc=true``) is one text for each source file.  What is
``.visible`` in one text is what ``.extern`` names in the others.  Of several ``.weak``
definitions the first is kept.  Names that only one text knows get a suffix where
another text has the same name.  Source lines keep their files.

>>> one = '''.version 8.0 .target sm_80 .address_size 64
... .extern .global .u32 factor;
... .visible .entry f() { ret; }'''
>>> two = '''.version 8.1 .target sm_80 .address_size 64
... .visible .global .u32 factor = 3;'''
>>> print(link([one, two]))
.version 8.1
.target sm_80
.address_size 64
.visible .global .u32 factor = 3;
.visible .entry f() { ret; }
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import PtxSyntaxError, one_of

_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))|(?P<text>"[^"\n]*")"""
    r"""|(?P<name>[A-Za-z_$%][\w$]*)|(?P<directive>\.[A-Za-z_][\w$]*(?:::[\w$]+)*)"""
    r"""|(?P<number>\d[\w.]*)|(?P<line>\n)|(?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)
_LINES = (".version", ".target", ".address_size", ".file")
"""Directives that end with their line, or where the next directive begins."""
_LINKAGES = (".visible", ".weak", ".extern", ".common")
_OF_DEBUGGERS = re.compile(r"\$L__info_string\d+")


@dataclass(frozen=True)
class _Item:
    """A directive, a variable or a function of a text."""

    text: int
    words: tuple[str, ...]
    """Its tokens, with the spaces between them."""
    kind: str
    """``line``, ``section``, ``variable``, ``function`` or ``other``."""
    name: str = ""
    linkage: str = ""
    declared_only: bool = False

    def __str__(self) -> str:
        return "".join(self.words).strip()


def link(texts: Sequence[str]) -> str:
    """One text of several; what two of them define is refused."""
    items = [item for i, text in enumerate(texts) for item in _items(i, text)]
    files = _Files()
    for item in items:
        if str(item).startswith(".file"):
            files.add(item)
    defined = _definitions(items)
    local = _renamed(items, defined)
    head: list[_Item] = []
    functions: list[_Item] = []
    rest: list[_Item] = []
    declared: dict[str, _Item] = {}
    variables: dict[str, _Item] = {}
    for item in items:
        changed = _rewritten(item, local[item.text], files)
        name = changed.name
        if item.kind == "line":
            head.append(item)
        elif item.kind == "function" and item.declared_only:
            known = defined.get(name)
            declared.setdefault(name, _linked(changed, known))
        elif item.kind == "variable" and item.linkage == ".extern":
            if name not in defined:
                variables.setdefault(name, changed)
        elif name and defined.get(name, item) is not item:
            continue  # another definition is taken
        elif item.kind == "variable":
            variables[name] = changed
        else:
            (functions if item.kind == "function" else rest).append(changed)
    parts = [*declared.values(), *variables.values(), *functions, *rest]
    return "\n".join([*_head(head), *files.lines, *map(str, parts)])


# ── reading ─────────────────────────────────────────────────────────────────


def _items(number: int, text: str) -> Iterator[_Item]:
    """The items of a text, in their order."""
    words: list[str] = []
    # A closing brace ends an item that has a body: a function, a section.
    depth, started, ends_with_line, has_body = 0, False, False, False
    for found in _TOKEN.finditer(text):
        word, kind = found[0], found.lastgroup
        if kind == "comment":
            if word.startswith("/*") and (len(word) < 4 or not word.endswith("*/")):
                raise PtxSyntaxError(f"text {number + 1} has a comment without an end")
            continue
        if ends_with_line and kind in ("line", "directive"):
            yield _item(number, words)
            words, started, ends_with_line, has_body = [], False, False, False
        if not started:
            if word.isspace():
                continue
            started, ends_with_line = True, word in _LINES
        words.append(word)
        has_body = has_body or word in (".func", ".entry", ".section")
        depth += (word == "{") - (word == "}")
        if depth < 0:
            raise PtxSyntaxError(f"text {number + 1} has a brace too many")
        if depth == 0 and (word == ";" or (word == "}" and has_body)):
            yield _item(number, words)
            words, started, ends_with_line, has_body = [], False, False, False
    if started:
        yield _item(number, words)


def _item(number: int, words: list[str]) -> _Item:
    found = [each for each in words if not each.isspace()]
    first, made = found[0], tuple(words)
    if first in _LINES:
        return _Item(number, made, "line")
    if first == ".section":
        return _Item(number, made, "section")
    linkage = next((each for each in found[:2] if each in _LINKAGES), "")
    if ".func" in found[:3] or ".entry" in found[:3]:
        start = next(i for i, e in enumerate(found) if e in (".func", ".entry")) + 1
        name = _first_name(found[start:])
        return _Item(number, made, "function", name, linkage, found[-1] == ";")
    if any(each in (".global", ".const", ".shared", ".local") for each in found[:3]):
        return _Item(number, made, "variable", _first_name(found), linkage)
    return _Item(number, made, "other")


def _first_name(words: list[str]) -> str:
    """The first name that is in no parentheses."""
    depth = 0
    for word in words:
        depth += (word == "(") - (word == ")")
        if depth == 0 and re.match(r"[A-Za-z_$%]", word):
            return word
    raise PtxSyntaxError(f"no name in: {''.join(words)[:60]}")


# ── names ───────────────────────────────────────────────────────────────────


def _is_definition(item: _Item) -> bool:
    return bool(item.name) and item.linkage != ".extern" and not item.declared_only


def _definitions(items: list[_Item]) -> dict[str, _Item]:
    """The definition that each name means in all texts."""
    found: dict[str, _Item] = {}
    for item in items:
        if not _is_definition(item) or not item.linkage:
            continue
        known = found.get(item.name)
        if known is None or (
            known.linkage != ".visible" and item.linkage == ".visible"
        ):
            found[item.name] = item
        elif known.linkage == item.linkage == ".visible":
            raise PtxSyntaxError(
                f"{item.name} is defined by text {known.text + 1} and by text "
                f"{item.text + 1}; one of them must be .weak or known to its text only"
            )
    return found


def _renamed(
    items: list[_Item], defined: Mapping[str, _Item]
) -> dict[int, dict[str, str]]:
    """New names in each text, for names of its own that another text has, too."""
    owners: dict[str, set[int]] = {}
    for item in items:
        if item.name:
            owners.setdefault(item.name, set()).add(item.text)
    made: dict[int, dict[str, str]] = {item.text: {} for item in items}
    for item in items:
        own = _is_definition(item) and not item.linkage
        shared = len(owners.get(item.name, ())) > 1
        if own and shared and (item.name in defined or item.text > 0):
            made[item.text][item.name] = f"{item.name}$text{item.text + 1}"
    return made


def _linked(item: _Item, definition: _Item | None) -> _Item:
    """A declaration with the linkage of the definition, if there is one."""
    if definition is None or item.linkage != ".extern":
        return item
    words = [definition.linkage if word == ".extern" else word for word in item.words]
    return replace(item, words=tuple(words))


class _Files:
    """The files of source lines, numbered anew."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._numbers: dict[str, int] = {}
        self._known: dict[tuple[int, str], str] = {}

    def add(self, item: _Item) -> None:
        """Take a directive of a text: its number, and what follows."""
        _, number, rest = (*str(item).split(maxsplit=2), "", "")[:3]
        if not rest:
            raise PtxSyntaxError(
                f"text {item.text + 1} has {item!s:.60}; .file has a number and a name"
            )
        made = self._numbers.setdefault(rest, len(self._numbers) + 1)
        if made > len(self.lines):
            self.lines.append(f".file {made} {rest}")
        self._known[item.text, number] = str(made)

    def number(self, text: int, number: str) -> str:
        """The new number of a file of a text; 0 is no file."""
        return self._known.get((text, number), number)


def _rewritten(item: _Item, names: Mapping[str, str], files: _Files) -> _Item:
    """An item with the new names and the new numbers of files."""
    words = []
    line_of = False
    for word in item.words:
        made = names.get(word, word)
        if line_of and word[:1].isdigit():
            made, line_of = files.number(item.text, word), False
        elif word in (".loc", "inlined_at"):
            line_of = True
        elif _OF_DEBUGGERS.fullmatch(word):
            made = f"{word}_{item.text + 1}"
        words.append(made)
    return replace(item, words=tuple(words), name=names.get(item.name, item.name))


def _head(lines: list[_Item]) -> list[str]:
    """The newest version, and the target, which must be one."""
    found: dict[str, list[str]] = {}
    for each in lines:
        directive, *rest = str(each).split()
        found.setdefault(directive, []).append(" ".join(rest))
    targets = list(dict.fromkeys(found.get(".target", [])))
    if len(targets) != 1:
        raise PtxSyntaxError(
            "texts that are linked have one target; given "
            f"{one_of(targets, 'and') or 'none'}"
        )
    version = max(found.get(".version", ["none"]), key=_version)
    return [f".version {version}", f".target {targets[0]}", ".address_size 64"]


def _version(given: str) -> tuple[int, int]:
    """The two numbers of a version."""
    numbers = re.fullmatch(r"(\d{1,4})\.(\d{1,4})", given)
    if numbers is None:
        raise PtxSyntaxError(
            f"a version is two numbers, such as 8.0; given {given:.40}"
        )
    return int(numbers[1]), int(numbers[2])
