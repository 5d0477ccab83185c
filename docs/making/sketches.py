"""The pictures at the top of pages that show how something works.

What they show is computed: by the examples of the page, or by what the page is about.
"""

from __future__ import annotations

import doctest
import re
from contextlib import redirect_stdout
from fractions import Fraction
from functools import cache
from io import StringIO
from typing import Any

import numpy as np

import fragmenta as fm
from fragmenta import ptx
from fragmenta.inspect.view.svg import Drawing, down, words
from making.charts import rows_of
from making.markdown import DOCS
from making.strokes import (
    WIDTH,
    Parts,
    arrow,
    bars,
    block,
    dot,
    key,
    picture,
    steps,
    text,
)


@cache
def examples(page: str, last: str) -> dict[str, Any]:
    """The names that the examples of a page define, up to the name ``last``."""
    names: dict[str, Any] = {}
    code = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    with redirect_stdout(StringIO()):
        for each in doctest.DocTestParser().get_examples(code):
            exec(compile(each.source, page, "single"), names)
            if last in names:
                break
    return names


# ── bits ────────────────────────────────────────────────────────────────────


def cut() -> str:
    """The bits of four products, and those that are cut before they are added."""
    names = examples("numerics", "told")
    a, b = names["A"], names["B"]
    explained = names["op"].explain(a, b, row=0, col=0, target="sm_90a")
    step = explained.explanation.steps[0]
    terms = [term for term in step.terms if term.k and term.value]
    fraction = explained.explanation.model.fraction
    low, cell, left = -14, 15.5, 150
    body = []
    for bit in range(step.emax, low - 1, -1):
        x = left + cell * (step.emax - bit)
        if bit % 4 == 2 or bit == low:
            body.append(text(x + cell / 2, 11, f"{bit}", "c s"))
    for row, term in enumerate(terms):
        y = 20 + 24 * row
        sign = "-" if term.value < 0 else " "
        body.append(text(0, y + 13, f"k {term.k[0]}  {sign}{_bits(term, low)}"))
        for bit in range(low, step.emax + 1):
            x = left + cell * (step.emax - bit)
            lost = bit < step.emax - fraction
            set_ = _has(term.value, bit)
            style = ("bad" if lost else "good") if set_ else "b"
            body.append(block(x, y, cell - 1.5, 18, style))
    edge = left + cell * (fraction + 1) - 0.8
    foot = 24 + 24 * len(terms)
    body.append(f'<path class="cut" d="M{edge:g} 14V{foot + 8}"/>')
    told = f"cut here: {fraction} bits below 2^{step.emax}"
    body.append(text(edge - 6, foot + 10, told, "y t"))
    chart = Drawing(WIDTH, foot + 16, "".join(body))
    exact = float(explained.explanation.exact)
    result = float(explained.explanation.value)
    said = words(f"exact sum {exact:.10g}, result {result:g}")
    meanings = {"good": "a bit that is added", "bad": "a bit that is lost"}
    return picture(
        "One sum of sm_90a: the bits of its products, by power of two",
        [key(meanings), chart, said],
    )


def _has(value: Fraction, bit: int) -> bool:
    """Whether a number has the bit of that power of two.

    >>> [_has(Fraction(5, 2), bit) for bit in (1, 0, -1)]
    [True, False, True]
    """
    return abs(value) // Fraction(2) ** bit % 2 == 1


def _bits(term: Any, low: int) -> str:
    """A product as powers of two."""
    value = term.value
    found = [bit for bit in range(40, low - 1, -1) if _has(value, bit)]
    return " + ".join(f"2^{bit}" for bit in found)


