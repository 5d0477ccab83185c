"""The project's own code as syntax trees: each file is parsed once, for all the rules.

Tests that use this stand in the group ``house``, so that one process has all trees.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path


@cache
def parsed(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(parsed(path.read_text(encoding="utf-8"))))


def strings(path: Path) -> Iterator[str]:
    """The strings of a file; docstrings are not code."""
    told = {id(node.value) for node in nodes(path) if isinstance(node, ast.Expr)}
    for node in nodes(path):
        if isinstance(node, ast.Constant) and id(node) not in told:
            yield str(node.value)
