"""ldmatrix, stmatrix, movmatrix and wmma move what the catalogue says.

Every form of the catalogue is in one of a few kernels: that saves compiling.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.tables.moves import row_bytes
from tests.simt.kernels import kernel, run

GENERATOR = np.random.default_rng(5)
#: Bytes of results that each instruction has in ``out``: 8 registers of 64 bits.
STEP = 32 * 8 * 8


def forms(*families: str) -> list[Instruction]:
    return [op for op in fm.catalogue() if op.family in families]


def in_memory(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Elements of some bits, one behind the other, as bytes."""
    if bits >= 8:
        return np.ascontiguousarray(numbers).astype(f"u{bits // 8}").view(np.uint8)
    places = np.arange(bits, dtype=np.uint8)
    single = (numbers.astype(np.uint8)[..., None] >> places) & 1
    return np.packbits(single.reshape(-1), bitorder="little")


def listed(registers: list[str]) -> str:
    return "{" + ", ".join(registers) + "}"


def stored(number: int, registers: list[str], bits: int) -> str:
    """Code that stores registers where the results of an instruction are."""
    lines = [f"mad.wide.u32 %mine, %lane, {8 * 8}, %out;"]
    for index, each in enumerate(registers):
        place = number * STEP + index * 8
        lines.append(f"st.global.b{bits} [%mine+{place}], {each};")
    return "\n".join(lines)


def taken(out: np.ndarray, number: int, op: Instruction) -> np.ndarray:
    (part,) = op.fragments.values()
    all_ = out[number * STEP : (number + 1) * STEP].view(np.uint64).reshape(32, 8)
    return all_[:, : part.registers].astype(f"u{part.register_bits // 8}")


# ── 8x8 matrices ────────────────────────────────────────────────────────────

ROWS = """
    .shared .align 16 .b8 image[1024];
    ld.param.u64 %rd1, [memory];
    ld.param.u64 %rd2, [places];
    mov.u32 %r20, 0;
COPY: cvt.u64.u32 %rd3, %r20;
    add.u64 %rd4, %rd1, %rd3;
    ld.global.u32 %r21, [%rd4];
    mov.u32 %r22, image;
    add.u32 %r22, %r22, %r20;
    st.shared.u32 [%r22], %r21;
    add.u32 %r20, %r20, 4;
    setp.lt.u32 %p1, %r20, 1024;
    @%p1 bra COPY;
    bar.warp.sync 0xffffffff;
    mad.wide.u32 %rd5, %lane, 4, %rd2;
    ld.global.u32 %r23, [%rd5];
    mov.u32 %r22, image;
    add.u32 %r23, %r23, %r22;
    cvt.u64.u32 %rd6, %r23;
    cvta.shared.u64 %rd6, %rd6;
"""


def test_ldmatrix_of_every_form() -> None:
    every = forms("ldmatrix")
    assert len(every) >= 63
    lines = []
    for number, op in enumerate(every):
        (part,) = op.fragments.values()
        registers = [f"%r{i + 1}" for i in range(part.registers)]
        where = "%r23" if op.values["space"] else "%rd6"
        if row_bytes(op) == 8:  # at the second half of 16 bytes
            where += "+8"
        lines.append(f"{op} {listed(registers)}, [{where}];")
        lines.append(stored(number, registers, 32))
    image = GENERATOR.integers(0, 256, 1024).astype(np.uint8)
    places = (GENERATOR.permutation(64)[:32] * 16).astype(np.uint32)
    out = np.zeros(len(every) * STEP, np.uint8)
    parameters = ".param .u64 memory, .param .u64 places"
    made = kernel(ROWS + "\n".join(lines), parameters)
    run(made, out, image, places, watch="report")  # no target has them all
    for number, op in enumerate(every):
        want = fm.shared.ldmatrix(op, image, places + 8 * (row_bytes(op) == 8))
        assert (taken(out, number, op) == want).all(), str(op)


