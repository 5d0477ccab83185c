"""The notebooks give what they show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.notebooks import NOTEBOOKS, Cell, run


def shown(cell: Cell) -> tuple[str, dict[str, str]]:
    """What the file says that a cell printed and gave."""
    text, data = "", {}
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            text += "".join(output["text"])
        else:
            data = {kind: "".join(lines) for kind, lines in output["data"].items()}
    return text, data


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_cells(path: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        printed, value = run("".join(cell["source"]), names)
        text, data = shown(cell)
        assert printed == text
        assert (value is None) == (not data)
        if value is not None:
            assert repr(value) == data["text/plain"]
        if "image/svg+xml" in data:
            assert value._repr_svg_().rstrip() == data["image/svg+xml"].rstrip()


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) >= 6
