"""The reference of names and commands, from their docstrings."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from itertools import pairwise
from textwrap import dedent
from typing import Any

import fragmenta
from fragmenta.base.arrays.record import Record
from making.markdown import anchor, table

WIDTH = 80
ROLE = re.compile(r":\w+:`(~?)\.?([^`]+)`")


def commands() -> str:
    """A list of the commands, then every command's help."""
    from typer.testing import CliRunner

    from fragmenta.commands import app
    from fragmenta.commands.command_table import COMMANDS

    titles = {name: f"fragmenta {name}" for name in COMMANDS}
    rows = [
        (f"[`{name}`](#{anchor(titles[name])})", entry.does)
        for name, entry in COMMANDS.items()
    ]
    parts = [table(("command", "what it does"), rows), OPTIONS_SAY, options()]
    wide = {"COLUMNS": f"{WIDTH}", "TERMINAL_WIDTH": f"{WIDTH}"}
    for name, title in titles.items():
        text = CliRunner().invoke(app, [name, "--help"], env=wide).output
        usage = text.replace("Usage: root", "Usage: fragmenta")
        parts.append(f"## {title}\n\n```text\n{usage.strip()}\n```")
    return "\n\n".join(parts)


OPTIONS_SAY = """\
## Options of all commands

An option that several commands have takes the same value and means the same in all of
them. Options in the plural take several values with commas between them; of the others,
those that may be repeated say so in the help of their command."""


def options() -> str:
    """Every option: its value, its meaning and the commands that have it."""
    from fragmenta.commands.app import declared
    from fragmenta.commands.command_table import COMMANDS
    from fragmenta.commands.options import OPTIONS

    have = {name: {each.name for each in declared(name)} for name in COMMANDS}
    return table(
        ("option", "value", "meaning", "commands"),
        [
            (
                f"`{name}`",
                f"`{row.value}`".replace("|", "\\|") if row.value else "",
                row.meaning,
                ", ".join(each for each, names in have.items() if name in names),
            )
            for name, row in OPTIONS.items()
        ],
    )


def api(room: str = "") -> str:
    """Every public name of the package, or of a room: signature and docstring."""
    things = _things(room)
    links = _links(room)
    rows = [
        (f"[`{name}`]({links[name]})", _summary(thing, links))
        for name, thing in things.items()
    ]
    parts = [table(("name", "what it is"), rows)]
    if not room:
        parts.append(_rooms())
    for name, thing in things.items():
        shown = f"fm.{room}.{name}" if room else f"fm.{name}"
        parts.append(_entry(title(name, thing), shown, thing, links))
        if inspect.isclass(thing) and not issubclass(thing, Exception):
            parts += _methods(name, thing, links)
    return "\n\n".join(parts)


def _things(room: str) -> dict[str, Any]:
    """The classes and functions of a room by name; of the top without a room."""
    module = import_module(f"fragmenta.{room}" if room else "fragmenta")
    things = {name: getattr(module, name) for name in module.__all__}
    return {
        name: thing
        for name, thing in things.items()
        if inspect.isclass(thing) or inspect.isroutine(thing)
    }


def _links(room: str) -> dict[str, str]:
    """Where each public name is told, as a page of a room links to it."""
    found = {}
    for each in ("", *fragmenta._ROOMS):
        page = "" if each == room else f"{each or 'api'}.md"
        for name, thing in _things(each).items():
            whole = f"{each}.{name}" if each else name
            found[whole] = f"{page}#{anchor(title(name, thing))}"
    own = {name: found[f"{room}.{name}" if room else name] for name in _things(room)}
    return found | own


def _rooms() -> str:
    """The table of rooms, each with the first line of its docstring."""
    rows = []
    for room in fragmenta._ROOMS:
        told = inspect.getdoc(import_module(f"fragmenta.{room}")) or ""
        first = " ".join(told.partition("\n\n")[0].split()).replace("``", "`")
        rows.append((f"[`fm.{room}`]({room}.md)", first))
    return table(("room", "what is in it"), rows)


def title(name: str, thing: object) -> str:
    """The heading; ``dtype`` and ``DType`` would have the same anchor."""
    return f"class {name}" if inspect.isclass(thing) else name


def _summary(thing: object, links: dict[str, str]) -> str:
    """The first line of a docstring."""
    first = (inspect.getdoc(thing) or "").partition("\n\n")[0]
    return _prose(" ".join(first.split()), links).replace("|", r"\|")


def _methods(owner: str, thing: type, links: dict[str, str]) -> Iterator[str]:
    members: dict[str, Any] = {}
    for each in _own(thing):
        members |= vars(each)
    for name, member in members.items():
        if name.startswith("_"):
            continue
        inner = getattr(member, "__func__", getattr(member, "fget", member))
        inner = getattr(inner, "func", inner)
        if inspect.isfunction(inner) and inner.__doc__:
            called = inspect.isfunction(member) or hasattr(member, "__func__")
            whole = f"{owner}.{name}"
            yield _entry(whole, whole, inner, links, "###", called=called)


def _own(thing: type) -> list[type]:
    """The classes whose members a page lists: a record, then what extends it.

    Members from another public class, such as those of ``Instruction`` in ``Mma``, are
    listed there.
    """
    rooms = ("", *fragmenta._ROOMS)
    public = {each for room in rooms for each in _things(room).values()}
    ours = [each for each in thing.__mro__ if each.__module__.startswith("fragmenta.")]
    elsewhere = {inner for each in ours[1:] if each in public for inner in each.__mro__}
    found = [each for each in ours if each not in elsewhere and each is not Record]
    return found[::-1]


