"""The size of the house, counted: ``python -m tests.budget``, or ``... FOLDER`` for another.

Lines of Python, folders and floors, places that name an opcode, names that several
classes share, options of a launch.  ``tests/test_budget.py`` has what each may be.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.own_code import nodes, parsed, strings

ROOT = Path(__file__).parent.parent
OPCODES = frozenset(
    {
        "ld",
        "st",
        "atom",
        "red",
        "cp",
        "cvt",
        "mov",
        "prmt",
        "setp",
        "shfl",
        "add",
        "mul",
    }
    | {"fma", "bar", "ldmatrix", "stmatrix", "mma", "wgmma", "tcgen05", "mbarrier"}
)
"""Twenty common opcodes.  A place is a file that has one of them as a string."""
TABLES = (
    *("isa/tables", "reference/isa/tables"),
    *("ptx/opcodes", "ptx/families.py", "cuda/source"),
)
"""Where opcodes are named on purpose."""


def lines(folder: Path) -> int:
    """The lines of all Python files below a folder."""
    return sum(
        len(path.read_text(encoding="utf-8").splitlines())
        for path in folder.rglob("*.py")
    )


def modules(source: Path) -> Iterator[tuple[str, Path]]:
    """Each file of the package with its place below the package's folder."""
    for path in sorted(source.rglob("*.py")):
        yield path.relative_to(source).as_posix(), path


def named(source: Path) -> Counter[str]:
    """How many files name each opcode, outside the tables."""
    found: Counter[str] = Counter()
    for place, path in modules(source):
        if not place.startswith(TABLES):
            found.update({word for word in strings(path) if word in OPCODES})
    return found


def shared_names(source: Path) -> dict[str, int]:
    """Names that three classes or more have."""
    found = Counter(
        node.name
        for _, path in modules(source)
        for node in nodes(path)
        if isinstance(node, ast.ClassDef)
    )
    return {name: count for name, count in found.most_common() if count > 2}


def folders(source: Path) -> int:
    """The folders at the top of the package."""
    return sum((path / "__init__.py").exists() for path in source.iterdir())


def floors(root: Path) -> int:
    """The longest chain of folders of which each imports the one before.

    An older checkout has no storeys but rooms.
    """
    text = (root / "tests" / "test_house.py").read_text(encoding="utf-8")
    named = {
        ast.unparse(node.targets[0]): node.value
        for node in parsed(text).body
        if isinstance(node, ast.Assign)
    }
    order = ast.literal_eval(named.get("HOUSE", named["ROOMS"]))
    source = root / "src" / "fragmenta"
    height: dict[str, int] = {}
    for storey in order:
        if not (source / storey / "__init__.py").exists():
            continue
        below = {each for each in _imported(source, storey) if each in height}
        height[storey] = 1 + max((height[each] for each in below), default=0)
    return max(height.values())


def _imported(source: Path, storey: str) -> set[str]:
    """The storeys that a storey imports."""
    files = [*(source / storey).rglob("*.py"), source / f"{storey}.py"]
    found = set()
    for path in files:
        for node in nodes(path) if path.exists() else []:
            if isinstance(node, ast.ImportFrom) and node.module:
                words = node.module.split(".")
                if words[0] == "fragmenta" and len(words) > 1:
                    found.add(words[1])
    return found - {storey}


def launch_options(source: Path) -> int:
    """The fields of ``LaunchRequest`` beside its sizes and arguments."""
    (made,) = (
        node
        for node in parsed((source / "launch" / "request.py").read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == "LaunchRequest"
    )
    return sum(isinstance(each, ast.AnnAssign) for each in made.body) - 3


@cache
def counted(root: Path) -> dict[str, int]:
    """All numbers of a copy of the repository."""
    source = root / "src" / "fragmenta"
    return {
        "lines of src": lines(root / "src"),
        "lines of tests": lines(root / "tests"),
        "top folders": folders(source),
        "floors": floors(root),
        "places that name an opcode": sum(named(source).values()),
        "names of three classes or more": len(shared_names(source)),
        "options of a launch": launch_options(source),
    }


def main() -> None:
    """Print the numbers, of the opcodes and names one by one."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    for name, count in counted(root).items():
        print(f"{name:32} {count:8,}")
    source = root / "src" / "fragmenta"
    print(*(f"{word} {count}" for word, count in named(source).most_common()), sep=", ")
    print(
        *(f"{word} {count}" for word, count in shared_names(source).items()), sep=", "
    )


if __name__ == "__main__":
    main()
