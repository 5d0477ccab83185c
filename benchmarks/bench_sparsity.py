"""Pruning and compressing 8192 x 8192 elements, against copying them.

With PyTorch installed, its own conversion of the same matrix on the CPU is
timed in the same run, and each function here must be 20 times as fast.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from timing import least

import fragmenta as fm
from fragmenta.reference.isa.families import catalogue
from fragmenta.reference.sparse.compression import check as check_sparse
from fragmenta.reference.sparse.compression import compress, decompress
from fragmenta.reference.sparse.exchange import from_torch, to_cutlass_sm90, to_torch
from fragmenta.reference.sparse.pruning import prune

SIZE = (8192, 8192)
Within = Callable[[Callable[[], object], int, float], None]

# One instruction for each type of A; the 8-bit ones are what is promised.
OPS = {op.types["a"].name: op for op in catalogue("wgmma.sp")}
OPS["s4"] = fm.mma("m16n8k128", a="s4", sp="sp::ordered_metadata")
every_type = pytest.mark.parametrize("name", ["s8", "e4m3", "f16", "tf32", "s4"])


def matrix(name: str) -> Any:
    """Any pattern of the type, NaN and infinity included."""
    of = OPS[name].types["a"]
    random = np.random.default_rng(0)
    bits = random.integers(0, of.mask, SIZE, of.bits_dtype, endpoint=True)
    return of.decode(bits)


@every_type
def test_prune(within_copies: Within, name: str) -> None:
    A, op = matrix(name), OPS[name]
    within_copies(lambda: prune(op, A), A.nbytes, 10)


@every_type
def test_compress(within_copies: Within, name: str) -> None:
    op = OPS[name]
    A = prune(op, matrix(name))
    within_copies(lambda: compress(op, A), A.nbytes, 10)


@every_type
def test_decompress(within_copies: Within, name: str) -> None:
    op = OPS[name]
    A = prune(op, matrix(name))
    sp = compress(op, A)
    within_copies(lambda: decompress(op, sp), A.nbytes, 10)


@every_type
def test_check_sparse(within_copies: Within, name: str) -> None:
    op = OPS[name]
    A = prune(op, matrix(name))
    within_copies(lambda: check_sparse(op, A), A.nbytes, 10)


def test_pack_metadata(within_copies: Within) -> None:
    op = OPS["s8"]
    A = prune(op, matrix("s8"))
    codes = compress(op, A).indices
    within_copies(lambda: op.metadata.pack_tiles(codes), A.nbytes, 30)


def test_to_cutlass(within_copies: Within) -> None:
    op = OPS["s8"]
    A = prune(op, matrix("s8"))
    sp = compress(op, A)
    within_copies(lambda: to_cutlass_sm90(op, sp), A.nbytes, 10)


# ── against PyTorch ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("what", ["prune", "compress", "compress and reorder"])
def test_against_pytorch(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    convert = pytest.importorskip("torch.sparse._semi_structured_conversions")
    op, A = OPS["s8"], matrix("s8")
    pruned = prune(op, A)
    tensor = torch.from_numpy(pruned)

    def theirs() -> Any:
        return convert.sparse_semi_structured_from_dense_cutlass(tensor)

    calls: dict[str, Callable[[], object]] = {
        "prune": lambda: prune(op, A),
        "compress": lambda: compress(op, pruned),
        "compress and reorder": lambda: to_torch(op, compress(op, pruned)),
    }
    before = least(theirs, 2)
    ours = least(calls[what], 9)
    pytorch = min(before, least(theirs, 2))
    with capsys.disabled():
        print(
            f"\n{what}: {1e3 * ours:.1f} ms, PyTorch {torch.__version__} "
            f"{1e3 * pytorch:.0f} ms, {pytorch / ours:.1f} times as fast"
        )
    packed, meta = theirs()
    assert (decompress(op, from_torch(op, packed, meta)) == pruned).all()
    assert pytorch / ours >= (20 if what != "compress and reorder" else 5)


# ── memory ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("what", ["prune", "compress"])
def test_memory(what: str) -> None:
    """At most twice the input beyond the output."""
    op, A = OPS["s8"], matrix("s8")
    pruned = prune(op, A)
    sp = compress(op, pruned)
    call, out = {
        "prune": (lambda: prune(op, A), A.nbytes),
        "compress": (
            lambda: compress(op, pruned),
            sp.values.nbytes + sp.indices.nbytes,
        ),
    }[what]
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - out <= 2 * A.nbytes