def test_stmatrix_of_every_form() -> None:
    every = forms("stmatrix")
    assert len(every) >= 27
    # One block for each form.
    lines = ["T: .branchtargets " + ", ".join(f"F{i}" for i in range(len(every))) + ";"]
    words = GENERATOR.integers(0, 1 << 32, (32, 4), dtype=np.uint32)
    lines.append("ld.param.u64 %rd7, [words]; mad.wide.u32 %rd7, %lane, 16, %rd7;")
    lines.append("ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd7];")
    lines.append("brx.idx %cta, T;")
    for number, op in enumerate(every):
        (part,) = op.fragments.values()
        where = "%r23" if op.values["space"] else "%rd6"
        registers = [f"%r{i + 1}" for i in range(part.registers)]
        lines.append(f"F{number}: {op} [{where}], {listed(registers)}; bra END;")
    lines.append("""END: bar.warp.sync 0xffffffff;
        mul.wide.u32 %rd8, %cta, 1024;
        add.u64 %rd8, %rd8, %out;
        mov.u32 %r20, 0;
    BACK: mov.u32 %r22, image;
        add.u32 %r22, %r22, %r20;
        ld.shared.u32 %r21, [%r22];
        cvt.u64.u32 %rd9, %r20;
        add.u64 %rd9, %rd9, %rd8;
        st.global.u32 [%rd9], %r21;
        add.u32 %r20, %r20, 4;
        setp.lt.u32 %p1, %r20, 1024;
        @%p1 bra BACK;""")
    image = GENERATOR.integers(0, 256, 1024).astype(np.uint8)
    places = (GENERATOR.permutation(64)[:32] * 16).astype(np.uint32)
    out = np.zeros((len(every), 1024), np.uint8)
    parameters = ".param .u64 memory, .param .u64 places, .param .u64 words"
    made = kernel(ROWS + "\n".join(lines), parameters)
    run(made, out, image, places, words, blocks=len(every), watch="report")
    for number, op in enumerate(every):
        (part,) = op.fragments.values()
        want = fm.shared.stmatrix(op, image, places, words[:, : part.registers])
        assert (out[number] == want).all(), str(op)


def test_movmatrix() -> None:
    (op,) = forms("movmatrix")
    words = GENERATOR.integers(0, 1 << 32, (32, 1), dtype=np.uint32)
    out = words.copy()
    run(
        kernel(
            f"ld.global.u32 %r1, [%mine]; {op} %r1, %r1; st.global.u32 [%mine], %r1;"
        ),
        out,
    )
    assert (out == fm.shared.movmatrix(op, words)).all()


# ── wmma ────────────────────────────────────────────────────────────────────


class Tile:
    """A matrix in memory for a wmma instruction, with space between its lines."""

    def __init__(self, op: Instruction) -> None:
        (self.part,) = op.fragments.values()
        self.bits = self.part.dtype.bits
        self.by_row = op.values["layout"] == "row"
        rows, cols = self.part.shape
        self.lines, self.length = (rows, cols) if self.by_row else (cols, rows)
        self.stride = self.length + 256 // self.bits
        exact = min(self.bits, 8)
        limit = 1 << (exact - 1) if self.part.dtype.kind != "b" and exact > 1 else 2
        self.numbers = GENERATOR.integers(0, limit, (rows, cols))

    def elements(self) -> np.ndarray:
        """The bits of the lines, with what is between them."""
        encoded = self.part.dtype.encode(self.matrix())
        whole = np.zeros((self.lines, self.stride), encoded.dtype)
        whole[:, : self.length] = encoded if self.by_row else encoded.T
        return whole

    def matrix(self) -> np.ndarray:
        return self.numbers.astype(self.part.dtype.storage)

    def memory(self) -> np.ndarray:
        made = np.zeros(8192, np.uint8)
        data = in_memory(self.elements(), self.bits).reshape(-1)
        made[: len(data)] = data
        return made


def chosen(op: Instruction) -> tuple[Any, ...]:
    """What forms that differ only in their space have in common."""
    return tuple(value for name, value in op.values.items() if name != "space")


def spread(every: list[Instruction]) -> list[Instruction]:
    """One form of each kind, with the spaces in turn."""
    groups = [list(group) for _, group in groupby(every, chosen)]
    return [group[number % len(group)] for number, group in enumerate(groups)]


WMMA = """
    .shared .align 32 .b8 tile[8192];
    .local .align 32 .b8 unused[32];
    ld.param.u64 %rd1, [memory];
    mul.wide.u32 %rd2, %cta, 8192;
    add.u64 %rd1, %rd1, %rd2;
    mov.u32 %r20, tile;
    mov.u32 %r21, 0;
COPY: cvt.u64.u32 %rd3, %r21;
    add.u64 %rd4, %rd1, %rd3;
    ld.global.u32 %r22, [%rd4];
    add.u32 %r23, %r20, %r21;
    st.shared.u32 [%r23], %r22;
    add.u32 %r21, %r21, 4;
    setp.lt.u32 %p1, %r21, 8192;
    @%p1 bra COPY;
    bar.sync 0;
"""


def registers(part: Any) -> list[str]:
    kind = "fd" if part.register_bits == 64 else "r"
    return [f"%{kind}{i + 1}" for i in range(part.registers)]


@pytest.mark.long
def test_wmma_loads() -> None:
    every = spread(forms("wmma.load"))
    assert {op.values["space"] for op in every} >= {"", "global", "shared"}
    tiles = [Tile(op) for op in every]
    targets = ", ".join(f"F{i}" for i in range(len(every)))
    lines = [f"T: .branchtargets {targets};", "brx.idx %cta, T;"]
    for number, (op, tile) in enumerate(zip(every, tiles, strict=True)):
        where = "%r20" if op.values["space"].startswith("shared") else "%rd1"
        given = registers(tile.part)
        width = tile.part.register_bits
        lines.append(f"F{number}: {op} {listed(given)}, [{where}], {tile.stride};")
        lines.append(stored(number, given, width) + " ret;")
    out = np.zeros(len(every) * STEP, np.uint8)
    memory = np.stack([tile.memory() for tile in tiles])
    made = kernel(WMMA + "\n".join(lines), ".param .u64 memory")
    run(made, out, memory, blocks=len(every))
    for number, (op, tile) in enumerate(zip(every, tiles, strict=True)):
        want = tile.part.pack(tile.matrix())
        assert (taken(out, number, op) == want).all(), str(op)


