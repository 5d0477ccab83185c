"""Warpgroup functions give the bits of ``op.execute``.

    python -m tests.execution.warpgroups [--tiles 8] [--seed 1] [--part 0/1]

compares every ``wgmma`` of the catalogue: all n, both places of A, all transpositions
and selectors, all swizzles, and the signs of A and B in turn.  With ``--golden`` it
compares all that an H200 answered.  The tests compare some of both.
"""

import argparse
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np

from fragmenta import catalogue
from fragmenta.inspect.evidence import record
from fragmenta.inspect.evidence.variants import variants
from fragmenta.inspect.evidence.warpgroup import WarpgroupCase
from fragmenta.reference.execution.warpgroup import IN_ORDER, warpgroup_function

TARGET = "sm_90a"
UNTOUCHED = 0xDEADBEEF
GOLDEN = Path(__file__).parents[1] / "golden" / "h200" / "wgmma.npz"


def every_variant(op):
    """All ways to run an instruction, the signs that it has in turn.

    Selectors have the same signs, so that they share a function.
    """
    signs = (1, -1) if "imm_scale_a" in {each.name for each in op.operands} else (1,)
    pairs = list(product(signs, signs))
    places = {}
    for turn, variant in enumerate(variants(op), start=op.shape.n // 8):
        place = replace(variant, selector=None)
        number = places.setdefault(place, len(places)) + op.shape.n // 8
        scale_a, scale_b = pairs[number % len(pairs)]
        yield replace(variant, scale_a=scale_a, scale_b=scale_b, turn=turn)


def function_for(op, variant):
    """The function for one way to run an instruction."""
    given = variant.immediates(op)
    given.pop("selector", None)
    return warpgroup_function(op, TARGET, a_from_registers=variant.a_registers, **given)


def computed(case, given, flags=False, gap=None):
    """The registers of D (tiles, 128, n) that the function writes, tile by tile.

    With a ``gap``, D is warp by warp, with so many words between two warps.
    """
    run = function_for(case.op, case.way)
    d = np.ascontiguousarray(given["c"].swapaxes(1, 2))
    steps = IN_ORDER
    if gap is not None:
        d, steps = by_warps(d, gap), (32, d.shape[1] * 32 + gap)
    found = []
    for tile in range(len(d)):
        one = {name: array[tile] for name, array in given.items()}
        words = [one["b"]] if case.way.a_registers else [one["a"], one["b"]]
        found.append(
            run(
                d[tile],
                np.ascontiguousarray(one["a"].T) if case.way.a_registers else None,
                np.array(words, np.uint64),
                one["image"],
                one["metadata"].ravel() if case.op.sparse else None,
                np.array([one["scale_d"], case.way.selector or 0], np.int64),
                steps,
            )
        )
    if gap is not None:
        count = given["c"].shape[-1]
        assert (d[:, :, count * 32 :] == UNTOUCHED).all()
        parts = d[:, :, : count * 32].reshape(-1, 4, count, 32)
        d = parts.swapaxes(1, 2).reshape(-1, count, 128)
    registers = np.ascontiguousarray(d.swapaxes(1, 2))
    return (registers, found) if flags else registers


def by_warps(d, gap):
    """D (tiles, registers, 128) as (tiles, 4 warps, registers x 32 and a gap)."""
    tiles, count, _ = d.shape
    made = np.full((tiles, 4, count * 32 + gap), UNTOUCHED, np.uint32)
    parts = d.reshape(tiles, count, 4, 32).swapaxes(1, 2)
    made[:, :, : count * 32] = parts.reshape(tiles, 4, -1)
    return made


def inputs(case):
    """The inputs of a case; arbitrary bits in the second half of the tiles.

    Arbitrary floats are often infinite or NaN, those of the first half seldom.  The
    second half has base offsets, too.
    """
    given, rng = case.inputs(), np.random.default_rng(case.seed)
    for name in ("image", "c", *("a" if case.way.a_registers else "")):
        half = given[name][case.tiles // 2 :]
        half[:] = rng.integers(0, 1 << 8 * half.itemsize, half.shape, half.dtype)
    for name in ("b", *("" if case.way.a_registers else "a")):
        half = given[name][case.tiles // 2 :]
        half |= rng.integers(0, 8, half.shape, np.uint64) << np.uint64(49)
    return given


def differences(op, variant, tiles, seed):
    """How many registers of D differ, and how many were compared."""
    case = WarpgroupCase(op, variant, tiles, seed)
    given = inputs(case)
    registers, flags = computed(case, given, flags=True)
    assert not any(flags), flags
    return int((registers != case.expect(given, TARGET)).sum()), registers.size


def recorded(step=1, first=0):
    """What an H200 answered: the registers that differ, and those compared."""
    recording = record.load(GOLDEN)
    for each in recording.cases[first::step]:
        case = recording.question(each)
        given = case.inputs()
        assert case.digest(given) == each.digest
        answer = recording.result(each)
        registers = computed(case, given)
        yield case, int((registers != answer).sum()), registers.size


def compared(step, first, asked):
    """Every variant of every instruction, as :func:`recorded`."""
    every = [op for family in asked.family for op in catalogue(family)]
    for op in every[first::step]:
        for variant in every_variant(op):
            yield (op, variant), *differences(op, variant, asked.tiles, asked.seed)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiles", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", default="0/1", help="i/n: every n-th, from i on")
    parser.add_argument("--family", nargs="+", default=("wgmma", "wgmma.sp"))
    parser.add_argument("--golden", action="store_true")
    asked = parser.parse_args()
    first, step = map(int, asked.part.split("/"))
    every = recorded(step, first) if asked.golden else compared(step, first, asked)
    wrong = total = count = 0
    for what, differ, size in every:
        wrong, total, count = wrong + differ, total + size, count + 1
        if differ:
            print(f"{differ} of {size} differ: {what}", flush=True)
    print(f"{count} variants, {total} registers compared, {wrong} differ")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