def quantised() -> str:
    """Numbers of a block, the values that it can store, and what is stored."""
    given = np.array([[1.0, -2.7, 0.3, 12.0, 5.2, -7.1, 0.9, 3.4]])
    made = fm.quant.quantize("mxfp4", given)
    scale = float(made.scales.astype(float)[0, 0])
    stored, back = made.values.astype(float)[0], fm.quant.dequantize(made)[0]
    wide, left = 70, 176
    rows = {
        "numbers": [f"{each:g}" for each in given[0]],
        "e2m1, 4 bits each": [f"{each:g}" for each in stored],
        f"times the scale {scale:g}": [f"{each:g}" for each in back],
    }
    body = []
    for row, (name, cells) in enumerate(rows.items()):
        y = 28 * row
        body.append(text(0, y + 16, name))
        for col, said in enumerate(cells):
            x = left + wide * col
            body.append(block(x, y, wide - 3, 23, "l0" if row == 1 else "b"))
            body.append(text(x + wide / 2, y + 16, said, "c t"))
    strip = Drawing(WIDTH, 84, "".join(body))
    grid = np.unique(_e2m1() * scale + 0.0)  # -0 is 0
    low, high = float(grid[0]), float(grid[-1])

    def at(value: float) -> float:
        return 10 + (WIDTH - 20) * (value - low) / (high - low)

    line = [f'<path class="o" d="M{at(low):.1f} 44H{at(high):.1f}"/>']
    for value in map(float, grid):
        line.append(f'<path class="o" d="M{at(value):.1f} 38v12"/>')
        line.append(text(at(value), 66, f"{value:g}", "c s"))
    for value, kept in zip(map(float, given[0]), map(float, back), strict=True):
        there = f"M{at(value):.1f} 18L{at(kept):.1f} 36"
        line.append(f'<path class="way" d="{there}"/>{dot(at(value), 16, "bad")}')
    ruler = Drawing(WIDTH, 70, "".join(line))
    note = words(
        f"a number goes to the nearest of e2m1's values times {scale:g}", "k s"
    )
    return picture("A block of mxfp4: eight of its numbers", [strip, note, ruler])


def _e2m1() -> Any:
    """Every value of e2m1."""
    kind = fm.quant.quantize("mxfp4", [[1.0]]).values.dtype
    return np.arange(16, dtype=np.uint8).view(kind).astype(float)


SEGMENTS = 4


def approximated() -> str:
    """The error of ``ex2.approx``, in some segments of its table."""
    source = """
    .version 8.0 .target sm_90 .address_size 64
    .entry ex2(.param .u64 x, .param .u64 y) {
        .reg .b64 %rd<6>; .reg .b32 %r<5>; .reg .f32 %f<3>;
        ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
        mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mad.lo.u32 %r3, %r2, 128, %r1;
        mul.wide.u32 %rd3, %r3, 4; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;
        ld.global.f32 %f1, [%rd4]; ex2.approx.ftz.f32 %f2, %f1;
        st.global.f32 [%rd5], %f2; ret;
    }"""
    x = (np.arange(1280) / 1280 * SEGMENTS / 64).astype(np.float32)
    y = np.zeros_like(x)
    ptx.parse(source).kernels["ex2"].launch(10, 128, [x, y])
    error = (y - np.exp2(x.astype(np.float64))) * 2.0**23
    top, high, left = 10, 200, 50
    reach = float(np.ceil(2 * np.abs(error).max()) / 2)

    def at(number: int, value: float) -> tuple[float, float]:
        across = left + (WIDTH - left - 10) * number / len(x)
        return across, top + high * (reach - value) / (2 * reach)

    body = []
    for value in (reach, 0, -reach):
        y_at = at(0, value)[1]
        body.append(f'<path class="h" d="M{left} {y_at:.1f}H{WIDTH - 10}"/>')
        body.append(text(left - 6, y_at + 4, f"{value:g}", "y s"))
    for segment in range(SEGMENTS + 1):
        across = at(segment * len(x) // SEGMENTS, 0)[0]
        body.append(f'<path class="h dash" d="M{across:.1f} {top}v{high}"/>')
        style = "y s" if segment == SEGMENTS else "c s"
        body.append(text(across, top + high + 18, f"{segment}/64", style))
    points = [at(number, value) for number, value in enumerate(map(float, error))]
    drawn = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in points)
    body.append(f'<path class="dots" d="{drawn}"/>')
    chart = Drawing(WIDTH, top + high + 24, "".join(body))
    note = "each segment has a parabola of its own: three integers of a table"
    return picture(
        "ex2.approx of an H200: error in units of the last place, by operand",
        [chart, words(note, "k s")],
    )


