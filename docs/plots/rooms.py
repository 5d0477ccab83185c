"""Draw docs/images/rooms.svg: each room of the package, and what it imports.

    python docs/plots/rooms.py

The rooms and their tasks come from the table in CONTRIBUTING.md, the imports from
the source.  Run it after either has changed; a test compares the picture.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "fragmenta"
PICTURE = ROOT / "docs" / "images" / "rooms.svg"

ROW, CELL, NAME, LEFT, TOP = 24, 18, 216, 630, 58
CAPTION = (
    "A dot: this room imports the room with that number. "
    "Imports run one way if all dots are left of the squares."
)
STYLE = """\
text{font:13px sans-serif;fill:#1b1f24}
.name{font:bold 13px monospace}
.small{font-size:10px;fill:#57606a;text-anchor:middle}
.band{fill:#f3f5f7}
.self{fill:#c8def2}
.import{fill:#0072b2}
.wrong{fill:#d55e00}"""


def rooms() -> dict[str, str]:
    """Each room of the table in CONTRIBUTING.md, and its task, in order."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("| room | task |")[2].partition("\n\n")[0]
    rows = re.findall(r"(?m)^\| `([\w/]+?)(?:/|\.py)` \| (.+) \|$", table)
    return {name: task.replace("`", "") for name, task in rows}


def modules() -> Iterator[tuple[str, Path]]:
    """Each module, by its dotted name below the package."""
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if parts[0] not in ("__init__", "__main__"):
            yield ".".join(part for part in parts if part != "__init__"), path


def imported(path: Path) -> Iterator[str]:
    """What a module imports from the package when it is loaded."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (n.partition(".")[2] for n in names if n.startswith("fragmenta."))


def room(module: str, known: dict[str, str]) -> str | None:
    """The room that a module is in; None for one that only holds rooms."""
    path = module.replace(".", "/")
    inside = [name for name in known if path == name or path.startswith(f"{name}/")]
    return inside[0] if inside else None


def edges(known: dict[str, str]) -> set[tuple[str, str]]:
    """Each pair of a room and another room that it imports."""
    pairs = {
        (room(module, known), room(other, known))
        for module, path in modules()
        for other in imported(path)
    }
    return {(a, b) for a, b in pairs if a and b and a != b}


def draw() -> str:
    """The picture: a line for each room, and a dot for each room it imports."""
    known = rooms()
    place = {name: number for number, name in enumerate(known)}
    width, height = LEFT + CELL * len(known) + 16, TOP + ROW * len(known) + 12
    size = f'width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        "<title>The rooms of fragmenta, and their imports</title>",
        f"<style>{STYLE}</style>",
        f'<rect {size} fill="white"/>',
        f'<text x="12" y="22">{CAPTION}</text>',
    ]
    for name, number in place.items():
        lines += _line(name, known[name], number, width)
    for here, there in sorted(edges(known), key=lambda e: (place[e[0]], place[e[1]])):
        kind = "import" if place[there] < place[here] else "wrong"
        x, y = _centre(place[there], place[here])
        lines.append(f'<circle class="{kind}" cx="{x}" cy="{y}" r="5"/>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _centre(column: int, line: int) -> tuple[int, int]:
    return LEFT + CELL * column + CELL // 2, TOP + ROW * line + ROW // 2


def _line(name: str, task: str, number: int, width: int) -> Iterator[str]:
    """One room: its name, its task, its number in both directions."""
    x, y = _centre(number, number)
    if number % 2 == 0:
        yield f'<rect class="band" y="{y - ROW // 2}" width="{width}" height="{ROW}"/>'
    yield f'<text class="small" x="{x}" y="{TOP - 8}">{number + 1}</text>'
    yield f'<text class="small" x="20" y="{y + 4}">{number + 1}</text>'
    yield f'<text class="name" x="34" y="{y + 4}">{name}</text>'
    yield f'<text x="{NAME}" y="{y + 4}">{escape(task)}</text>'
    square = f'x="{x - 7}" y="{y - 7}" width="14" height="14"'
    yield f'<rect class="self" {square}/>'


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
