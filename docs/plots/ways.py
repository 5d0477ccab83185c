"""Draw docs/images/ways.svg: the way of a PTX text and the way of a matrix.

    python docs/plots/ways.py

Each step is a room, what it does there, and what it hands on.  A test compares the
picture with the drawing, and the rooms with those that there are.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

PICTURE = Path(__file__).resolve().parents[1] / "images" / "ways.svg"

Step = tuple[str, str, str]
"""A room, what happens there, and what is handed on."""

WAYS: dict[str, list[Step]] = {
    "The way of a PTX text": [
        ("ptx/reading", "reads the text", "a Module: functions, instructions"),
        ("ptx/checking", "asks every rule that needs no run", "Problems, or none"),
        ("ptx/opcodes", "fuses and folds as ptxas does", "a changed Module"),
        ("engine/simt", "emits LLVM: a call of a routine for each instruction", "code"),
        (
            "watch/races/probes",
            "adds its checks to that code, if it is watched",
            "code",
        ),
        ("launch", "lays out arguments and memory, starts threads", "a run"),
        ("engine/simt", "runs 32 lanes at a time", "memory, and events"),
        (
            "engine/units",
            "carry out events: mbarriers, copies, wgmma, tcgen05",
            "memory",
        ),
        ("watch/races/shadow", "compares each access with those before", "findings"),
        ("watch/races/report", "puts findings into words", "Problems"),
        ("launch", "collects counts, output and problems", "a Result"),
    ],
    "The way of a matrix": [
        ("reference/isa", "finds the row of the instruction", "shape, types, operands"),
        ("reference/registers", "turns the layout line into indices", "a Fragment"),
        ("reference/registers", "packs the matrix", "words of 32 lanes"),
        ("reference/arithmetic", "looks up how the target adds", "a model"),
        ("base/jit", "compiles the loop of that model, once", "a function"),
        ("reference/execution", "multiplies with it", "words, or a matrix"),
        ("reference/registers", "unpacks the words", "the matrix D"),
    ],
}

WIDTH, ROW, TOP, ROOM, WHAT, ON = 900, 30, 40, 16, 190, 600
LEAVES = 17
"""Where an arrow leaves a step; it arrives ten units higher."""
STYLE = """\
text{font:13px sans-serif;fill:#1b1f24}
.head{font:bold 15px sans-serif}
.room{font:bold 13px monospace}
.on{fill:#57606a}
.box{fill:#f3f5f7;stroke:#c9d1d9}
.arrow{stroke:#0072b2;stroke-width:1.5;fill:none;marker-end:url(#end)}"""

MARKER = (
    '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" '
    'markerHeight="6" orient="auto"><path d="M0 0L8 4L0 8z" fill="#0072b2"/>'
    "</marker></defs>"
)


def draw() -> str:
    """The picture: a line for each step, an arrow to the next."""
    rows = sum(len(steps) for steps in WAYS.values())
    height = rows * ROW + len(WAYS) * (TOP + 8) + 8
    size = f'width="{WIDTH}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        "<title>The way of a PTX text, and the way of a matrix</title>",
        f"<style>{STYLE}</style>",
        MARKER,
        f'<rect {size} fill="white"/>',
    ]
    y = 8
    for title, steps in WAYS.items():
        y += TOP
        lines.append(f'<text class="head" x="{ROOM}" y="{y - 14}">{title}</text>')
        for number, (room, what, handed) in enumerate(steps):
            last = number == len(steps) - 1
            lines += _step(room, what, handed, y + ROW * number, last)
        y += ROW * len(steps) + 8
    return "\n".join([*lines, "</svg>"]) + "\n"


def _step(room: str, what: str, handed: str, y: int, last: bool) -> list[str]:
    box = f'x="{ROOM}" y="{y}" width="{WIDTH - 2 * ROOM - 24}" height="{ROW - 6}"'
    made = [
        f'<rect class="box" {box} rx="4"/>',
        f'<text class="room" x="{ROOM + 10}" y="{y + 16}">{room}</text>',
        f'<text x="{WHAT}" y="{y + 16}">{escape(what)}</text>',
        f'<text class="on" x="{ON}" y="{y + 16}">{escape(handed)}</text>',
    ]
    if not last:
        right = WIDTH - ROOM - 24
        # It leaves a step below where the one before arrives: a chain, and no bus.
        made.append(
            f'<path class="arrow" d="M{right} {y + LEAVES}h14v{ROW - 10}h-12"/>',
        )
    return made


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