# ── orders ──────────────────────────────────────────────────────────────────


def hanging() -> str:
    """The order that hangs: what each warp does, one step after the other."""
    told = examples("orders", "result")["result"].orders.text().splitlines()
    arrival = re.compile(r" +(\d+)\. warp (\d+) arrives .* (\d+) threads .* line (\d+)")
    found = [tuple(map(int, m.groups())) for m in map(arrival.match, told) if m]
    stuck = [int(m[1]) for m in map(re.compile(r"  - warp (\d+)").match, told) if m]
    left, high, size = 70, 38, 18
    wide = (WIDTH - left - 10) / (max(step for step, *_ in found) + 1)
    colours = dict(zip(sorted({e[3] for e in found}), ("blue", "pink"), strict=True))

    def at(step: int, warp: int) -> tuple[float, float]:
        return left + wide * (step - 1), high * warp

    warps = sorted({warp for _, warp, *_ in found})
    body = []
    for warp in warps:
        y = at(0, warp)[1]
        body.append(text(0, y + 13, f"warp {warp}"))
        body.append(f'<path class="h" d="M{left} {y + 9}H{WIDTH - 10}"/>')
    for first, second in zip(found[::2], found[1::2], strict=False):
        (x, y), (to, end) = at(*first[:2]), at(*second[:2])
        body.append(
            f'<path class="way" d="M{x + 9:.1f} {y + 9}L{to + 9:.1f} {end + 9}"/>'
        )
    for step, warp, _, line in found:
        x, y = at(step, warp)
        if warp in stuck and step == max(e[0] for e in found if e[1] == warp):
            body.append(block(x, y + 6, WIDTH - 10 - x, 6, "bad"))
        body.append(block(x, y, size, size, colours[line]))
        body.append(text(x + size + 4, y + 24, f"step {step}", "k s"))
    chart = Drawing(WIDTH, high * len(warps), "".join(body))
    meanings = {style: f"arrives, PTX line {line}" for line, style in colours.items()}
    threads = found[0][2]
    note = f"a line: two warps are {threads} threads, so both go on; the rest wait"
    return picture(
        "Warps meet in pairs at one barrier; in this order, one is left over",
        [key({**meanings, "bad": "waits for ever"}), chart, words(note, "k s")],
    )


# ── places ──────────────────────────────────────────────────────────────────


WIRED = fm.mma("m16n8k64", a="s4")
LETTERS = {"R": "l12", "L": "l0", "E": "l4"}


def wired() -> str:
    """Each binary digit of a place, and the digit of the row or column that it is."""
    layout = WIRED.a.layout
    lines = {
        axis: line.split()
        for axis, line in re.findall(r"(\w+) = ((?:[A-Z]\d+ ?)+)", str(layout))
    }
    digits = {
        f"{a}{n}": each for a, line in lines.items() for n, each in enumerate(line)
    }
    places = list(LETTERS)
    above = sorted(digits.values(), key=lambda d: (places.index(d[0]), -int(d[1:])))
    below = [f"{a}{n}" for a, line in lines.items() for n in reversed(range(len(line)))]
    wide = WIDTH / len(above)

    def box(number: int, y: float, digit: str, said: str) -> str:
        drawn = block(wide * number + 2, y, wide - 4, 24, LETTERS[digit[0]])
        return drawn + text(wide * (number + 0.5), y + 16, said, "c t")

    body = [text(0, 12, "the place: R register, L lane, E element in it", "k s")]
    body += [box(number, 20, digit, digit) for number, digit in enumerate(above)]
    for number, name in enumerate(below):
        digit = digits[name]
        start, to = (wide * (n + 0.5) for n in (above.index(digit), number))
        curve = f"M{start:.1f} 44C{start:.1f} 90 {to:.1f} 84 {to:.1f} 130"
        body.append(f'<path class="way" d="{curve}"/>')
        body.append(box(number, 130, digit, name))
    body.append(text(0, 170, "the element: row and column, highest digit first", "k s"))
    title = f"A of {WIRED.shape}, s4: {layout}"
    return picture(title, [Drawing(WIDTH, 174, "".join(body))])


