"""From a mnemonic to registers: the sparse int4 instruction, step by step.

Run it with ``make demo``.  Every claim it prints is also asserted.
"""

from __future__ import annotations

import numpy as np

import fragmenta as fm

MNEMONIC = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32"


def main() -> None:
    """Walk through one instruction."""
    op = fm.instruction(MNEMONIC)
    introduce(op)
    look_up(op)
    formulas(op)
    rng = np.random.default_rng(2024)
    matrix = sparse_matrix(op, rng)
    pack(op, matrix, rng)
    print("\nAll of the above was checked.")


def title(text: str) -> None:
    """A heading."""
    print(f"\n── {text} {'─' * (75 - len(text))}\n")


def introduce(op: fm.Instruction) -> None:
    """What the catalogue knows."""
    title("The instruction")
    print(op)
    print(f"needs {op.requires}; A is stored {op.granularity}")
    for target in ("sm_80", "sm_90a"):
        becomes = op.expanded_to(target)
        how = f"expanded to {becomes} by the assembler" if becomes else "native"
        print(f"on {target} it is {how}")
    assert op.shape == (16, 8, 64)
    assert op.supported_on("sm_90a")
    assert not op.supported_on("sm_75")


def look_up(op: fm.Instruction) -> None:
    """Who holds what, in both directions."""
    title("Who holds what")
    for name, part in op.fragments.items():
        size = " x ".join(map(str, part.shape))
        print(f"{name:<8}  {size:>7} {part.dtype}".ljust(26) + f"{part.layout}")
    place = op.a.where(3, 17)
    print(f"\nA[3, 17] is in {place}.")
    held = op.a.holds(lane=place.lane, register=place.register)
    print(f"That register holds, lowest bits first:\n  {held}")
    assert (3, 17) in held
    for part in op.fragments.values():
        for element in np.ndindex(*part.shape):
            found = part.where(*element)
            assert element in part.holds(lane=found.lane, register=found.register)


def formulas(op: fm.Instruction) -> None:
    """The same in the words of the PTX manual."""
    title("As the manual writes it")
    for name in ("A", "metadata"):
        print(f"{name}:\n{op.fragments[name].formula()}\n")
    print("A for CuTe:", op.a.to_cute())
    print("A for Triton, by lane bit:", op.a.to_linear_layout()["lane"])


def sparse_matrix(op: fm.Instruction, rng: np.random.Generator) -> np.ndarray:
    """A random A: of every eight in a row, two pairs of neighbours are kept."""
    m, _, k = op.shape
    kept = np.argsort(rng.random((m, k // 8, 4)), axis=-1) < 2
    mask = np.repeat(kept, 2, axis=-1).reshape(m, k)
    values = rng.integers(1, 8, (m, k)) * rng.choice([-1, 1], (m, k))
    return np.where(mask, values, 0).astype(np.int8)


def pack(op: fm.Instruction, matrix: np.ndarray, rng: np.random.Generator) -> None:
    """Store the non-zeros, pack them into registers, and read them back."""
    title("A random A, 4:8 in pairs, and its registers")
    stored = matrix[matrix != 0].reshape(op.a.shape)
    print("row 3 of A:  ", *matrix[3, :16], "…")
    print("row 3 stored:", *stored[3, :8], "…")
    registers = op.a.pack(stored)
    print(f"\npacked: {registers.dtype}, shape (lanes, registers) {registers.shape}\n")
    print("lane  register 0  register 1")
    for lane in range(12, 16):
        print(f"{lane:>4}  " + "  ".join(f"0x{word:08x}" for word in registers[lane]))
    assert (op.a.unpack(registers).astype(np.int8) == stored).all()
    low, high = op.a.where(3, 0).bits
    nibble = int(registers[12, 0]) >> low & (1 << high - low + 1) - 1
    assert nibble == int(stored[3, 0]) & 0xF

    b = rng.integers(-8, 8, op.b.shape, np.int8)
    c = rng.integers(-1000, 1000, op.c.shape, np.int32)
    assert (op.b.unpack(op.b.pack(b)).astype(np.int8) == b).all()
    assert (op.c.unpack(op.c.pack(c)) == c).all()
    print("\nA, B and C unpack to what was packed.")


if __name__ == "__main__":
    main()
