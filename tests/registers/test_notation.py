"""The printed formulas, evaluated as text, against the maps they describe."""

import re

import numpy as np
import pytest

from fragmenta import catalogue, instruction
from fragmenta.errors import LayoutError
from fragmenta.reference.registers import notation
from fragmenta.reference.registers.layout import Layout
from tests.thinning import repeats


def every_layout():
    """Each distinct (layout, letter) of the catalogue, with one example."""
    found = {}
    for op in catalogue():
        for part in op.fragments.values():
            found.setdefault((part.layout, part.letter), (str(op), part))
    return list(found.values())


def evaluate(text, lane, warp, i):
    """Read a printed formula the way a person would, for arrays of places."""
    scope = {"laneid": lane, "warpid": warp, "i": i}
    values, settled = {}, {}
    name = None
    for line in text.splitlines():
        if not line.strip():
            continue
        head, equals, rest = line.partition(" = ")
        if equals and re.fullmatch(r"\w+\s*", head):
            name = head.strip()
        else:
            rest = line
        expression, _, condition = split_condition(rest)
        value = eval(re.sub("%(laneid|warpid)", r"\1", expression), {}, scope)
        holds = np.ones(i.shape, bool)
        if condition == "otherwise":
            holds = ~settled[name]
        elif condition:
            holds = python_condition(condition, scope)
        if name not in values:
            values[name] = np.full(i.shape, -1)
            settled[name] = np.zeros(i.shape, bool)
        values[name] = np.where(holds, value, values[name])
        settled[name] |= holds
        scope[name] = values[name]
    assert all(done.all() for done in settled.values())
    return values


def python_condition(text, scope):
    clauses = []
    for clause in text.split("||"):
        chain = re.fullmatch(r"\s*(\d+) <= i < (\d+)\s*", clause)
        clause = f"(i >= {chain[1]}) & (i < {chain[2]})" if chain else clause
        clauses.append(eval(clause.strip(), {}, scope))
    return np.logical_or.reduce(clauses)


def split_condition(rest):
    match = re.search(r"\s\s(for \w+i where (?P<when>.*)|otherwise)$", rest)
    if match is None:
        return rest.strip(), "", ""
    return rest[: match.start()].strip(), "", match["when"] or "otherwise"


# One of three maps.
@repeats(3)
@pytest.mark.parametrize(
    "example", every_layout(), ids=lambda each: f"{each[0]}-{each[1].name}"
)
def test_the_formula_evaluates_to_the_map(example):
    _, part = example
    sizes = dict(part.layout.axes)
    shape = (sizes.get("W", 1), sizes["L"], sizes["R"], sizes["E"])
    warp, lane, register, element = np.indices(shape)
    values = evaluate(part.formula(), lane, warp, register * sizes["E"] + element)
    for name, grid in part.layout.grid().items():
        assert (values[name] == grid.reshape(shape)).all(), name


# CuTe's own thread-value layouts of these instructions, as CUTLASS states them.
CUTE = {
    (
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",
        "a",
    ): "((4,8),(2,2)):((32,1),(16,8))",
    (
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        "a",
    ): "((4,8),(2,2,2)):((32,1),(16,8,128))",
    (
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        "b",
    ): "((4,8),(2,2)):((16,1),(8,64))",
    (
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        "c",
    ): "((4,8),(2,2)):((32,1),(16,8))",
    (
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
        "a",
    ): "((4,8),(2,2)):((16,1),(8,64))",
    (
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
        "a",
    ): "((4,8),(4,2,2)):((64,1),(16,8,256))",
    (
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
        "b",
    ): "((4,8),(4,2)):((32,1),(8,128))",
    (
        "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32",
        "a",
    ): "((4,8),(8,2,2)):((128,1),(16,8,512))",
    ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", "a"): "((4,8),1):((8,1),0)",
    (
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16",
        "d",
    ): "((4,8,4),(2,2,8)):((128,1,16),(64,8,512))",
    (
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16",
        "a",
    ): "((4,8,4),(2,2,2)):((128,1,16),(64,8,512))",
}


@pytest.mark.parametrize(("place", "expected"), CUTE.items(), ids=str)
def test_cute_layouts(place, expected):
    text, operand = place
    assert getattr(instruction(text), operand).to_cute() == expected


@pytest.mark.parametrize("example", every_layout()[::5], ids=lambda e: e[0])
def test_cute_and_linear_layouts_evaluate_to_the_map(example):
    _, part = example
    layout = part.layout
    text = notation.cute(layout, part.major)
    shape, stride = (eval(side) for side in text.split(":"))
    flat = part.layout.gather(tuple(reversed(part.major)))
    sizes = dict(layout.axes)
    dims = (sizes.get("W", 1), sizes["L"], sizes["R"], sizes["E"])
    warp, lane, register, element = np.indices(dims)
    thread = walk(warp * 32 + lane, shape[0], stride[0])
    value = walk(register * sizes["E"] + element, shape[1], stride[1])
    assert (thread + value == flat.reshape(dims)).all()


def walk(index, shape, stride):
    """A CuTe mode as a function of its linear index."""
    shapes = shape if isinstance(shape, tuple) else (shape,)
    strides = stride if isinstance(stride, tuple) else (stride,)
    total = 0
    for size, step in zip(shapes, strides, strict=True):
        total, index = total + index % size * step, index // size
    return total


def test_linear_layout_is_the_xor_of_its_bases():
    part = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32").a
    bases = part.to_linear_layout()
    for lane in range(32):
        for i in range(8):
            row = col = 0
            for name, value in (("lane", lane), ("register", i)):
                for bit, (r, c) in enumerate(bases[name]):
                    if value >> bit & 1:
                        row, col = row ^ r, col ^ c
            assert part.holds(lane)[i] == (row, col)


def test_a_size_that_is_no_power_of_two_has_no_linear_layout():
    part = instruction("wgmma.mma_async.sync.aligned.m64n24k16.f32.f16.f16").d
    with pytest.raises(LayoutError, match="powers of two"):
        part.to_linear_layout()


def test_formulas_fit_the_page():
    layout = Layout.parse("row = L2 L3 L4 R0  col = E* L0 L1 R1*", L=32, R=4, E=8)
    assert max(map(len, str(notation.formula(layout, "a")).splitlines())) <= 90
