"""Is the house in order: rooms, sizes, and imports that run one way?

Every import counts, wherever it stands: when a module loads, when a function
is called, and for type checkers only.

- A room imports only from the rooms below it in ``ROOMS``, for types too.
- No modules import one another in a circle, not even when they are called.  Within a
  room, imports for type checkers only are free: they never run.
- ``methods.py`` is the one file that opens later rooms, when it is called.
"""

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

import fragmenta

SOURCE = Path(fragmenta.__file__).parent
TESTS = Path(__file__).parent
# 20 rooms, one for each library that builds on them (torch, triton), and the door.
MOST_ROOMS, MOST_LINES, MOST_EQUAL = 23, 900, 7

# From the ground up.
ROOMS = [
    "errors",
    "progress",
    "methods",
    "arrays",
    "machine",
    "registers",
    "isa",
    "arithmetic",
    "sparse",
    "weights",
    "shared",
    "tensor_memory",
    "execution",
    "wmma",
    "ptx",
    "cuda",
    "evidence",
    "kernels",
    "torch",
    "triton",
    "view",
    "commands",
    "__main__",
]

# Who has methods and names that open later rooms, and where these are written.
UPWARD = "fragmenta.methods"
OWNERS = {
    "fragmenta.registers.fragment",
    "fragmenta.isa.instruction",
    "fragmenta.execution.compare",
    "fragmenta.shared.matrix_loop",
    "fragmenta.ptx",
    "fragmenta.launch.kernel",
    "fragmenta.launch.result",
}
# Who loads modules by name: the table of public names, and commands, which nothing
# is above.
BY_NAME = ("fragmenta", "fragmenta.methods", "fragmenta.commands")


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
    """The room of a module; empty for the package itself."""
    return module.partition(".")[2].partition(".")[0]


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


@cache
def parsed(text: str) -> ast.Module:
    """A text is parsed once, for all the rules."""
    return ast.parse(text)


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
    """Every import between modules, but for those of the public names' table."""
    return tuple(
        each
        for reader in readers()
        for each in reader.found
        if reader.module != "fragmenta"
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
    assert {room(module) for module in modules()} - {""} == set(ROOMS)


def test_there_are_few_rooms() -> None:
    assert len(ROOMS) <= MOST_ROOMS


def test_imports_run_one_way() -> None:
    wrong = [each for each in imports() if goes_up(each) and each.source != UPWARD]
    shown = [f"{each.source} imports {each.target}" for each in wrong]
    assert not wrong, shown


def test_no_modules_import_one_another_in_a_circle() -> None:
    edges = {
        (each.source, each.target)
        for each in imports()
        if each.when != "types" and each.source != UPWARD
    }
    found = circles(edges)
    assert not found


def test_the_file_that_opens_later_rooms_loads_none() -> None:
    assert not [i for i in imports() if i.source == UPWARD and i.when == "load"]
    assert [i for i in imports() if i.source == UPWARD and i.when == "call"]


def test_only_the_classes_that_have_them_use_those_methods() -> None:
    assert {i.source for i in imports() if i.target == UPWARD} == OWNERS


def test_nothing_is_imported_by_name_elsewhere() -> None:
    wrong = [
        f"{reader.module}, line {line}"
        for reader in readers()
        for line in reader.by_name
        if not reader.module.startswith(BY_NAME[1:]) and reader.module != BY_NAME[0]
    ]
    assert not wrong


@pytest.mark.parametrize("folder", [SOURCE, TESTS], ids=["src", "tests"])
def test_no_module_is_long(folder: Path) -> None:
    long = {
        str(path.relative_to(folder.parent))
        for path in folder.rglob("*.py")
        if len(path.read_text(encoding="utf-8").splitlines()) > MOST_LINES
    }
    assert not long


# ── do the rules see what they forbid? ──────────────────────────────────────

KNOWN = frozenset({"fragmenta.isa.target", "fragmenta.view.svg", "fragmenta.isa"})


@pytest.mark.parametrize(
    "text, target, when",
    [
        ("from fragmenta.view.svg import f", "fragmenta.view.svg", "load"),
        ("from fragmenta.isa import target", "fragmenta.isa.target", "load"),
        ("import fragmenta.view.svg as svg", "fragmenta.view.svg", "load"),
        ("try:\n import fragmenta.view.svg\nexcept E: pass",
         "fragmenta.view.svg", "load"),
        ("def f():\n  if x:\n    from fragmenta.view import svg",
         "fragmenta.view.svg", "call"),
        ("class A:\n  async def f(self):\n    import fragmenta.view.svg",
         "fragmenta.view.svg", "call"),
        ("from fragmenta import matmul", "fragmenta", "load"),
        ("if TYPE_CHECKING:\n  from fragmenta.isa import X", "fragmenta.isa", "types"),
        ("if typing.TYPE_CHECKING:\n  pass\nelse:\n  from fragmenta.isa import X",
         "fragmenta.isa", "load"),
    ],
)  # fmt: skip
def test_every_import_is_read(text: str, target: str, when: str) -> None:
    found = read("fragmenta.registers.words", text, KNOWN).found
    assert found == [Import("fragmenta.registers.words", target, when)]


def test_relative_imports_are_read() -> None:
    found = read("fragmenta.isa.target", "from ..view import svg", KNOWN).found
    assert found == [Import("fragmenta.isa.target", "fragmenta.view.svg", "load")]


def test_imports_by_name_are_seen() -> None:
    text = "import importlib\nimportlib.import_module('fragmenta.view')"
    assert read("fragmenta.isa.target", text, KNOWN).by_name == [2]


def test_going_up_is_seen() -> None:
    up = Import("fragmenta.isa.target", "fragmenta.view.svg", "call")
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
