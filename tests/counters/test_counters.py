"""Counts of launches: by hand, by NumPy, in every mode, and as Nsight Compute has them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import fragmenta as fm
from fragmenta import ptx
from fragmenta.commands import app
from fragmenta.cuda.tools import programs
from fragmenta.cuda.tools.resources import registers_of
from fragmenta.reference.cards import card
from fragmenta.values.counters.metrics import EVERY
from tests.counters import held_out, nsight
from tests.counters.cases import (
    BLOCKS,
    Case,
    module,
    own_cases,
    small_cases,
)
from tests.ptx import test_triton_blackwell
from tests.thinning import some

CASES = {each.name: each for each in small_cases()}
WARPS = BLOCKS * 8
GLOBAL = "l1tex__t_{}_pipe_lsu_mem_global_op_{}.sum"
PASSES = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{}.sum"
BY_HAND = {
    # sectors that a warp loads and stores
    "copy_u8": (1, 1),
    "copy_u16": (2, 2),
    "copy_f32": (4, 4),
    "copy_f32x2": (8, 8),
    "copy_f32x4": (16, 16),
    "copy_shifted": (5, 4),
    "load_stride_2": (8, 4),
    "load_stride_8": (32, 4),
    "load_stride_33": (32, 4),
    "load_same": (1, 4),
    "store_stride_8": (4, 32),
}
PASSES_BY_HAND = {
    # passes of a store and of a load
    "shared_plain": (1, 1),
    "shared_stride_2": (2, 2),
    "shared_stride_32": (32, 32),
    "shared_same": (1, 1),
    "shared_u8": (1, 1),
    "shared_x2": (2, 2),
    "shared_x2_stride_2": (4, 4),
    "shared_x4": (4, 4),
    "shared_x4_stride_2": (8, 8),
}


def counted(case: Case, **options: Any) -> Any:
    """What a launch counts."""
    return case.launch(**{"watch": False, **options}, counters=True).counters


@pytest.mark.parametrize("name", some(BY_HAND, 5))
def test_sectors_are_those_that_one_counts_by_hand(name: str) -> None:
    found = counted(CASES[name])
    for op, each in zip(("ld", "st"), BY_HAND[name], strict=True):
        assert found[GLOBAL.format("requests", op)] == WARPS
        assert found[GLOBAL.format("sectors", op)] == WARPS * each


@pytest.mark.parametrize("name", some(PASSES_BY_HAND, 4))
def test_passes_are_those_that_one_counts_by_hand(name: str) -> None:
    found = counted(CASES[name])
    for op, each in zip(("st", "ld"), PASSES_BY_HAND[name], strict=True):
        assert found[PASSES.format(op)] == WARPS * each


@pytest.mark.parametrize("name, width", [("gather", 4), ("gather_x4", 16)])
def test_sectors_of_a_gather_are_those_of_numpy(name: str, width: int) -> None:
    case = CASES[name]
    places = case.arguments()[2].astype(np.int64) * width // 32
    expected = sum(len(np.unique(each)) for each in places.reshape(-1, 32))
    found = counted(case)
    own = WARPS * 4  # the indices
    assert found[GLOBAL.format("sectors", "ld")] == expected + own
    touched = {each.name: each for each in found.footprints}
    (source,) = (each for name, each in touched.items() if "1" in name)
    assert source.read == len(np.unique(places))
    assert source.written == 0


@pytest.mark.parametrize("name", ["gather", "shared_gather", "two_ways", "async_16"])
def test_counts_do_not_depend_on_how_a_launch_is_watched(name: str) -> None:
    case = CASES[name]
    plain = counted(case)
    for options in (
        {"watch": True},
        {"schedule": "lazy"},
        {"schedule": ("eager", 3), "watch": True},
        {"schedule": "lazy+in-steps"},
    ):
        assert counted(case, **options).metrics == plain.metrics, options


def test_results_are_those_of_a_launch_that_does_not_count() -> None:
    case = CASES["two_ways"]
    left = []
    for counters in (False, True):
        given = case.arguments()
        result = case.kernel().launch(BLOCKS, 256, given, counters=counters)
        left.append((given[0].tobytes(), result.counts))
        assert (result.counters is not None) == counters
    assert left[0] == left[1]


def test_threads_are_those_that_take_part() -> None:
    kernel = ptx.parse("""