def mistaken() -> str:
    """The elements of A that a wrong packing puts elsewhere."""
    names = examples("recipes", "register")
    op, a = names["op"], names["A"]
    found = op.a.unpack(names["mine"](a))
    wide, high, left = 42, 20, 32
    body = []
    for (row, col), value in np.ndenumerate(found):
        x, y = left + wide * col, 18 + high * row
        right = value == a[row, col]
        body.append(block(x, y, wide - 2, high - 2, "b" if right else "l4"))
        said = f"{divmod(int(value), 16)}".replace(" ", "").strip("()")
        body.append(text(x + wide / 2, y + 13, said, "c s" if right else "c t"))
    for number in range(16):
        x, y = left + wide * (number + 0.5), 18 + high * (number + 0.5)
        body.append(text(x, 12, f"{number}", "c s"))
        body.append(text(left - 6, y + 3, f"{number}", "y s"))
    chart = Drawing(WIDTH, 20 + high * 16, "".join(body))
    meanings = {"b": "where it belongs", "l4": "another element is here"}
    return picture(
        "A as the packing below leaves it: which element is in each place",
        [key(meanings), chart],
    )


LANE = 0


def loaded() -> str:
    """A block of the weight by lanes, and what one lane loads at once."""
    order = examples("weights", "order")["order"]
    columns = order.shape[1]
    size = order.load_bytes * 8 // 4
    every = order.indices().ravel()[: 32 * size].reshape(32, size)
    where = {
        divmod(int(index), columns): lane
        for lane, mine in enumerate(every)
        for index in mine
    }
    deep = max(k for k, _ in where) + 1
    cell = (WIDTH - 40) / deep
    side = f"{cell - 0.8:.4g}"
    cells: dict[int, str] = {}
    for (k, n), lane in where.items():
        corner = f"M{40 + cell * k:.4g} {16 + cell * n:.4g}"
        cells[lane] = f"{cells.get(lane, '')}{corner}h{side}v{side}h-{side}z"
    body = [f'<path class="l{lane}" d="{way}"/>' for lane, way in cells.items()]
    body.append(f'<path class="o" d="{cells[LANE]}"/>')
    wide = max(n for _, n in where) + 1
    along = [text(40 + cell * (k + 0.5), 11, f"{k}", "c s") for k in range(0, deep, 8)]
    beside = (
        text(34, 16 + cell * (n + 0.9), f"n {n}", "y s") for n in range(0, wide, 4)
    )
    body += [text(34, 11, "k", "y s"), *along, *beside]
    block_of = Drawing(WIDTH, 18 + cell * wide, "".join(body))
    boxes = []
    for place, index in enumerate(map(int, every[LANE])):
        word, slot = divmod(place, 8)
        k, n = divmod(index, columns)
        x, y = 70 + 83 * slot, 24 * word
        boxes.append(block(x, y, 80, 21, f"l{LANE}"))
        boxes.append(text(x + 40, y + 14, f"{k}, {n}", "c t"))
        if not slot:
            boxes.append(text(0, y + 14, f"word {word}"))
    strip = Drawing(WIDTH, 24 * (size // 8), "".join(boxes))
    note = f"the {order.load_bytes} bytes that lane {LANE} loads: k, n of each nibble"
    return picture(
        "A weight in the order of its loads: 32 lanes, framed is lane 0",
        [block_of, words(f"{note}, lowest bits first", "k s"), strip],
    )


# ── ways ────────────────────────────────────────────────────────────────────


def ends() -> str:
    """Every front end, and the way that all of them share."""
    page = (DOCS / "frontends.md").read_text(encoding="utf-8")
    table = re.search(r"(?m)(?:^\| .*\n)+", page)
    assert table is not None
    names = [row["your kernel is in"].replace("`", "") for row in rows_of(table[0])[1]]
    rest = 300
    body = []
    for number, name in enumerate(names):
        y = 22 * number
        body.append(block(0, y, rest, 19, "b") + text(8, y + 13, name))
    high = 22 * len(names)
    way = (
        ("its own compiler", "as on a machine with a GPU"),
        ("PTX", "for the target that was asked for"),
        ("runs here", "with the bits of that target"),
        ("watched", "races, missing waits and fences"),
        ("results and report", "lines and names of your source"),
    )
    each = high / len(way)
    body.append(arrow(rest + 6, each / 2 - 4, rest + 54))
    for number, (name, about) in enumerate(way):
        top = each * number
        body.append(block(rest + 60, top, WIDTH - rest - 60, each - 16, "l0"))
        body.append(text(rest + 74, top + each / 2 - 10, name))
        body.append(text(rest + 74, top + each / 2 + 6, about))
        if number:
            down_to = f"M{rest + 240} {top - 14:.1f}v11m-4 -5l4 5l4 -5"
            body.append(f'<path class="way" d="{down_to}"/>')
    chart = Drawing(WIDTH, high, "".join(body))
    return picture("One way for every front end", [chart])


TARGETS = ("sm_80", "sm_89", "sm_90", "sm_120")
INSTRUCTIONS = (
    fm.mma("m16n8k32", a="e4m3", d="f32"),
    fm.find("mma.m16n8k256.b1.xor"),
    fm.mma("m16n8k64", a="s4"),
)


def machine() -> str:
    """How many machine instructions some instructions become, by target."""
    parts: list[Drawing] = []
    rows: dict[str, list[tuple[str, Parts, str]]] = {}
    for op in INSTRUCTIONS:
        for target in filter(op.supported_on, TARGETS):
            made = op.sass(target)
            products = sum(count for name, count in made.code if "MMA" in name)
            others = made.others + sum(count for _, count in made.code) - products
            said = str(made).partition(";")[0]
            bar = [("good", products), ("sand", others)]
            rows.setdefault(str(op), []).append((target, bar, said))
    longest = max(bar[0][1] + bar[1][1] for each in rows.values() for _, bar, _ in each)
    for name, each in rows.items():
        parts.append(down([words(name), bars(each, 80, longest, 330)], 4))
    meanings = {"good": "multiply", "sand": "unpack, convert, add"}
    return picture(
        "What the machine runs for one instruction of PTX",
        [key(meanings), *parts],
    )


def served() -> str:
    """Jobs, warm workers, and a crash that ends one job only."""
    way = steps(
        [
            ["your program", "pool.submit(...)", "or JSON, a line", "for each kernel"],
            ["the pool", "a queue of jobs", "starts workers,", "replaces dead ones"],
        ],
        320,
    )
    jobs = (
        ("worker 1", "result", "good"),
        ("worker 2", "too long: ended, an error of this job", "sand"),
        ("worker 3", "crash: an error of this job", "bad"),
        ("worker 4", "result", "good"),
    )
    body = [way.at(0, 24)]
    for number, (name, said, style) in enumerate(jobs):
        y = 34 * number
        body.append(f'<path class="way" d="M322 64L358 {y + 13}"/>')
        body.append(block(360, y, 90, 26, "b") + text(370, y + 17, name))
        body.append(block(458, y + 6, 14, 14, style))
        body.append(text(478, y + 17, said))
    note = "workers stay warm: no import and no compiler for a kernel seen before"
    chart = Drawing(WIDTH, 136, "".join(body))
    return picture("Many kernels, some of them bad", [chart, words(note, "k s")])


DRAWN = {
    "opening-numerics": cut,
    "opening-quantization": quantised,
    "opening-special": approximated,
    "opening-orders": hanging,
    "opening-layouts-as-a-tool": wired,
    "opening-recipes": mistaken,
    "opening-weights": loaded,
    "opening-frontends": ends,
    "opening-sass": machine,
    "opening-serve": served,
}
"""The picture of each name."""