def test_wmma_stores() -> None:
    every = spread(forms("wmma.store"))
    assert {op.values["space"] for op in every} >= {"", "global", "shared"}
    tiles = [Tile(op) for op in every]
    targets = ", ".join(f"F{i}" for i in range(len(every)))
    lines = [
        f"T: .branchtargets {targets};",
        "ld.param.u64 %rd5, [given]; mad.wide.u32 %rd5, %lane, 64, %rd5;",
        f"mul.wide.u32 %rd6, %cta, {STEP}; add.u64 %rd5, %rd5, %rd6;",
        "brx.idx %cta, T;",
    ]
    given = np.zeros((len(every), 32, 8), np.uint64)
    for number, (op, tile) in enumerate(zip(every, tiles, strict=True)):
        given[number, :, : tile.part.registers] = tile.part.pack(tile.matrix())
        where = "%r20" if op.values["space"].startswith("shared") else "%rd1"
        names = registers(tile.part)
        lines.append(f"F{number}:")
        lines += [
            f"ld.global.b{tile.part.register_bits} {name}, [%rd5+{8 * i}];"
            for i, name in enumerate(names)
        ]
        lines.append(f"{op} [{where}], {listed(names)}, {tile.stride}; bra END;")
    lines.append("""END: bar.sync 0;
        mov.u32 %r21, 0;
        add.u64 %rd7, %out, %rd2;
    BACK: add.u32 %r23, %r20, %r21;
        ld.shared.u32 %r22, [%r23];
        cvt.u64.u32 %rd3, %r21;
        add.u64 %rd4, %rd7, %rd3;
        st.global.u32 [%rd4], %r22;
        add.u32 %r21, %r21, 4;
        setp.lt.u32 %p1, %r21, 8192;
        @%p1 bra BACK;""")
    memory = GENERATOR.integers(0, 256, (len(every), 8192)).astype(np.uint8)
    before, out = memory.copy(), np.zeros_like(memory)
    made = kernel(WMMA + "\n".join(lines), ".param .u64 memory, .param .u64 given")
    run(made, out, memory, given, blocks=len(every))
    for number, (op, tile) in enumerate(zip(every, tiles, strict=True)):
        shared = op.values["space"].startswith("shared")
        found = (out if shared else memory)[number]
        size = tile.bits // 8
        whole = before[number].copy()
        cells = whole[: tile.lines * tile.stride * size].reshape(tile.lines, -1)
        encoded = tile.part.dtype.encode(tile.matrix())
        data = in_memory(encoded if tile.by_row else encoded.T, tile.bits)
        cells[:, : tile.length * size] = data.reshape(tile.lines, -1)
        assert (found == whole).all(), str(op)


@pytest.mark.parametrize(
    "op",
    [
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
    ],
)
def test_mma_with_results_in_its_operands(op: str) -> None:
    made = fm.instruction(op)
    wide = "%rd" if made.a.register_bits == 64 else "%r"
    counts = [made.fragments[name].registers for name in "ABC"]
    bits = made.a.register_bits
    a, b, c = (
        [f"{wide}{10 * i + j + 1}" for j in range(n)] for i, n in enumerate(counts)
    )
    loads = "".join(
        f"ld.global.b{bits} {name}, [%mine+{bits // 8 * i}];"
        for i, name in enumerate([*a, *b, *c])
    )
    values = GENERATOR.integers(-8, 8, (32, sum(counts)))
    parts = np.split(values, np.cumsum(counts)[:-1], axis=1)
    of = np.uint64 if bits == 64 else np.uint32
    words = [
        np.frombuffer(p.astype(np.float64).tobytes(), of).reshape(p.shape)
        if bits == 64
        else GENERATOR.integers(0, 1 << 30, p.shape).astype(of)
        for p in parts
    ]
    out = np.concatenate(words, axis=1)
    stores = "".join(
        f"st.global.b{bits} [%mine+{bits // 8 * i}], {name};"
        for i, name in enumerate(c)
    )
    run(
        kernel(f"""
        mad.wide.u32 %mine, %lane, {bits // 8 * sum(counts)}, %out;
        {loads}
        {op} {listed(c)}, {listed(a)}, {listed(b)}, {listed(c)};
        {stores}"""),
        out,
    )
    want = made.execute(*words, target="sm_90a")
    assert (out[:, : counts[2]] == want).all()
