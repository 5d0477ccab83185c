"""The order of the house: storeys, their rooms, and imports that run one way.

Every import counts, wherever it stands: when a module loads, when a function
is called, and for type checkers only.

- A storey imports only from the storeys above it in ``HOUSE``, and a room only from the
  rooms above it, for types too.
- Folders inside a room have an order, too: no two of them import one another, directly
  or through other modules of the room.
- No modules import one another in a circle, not even when they are called.  Within a
  room, imports for type checkers only are free: they never run.
- A door (:mod:`fragmenta.base.door`) has names for users, which may be of any room.  No
  module of the house asks it for what is above.
"""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import fragmenta
from fragmenta.engine.simt.library import COMPILING
from fragmenta.ptx.rules import RULES
from tests.own_code import nodes, parsed

SOURCE = Path(fragmenta.__file__).parent
MOST_EQUAL = 7

pytestmark = pytest.mark.xdist_group("house")  # what is read is read once

# Each storey, and each room of one, imports only from those before it.
HOUSE = {
    "errors": "",
    "base": "progress door arrays jit",
    "reference": "registers isa cards arithmetic quant sparse weights shared "
    "tensor_memory execution wmma",
    "ptx": "",
    "engine": "simt units tracing planes",
    "watch": "races orders",
    "values": "counters expressions numerics",
    "launch": "",
    "cuda": "",
    "inspect": "replay debugging view sameness evidence",
    "frontends": "api pool programs memory protocol cupy numba warp tilelang triton judge",
    "hopper": "kernels torch",
    "commands": "",
    "__main__": "",
}
ROOMS = [
    f"{storey}.{room}" if room else storey
    for storey, rooms in HOUSE.items()
    for room in ["", *rooms.split()]
]

# Names for users, of any room.
DOORS = (
    "fragmenta",
    "fragmenta.judge",
    "fragmenta.kernels",
    "fragmenta.ptx",
    "fragmenta.quant",
    "fragmenta.shared",
    "fragmenta.sparse",
    "fragmenta.tensor_memory",
    "fragmenta.torch",
    "fragmenta.triton",
    "fragmenta.weights",
    "fragmenta.wmma",
)
# Who loads modules by name: doors, and commands, which nothing is above.
BY_NAME = ("fragmenta.base.door", "fragmenta.commands")


class Import(NamedTuple):
    """One import between two modules of the house."""

    source: str
    target: str
    when: str
    """``load``, ``call`` or ``types``."""


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    return {dotted(p): p for p in SOURCE.rglob("*.py") if "__pycache__" not in p.parts}


