"""Do warpgroup functions give the bits of ``op.execute``?

    python -m tests.execution.warpgroups [--tiles 16] [--seed 1] [--part 0/1]

compares every ``wgmma`` of the catalogue: all n, both places of A, all transpositions
and selectors, every sign of A and B, all swizzles.  The tests compare some of them.
"""

import argparse
import sys
from dataclasses import replace
from itertools import product

import numpy as np

from fragmenta.evidence.variants import variants
from fragmenta.evidence.warpgroup import WarpgroupCase
from fragmenta.execution.warpgroup import FAMILIES, warpgroup_function
from fragmenta.isa.families import catalogue

TARGET = "sm_90a"


def every_variant(op):
    """All ways to run an instruction, with every sign that it has."""
    signs = (1, -1) if "scale_a" in {each.name for each in op.operands} else (1,)
    every = product(variants(op), signs, signs)
    for turn, (variant, scale_a, scale_b) in enumerate(every):
        yield replace(variant, scale_a=scale_a, scale_b=scale_b, turn=turn)


def function_for(op, variant):
    """The function for one way to run an instruction."""
    return warpgroup_function(
        op,
        TARGET,
        a_from_registers=variant.a_registers,
        scale_a=variant.scale_a,
        scale_b=variant.scale_b,
        trans_a=variant.trans_a,
        trans_b=variant.trans_b,
    )


def computed(case, given, flags=False):
    """The registers of D (tiles, 128, n) that the function writes, tile by tile."""
    run = function_for(case.op, case.way)
    d = np.ascontiguousarray(given["c"].swapaxes(1, 2))
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
            )
        )
    registers = np.ascontiguousarray(d.swapaxes(1, 2))
    return (registers, found) if flags else registers


def differences(op, variant, tiles, seed):
    """How many registers of D differ, and how many were compared."""
    case = WarpgroupCase(op, variant, tiles, seed)
    given = case.inputs()
    rng = np.random.default_rng(seed)
    if seed % 2:  # arbitrary bits: with NaN and infinities everywhere
        given["image"] = rng.integers(0, 256, given["image"].shape, np.uint8)
    registers, flags = computed(case, given, flags=True)
    assert not any(flags)
    return int((registers != case.expect(given, TARGET)).sum()), registers.size


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiles", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", default="0/1", help="i/n: every n-th, from i on")
    asked = parser.parse_args()
    first, step = map(int, asked.part.split("/"))
    every = [
        (op, variant)
        for family in FAMILIES
        for op in catalogue(family)
        for variant in every_variant(op)
    ]
    wrong = total = count = 0
    for op, variant in every[first::step]:
        for seed in (2 * asked.seed, 2 * asked.seed + 1):
            differ, compared = differences(op, variant, asked.tiles, seed)
            wrong, total, count = wrong + differ, total + compared, count + 1
            if differ:
                print(f"{differ} of {compared}: {op}, {variant}", flush=True)
    print(f"{count} comparisons, {total} registers compared, {wrong} differ")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
