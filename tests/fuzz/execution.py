"""Execution: every bit of D is right.

The judge computes single elements in integers and exact fractions
(``tests/arithmetic/reference.py``), and whole integer products in int64; what is
asked in two ways must be answered the same.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np

import fragmenta as fm
from fragmenta import catalogue
from fragmenta.reference.execution.mma import numeric_model
from fragmenta.reference.isa.target import chosen_target
from fragmenta.reference.shared.tiles import tile as shared_tile
from fragmenta.reference.sparse.compression import compress
from tests.arithmetic import reference
from tests.fuzz.engine import Ask, Surface, bits, expect, index, integers, odd, same
from tests.fuzz.packing import is_index, patterns
from tests.fuzz.sparsity import sparse_bits


@cache
def products() -> list[fm.Instruction]:
    """Instructions that multiply, one of each kind of numbers and small shape."""
    found: dict[Any, fm.Instruction] = {}
    for family in ("mma", "mma.sp", "wmma.mma", "wgmma", "wgmma.sp"):
        for op in catalogue(family):
            if op.shape.n > 32:
                continue
            types = tuple(of.name for of in op.types.values())
            key = (family, types, op.shape.k, op.kind, op.satfinite, op.scale_vec)
            found.setdefault(key, op)
    return list(found.values())


@cache
def some() -> list[fm.Instruction]:
    """A few of them: compiled code for each kind of numbers takes its time."""
    few: dict[str, fm.Instruction] = {}
    for op in products():
        model = numeric_model(op, chosen_target(op, None))
        few.setdefault(f"{model.form} {op.types['a']} {op.sparse}", op)
    return list(few.values())


def chosen(ask: Ask) -> fm.Instruction:
    """Mostly one of a few, so that thousands of calls are quick."""
    return ask.rng.choice(some() if ask.rng.random() < 0.8 else products())


def operands(
    op: fm.Instruction, rng: random.Random, shape: tuple[int, int, int]
) -> Any:
    """Raw bits of A, B, C and the scales; ends and zeros are frequent."""
    m, n, k = shape
    types = op.types
    a = sparse_bits(op, (m, k), rng) if op.sparse else patterns(types["a"], (m, k), rng)
    b = patterns(types["b"], (k, n), rng)
    of_c = types.get("c", types["d"])
    c = patterns(of_c, (m, n), rng)
    if rng.random() < 0.5:
        c = np.zeros_like(c)
    if rng.random() < 0.4:  # values of like size, so that sums are no NaN
        a, b = (_ordinary(x, of) for x, of in ((a, types["a"]), (b, types["b"])))
    scales = {}
    if op.scale_vec:
        blocks = -(-k // op.shape.k) * op.scale_vec
        of = op.scale_a.dtype
        scales = {
            "scale_a": patterns(of, (m, blocks), rng) & np.uint8(0x7F),
            "scale_b": patterns(of, (blocks, n), rng) & np.uint8(0x7F),
        }
    return a, b, c, scales


def _ordinary(raw: Any, of: Any) -> Any:
    """Exponents near 1; zeros stay zeros."""
    if of.is_integer or of.exponent_bits < 4:
        return raw
    shift = of.fraction_bits + (13 if of.name == "tf32" else 0)
    kind = raw.dtype.type
    top = kind(((1 << of.exponent_bits) - 1) << shift)
    near = kind(of.bias << shift) | (raw & kind(3 << shift))
    return np.where(raw == 0, raw, (raw & ~top) | near).astype(raw.dtype)


def matrices(op: fm.Instruction, raw: Any) -> Any:
    """The same as values."""
    a, b, c, scales = raw
    types = op.types
    of_c = types.get("c", types["d"])
    named = {n: op.scale_a.dtype.decode(s) for n, s in scales.items()}
    return types["a"].decode(a), types["b"].decode(b), of_c.decode(c), named


def judged(op: fm.Instruction, target: str, raw: Any, at: tuple[int, int]) -> int:
    """The bits of one element of D, by the reference."""
    a, b, c, scales = raw
    row, col = at
    model = numeric_model(op, target)
    k = op.shape.k
    whole = -(-b.shape[0] // k) * k
    column = np.zeros(whole, b.dtype)
    column[: b.shape[0]] = b[:, col]
    index_ = None
    if op.sparse:
        sp = compress(op, op.types["a"].decode(a[row : row + 1]), pad=True)
        line, index_ = op.types["a"].encode(sp.values)[0], sp.columns()[0] % k
        extra = whole // 2 - line.size
        line = np.pad(line, (0, extra))
        index_ = np.pad(index_, (0, extra), constant_values=0)
        index_[line.size - extra :] = np.arange(line.size - extra, line.size) * 2 % k
    else:
        line = np.pad(a[row], (0, whole - a.shape[1]))
    scale = (
        [scales["scale_a"][row], scales["scale_b"][:, col]] if scales else [None] * 2
    )
    return int(reference.element(line, column, c[row, col], model, index_, *scale))


# ── games ───────────────────────────────────────────────────────────────────


def called(ask: Ask) -> None:
    """One element of D, on any target, is what the reference says."""
    rng = ask.rng
    op = chosen(ask)
    raw = operands(op, rng, tuple(op.shape))
    A, B, C, scales = matrices(op, raw)
    target = rng.choice(op.requires.targets)
    D = ask.accepted(op, A, B, C, target=target, **scales)
    at = index((op.shape.m, op.shape.n), rng)
    found = int(op.types["d"].encode(D)[at])
    wanted = judged(op, target, raw, at)
    expect(
        found == wanted, f"{op} on {target}: D{list(at)} {found:#x}, not {wanted:#x}"
    )


def of_any_size(ask: Ask) -> None:
    """Products of any size are chains of instructions along k."""
    rng = ask.rng
    op = chosen(ask)
    chunk = op.granularity.chunk if op.sparse else 1
    longest = (
        3 * op.shape.k
        if op.types.get("c", op.types["d"]) == op.types["d"]
        else op.shape.k
    )
    size = (
        rng.randint(1, 20),
        rng.randint(1, 20),
        rng.randint(1, longest // chunk) * chunk,
    )
    raw = operands(op, rng, size)
    A, B, C, scales = matrices(op, raw)
    where = chosen_target(op, None)
    D = ask.accepted(fm.matmul, op, A, B, C, **scales)
    at = index(size[:2], rng)
    found = int(op.types["d"].encode(D)[at])
    wanted = judged(op, where, raw, at)
    expect(found == wanted, f"{op}: D{list(at)} of {size} {found:#x}, not {wanted:#x}")


@cache
def whole_numbers() -> list[fm.Instruction]:
    return [op for op in products() if op.types["a"].name in ("s8", "u8", "s4", "u4")]


def integer_products(ask: Ask) -> None:
    """Whole products of integers, in int64."""
    rng = ask.rng
    op = rng.choice(whole_numbers())
    A, B, C, _ = matrices(op, operands(op, rng, tuple(op.shape)))
    D = ask.accepted(
        rng.choice((op, lambda *x: fm.matmul(op, x[0], x[1], x[2]))), A, B, C
    )
    total = A.astype(np.int64) @ B.astype(np.int64) + C.astype(np.int64)
    if op.satfinite:
        wanted = np.clip(total, -(2**31), 2**31 - 1)
    else:
        wanted = total.astype(np.uint32).view(np.int32)
    same(D, wanted, f"{op}")


def in_registers(ask: Ask) -> None:
    """Registers in, registers out: the same as matrices."""
    rng = ask.rng
    op = chosen(ask)
    if op.family not in ("mma", "mma.sp") or op.scale_vec:
        return
    raw = operands(op, rng, tuple(op.shape))
    A, B, C, _ = matrices(op, raw)
    more: dict[str, Any] = {}
    stored: Any = A
    if op.sparse:
        sp = compress(op, A)
        selector = rng.choice(op.selectors)
        more = {
            "metadata": op.metadata.pack(sp.indices, selector),
            "selector": selector,
        }
        stored = sp.values
    words = ask.accepted(
        op.execute, op.a.pack(stored), op.b.pack(B), op.c.pack(C), **more
    )
    wanted = op.types["d"].encode(ask.accepted(op, A, B, C))
    same(op.d.unpack_bits(words), wanted, f"{op} in registers")


@cache
def warpgroups() -> list[fm.Instruction]:
    return [op for op in some() if op.family == "wgmma"] or [
        op for op in products() if op.family == "wgmma"
    ][:4]


def from_shared_memory(ask: Ask) -> None:
    """``wgmma`` through descriptors: the same as matrices."""
    rng = ask.rng
    op = rng.choice(warpgroups())
    raw = operands(op, rng, tuple(op.shape))
    A, B, C, _ = matrices(op, raw)
    smem, a = shared_tile(op, "A", A, swizzle=rng.choice((0, 32, 64, 128)))
    smem, b = shared_tile(op, "B", B, swizzle=rng.choice((0, 32, 64, 128)), image=smem)
    keep = rng.choice((0, 1))
    d = ask.accepted(op.execute, op.d.pack(C), a, b, smem=smem, scale_d=keep)
    wanted = ask.accepted(op, A, B, C if keep else np.zeros_like(C))
    same(op.d.unpack_bits(d), op.types["d"].encode(wanted), f"{op} from shared memory")


def shapes(ask: Ask) -> None:
    """Matrices that do not go together are refused, others multiplied."""
    rng = ask.rng
    op = rng.choice([op for op in some() if not op.scale_vec])
    chunk = op.granularity.chunk if op.sparse else 1

    def near(size: int) -> int:
        return max(0, size + rng.choice((0, 0, 0, 0, 1, -1, chunk)))

    m, n, k = rng.randint(1, 4), rng.randint(1, 4), chunk * rng.randint(1, 3)
    batch = [rng.choice(((), (), (2,), (1,), (3,), (2, 1), (0,))) for _ in range(3)]
    a, b, c = (*batch[0], m, near(k)), (*batch[1], near(k), n), (*batch[2], near(m), n)
    try:
        np.broadcast_shapes(*batch)
        together = True
    except ValueError:
        together = False
    right = a[-1] == b[-2] > 0 and c[-2] == m and a[-1] % chunk == 0 and together
    types = op.types
    given = (
        np.zeros(a, types["a"].storage),
        np.zeros(b, types["b"].storage),
        np.zeros(c, types.get("c", types["d"]).storage),
    )
    D = ask.maybe(right, fm.matmul, op, given[0], given[1], given[2])
    if right:
        wanted = (*np.broadcast_shapes(*batch), m, n)
        expect(D.shape == wanted, f"D is {D.shape}, not {wanted}")
        expect(not np.asarray(D, np.float64).any(), "zeros have a product")


def odd_operands(ask: Ask) -> None:
    """What is no matrix is refused by every door."""
    rng = ask.rng
    op = rng.choice([op for op in some() if not op.scale_vec])
    raw = operands(op, rng, tuple(op.shape))
    given = list(matrices(op, raw)[:3])
    given[rng.randrange(3)] = odd(rng)
    if given[2] is None:
        return
    ask.refused(op, *given)
    ask(fm.matmul, op, given[0], given[1], given[2])
    target = odd(rng)
    if target is not None:
        ask.refused(op, *matrices(op, raw)[:3], target=target)


def explained(ask: Ask) -> None:
    """An explanation ends with the bits of D."""
    rng = ask.rng
    op = chosen(ask)
    raw = operands(op, rng, tuple(op.shape))
    A, B, C, scales = matrices(op, raw)
    row, col = index((op.shape.m, op.shape.n), rng)
    told = ask.accepted(op.explain, A, B, C, row=row, col=col, **scales)
    D = ask.accepted(op, A, B, C, **scales)
    found = int(op.types["d"].encode(D)[row, col])
    expect(
        told.explanation.bits == found,
        f"{op}: {told.explanation.bits:#x}, not {found:#x}",
    )
    value = odd(rng)
    right = is_index(value, op.shape.m) and not isinstance(value, np.ndarray)
    ask.maybe(right, op.explain, A, B, C, row=value, col=col, **scales)


def sparse_is_dense(ask: Ask) -> None:
    """What is stored without its zeros is multiplied as with them."""
    rng = ask.rng
    op = rng.choice([op for op in whole_numbers() if op.sparse])
    rows, columns = rng.randint(1, 5), rng.randint(1, 5)
    chunk = op.granularity.chunk
    k = chunk * rng.randint(1, 2 * op.shape.k // chunk)
    A = op.types["a"].decode(sparse_bits(op, (rows, k), rng))
    cut = rng.randrange(chunk)
    A = A[:, : k - cut]
    low, high = op.types["b"].limits
    B = integers(rng, low, high, (k - cut, columns))
    sp = compress(op, A, pad=True)
    D = ask.accepted(fm.matmul, op, sp, B)
    total = A.astype(np.int64) @ B
    if not op.satfinite:
        same(D, total, f"{op} of width {k - cut}")
    wrong = k - cut + rng.choice((1, -1, chunk, -chunk))
    if wrong > 0:
        ask.refused(fm.matmul, op, sp, bits(rng, np.uint8, (wrong, columns)) & 1)


SURFACE = Surface(
    "execution",
    {
        called: 6,
        of_any_size: 4,
        integer_products: 6,
        in_registers: 4,
        from_shared_memory: 2,
        shapes: 6,
        odd_operands: 4,
        explained: 1,
        sparse_is_dense: 2,
    },
    share=0.04,
)
