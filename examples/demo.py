"""From a mnemonic to a result: the sparse int4 instruction, step by step.

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
    matrix, sp = compress(op, rng)
    execute(op, matrix, sp, rng)
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
    """Which lane holds which element, in both directions."""
    title("Which lane holds which element")
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
    """The same in the notation of the PTX manual."""
    title("The formulas of the manual")
    for name in ("A", "metadata"):
        print(f"{name}:\n{op.fragments[name].formula()}\n")
    print("A for CuTe:", op.a.to_cute())
    print("A for Triton, by lane bit:", op.a.to_linear_layout()["lane"])


def compress(
    op: fm.Instruction, rng: np.random.Generator
) -> tuple[np.ndarray, fm.sparse.Compressed]:
    """Prune a random A, then compress it to stored values and metadata."""
    title("A pruned to 4:8 in pairs, and compressed")
    m, _, k = op.shape
    matrix = fm.sparse.prune(op, rng.integers(-8, 8, (m, k), np.int8))
    sp = fm.sparse.compress(op, matrix)
    print("row 3 of A:  ", *matrix[3, :16], "…")
    print("row 3 stored:", *sp.values[3, :8], "…")
    print("its codes:   ", *(f"{code:04b}" for code in sp.indices[3]))
    assert (fm.sparse.decompress(op, sp) == matrix).all()
    return matrix, sp


def execute(
    op: fm.Instruction,
    A: np.ndarray,
    sp: fm.sparse.Compressed,
    rng: np.random.Generator,
) -> None:
    """Pack the registers, run the instruction, read the result."""
    title("Registers in, registers out")
    B = rng.integers(-8, 8, op.b.shape, np.int8)
    C = rng.integers(-1000, 1000, op.c.shape, np.int32)
    a, b, c = op.a.pack(sp.values), op.b.pack(B), op.c.pack(C)
    expected = A.astype(np.int32) @ B.astype(np.int32) + C
    for selector in op.selectors:
        words = op.metadata.pack(sp.indices, selector=selector)
        d = op.execute(a, b, c, metadata=words, selector=selector, target="sm_90a")
        assert (op.d.unpack(d) == expected).all()
        print(f"\nselector {selector}; registers of four lanes:")
        print("lane  a0        a1        metadata  d0        d1")
        for lane in range(12, 16):
            row = [*a[lane], *words[lane], *d[lane, :2]]
            print(f"{lane:>4}  " + "  ".join(f"{word:08x}" for word in row))
    print("\nD equals A B + C for each selector.")


if __name__ == "__main__":
    main()