def _entry(
    title: str,
    name: str,
    thing: Any,
    links: dict[str, str],
    level: str = "##",
    *,
    called: bool = True,
) -> str:
    shown = signature(name, thing, called=called)
    text = markdown(inspect.getdoc(thing) or "", links)
    fields = "".join(
        f"\n- `{field}`: {_prose(' '.join(text.split()), links)}"
        for field, text in _fields(thing).items()
    )
    more = f"\n\nIts attributes:\n{fields}" if fields else ""
    return f"{level} {title}\n\n```python\n{shown}\n```\n\n{text}{more}"


def _fields(thing: Any) -> dict[str, str]:
    """The attributes of a class that have a docstring, which only its source has."""
    if not inspect.isclass(thing) or issubclass(thing, Exception):
        return {}
    found = {}
    for each in _own(thing):
        body = ast.parse(dedent(inspect.getsource(each))).body[0]
        assert isinstance(body, ast.ClassDef)
        for node, after in pairwise(body.body):
            if isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr):
                name, text = ast.unparse(node.target), ast.literal_eval(after.value)
                found |= {} if name.startswith("_") else {name: text}
    return found


# ── signatures ──────────────────────────────────────────────────────────────


def signature(name: str, thing: Any, *, called: bool = True) -> str:
    """The name with its parameters; a property, which is not called, has none.

    >>> def scale(values: list[float], *, by: float = 2.0) -> list[float]: ...
    >>> signature("scale", scale)
    'scale(values: list[float], *, by: float = 2.0) -> list[float]'
    """
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return name
    gives = _annotation(found.return_annotation)
    after = f" -> {gives}" if gives and not inspect.isclass(thing) else ""
    if not called:
        return f"{name}{after}"
    given = list(_parameters(found))
    line = f"{name}({', '.join(given)}){after}"
    if len(line) <= WIDTH:
        return line
    lines = "".join(f"    {each},\n" for each in given)
    return f"{name}(\n{lines}){after}"


def _parameters(found: inspect.Signature) -> Iterator[str]:
    """Each parameter as written, with ``/`` and ``*`` where they belong."""
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    named = False  # whether a star has been written
    parameters = [p for p in found.parameters.values() if p.name not in ("self", "cls")]
    for number, each in enumerate(parameters):
        kind = each.kind
        if kind is inspect.Parameter.KEYWORD_ONLY and not named:
            yield "*"
        named |= kind in (each.VAR_POSITIONAL, each.KEYWORD_ONLY)
        of = _annotation(each.annotation)
        text = marks.get(kind, "") + each.name + (f": {of}" if of else "")
        if each.default is not each.empty:
            text += (" = " if of else "=") + _default(each.default)
        yield text
        after = parameters[number + 1 :]
        if kind is each.POSITIONAL_ONLY and not any(
            other.kind is each.POSITIONAL_ONLY for other in after
        ):
            yield "/"


def _annotation(found: Any) -> str:
    """A type as its source has it."""
    if found is inspect.Signature.empty:
        return ""
    if isinstance(found, str):
        return found
    if inspect.isclass(found) and not hasattr(found, "__args__"):
        return found.__name__
    written = getattr(found, "__forward_arg__", None)
    return written if isinstance(written, str) else str(found).replace("typing.", "")


def _default(value: Any) -> str:
    """A value; one that has no text of its own, such as a function, by its name."""
    text = repr(value)
    if len(text) > WIDTH:
        return "..."
    if not re.search(r" at 0x[0-9a-f]+>|^<", text):
        return text
    return str(getattr(value, "name", getattr(value, "__name__", "...")))


# ── docstrings ──────────────────────────────────────────────────────────────


def markdown(text: str, links: dict[str, str]) -> str:
    """A docstring as Markdown: roles are links or code, examples are fenced."""
    parts = []
    for part in _merged(re.split(r"\n\n+", text)):
        if part.lstrip().startswith(">>>"):
            parts.append(_example(part))
        elif part.startswith("    "):
            parts.append("\n".join(["```text", inspect.cleandoc(part), "```"]))
        else:
            parts.append(_prose(re.sub(r"::$", ":", _list(part)), links))
    return "\n\n".join(part for part in parts if part.strip())


def _merged(parts: list[str]) -> list[str]:
    """The parts, with examples, or lines of code, that follow each other in one."""
    found: list[str] = []
    for part in parts:
        code = part.lstrip().startswith(">>>"), part.startswith("    ")
        before = found[-1] if found else ""
        if any(code) and code == (
            before.lstrip().startswith(">>>"),
            before.startswith("    "),
        ):
            found[-1] = f"{before}\n\n{part}"
        else:
            found.append(part)
    return found


def _example(part: str) -> str:
    """An example, without what only doctest reads."""
    plain = re.sub(r"\s*# doctest: .*", "", inspect.cleandoc(part))
    plain = plain.replace("<BLANKLINE>", "")
    return f"```python\n{plain}\n```"


def _list(part: str) -> str:
    """Before a list there is an empty line."""
    return re.sub(r"(?m)^(?!- |  )(.+)\n(?=- )", r"\1\n\n", part)


def _prose(text: str, links: dict[str, str]) -> str:
    def linked(found: re.Match[str]) -> str:
        short, name = found.groups()
        shown = name.rpartition(".")[2] if short else name
        where = links.get(name.removeprefix("fragmenta."))
        return f"[`{shown}`]({where})" if where else f"`{shown}`"

    return ROLE.sub(linked, text).replace("``", "`")
