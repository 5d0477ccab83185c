"""Warp functions give the bits of ``op.execute``.

    python -m tests.execution.warps [--trials 24] [--seed 1]

compares every multiplication of one warp in the catalogue, on one target for each
different model of it.  The tests compare some of them.
"""

import argparse
import sys
from dataclasses import replace

import numpy as np

from fragmenta import catalogue
from fragmenta.reference.execution.mma import execute, numeric_model
from fragmenta.reference.execution.warp import SELECTORS, warp_function
from fragmenta.reference.isa.families import OF_WARPS
from tests.arithmetic.inputs import KINDS, operands, raw

#: ``registers`` are arbitrary bits, also where nothing is read.  ``c`` has infinities
#: and NaN only in C.
EVERY = (*KINDS, "c", "registers")


def multiplications():
    """Every multiplication of one warp, and one target for each of its models."""
    for family in OF_WARPS:
        for op in catalogue(family):
            different = {}
            for target in op.requires.targets:
                how = numeric_model(op, target)
                different.setdefault(replace(how, target="", source=""), target)
            for target in different.values():
                yield op, target


def differences(op, target, rng, trials, kinds=EVERY):
    """How many registers of D differ, and how many were compared."""
    differ = compared = 0
    for kind in kinds:
        a, b, c, more = given(op, target, rng, trials, kind)
        expected = execute(op, a, b, c, **more, target=target)
        d = computed(op, target, a, b, c, **more)
        differ += int((d != expected).sum())
        compared += d.size
    return differ, compared


def given(op, target, rng, trials, kind):
    """The registers of some calls, and the other arguments of ``op.execute``."""
    model = numeric_model(op, target)
    m, n, _ = op.shape
    each = 4 if len(op.d.shape) > 2 else 1
    of = {"registers": "bits", "c": "near"}.get(kind, kind)
    *matrices, more = operands(rng, model, of, trials * each, m, n)
    if kind == "c":
        matrices[2] = raw(rng, model.c, matrices[2].shape, "bits")
    more.pop("index", None)
    parts = {"a": op.a, "b": op.b, "c": op.c}
    if op.scale_vec:
        parts |= {"scale_a": op.scale_a, "scale_b": op.scale_b}
    for name, part in parts.items():
        bits = more[name] if name in more else matrices["abc".index(name)]
        bits = bits.reshape(trials, *part.shape)
        more[name] = part.pack(part.dtype.decode(bits))
        if kind == "registers":
            more[name] = random_words(rng, more[name])
            if name.startswith("scale"):  # ``execute`` refuses other bits
                more[name] &= 0x01010101 * part.dtype.mask
    if op.scale_vec:
        more |= selected(op, rng, more)
    if op.sparse:
        legal = op.granularity.codes(op.metadata.ordered)
        more["metadata"] = nibbles(rng.choice(legal, (trials, 32, 8)))
        more["selector"] = int(rng.choice(op.selectors))
    return more.pop("a"), more.pop("b"), more.pop("c"), more


def random_words(rng, like):
    return rng.integers(0, 1 << 8 * like.itemsize, like.shape, like.dtype)


def selected(op, rng, scales):
    """Random selectors; all other bytes of the scale registers are different ones."""
    chosen = {}
    for side in "ab":
        part = op.fragment(f"scale_{side}")
        step = part.shape[1 if side == "a" else 0]
        threads = part.layout.sizes.get("thread", 1)
        byte, thread = int(rng.integers(4 // step)) * step, int(rng.integers(threads))
        named = {"thread": thread, "byte": byte, "pair": byte // 2}
        pinned = {name: v for name, v in named.items() if name in part.selectors}
        matrix = part.unpack(scales[f"scale_{side}"])
        mask = part.pack(
            part.dtype.decode(np.full(part.shape, 255, np.uint8) & part.dtype.mask),
            **pinned,
        )
        rest = random_words(rng, scales[f"scale_{side}"]) & (
            0x01010101 * part.dtype.mask
        )
        scales[f"scale_{side}"] = part.pack(matrix, **pinned) | (rest & ~mask)
        chosen |= {f"byte_{side}": byte, f"thread_{side}": thread}
    return chosen


def nibbles(codes):
    """Words (…, 32, 1) of codes (…, 32, 8)."""
    shifted = codes.astype(np.uint32) << np.arange(0, 32, 4, dtype=np.uint32)
    return np.bitwise_or.reduce(shifted, axis=-1, keepdims=True)


def columns(op, metadata, selector):
    """The columns of B that metadata names, legal or not: (…, m, stored k)."""
    chosen = {"selector": selector} if op.metadata.selectors else {}
    held = op.metadata.fragment.unpack_bits(metadata, **chosen)
    named = np.array([op.granularity.named(code) for code in range(16)], np.uint8)
    starts = np.arange(held.shape[-1])[:, None] * op.granularity.chunk
    return (named[held] + starts).reshape(*held.shape[:-1], op.stored_k)


def computed(op, target, a, b, c, flags=False, **more):
    """The registers of D (…, 32, n) that the warp function writes, call by call."""
    run = warp_function(op, target)
    parts = [more[name] for name in ("metadata", "scale_a", "scale_b") if name in more]
    extra = np.concatenate([*parts, np.zeros((len(a), 32, 1), np.uint32)], axis=-1)
    selectors = np.array([more.get(name, 0) for name in SELECTORS], np.int64)
    d = np.empty((len(a), op.d.registers, 32), c.dtype)
    found = [
        run(d[i], *(turned(x[i]) for x in (a, b, c, extra)), selectors)
        for i in range(len(a))
    ]
    registers = np.ascontiguousarray(d.swapaxes(1, 2))
    return (registers, found) if flags else registers


def turned(registers):
    """(lanes, registers) as (registers, lanes)."""
    return np.ascontiguousarray(registers.T)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", default="0/1", help="i/n: every n-th, from i on")
    asked = parser.parse_args()
    first, step = map(int, asked.part.split("/"))
    wrong = total = count = 0
    for op, target in list(multiplications())[first::step]:
        rng = np.random.default_rng(asked.seed)
        differ, compared = differences(op, target, rng, asked.trials)
        wrong, total, count = wrong + differ, total + compared, count + 1
        if differ:
            print(f"{differ} of {compared} differ: {op} on {target}", flush=True)
    print(f"{count} functions, {total} registers compared, {wrong} differ")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
