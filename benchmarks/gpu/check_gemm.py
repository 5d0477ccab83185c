"""Checks every bit of the kernels on a GPU.

Every configuration runs on the GPU on random and on adversarial inputs, on whole
and on ragged shapes, with one tile for each block of threads and with many, and is
compared with the exact emulation: all bits.  B and D lie between guards, D is
poisoned before, rows are followed by poison, and each result is computed many times
over.  Then the operators of PyTorch on the GPU are compared with those on the CPU, with
``check_library.py``: experts, activations, trained weights, 4-bit ones.  Exit status 1
if anything differs.

    python benchmarks/gpu/check_gemm.py [--quick] [--repeat 100] [--only e4m3]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from zlib import crc32

import numpy as np
import torch
from check_library import drawn, library
from measuring import in_processes

import fragmenta as fm
from fragmenta.errors import CompileError
from fragmenta.hopper.kernels.arguments import Matrix
from fragmenta.hopper.kernels.choosing import tiles_for
from fragmenta.hopper.kernels.config import ALIGNMENT, Kernel, Tile
from fragmenta.hopper.kernels.emulate import STORAGE, Epilogue, accumulate, finish
from fragmenta.hopper.kernels.four_bits import SCALE_TYPES, pack_integers
from fragmenta.hopper.kernels.launch import launch, plan
from fragmenta.hopper.kernels.packing import Packed, pack
from fragmenta.hopper.kernels.source import cubin
from fragmenta.reference.registers.dtype import dtype

PAIRS = (
    ("e4m3", "e4m3"),
    ("s8", "s8"),
    ("bf16", "bf16"),
    ("tf32", "tf32"),
    ("e5m2", "e5m2"),
    ("e4m3", "e5m2"),
    ("e5m2", "e4m3"),
    ("u8", "u8"),
    ("s8", "u8"),
    ("u8", "s8"),
    ("f16", "f16"),
)
GUARD = 4096
POISON = 0xA5


# ── which kernels ───────────────────────────────────────────────────────────


def kernels(quick: bool) -> Iterator[Kernel]:
    """Every type with every tile, stored both ways; every epilogue with a few tiles."""
    few = (Tile(256, 192, 2), Tile(128, 192, 2, True), Tile(128, 128), Tile(64, 16))
    for sparse in (True, False):
        for a, b in PAIRS:
            plain = Kernel(a, b, tile=Tile(64, 64), sparse=sparse)
            main = (a, b) in PAIRS[:4]
            listed = list(tiles_for(plain))
            chosen = [tile for tile in listed if tile in few] if quick else listed
            # The other types differ in one instruction only: some tiles of each.
            some = chosen[PAIRS.index((a, b)) :: 7] if sparse else chosen
            for tile in chosen if main else chosen[:1] if quick else some:
                yield replace(plain, tile=tile)
                if main and not quick:
                    yield from stored_across(replace(plain, tile=tile))
            tiles = [tile for tile in listed if tile in few] if main else chosen[-1:]
            if main or not quick:
                yield from epilogues(plain, tiles[:1] if quick else tiles)
            if a in ("e4m3", "e5m2"):
                yield from promoted(plain, quick)
    yield from four_bits(quick)
    for xor in (False, True):
        plain = Kernel("b1", tile=Tile(64, 64), sparse=False, xor=xor)
        listed = list(tiles_for(plain))
        yield from (replace(plain, tile=t) for t in (listed[::4] if quick else listed))


def four_bits(quick: bool) -> Iterator[Kernel]:
    """4-bit integers with every group: every tile for groups of 128, else some."""
    for number, b in enumerate(("bf16", "e4m3", "f16")):
        for group in (128, 64, 0, 32):
            if group == 32 and b == "e4m3":
                continue
            scales = "bf16" if group == 64 else "f16"
            kind = {"group": group, "scales": scales}
            plain = Kernel("s4", b, tile=Tile(64, 64), **kind)
            listed = list(tiles_for(plain))
            every = 1 if group == 128 and b != "f16" else 9
            for tile in listed[number :: 12 * every if quick else every]:
                yield replace(plain, tile=tile)
                out = "f16" if b == "f16" else "bf16"
                across = replace(plain, tile=tile, out=out, transposed=True)
                yield replace(across, scaled=group != 128)


def stored_across(plain: Kernel) -> Iterator[Kernel]:
    """As a layer stores its result, without a bias and with one."""
    out = "s32" if plain.accumulator == "s32" else "bf16"
    yield replace(plain, out=out, transposed=True)
    yield replace(plain, out="bf16", transposed=True, scaled=True)


def epilogues(plain: Kernel, tiles: list[Tile]) -> Iterator[Kernel]:
    """Output types, transposed stores, scales."""
    integer = plain.accumulator == "s32"
    for tile in tiles:
        base = replace(plain, tile=tile)
        for transposed in (False, True):
            for out in ("f32", "bf16", "f16"):
                yield replace(base, out=out, scaled=True, transposed=transposed)
                if not integer and (transposed or out != "f32"):
                    yield replace(base, out=out, transposed=transposed)
            if integer and transposed:
                yield replace(base, transposed=True)


def promoted(plain: Kernel, quick: bool) -> Iterator[Kernel]:
    """Sums that leave the tensor core every 128 of k."""
    for tile in list(tiles_for(replace(plain, promote=True)))[:: 12 if quick else 3]:
        base = replace(plain, tile=tile, promote=True)
        yield base
        yield replace(base, out="bf16", scaled=True, transposed=True)


def compiled(kernel: Kernel) -> str:
    """Compile into the cache, in a process of its own."""
    try:
        cubin(kernel)
    except CompileError as why:
        return str(why)
    return ""


# ── inputs ──────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Case:
    """One product: its shape, and how its inputs are drawn."""

    m: int
    n: int
    k: int
    kind: str
    long: bool = False
    """Few blocks, so that each takes many tiles and its ring goes round and round."""

    def blocks(self, kernel: Kernel) -> int | None:
        """Blocks of threads to launch: about seven tiles each, or as many as fit."""
        if not self.long:
            return None
        clusters = max(1, kernel.tiles(self.m, self.n) // 7)
        return clusters * kernel.tile.cluster


def cases(kernel: Kernel, quick: bool) -> list[Case]:
    """Whole and ragged shapes; k in multiples of 16 bytes."""
    step = 128 // dtype(kernel.multiplied).bits
    slab = kernel.slab_k
    shapes = [
        (512, 384, 4 * slab),
        (321, 203, 3 * slab + step),
        (65, 1, slab - step),
        (1, 65, step),
        (257, 193, 7 * slab),
        (2100, 72, 2 * slab),
    ]
    found = [Case(*shape, "random") for shape in shapes]
    found += [Case(*shapes[1], "adversarial"), Case(*shapes[4], "adversarial")]
    # More than a round of any ring for a tile; a stage of four slabs is not full.
    found += [Case(700, 500, 25 * slab + step, "random", long=True)]
    if split := kernel.tile.split - 1:  # each part of k takes a stage at least
        least = split * kernel.slabs * slab + step
        found = [replace(x, k=max(x.k, least)) for x in found]
    return [found[1], found[4], found[6], found[8]] if quick else found


def kind_of(kernel: Kernel) -> Kernel:
    """The same types with one tile: its inputs are those of all tiles."""
    return Kernel(
        kernel.a,
        kernel.b,
        tile=Tile(64, 8),
        sparse=kernel.sparse,
        group=kernel.group,
        scales=kernel.scales,
    )


@lru_cache(maxsize=64)
def inputs(kind: Kernel, case: Case) -> tuple:
    """A (compressed if sparse, packed if it has 4 bits) and B, for all tiles."""
    a, b = kind.a, kind.b
    rng = np.random.default_rng(crc32(repr((a, b, kind.sparse, case)).encode()))
    if kind.four_bits:
        left = integers(kind, case, rng)
        return left, drawn(b, case.n, case.k, case.kind, rng)
    left = drawn(a, case.m, case.k, case.kind, rng)
    right = drawn(b, case.n, case.k, case.kind, rng)
    if kind.sparse:
        op = kind.instruction
        left = fm.sparse.compress(op, fm.sparse.prune(op, left, pad=True), pad=True)
    return left, right


def integers(kind: Kernel, case: Case, rng: np.random.Generator) -> Packed:
    """Packed 4-bit integers; adversarial: -8 and 7, with scales of all sizes."""
    op, shape = kind.instruction, (case.m, case.k)
    wild = case.kind == "adversarial"
    made = rng.choice([-8, 7, 0], shape) if wild else rng.integers(-8, 8, shape)
    pruned = fm.sparse.prune(op, made.astype(op.types["a"].storage), pad=True)
    sp = fm.sparse.compress(op, pruned, pad=True)
    sp = replace(sp, values=sp.values.astype(np.float32).astype(np.int8))
    if not kind.group:
        return pack_integers(sp, b=kind.b)
    scales = rng.normal(size=(case.m, -(-case.k // kind.group)))
    if wild:
        scales = scales * 2.0 ** rng.integers(-20, 12, scales.shape)
    scales = scales.astype(np.float32).astype(SCALE_TYPES[kind.scales])
    return pack_integers(sp, scales, b=kind.b, group=kind.group)


@lru_cache(maxsize=64)
def packed(kind: Kernel, case: Case) -> np.ndarray:
    """The bytes of a sparse A: the same for every tile."""
    left = inputs(kind, case)[0]
    return left.data if kind.four_bits else pack(kind.instruction, left).data


def sums(kernel: Kernel, case: Case) -> np.ndarray:
    """What the registers hold in the end; computed once for all tiles.

    Only a split along k changes the order of the sum.
    """
    kind = kind_of(kernel)
    key = (kind, kernel.promote, *kernel.parts(case.k), case)
    if key not in _SUMS:
        _SUMS[key] = accumulate(kernel, *inputs(kind, case))
    return _SUMS[key]


_SUMS: dict[tuple, np.ndarray] = {}


# ── on the GPU ──────────────────────────────────────────────────────────────


class Guarded:
    """Rows of bytes between guards, each row followed by poison."""

    def __init__(self, rows: int, width: int, data: np.ndarray | None = None) -> None:
        self.rows, self.width = rows, width
        self.pitch = -(-width // 16) * 16 + 48
        size = 2 * GUARD + rows * self.pitch
        self.buffer = torch.full((size,), POISON, dtype=torch.uint8, device="cuda")
        self.area = self.buffer[GUARD : GUARD + rows * self.pitch]
        self.inside = self.area.view(rows, self.pitch)[:, :width]
        if data is not None:
            raw = np.ascontiguousarray(data).view(np.uint8).reshape(rows, width)
            self.inside.copy_(torch.from_numpy(raw))

    def matrix(self) -> Matrix:
        return Matrix(self.area.data_ptr(), self.rows, self.width, self.pitch)

    def poison(self) -> None:
        self.buffer.fill_(POISON)

    def untouched(self) -> bool:
        """Whether everything but the matrix is still poison.

        The copy engine stores whole units of 16 bytes: the last one of a row
        belongs to the matrix even where the row ends within it.
        """
        copy = self.buffer.clone()
        inside = copy[GUARD : GUARD + self.rows * self.pitch]
        wide = -(-self.width // ALIGNMENT) * ALIGNMENT
        inside.view(self.rows, self.pitch)[:, :wide] = POISON
        return bool((copy == POISON).all())


def raw_rows(x: np.ndarray, of: str) -> np.ndarray:
    """The bytes of a matrix, row by row."""
    if of == "b1":
        return np.packbits(x, axis=-1, bitorder="little")
    return np.ascontiguousarray(x).view(np.uint8).reshape(len(x), -1)


def drawn_epilogue(kernel: Kernel, case: Case) -> Epilogue:
    if not kernel.scaled:
        return Epilogue()
    rng = np.random.default_rng(case.m)
    return Epilogue(
        scale=np.float32(rng.normal()),
        scale_m=rng.normal(size=case.m).astype(np.float32),
        scale_n=rng.normal(size=case.n).astype(np.float32),
        bias=rng.normal(size=case.m).astype(np.float32),
    )


def check(kernel: Kernel, case: Case, repeat: int) -> str:
    """What is wrong; empty if nothing is."""
    left, right = inputs(kind_of(kernel), case)
    total = sums(kernel, case)
    epilogue = drawn_epilogue(kernel, case)
    given = {}
    for name in ("scale", "scale_m", "scale_n", "bias"):
        if (part := getattr(epilogue, name)) is not None:
            given[name] = torch.from_numpy(np.atleast_1d(part)).cuda()
    counts = None
    if kernel.xor:
        counts = left.sum(1, dtype=np.int32), right.sum(1, dtype=np.int32)
        given |= {
            "count_m": torch.from_numpy(counts[0]).cuda(),
            "count_n": torch.from_numpy(counts[1]).cuda(),
        }
    wanted = finish(kernel, total, epilogue, counts)
    raw = raw_rows(right, kernel.b)
    b = Guarded(*raw.shape, raw)
    d = Guarded(wanted.shape[0], wanted.shape[1] * STORAGE[kernel.out].itemsize)
    if kernel.sparse:
        data = packed(kind_of(kernel), case)
        held = Guarded(1, data.size, data)
        a: int | Matrix = held.area.data_ptr()
    else:
        raw = raw_rows(left, kernel.a)
        held = Guarded(*raw.shape, raw)
        a = held.matrix()

    planned = plan(kernel, case.m, case.n, case.k, case.blocks(kernel))

    def go() -> None:
        launch(
            planned,
            a,
            b.matrix(),
            d.matrix(),
            stream=torch.cuda.current_stream().cuda_stream,
            epilogue={name: part.data_ptr() for name, part in given.items()},
        )

    go()
    torch.cuda.synchronize()
    found = d.inside.cpu().numpy()
    wrong = found != wanted.view(np.uint8).reshape(found.shape)
    if wrong.any():
        item = STORAGE[kernel.out].itemsize
        each = wrong.reshape(len(wrong), -1, item).any(-1)
        row, col = np.argwhere(each)[0].tolist()
        got = found.view(STORAGE[kernel.out])[row, col]
        unwritten = bool((found[each.repeat(item, 1)] == POISON).all())
        return (
            f"{each.sum()} of {each.size} differ, first at ({row}, {col}): "
            f"{got} != {wanted[row, col]}" + (", never written" if unwritten else "")
        )
    if not (d.untouched() and b.untouched()):
        return "wrote outside D"
    first = d.inside.clone()
    differ = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(repeat - 1):
        d.inside.fill_(POISON)
        go()
        differ += (d.inside != first).any()
    times = int(differ)
    return f"another result {times} times of {repeat}" if times else ""


def main() -> int:
    """Check everything; 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer kernels and shapes")
    parser.add_argument("--repeat", type=int, default=100)
    parser.add_argument(
        "--only", default="", help="names that contain one of these, between commas"
    )
    parser.add_argument("--seconds", type=float, default=480.0, help="stop after")
    parser.add_argument("--share", default="0/1", help="such as 1/3: the second third")
    options = parser.parse_args()
    begun = time.time()
    torch.zeros(1, device="cuda")
    wanted = options.only.split(",")
    chosen = [
        k
        for k in dict.fromkeys(kernels(options.quick))
        if any(each in str(k) for each in wanted)
    ]
    share, shares = map(int, options.share.split("/"))
    chosen = chosen[share::shares]
    refused = dict(zip(chosen, in_processes(compiled, chosen), strict=True))
    print(f"{len(chosen)} kernels compiled in {time.time() - begun:.0f} s", flush=True)
    failures = skipped = done = 0
    for kernel in chosen:
        if time.time() - begun > options.seconds:
            skipped += 1
            continue
        listed = cases(kernel, options.quick)
        said = [refused[kernel]] if refused[kernel] else []
        for case in listed:
            if said:
                break
            problem = check(kernel, case, options.repeat)
            said += [f"{case}: {problem}"] if problem else []
            done += 1
        failures += bool(said)
        if said:
            print(f"WRONG  {kernel}  {said[0][:400]}", flush=True)
    right = len(chosen) - skipped - failures
    print(
        f"{right} kernels right, {failures} wrong, {skipped} not reached; {done} "
        f"products, {options.repeat} times each, in {time.time() - begun:.0f} s"
    )
    failures += library(wanted)
    return int(failures > 0 or skipped > 0)


if __name__ == "__main__":
    sys.exit(main())
