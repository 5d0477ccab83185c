"""Runs the cells of a notebook without a notebook server.

    python -m tests.notebooks                    # run all of them, keep what they give
    python -m tests.notebooks examples/x.ipynb   # one of them

Pictures are part of a notebook, so a change of their style changes the files.
"""

from __future__ import annotations

import ast
import json
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))

Cell = dict[str, Any]


def run(source: str, names: dict[str, Any]) -> tuple[str, Any]:
    """What a cell prints, and the value of the expression at its end."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    value = None
    with redirect_stdout(StringIO()) as printed:
        exec(compile(tree, "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return printed.getvalue(), value


def outputs(printed: str, value: Any, count: int) -> list[Cell]:
    """What a cell gave, as the file says it."""
    found: list[Cell] = []
    if printed:
        lines = printed.splitlines(keepends=True)
        found.append({"name": "stdout", "output_type": "stream", "text": lines})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_svg_"):
            data["image/svg+xml"] = value._repr_svg_().splitlines(keepends=True)
        found.append(
            {
                "data": dict(sorted(data.items())),
                "execution_count": count,
                "metadata": {},
                "output_type": "execute_result",
            }
        )
    return found


def keep(path: Path) -> None:
    """Run a notebook and write what its cells give into the file."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    code = (cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    for count, cell in enumerate(code, 1):
        printed, value = run("".join(cell["source"]), names)
        cell["execution_count"] = count
        cell["outputs"] = outputs(printed, value, count)
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    for each in map(Path, sys.argv[1:] or map(str, NOTEBOOKS)):
        keep(each)
        print(each.name)
