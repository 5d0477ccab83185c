"""Whole kernels around ``tcgen05.mma``, run here; what they are given, and what is right."""

import numpy as np

import fragmenta as fm
from fragmenta import ptx
from fragmenta.cuda.source.tensor_kernel import made
from fragmenta.cuda.source.tensor_moves import STEPS, stored_bits
from fragmenta.cuda.tools import compiler
from fragmenta.reference.registers.words import pack_words
from fragmenta.reference.tensor_memory.scales import scale_blocks


def random_matrix(rng, shape, of):
    """Small numbers of any type, so that no sum overflows."""
    if of.name in ("s8", "u8"):
        return rng.integers(0, 9, shape).astype(of.storage)
    return (rng.integers(-6, 7, shape) / 4).astype(of.storage)


def in_memory(op, operand, lines):
    """The bytes of lines of elements, as the kernel wants them."""
    of = op.types[operand.lower()]
    bits = of.encode(np.ascontiguousarray(lines))
    if stored_bits(op, operand) < 8:
        return pack_words(bits, stored_bits(op, operand)).view(np.uint8)
    if of.bits < 8:
        return bits.astype(np.uint8)
    return bits.view(np.uint8)


def codes_in_memory(codes):
    """Two codes to a byte, the first one in the low bits."""
    return (codes[..., ::2] | codes[..., 1::2] << 4).astype(np.uint8)


def launch(op, *, tiles=(1, 1), chunks=2, a_tensor=False, seed=0, **options):
    """What the kernel of an instruction leaves, and what the package computes."""
    rng = np.random.default_rng(seed)
    kernel = made(op, "multiply", a_tensor=a_tensor)
    m, n = op.shape.m * tiles[0], op.shape.n * tiles[1]
    k = chunks * STEPS * op.shape.k
    dense = random_matrix(rng, (m, k), op.types["a"])
    b = random_matrix(rng, (k, n), op.types["b"])
    arguments, a, scales = [], dense, {}
    if op.sparse:
        a = fm.sparse.compress(op, fm.sparse.prune(op, dense))
    stored = a.values if op.sparse else dense
    flips = op.descriptor.transpose_a, op.descriptor.transpose_b
    arguments.append(in_memory(op, "A", stored.T if flips[0] else stored))
    arguments.append(in_memory(op, "B", b if flips[1] else b.T))
    if op.sparse:
        arguments.append(codes_in_memory(a.indices))
    if op.scale_vec:
        scales, blocks = random_scales(rng, op, m, n, k)
        arguments += blocks
    d = np.zeros((m, n), op.types["d"].storage)
    grid = (tiles[0] * op.cta_group, tiles[1])
    text = compiler.to_ptx(kernel.text(), "sm_100a")
    ptx.parse(text).kernels["multiply"].launch(
        grid,
        128,
        [*arguments, d, m, n, k],
        shared=kernel.shared_bytes,
        target="sm_100a",
        **options,
    )
    return d, fm.matmul(op, a, b, **scales)


def random_scales(rng, op, m, n, k):
    """Scales near 1, as matrices and as blocks; each tile of B has blocks of its own."""
    factors = k // op.shape.k * op.scale_vec
    of = op.scale_a.dtype
    bits = {"ue8m0": (125, 130), "ue4m3": (40, 70)}[of.name]
    of_a = rng.integers(*bits, (m, factors)).astype(np.uint8)
    of_b = rng.integers(*bits, (n, factors)).astype(np.uint8)
    blocks = [scale_blocks(of_a)]
    blocks.append(
        np.concatenate(
            [scale_blocks(of_b[at : at + op.shape.n]) for at in range(0, n, op.shape.n)]
        )
    )
    named = {"scale_a": of.decode(of_a), "scale_b": of.decode(of_b.T)}
    return named, [np.ascontiguousarray(each) for each in blocks]