def dotted(path: Path) -> str:
    parts = ("fragmenta", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room(module: str) -> str:
    """The room of a module, such as ``base.jit`` or ``ptx``; empty for a door."""
    storey, *inside = module.split(".")[1:3] or [""]
    if storey not in HOUSE:
        return ""
    return ".".join([storey, *inside]) if HOUSE[storey] else storey


class Reader(ast.NodeVisitor):
    """Collects the imports of one module, and when each of them runs."""

    def __init__(self, module: str, known: frozenset[str]):
        self.module, self.known, self.when = module, known, "load"
        self.found: list[Import] = []
        self.by_name: list[int] = []

    def visit_inside(self, nodes: list[ast.stmt], when: str) -> None:
        before, self.when = self.when, when
        for node in nodes:
            self.visit(node)
        self.when = before

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.visit_inside(node.body, "call")

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_inside(node.body, "call")

    def visit_If(self, node: ast.If) -> None:
        types = ast.unparse(node.test).endswith("TYPE_CHECKING")
        self.visit_inside(node.body, "types" if types else self.when)
        self.visit_inside(node.orelse, self.when)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.add(alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:  # relative: from the package that the module lies in
            path = modules()[self.module]
            package = self.module.split(".")
            up = node.level - (path.name == "__init__.py")
            base = ".".join([*package[: len(package) - up], *filter(None, [base])])
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            if inner != "fragmenta.__version__":  # in no room
                self.add(inner if inner in self.known else base)

    def visit_Call(self, node: ast.Call) -> None:
        if ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
            self.by_name.append(node.lineno)
        self.generic_visit(node)

    def add(self, target: str) -> None:
        if target.partition(".")[0] == "fragmenta" and target != self.module:
            self.found.append(Import(self.module, target, self.when))


def read(module: str, text: str, known: frozenset[str]) -> Reader:
    reader = Reader(module, known)
    reader.visit(parsed(text))
    return reader


@cache
def readers() -> tuple[Reader, ...]:
    known = frozenset(modules())
    return tuple(
        read(module, path.read_text(encoding="utf-8"), known)
        for module, path in modules().items()
    )


@cache
def imports() -> tuple[Import, ...]:
    """Every import between modules; what a door names is none."""
    return tuple(
        each
        for reader in readers()
        for each in reader.found
        if reader.module not in DOORS
    )


def goes_up(each: Import) -> bool:
    """Whether an import is from a later room."""
    here, there = room(each.source), room(each.target)
    if not there:  # a public name, which may be from any room
        return True
    return ROOMS.index(there) > ROOMS.index(here)


def circles(edges: set[tuple[str, str]]) -> list[set[str]]:
    """Modules that reach one another: the strongly connected ones."""
    after: dict[str, set[str]] = {}
    for source, target in edges:
        after.setdefault(source, set()).add(target)

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        left = [start]
        while left:
            new = after.get(left.pop(), set()) - seen
            seen |= new
            left += new
        return seen

    reach = {module: reached(module) for module in after}
    found = [
        frozenset(other for other in reach[module] if module in reach.get(other, ()))
        for module in reach
        if module in reach[module]
    ]
    return [set(circle) for circle in dict.fromkeys(found)]


# ── the rules ───────────────────────────────────────────────────────────────


def test_every_module_has_its_room() -> None:
    inside = {module for module in modules() if module not in DOORS}
    assert {room(module) for module in inside} == set(ROOMS)


def test_imports_run_one_way() -> None:
    wrong = [each for each in imports() if goes_up(each)]
    shown = [f"{each.source} imports {each.target}" for each in wrong]
    assert not wrong, shown


def test_no_modules_import_one_another_in_a_circle() -> None:
    edges = {(each.source, each.target) for each in imports() if each.when != "types"}
    found = circles(edges)
    assert not found


def test_nothing_is_imported_by_name_elsewhere() -> None:
    wrong = [
        f"{reader.module}, line {line}"
        for reader in readers()
        for line in reader.by_name
        if not reader.module.startswith(BY_NAME) and reader.module not in DOORS
    ]
    assert not wrong


def folder(module: str) -> str:
    """The folder inside a room that a module is in; a module that is in none itself."""
    parts = module.split(".")
    depth = room(module).count(".") + 3
    if len(parts) == depth and modules()[module].name != "__init__.py":
        return module
    return ".".join(parts[:depth])


def test_folders_inside_a_room_have_an_order() -> None:
    inside = [
        each
        for each in imports()
        if each.when != "types" and room(each.source) == room(each.target)
    ]
    edges = {(folder(i.source), folder(i.target)) for i in inside}
    found = circles({(a, b) for a, b in edges if a != b})
    assert not found


@pytest.mark.parametrize("door", DOORS)
def test_a_door_is_a_table(door: str) -> None:
    """It may name any room, so it must do nothing."""
    body = ast.parse(modules()[door].read_text(encoding="utf-8")).body
    functions = [each.name for each in body if isinstance(each, ast.FunctionDef)]
    assert set(functions) <= {"__getattr__", "__dir__"}
    assert not [each for each in body if isinstance(each, ast.ClassDef)]


def test_doors_are_for_users() -> None:
    """A module that asked one for what is above its room would import upward.

    The folder ``ptx`` has modules and is a door.
    """
    door = "fragmenta.ptx"
    table = {
        alias.asname or alias.name: node.module or ""
        for node in nodes(modules()[door])
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    above = {
        name for name, module in table.items() if goes_up(Import(door, module, "types"))
    }
    assert above
    asked = [
        f"{module} imports {alias.name} from {door}"
        for module, path in modules().items()
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and node.module == door
        for alias in node.names
        if alias.name in above
    ]
    assert not asked


def test_what_writes_code_is_part_of_the_key_of_the_cache() -> None:
    """Else a user would run machine code of an older version.

    What these modules import from the rooms of kernels must be part of it, too.
    """
    parts = tuple(f"fragmenta.{each.replace('/', '.')}" for each in COMPILING)
    compiling = [m for m in modules() if m.startswith(tuple(f"{p}." for p in parts))]
    above = ("engine.units", "watch.races", "values.expressions", "launch")
    outside = [
        f"{each.source} imports {each.target}"
        for each in imports()
        if each.source in compiling and each.when != "types"
        if room(each.target) in above and each.target not in compiling
    ]
    assert not outside
    writing = {
        each.source
        for each in imports()
        if each.target in ("fragmenta.engine.simt.emitter", "fragmenta.base.jit.trace")
        if room(each.source) in above and each.source not in compiling
    }
    assert writing <= {"fragmenta.launch.coverage"}  # it counts, and writes nothing


def test_only_the_table_of_rules_spells_their_names() -> None:
    """Others use its constants.  Names of one word are words of other things, too."""
    names = {each for each in RULES if "-" in each}
    assert len(names) > 20
    spelled = [
        f"{path.relative_to(SOURCE)}:{each.lineno} spells {each.value!r}"
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).as_posix() != "ptx/rules.py"
        for each in nodes(path)
        if isinstance(each, ast.Constant) and each.value in names
    ]
    assert not spelled


def test_a_launch_that_is_not_watched_loads_no_race_detector() -> None:
    text = (
        "import sys\n"
        "from fragmenta import ptx\n"
        "text = '.version 8.0 .target sm_80 .address_size 64 .entry f() { ret; }'\n"
        "kernel = ptx.parse(text).kernels['f']\n"
        "assert 'fragmenta.ptx.opcodes' not in sys.modules  # only compiling needs it\n"
        "kernel.launch(1, 32, watch=False)\n"
        "assert not [m for m in sys.modules if m.startswith('fragmenta.watch.races')]\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True)


#: Rooms that the package works without: they use it, and it does not use them.
OPTIONAL = ("fragmenta.hopper", "fragmenta.kernels", "fragmenta.torch")


def is_optional(module: str) -> bool:
    return f"{module}.".startswith(tuple(f"{each}." for each in OPTIONAL))


def test_nothing_depends_on_the_optional_rooms() -> None:
    wrong = [
        f"{each.source} imports {each.target}"
        for each in imports()
        if is_optional(each.target) and not is_optional(each.source)
    ]
    assert not wrong


def test_the_package_works_without_the_optional_rooms() -> None:
    """Every other module loads, and every other public name is there."""
    others = sorted(m for m in modules() if not is_optional(m))
    needs = ("numba", "warp", "tilelang", "triton", "judge.libraries")
    there = tuple(f"fragmenta.frontends.{each}" for each in needs)
    others = [
        m
        for m in others
        if not m.startswith((*there, "fragmenta.triton", "fragmenta.__main__"))
    ]
    text = (
        "import importlib, sys\n"
        f"for hidden in {OPTIONAL!r}:\n"
        "    sys.modules[hidden] = None\n"
        f"for module in {others!r}:\n"
        "    importlib.import_module(module)\n"
        "import fragmenta\n"
        "for name in set(fragmenta.__all__) - {'kernels', 'torch'}:\n"
        "    getattr(fragmenta, name)\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True)


MOST_ANY = 0.5
"""How often a room may say ``Any``, per 100 lines."""


@pytest.mark.parametrize("name", [each for each in ROOMS if each != "__main__"])
def test_a_room_has_types(name: str) -> None:
    """``Any`` switches the type checker off, so it is rare."""
    texts = [
        path.read_text(encoding="utf-8")
        for module, path in modules().items()
        if room(module) == name
    ]
    said = sum(count_any(each) for each in texts)
    lines = sum(len(each.splitlines()) for each in texts)
    assert said <= max(MOST_ANY * lines / 100, 1), f"{said} in {lines} lines"


def count_any(text: str) -> int:
    """How often a module says ``Any`` outside of its docstrings and comments."""
    names = [n for n in ast.walk(parsed(text)) if isinstance(n, ast.Name | ast.alias)]
    return sum((n.id if isinstance(n, ast.Name) else n.name) == "Any" for n in names)


def opening(text: str) -> str:
    """The first paragraph of a module's docstring."""
    return (ast.get_docstring(parsed(text)) or "").partition("\n\n")[0]


def test_a_module_opens_with_a_statement() -> None:
    wrong = [m for m, p in modules().items() if "?" in opening(p.read_text("utf-8"))]
    assert not wrong


def test_no_line_escapes_the_formatter() -> None:
    mark = "fmt" + ":"
    wrong = [m for m, p in modules().items() if f"# {mark}" in p.read_text("utf-8")]
    assert not wrong


def test_any_and_questions_are_seen() -> None:
    text = '"""What is it?\n\nMore."""\nfrom typing import Any\ndef f(a: Any): pass'
    assert count_any(text) == 2
    assert "?" in opening(text)
    assert "?" not in opening('"""It is this.\n\nWhy?"""')


# ── do the rules see what they forbid? ──────────────────────────────────────

KNOWN = frozenset(
    {
        "fragmenta.reference.isa.target",
        "fragmenta.inspect.view.svg",
        "fragmenta.reference.isa",
    }
)


@pytest.mark.parametrize(
    "text, target, when",
    [
        (
            "from fragmenta.inspect.view.svg import f",
            "fragmenta.inspect.view.svg",
            "load",
        ),
        (
            "from fragmenta.reference.isa import target",
            "fragmenta.reference.isa.target",
            "load",
        ),
        (
            "import fragmenta.inspect.view.svg as svg",
            "fragmenta.inspect.view.svg",
            "load",
        ),
        (
            "try:\n import fragmenta.inspect.view.svg\nexcept E: pass",
            "fragmenta.inspect.view.svg",
            "load",
        ),
        (
            "def f():\n  if x:\n    from fragmenta.inspect.view import svg",
            "fragmenta.inspect.view.svg",
            "call",
        ),
        (
            "class A:\n  async def f(self):\n    import fragmenta.inspect.view.svg",
            "fragmenta.inspect.view.svg",
            "call",
        ),
        ("from fragmenta import matmul", "fragmenta", "load"),
        (
            "if TYPE_CHECKING:\n  from fragmenta.reference.isa import X",
            "fragmenta.reference.isa",
            "types",
        ),
        (
            "if typing.TYPE_CHECKING:\n  pass\nelse:\n  from fragmenta.reference.isa import X",
            "fragmenta.reference.isa",
            "load",
        ),
    ],
)
def test_every_import_is_read(text: str, target: str, when: str) -> None:
    found = read("fragmenta.reference.registers.words", text, KNOWN).found
    assert found == [Import("fragmenta.reference.registers.words", target, when)]


def test_relative_imports_are_read() -> None:
    found = read(
        "fragmenta.reference.isa.target", "from ...inspect.view import svg", KNOWN
    ).found
    assert found == [
        Import("fragmenta.reference.isa.target", "fragmenta.inspect.view.svg", "load")
    ]


def test_imports_by_name_are_seen() -> None:
    text = "import importlib\nimportlib.import_module('fragmenta.inspect.view')"
    assert read("fragmenta.reference.isa.target", text, KNOWN).by_name == [2]


def test_going_up_is_seen() -> None:
    up = Import("fragmenta.reference.isa.target", "fragmenta.inspect.view.svg", "call")
    assert goes_up(up)
    assert goes_up(up._replace(target="fragmenta"))
    assert not goes_up(Import(up.target, up.source, "load"))


def test_circles_are_seen() -> None:
    edges = {("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e")}
    assert circles(edges) == [{"a", "b", "c"}]
    assert circles(edges - {("c", "a")}) == []


def test_no_eight_lines_stand_twice() -> None:
    """Blank lines, imports, signatures and closing brackets do not count.

    Functions that take the same options list them all: that is what help shows.
    """
    seen: dict[tuple[str, ...], str] = {}
    twice = []
    for module, path in sorted(modules().items()):
        lines = code_lines(path.read_text(encoding="utf-8"))
        for first in range(len(lines) - MOST_EQUAL):
            some = lines[first : first + MOST_EQUAL + 1]
            key = tuple(text for _, text in some)
            place = f"{module}, line {some[0][0]}"
            if key in seen:
                twice.append(f"{place} is {seen[key]}")
            seen.setdefault(key, place)
    assert not twice


def code_lines(text: str) -> list[tuple[int, str]]:
    """The lines that count, with their numbers."""
    skipped: set[int] = set()
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            skipped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.FunctionDef):
            skipped.update(range(node.lineno, node.body[0].lineno))
    return [
        (number, line.strip())
        for number, line in enumerate(text.splitlines(), 1)
        if number not in skipped and line.strip(" ()[]{},:")
    ]