.version 8.0
.target sm_80
.address_size 64
.entry f(.param .u64 d)
{
    .reg .pred %p<3>;
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    mov.u32 %r1, %tid.x;
    setp.lt.u32 %p1, %r1, 8;
    @%p1 add.u32 %r1, %r1, 1;
    setp.lt.u32 %p2, %r1, 40;
    @!%p2 bra DONE;
    mov.u32 %r2, 7;
DONE:
    ret;
}""").kernels["f"]
    found = kernel.launch(1, 48, [0], counters=True).counters
    assert found is not None
    # 48 threads execute 5 instructions and ret; threads 0 to 39 one more
    assert found["ptx__thread_inst_executed.sum"] == 48 * 6 + 40
    # 40 are excluded from the addition, 40 from the branch
    assert found["ptx__thread_inst_executed_pred_on.sum"] == 48 * 6 - 40
    assert found["ptx__branches.sum"] == 2
    assert found["ptx__branches_divergent.sum"] == 1


def test_atomics_without_a_result_are_reductions() -> None:
    for name, op in (("red_bins", "red"), ("atom_bins", "atom")):
        found = counted(CASES[name])
        assert found[GLOBAL.format("requests", op)] == WARPS
        other = {"red": "atom", "atom": "red"}[op]
        assert found[GLOBAL.format("requests", other)] == 0


def test_bulk_copies_and_boxes_count_their_bytes() -> None:
    found = counted(CASES["bulk"])
    assert found.tma == {"read": 4096 * BLOCKS, "written": 4096 * BLOCKS}
    case = next(own_cases())
    found = counted(case)
    (unit,) = found.products
    assert str(unit) == "wgmma e4m3 f32 sparse"
    # each product of 128 x 48 elements with 6 slabs of 128; half of A is stored
    assert found.products[unit] == 128 * 48 * 6 * 128 // 2
    assert found.tma["written"] == 128 * 48 * 4


def test_products_of_tensor_memory_follow_from_descriptors() -> None:
    row = test_triton_blackwell.kept()["matmul_scaled-nvfp4"]
    kernel = ptx.parse(row["text"], row["name"]).kernels[row["entry"]]
    given = test_triton_blackwell.parameters(row, test_triton_blackwell.arrays_of(row))
    result = kernel.launch(
        row["grid"],
        row["block"],
        given,
        cluster=row["cluster"],
        shared=row["shared"],
        target="sm_100a",
        watch=False,
        counters=True,
    )
    made = {str(unit): n for unit, n in result.counters.products.items()}
    assert made == {"tcgen05 mxf4nvf4": 128 * 64 * 256}
    assert result.counters.bound("b200").by["tcgen05 mxf4nvf4"] > 0


def test_lanes_with_generic_addresses_are_counted_where_they_are() -> None:
    source = r"""
