"""Draws charts of the tables of benchmarks.

The numbers are those of the table in the page.  The site shows the chart and keeps the
table behind it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from html import escape

from fragmenta.inspect.view.svg import Drawing, document, down, words

Row = dict[str, str]
TABLE = re.compile(r"(?m)(?:^\|.*\n)+")
WIDTH = 860
STYLE = """
svg.fm .x{font-size:12px}
svg.fm .y{font-size:11px;text-anchor:end}
svg.fm .c{font-size:11px;text-anchor:middle}
svg.fm .own{fill:#d55e00} svg.fm .dense{fill:#009e73} svg.fm .rival{fill:#56b4e9}
svg.fm .torch{fill:#7f7f7f} svg.fm .rest{fill:#cc79a7}
svg.fm .line{fill:none;stroke:#d55e00;stroke-width:2.4}
svg.fm .range{fill:#d55e00;opacity:.2}
svg.fm .one{stroke-dasharray:4 3}
"""
# The colour of each bar: the first pattern that fits its name.
KINDS = {
    "fragmenta 2:4": "own",
    "fragmenta": "dense",
    "cuSPARSELt": "rival",
    "torch": "torch",
    "dense": "torch",
    "": "rest",
}


def put(text: str) -> tuple[str, list[str]]:
    """A page whose tables, where there is a chart for them, are behind their charts.

    The charts are named by their number, from 0 on: ``chart-0.svg``.
    """
    charts: list[str] = []
    pieces = re.split(r"(?m)^(#+ .*)$", text)
    for place, piece in enumerate(pieces):
        title = pieces[place - 1].lstrip("# ") if place else ""
        pieces[place] = TABLE.sub(lambda m, of=title: _behind(m[0], of, charts), piece)  # type: ignore[misc]
    return "".join(pieces), charts


def _behind(table: str, title: str, charts: list[str]) -> str:
    head, rows = rows_of(table)
    drawn = next((draw for columns, draw in CHARTS if columns(head)), None)
    if drawn is None:
        return table
    name = f"chart-{len(charts)}.svg"
    charts.append(drawn(title, rows))
    image = f"![{title or 'The table below as a chart'}]({name})"
    return (
        f"{image}\n\n<details markdown>\n<summary>The numbers</summary>\n\n{table}\n"
        "</details>\n"
    )


def rows_of(table: str) -> tuple[list[str], list[Row]]:
    r"""The head of a table, and its rows by column.

    >>> rows_of("| a | b |\n|---|---|\n| 1 | 2 |\n")
    (['a', 'b'], [{'a': '1', 'b': '2'}])
    """
    cells = [
        [each.strip() for each in line.strip().strip("|").split("|")]
        for line in table.strip().splitlines()
    ]
    head, _, *rows = cells
    return head, [dict(zip(head, row, strict=False)) for row in rows]


# ── bars ────────────────────────────────────────────────────────────────────


def rates(title: str, rows: list[Row]) -> str:
    """TFLOP/s of each product, by type, as bars."""
    parts = [words(f"{title}: TFLOP/s, zeros counted", "g t"), _key()]
    most = {row["type"]: 0.0 for row in rows}
    for row in rows:
        most[row["type"]] = max(most[row["type"]], float(row["TFLOP/s"]))
    for of, longest in most.items():
        same = [row for row in rows if row["type"] == of]
        bars = [_bar({**row, "rate": row["TFLOP/s"]}, longest) for row in same]
        parts.append(down([words(of, "k t"), *bars], 2))
    return document(down(parts, 12), title, STYLE)


def _bar(row: Row, longest: float) -> Drawing:
    left, space = 250, WIDTH - 250 - 130
    long = max(1.0, space * float(row["rate"]) / (longest or 1))
    kind = next(c for begins, c in KINDS.items() if row["what"].startswith(begins))
    times = row.get("than dense", "")
    told = row.get("told") or f"{float(row['rate']):,.0f}"
    told += f"  {times}" if times else ""
    body = (
        f'<text class="y t" x="{left - 8}" y="12">{escape(row["what"])}</text>'
        f'<rect class="{kind}" x="{left}" y="1" width="{long:.1f}" height="14"/>'
        f'<text class="k t" x="{left + long + 6:.1f}" y="12">{escape(told)}</text>'
    )
    return Drawing(WIDTH, 16, body)


def decoder(title: str, rows: list[Row]) -> str:
    """Tokens per second beside those of the first row, for each batch, as bars."""
    parts = [words(f"{title}: tokens per second, and times as many as dense", "g t")]
    for column in (name for name in rows[0] if name not in ("linears", "weights")):
        found = [re.fullmatch(r"([\d,]+) \(([\d.]+x)\)", row[column]) for row in rows]
        cells = [
            {
                "what": row["linears"],
                "rate": cell[1].replace(",", ""),
                "than dense": cell[2],
            }
            for row, cell in zip(rows, found, strict=True)
            if cell  # what failed has no number
        ]
        longest = max(float(cell["rate"]) for cell in cells)
        bars = [_bar(cell, longest) for cell in cells]
        parts.append(down([words(column, "k t"), *bars], 2))
    return document(down([parts[0], _key(), *parts[1:]], 12), title, STYLE)


def steps(title: str, rows: list[Row]) -> str:
    """How many times as fast as dense a training step is, as bars."""
    parts = [words("a training step: times as fast as with a dense layer", "g t")]
    whole = [row for row in rows if row["part"] == "step"]
    masks = {"times": "rows", "times, both": "both directions"}
    longest = max(float(row[column]) for row in whole for column in masks)
    for row in whole:
        bars = [
            _bar(
                {
                    "what": f"fragmenta 2:4, masks along {along}",
                    "rate": row[column],
                    "told": row[column],
                },
                longest,
            )
            for column, along in masks.items()
        ]
        name = f"{row['layer']}, {row['tokens']} tokens"
        parts.append(down([words(name, "k t"), *bars], 2))
    return document(down(parts, 10), title, STYLE)


def _key() -> Drawing:
    names = {
        "own": "fragmenta 2:4",
        "dense": "fragmenta, other",
        "rival": "cuSPARSELt",
        "torch": "PyTorch",
    }
    body = "".join(
        f'<rect class="{kind}" x="{170 * place}" y="0" width="12" height="12"/>'
        f'<text class="k t" x="{170 * place + 18}" y="10">{name}</text>'
        for place, (kind, name) in enumerate(names.items())
    )
    return Drawing(WIDTH, 14, body)


def summary(title: str, rows: list[Row]) -> str:
    """How many times as fast as dense: a bar for the mean, a line for the least."""
    most = max(float(row["geometric mean"]) for row in rows)
    parts = [words("times as fast as the dense layer: mean, and | the least", "g t")]
    for of in dict.fromkeys(row["type"] for row in rows):
        same = [row for row in rows if row["type"] == of]
        parts.append(down([words(of, "k t"), *(_mean(row, most) for row in same)], 2))
    return document(down(parts, 10), title or "Layers", STYLE)


def _mean(row: Row, most: float) -> Drawing:
    left, space = 150, WIDTH - 150 - 90
    told = row["geometric mean"]
    mean, least = (space * float(each) / most for each in (told, row["least"]))
    one = left + space / most
    body = (
        f'<text class="y t" x="{left - 8}" y="12">n {escape(row["n"])}</text>'
        f'<rect class="own" x="{left}" y="1" width="{mean:.1f}" height="14"/>'
        f'<path class="o" d="M{left + least:.1f} 0v16"/>'
        f'<path class="h one" d="M{one:.1f} -1v18"/>'
        f'<text class="k t" x="{left + mean + 6:.1f}" y="12">{told}</text>'
    )
    return Drawing(WIDTH, 16, body)


# ── points ──────────────────────────────────────────────────────────────────


def changes(title: str, rows: list[Row]) -> str:
    """Time after a change beside the time before: a point for each size."""
    ratios = [float(row["ratio"]) for row in rows]
    low, high = math.floor(20 * min(ratios)) / 20, math.ceil(20 * max(ratios)) / 20
    left, space = 190, WIDTH - 190 - 30

    def at(ratio: float) -> float:
        return left + space * (ratio - low) / (high - low)

    marks = [low + (high - low) * part / 4 for part in range(5)]
    scale = "".join(
        f'<text class="c s" x="{at(each):.1f}" y="12">{each:.3g}</text>'
        for each in marks
    )
    lines = [Drawing(WIDTH, 16, scale)]
    for what in sorted({row["what"] for row in rows}):
        body = [f'<text class="y t" x="{left - 8}" y="12">{escape(what)}</text>']
        body.append(f'<path class="h one" d="M{at(1.0):.1f} -1v18"/>')
        for row in (row for row in rows if row["what"] == what):
            told = (
                f"{row['m x n x k']}: {row['ratio']} ({row['before']} → {row['after']})"
            )
            kind = "own" if what.startswith("2:4") else "dense"
            x = at(float(row["ratio"]))
            disc = f'<circle class="{kind}" cx="{x:.1f}" cy="8" r="4">'
            body.append(f"{disc}<title>{escape(told)}</title></circle>")
        lines.append(Drawing(WIDTH, 16, "".join(body)))
    heading = words("time after / time before: a point for each size", "g t")
    return document(down([heading, down(lines, 2)], 12), title, STYLE)


# ── lines ───────────────────────────────────────────────────────────────────


def by_batch(title: str, rows: list[Row]) -> str:
    """How many times as fast as a rival, by batch: mean and range of the rows."""
    first, *names = rows[0]
    batches = [int(name) for name in names]
    values = {n: [float(row[str(n)]) for row in rows] for n in batches}
    top = max(2.0, math.ceil(2 * max(max(found) for found in values.values())) / 2)
    left, foot, height = 40, 214, 204
    last = math.log2(batches[-1])

    def at(n: int, value: float) -> str:
        x = left + (WIDTH - left - 30) * math.log2(n) / last
        return f"{x:.1f} {foot - height * value / top:.1f}"

    means = {n: math.prod(found) ** (1 / len(found)) for n, found in values.items()}
    upper = [at(n, max(values[n])) for n in batches]
    lower = [at(n, min(values[n])) for n in reversed(batches)]
    body = [*_grid(top, foot, height, left, batches, at)]
    body.append(f'<path class="range" d="M{"L".join([*upper, *lower])}Z"/>')
    line = "L".join(at(n, mean) for n, mean in means.items())
    body.append(f'<path class="line" d="M{line}"/>')
    for n, mean in means.items():
        x, y = at(n, mean).split()
        told = f"batch {n}: {mean:.2f}, from {min(values[n])} to {max(values[n])}"
        disc = f'<circle class="own" cx="{x}" cy="{y}" r="3.4">'
        body.append(f"{disc}<title>{told}</title></circle>")
    rival = "a loop" if title.startswith("Than a loop") else "dense"
    rows_are = "layers" if first == "layer" else first
    heading = (
        f"{title}: times as fast as {rival}, by batch; mean and range of all {rows_are}"
    )
    plot = Drawing(WIDTH, foot + 22, "".join(body))
    return document(down([words(heading, "g t"), plot], 12), title, STYLE)


def _grid(
    top: float,
    foot: float,
    height: float,
    left: float,
    batches: list[int],
    at: Callable[[int, float], str],
) -> Iterator[str]:
    for half in range(int(2 * top) + 1):
        y = foot - height * half / 2 / top
        dashed = "" if half == 2 else " one"
        yield f'<path class="h{dashed}" d="M{left} {y:.1f}H{WIDTH - 20}"/>'
        if half % 2 == 0:
            at_line = f'x="{left - 6}" y="{y + 4:.1f}"'
            yield f'<text class="y s" {at_line}>{half // 2}x</text>'
    for n in (n for n in batches if n & (n - 1) == 0):
        x = at(n, 0).split()[0]
        yield f'<text class="c s" x="{x}" y="{foot + 16}">{n}</text>'


CHARTS: tuple[tuple[Callable[[list[str]], bool], Callable[[str, list[Row]], str]], ...]
CHARTS = (
    (lambda head: {"type", "what", "TFLOP/s"} <= set(head), rates),
    (lambda head: {"type", "n", "geometric mean", "least"} <= set(head), summary),
    (
        lambda head: {"what", "m x n x k", "before", "after", "ratio"} <= set(head),
        changes,
    ),
    (lambda head: head[0] == "linears" and "weights" in head, decoder),
    (lambda head: {"layer", "tokens", "part", "times, both"} <= set(head), steps),
    (
        lambda head: (
            head[0] in ("layer", "experts") and all(map(str.isdecimal, head[1:]))
        ),
        by_batch,
    ),
)
"""The head of a table, and the function that draws such a table."""
