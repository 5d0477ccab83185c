"""Imports run one way: each room imports only from rooms above it."""

import ast
from pathlib import Path

import fragmenta

SOURCE = Path(fragmenta.__file__).parent

# From the ground up.  Call-time imports are doors the other way, each with a
# comment; only what is imported when a module loads counts here.
ROOMS = [
    "errors",
    "progress",
    "arrays",
    "cache",
    "threads",
    "machine",
    "dtype",
    "words",
    "layout",
    "npy",
    "notation",
    "fragment",
    "metadata",
    "isa",
    "sparsity_loops",
    "sparsity",
    "pruning",
    "exchange",
    "shared_memory",
    "lane_addresses",
    "shared_tiles",
    "moves",
    "banks",
    "arithmetic",
    "execute",
    "warpgroup",
    "matmul",
    "explain",
    "dask",
    "wmma_memory",
    "wmma_words",
    "wmma_fragment",
    "wmma",
    "cuda",
    "kernels",
    "torch",
    "view",
    "commands",
    "cli",
    "__main__",
]


def room(module):
    """The room that a dotted name lies in, or None outside the house."""
    parts = module.split(".")
    return parts[1] if parts[0] == "fragmenta" and len(parts) > 1 else None


def imported(path):
    """The modules that a file imports when it is loaded."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            yield from (
                f"{base}.{alias.name}" if base == "fragmenta" else base
                for alias in node.names
            )
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_every_module_has_its_room():
    found = {
        path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in modules()
    }
    assert found - {"__init__"} == set(ROOMS)


def modules():
    return [path for path in SOURCE.rglob("*.py") if "__pycache__" not in path.parts]


def test_imports_run_one_way():
    wrong = []
    for path in modules():
        here = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        if here == "__init__":
            continue
        for module in imported(path):
            there = room(module)
            if there in ROOMS and ROOMS.index(there) > ROOMS.index(here):
                wrong.append(f"{path.relative_to(SOURCE)} imports {module}")
    assert not wrong
