"""The project's own kernels give an H200's bits, in every schedule.

``make hopper`` runs all launches, ``make test`` a dozen.
"""

import json
import os

import pytest

from fragmenta import ptx
from fragmenta.hopper.kernels.choosing import DENSE_TILES, SPARSE_TILES
from tests.ptx.hopper import launching
from tests.ptx.hopper.gemms import FEW, GEMMS, TYPES, Gemm, short_hash
from tests.ptx.hopper.record import FILE, recorded
from tests.thinning import repeats, some

COMPLETE = bool(os.environ.get("FRAGMENTA_HOPPER"))
LAUNCHES = GEMMS if COMPLETE else FEW
EMULATED = GEMMS if COMPLETE else list(dict.fromkeys([*FEW, *some(GEMMS, 6)]))
SCHEDULES = ("eager", "lazy", 1) if COMPLETE else ("lazy",)


def names(gemms: list[Gemm]) -> list[str]:
    return [each.name for each in gemms]


# ── what is launched ────────────────────────────────────────────────────────


def test_every_kind_of_kernel_is_there():
    kernels = [each.kernel for each in GEMMS]
    assert len(set(names(GEMMS))) == len(GEMMS) >= 60
    tiles = {each.tile for each in kernels if each.sparse}
    assert {x.n for x in tiles} >= {x.n for x in SPARSE_TILES}
    for kind in ("cluster", "split"):
        met = {(x.m, getattr(x, kind)) for x in tiles}
        assert met >= {(x.m, getattr(x, kind)) for x in SPARSE_TILES}
    assert {each.tile for each in kernels if not each.sparse} >= set(DENSE_TILES)
    for sparse in (True, False):
        assert {(x.a, x.b) for x in kernels if x.sparse == sparse} >= set(TYPES)
    assert {each.out for each in kernels} == {"f32", "bf16", "f16", "s32"}
    for kind in ("promote", "scaled", "transposed", "xor"):
        assert sum(getattr(each, kind) for each in kernels) >= 4


def test_most_blocks_go_round_their_ring():
    around = 0
    for each in GEMMS:
        made, kernel = each.geometry, each.kernel
        stages = -(-made.sizes[2] // kernel.slabs)
        clusters = made.grid // kernel.tile.cluster // kernel.tile.split
        rounds = kernel.stages * clusters * kernel.tile.split
        around += kernel.tiles(each.m, each.n) * stages > rounds
    assert around >= len(GEMMS) - 2


@pytest.mark.parametrize("gemm", some(FEW, 3), ids=names(some(FEW, 3)))
def test_the_arguments_are_those_of_the_ptx(gemm):
    kernel = ptx.parse(gemm.text).kernels[launching.ENTRY]
    given = launching.given(gemm, gemm.memory())
    sizes = [len(x.data) if hasattr(x, "pointers") else None for x in given]
    assert len(given) == len(kernel.parameters)
    for parameter, size in zip(kernel.parameters, sizes, strict=True):
        assert size in (None, parameter.size)
    assert sizes[:3] == [128] * 3
    assert sizes[4] == 48
    assert kernel.function.directives["reqnctapercluster"][:1] == (
        gemm.kernel.tile.cluster * gemm.kernel.tile.split,
    )


# ── what an H200 did ────────────────────────────────────────────────────────


def test_the_recording_is_of_an_h200():
    read = json.loads(FILE.read_text())
    assert "H200" in read["made"]["gpu"]
    assert list(read["launches"]) == names(GEMMS)


# Every second of the chosen ones, and of their launches.
@repeats(2)
@pytest.mark.parametrize("gemm", EMULATED, ids=names(EMULATED))
def test_the_emulation_has_the_bits_of_the_gpu(gemm):
    kept = recorded()[gemm.name]
    assert (gemm.digest(), short_hash(gemm.expected)) == (kept.inputs, kept.rows)


@repeats(2)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("gemm", LAUNCHES, ids=names(LAUNCHES))
def test_a_launch_leaves_the_bytes_of_the_gpu(gemm, schedule):
    found = launching.launch(gemm, schedule=schedule, watch=False)
    assert found.right(gemm)
    assert short_hash(found.d.buffer) == recorded()[gemm.name].buffer


@pytest.mark.parametrize("gemm", LAUNCHES[:: 1 if COMPLETE else 6])
def test_nothing_is_reported(gemm):
    found = launching.launch(gemm, schedule="lazy", watch="report")
    assert not [str(each) for each in found.result.problems if each.severity == "error"]
