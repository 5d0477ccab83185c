"""The warps of a kernel load and store tensor memory by its rules."""

from __future__ import annotations

import numpy as np

import fragmenta as fm
from fragmenta import ptx
from fragmenta.tensor_memory import load, store

TILES = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}
"""Registers of each thread at x1."""
WARP = 5
"""A warp of the second warpgroup: it reaches lanes 32 to 63."""


def _moves(name: str, times: int) -> list[tuple[str, str, int]]:
    """Mnemonics, the immediate, and how many registers there are."""
    found = []
    for tile, each in TILES.items():
        for packed in ("", ".pack::16b" if name == "ld" else ".unpack::16b"):
            mnemonic = f"tcgen05.{name}.sync.aligned.{tile}.x{times}{packed}.b32"
            found.append((mnemonic, ", 37" if tile == "16x32bx2" else "", each * times))
    return found


def _text(body: list[str]) -> str:
    return f"""
.version 8.8
.target sm_100a
.address_size 64
.entry f(.param .u64 memory, .param .u64 registers) {{
.reg .pred %p; .reg .b32 %t, %w, %d, %a, %c<128>; .reg .b64 %l<4>;
.shared .align 4 .b32 slot;
mov.u32 %t, %tid.x;
shr.u32 %w, %t, 5;
setp.ne.u32 %p, %w, {WARP};
@%p bra LAST;
and.b32 %t, %t, 31;
ld.param.u64 %l0, [memory];
ld.param.u64 %l1, [registers];
mul.wide.u32 %l2, %t, 2048;
add.u64 %l0, %l0, %l2;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 512;
ld.shared.u32 %d, [slot];
add.u32 %a, %d, {32 << 16};
{chr(10).join(body)}
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %d, 512;
LAST:
ret;
}}"""


def _every(count: int) -> str:
    return "{" + ", ".join(f"%c{i}" for i in range(count)) + "}"


def _fill(columns: int) -> list[str]:
    """The first columns of the quarter, from memory."""
    lines = [f"ld.global.u32 %c{i}, [%l0+{4 * i}];" for i in range(columns)]
    lines += [f"tcgen05.st.sync.aligned.32x32b.x{columns}.b32 [%a], {_every(columns)};"]
    return [*lines, "tcgen05.wait::st.sync.aligned;"]


def _launch(body: list[str], memory: np.ndarray, registers: np.ndarray) -> None:
    kernel = ptx.parse(_text(body)).kernels["f"]
    kernel.launch(
        1, 256, [memory[32:64].copy(), registers], schedule="lazy", watch=False
    )


def test_loads() -> None:
    memory = np.random.default_rng(0).integers(0, 1 << 32, (128, 512), np.uint32)
    moves, body, place = _moves("ld", 2), _fill(128), 0
    for mnemonic, imm, count in moves:
        body += [f"{mnemonic} {_every(count)}, [%a+8]{imm};"]
        body += ["tcgen05.wait::ld.sync.aligned;", "mul.wide.u32 %l2, %t, 4;"]
        body += ["add.u64 %l2, %l1, %l2;"]
        body += [
            f"st.global.u32 [%l2+{128 * (place + i)}], %c{i};" for i in range(count)
        ]
        place += count
    out = np.zeros((place, 32), np.uint32)
    _launch(body, memory, out)
    for mnemonic, imm, count in moves:
        at = fm.tensor_memory.TensorAddress(32, 8)
        wanted = load(mnemonic, memory, at, warp=WARP, imm=37 if imm else None)
        assert np.array_equal(out[:count].T, wanted), mnemonic
        out = out[count:]


def test_stores() -> None:
    given = np.random.default_rng(1).integers(0, 1 << 32, (128, 512), np.uint32)
    moves, body = _moves("st", 1), _fill(128)
    for number, (mnemonic, imm, count) in enumerate(moves):
        body += [f"ld.global.u32 %c{i}, [%l0+{4 * i + 1024}];" for i in range(count)]
        body += [f"{mnemonic} [%a+{8 * number}]{imm}, {_every(count)};"]
        body += ["tcgen05.wait::st.sync.aligned;"]
    body += [f"tcgen05.ld.sync.aligned.32x32b.x128.b32 {_every(128)}, [%a];"]
    body += ["tcgen05.wait::ld.sync.aligned;", "mul.wide.u32 %l2, %t, 512;"]
    body += ["add.u64 %l2, %l1, %l2;"]
    body += [f"st.global.u32 [%l2+{4 * i}], %c{i};" for i in range(128)]
    out = np.zeros((32, 128), np.uint32)
    _launch(body, given, out)
    wanted = given
    for number, (mnemonic, imm, count) in enumerate(moves):
        at, words = (
            fm.tensor_memory.TensorAddress(32, 8 * number),
            given[32:64, 256 : 256 + count],
        )
        wanted = store(mnemonic, wanted, at, words, warp=WARP, imm=37 if imm else None)
    assert np.array_equal(out, wanted[32:64, :128])