extern "C" __global__ void both(int *d)
{
    __shared__ int tile[32];
    tile[threadIdx.x] = threadIdx.x;
    __syncwarp();
    int *from = threadIdx.x & 1 ? tile : d;
    from[threadIdx.x] += 1;
}"""
    kernel = ptx.RawKernel(source, "both").kernel
    result = kernel.launch(1, 32, [np.zeros(32, np.int32)], counters=True)
    found = result.counters
    assert found[GLOBAL.format("sectors", "ld")] == 4
    assert found[GLOBAL.format("sectors", "st")] == 4
    assert found[PASSES.format("ld")] == 1
    assert found[PASSES.format("st")] == 2


# ── Nsight Compute ──────────────────────────────────────────────────────────


BOTH = (nsight.FITTED, nsight.HELD_OUT)


def test_counts_that_differ_from_a_gpu_are_explained() -> None:
    launches = {}
    for which in BOTH:
        assert nsight.unexplained(which) == []
        kept = nsight.report(which)["launches"]
        assert set(kept) == {each.name for each in which.cases()}
        launches |= kept
    assert len(launches) >= 150
    for why, kernel, metric in nsight.WHERE:  # no reason is about equal counts
        assert [
            name
            for name, row in launches.items()
            for each, (ours, its) in row["metrics"].items()
            if kernel in name and metric in each and ours != its
        ], why


def test_predictions_are_those_that_were_written_before() -> None:
    said = nsight.predictions()
    equal = sum(ours == its for _, _, ours, its in said)
    assert (equal, len(said)) == (290, 328)


SOME = [
    (case, which)
    for which, count in zip(BOTH, (12, 5), strict=True)
    for case in some(which.cases(), count)
]


@pytest.mark.parametrize(
    "case, which", SOME, ids=lambda each: getattr(each, "name", "")
)
def test_counts_are_those_that_were_compared_with_a_gpu(
    case: Case, which: nsight.Launches
) -> None:
    row = nsight.report(which)["launches"][case.name]
    found = counted(case)
    kept = {name: ours for name, (ours, _) in row["metrics"].items()}
    assert {name: n for name, n in found.metrics.items() if n or name in kept} == kept
    ours, its = row["blocks"]
    assert found.occupancy(row["registers"]).blocks == ours == its


# ── what follows from counts ────────────────────────────────────────────────


def test_occupancy_is_limited_by_what_is_scarce() -> None:
    found = counted(CASES["copy_f32"])
    assert found.occupancy(32).percent == 100
    assert found.occupancy(255).blocks == 1
    few = found.occupancy(128)
    assert (few.blocks, few.limits["registers"]) == (2, 2)
    large = counted(CASES["shared_stride_32"])
    assert large.shared == 8192 * 4
    assert large.occupancy(32).limits["shared"] == 6
    with pytest.raises(fm.Error, match="1 to 255 registers"):
        found.occupancy(0)


def test_a_bound_is_the_largest_of_its_parts() -> None:
    found = counted(CASES["shared_stride_32"])
    bound = found.bound("h100")
    assert bound.seconds == max(bound.by.values())
    cycles = WARPS * 64 / 132 / 1.98e9
    assert bound.by["shared memory"] == pytest.approx(cycles)
    # What is written may stay in the L2 cache.
    assert bound.by["memory"] == pytest.approx(8192 / card("h100").bandwidth)
    with pytest.raises(fm.Error, match="no card"):
        found.bound("voodoo")


def test_a_metric_by_a_wrong_name_is_refused() -> None:
    found = counted(CASES["copy_f32"])
    assert set(found.metrics) == set(EVERY)
    with pytest.raises(fm.Error, match="did you mean"):
        found["ptx__inst_executed"]


def test_a_launch_that_is_not_counted_loads_no_counters() -> None:
    code = (
        "import sys; from fragmenta import ptx\n"
        "k = ptx.parse('.version 8.0 .target sm_80 .address_size 64 "
        ".entry f() { ret; }').kernels['f']\n"
        "k.launch(1, 32)\n"
        "assert not [m for m in sys.modules if m.startswith('fragmenta.values.counters')]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_small_kernel_has_a_case() -> None:
    assert set(module().kernels) == set(CASES)
    assert set(held_out.module().kernels) == set(held_out.LAUNCHES)


def test_copies_past_the_l1_cache_count_where_they_write() -> None:
    launches = {each.name: each for each in held_out.small_cases()}
    found = counted(launches["async_rows"])
    # Rows of 128 bytes, 144 bytes apart: every other one is in five sectors.
    assert found[GLOBAL.format("sectors", "ld")] == BLOCKS * 4 * (4 + 5 + 4 + 5)
    assert found.read == BLOCKS * 16 * 128


def test_an_atomic_that_orders_is_no_reduction() -> None:
    text = """
.version 8.0
.target sm_80
.address_size 64
.entry f(.param .u64 d)
{{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [d];
    atom.{}.gpu.global.add.u32 %r1, [%rd1], 1;
    ret;
}}"""
    for order, op in (("relaxed", "red"), ("release", "red"), ("acq_rel", "atom")):
        kernel = ptx.parse(text.format(order)).kernels["f"]
        found = kernel.launch(1, 32, [np.zeros(1, np.int32)], counters=True).counters
        assert found is not None
        assert found[GLOBAL.format("requests", op)] == 1, order


# ── the command ─────────────────────────────────────────────────────────────


def run(*words: str) -> str:
    """What the command prints."""
    return str(CliRunner().invoke(app, list(words)).output)


def test_the_command_prints_counts_occupancy_and_a_bound(tmp_path: Path) -> None:
    file = tmp_path / "small.ptx"
    file.write_text(module().module.text)
    given = ["--grid", "8", "--block", "256", "--arg", "zeros:f32:2048"]
    words = ["launch", str(file), "copy_f32", *given, "--arg", "ones:f32:2048"]
    said = run(*words, "--counters", "--card", "h100")
    assert "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum" in said
    assert "occupancy     100 % of h100" in said
    assert "by memory" in said
    assert max(map(len, said.splitlines())) <= 80
    fields = json.loads(run(*words, "--counters", "--json"))["counters"]
    assert fields["metrics"][GLOBAL.format("sectors", "st")] == 256
    assert fields["occupancy"]["blocks"] == 8
    assert fields["lines"][0]["instruction"].startswith("ld.global")
    assert "counters" not in json.loads(run(*words, "--json"))
    assert "no card h300" in run(*words, "--card", "h300")


def test_registers_are_those_that_the_gpu_was_told() -> None:
    code = programs.machine_code(module().module.text, "sm_90a")
    for name, row in nsight.report()["launches"].items():
        if name in CASES:
            # a GPU gives every thread 16 at least
            assert max(16, registers_of(code, name)) == row["registers"]
    with pytest.raises(fm.Error, match="no machine code"):
        registers_of(code[:100], "copy_f32")
    with pytest.raises(fm.Error, match="registers of nobody"):
        registers_of(code, "nobody")
