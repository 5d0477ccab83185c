"""Random pairs of expressions, in kernels, against the symbolic oracle.

    python -m tests.sameness.fuzzing --count 1000000 --seed 1 --output FILE

A portion is a pair of kernels with :data:`SHAPES` expressions each.  Every thread
chooses its own inputs for the leaves of all of them, often the same one for several, so
a portion has ``SHAPES * THREADS`` pairs.  The second kernel has rewritings of the
expressions of the first.  A portion depends on its seed alone.
"""

import argparse
import json
import random as randomness
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from fragmenta import ptx
from fragmenta.inspect.sameness.following import follow
from fragmenta.inspect.sameness.naming import name_roots, roots
from tests.sameness import rewriting
from tests.sameness.rewriting import HOW, LEAVES, Leaf, grown, normal, rewritten

SHAPES, THREADS = 128, 512
LAYOUTS = ("plain", "shuffled", "shared")


def chosen(seed):
    """Which input each leaf of each thread is: of few inputs, or of many."""
    random = np.random.default_rng(seed)
    many = random.integers(1, LEAVES + 1, (THREADS, 1))
    found = random.integers(0, LEAVES, (THREADS, LEAVES)) % many
    return found.astype(np.int32)


def call(expressions, x, y, picked, layout):
    text = rewriting.kernel(expressions, layout, picked=True)
    blocks = THREADS // 32
    kernel = ptx.parse(text).kernels["k"]
    return ptx.Call(kernel, blocks, 32, [x, y, picked], contract=False)


def hashes(expressions, picked, layout):
    """A hash for each thread and each expression, as two words."""
    x = np.random.default_rng(1).standard_normal(LEAVES).astype(np.float32)
    y = np.zeros((THREADS, len(expressions)), np.float32)
    program = (call(expressions, x, y, picked, layout),)
    memory = roots(program)
    name_roots(memory)
    (made,) = follow(program, memory).outputs
    return np.stack([each.reshape(y.shape) for each in made.hashes])


def equal(pairs, picked):
    """What the oracle says of each thread and each pair."""
    found = np.zeros((THREADS, len(pairs)), bool)
    for thread, row in enumerate(picked.tolist()):
        leaves = [Leaf(each) for each in row]
        for number, (one, two) in enumerate(pairs):
            found[thread, number] = normal(one, leaves) == normal(two, leaves)
    return found


def portion(seed, shapes=SHAPES):
    """One portion: the pairs, how many are equal, and how many verdicts are wrong."""
    random = randomness.Random(seed)
    pairs = []
    for number in range(shapes):
        first = grown(random, 3)
        pairs.append((first, rewritten(random, first, HOW[number % len(HOW)])))
    picked = chosen(seed)
    one, two = (
        hashes([each[side] for each in pairs], picked, layout)
        for side, layout in ((0, "plain"), (1, LAYOUTS[seed % len(LAYOUTS)]))
    )
    wanted = equal(pairs, picked)
    same = (one == two).all(0)
    return {
        "seed": seed,
        "pairs": int(wanted.size),
        "equal": int(wanted.sum()),
        "wrong_same": int((same & ~wanted).sum()),
        "wrong_different": int((~same & wanted).sum()),
    }


def main():
    reader = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    reader.add_argument("--count", type=int, default=100_000)
    reader.add_argument("--seed", type=int, default=1)
    reader.add_argument("--output", type=Path)
    given = reader.parse_args()
    done, seed = [], given.seed
    while sum(each["pairs"] for each in done) < given.count:
        done.append(portion(seed))
        print(json.dumps(done[-1]), flush=True)
        seed += 1
    total = {
        name: sum(each[name] for each in done)
        for name in ("pairs", "equal", "wrong_same", "wrong_different")
    }
    total |= {"date": f"{datetime.now(UTC):%Y-%m-%d}", "portions": done}
    if given.output:
        given.output.write_text(json.dumps(total, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
