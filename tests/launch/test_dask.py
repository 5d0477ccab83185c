"""The workers of a cluster give the same bytes as one machine."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.errors import Error, KernelFault, KernelHazard
from tests.ptx.hopper import launching
from tests.ptx.hopper.gemms import FEW
from tests.thinning import some

pytestmark = pytest.mark.xdist_group("dask")

TEXT = """
.version 8.0
.target sm_80
.address_size 64
.global .u32 total;
.visible .entry work(.param .u64 x, .param .u64 y, .param .u64 bins, .param .u32 same)
{
    .reg .b32 %r<12>;
    .reg .b64 %rd<12>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u64 %rd3, [bins];
    ld.param.u32 %r9, [same];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    mul.wide.u32 %rd4, %r4, 4;
    add.u64 %rd5, %rd1, %rd4;
    ld.global.u32 %r5, [%rd5];
    mad.lo.u32 %r6, %r5, 3, %r4;
    setp.ne.u32 %p1, %r9, 0;
    @%p1 mov.u64 %rd4, 0;
    add.u64 %rd6, %rd2, %rd4;
    st.global.u32 [%rd6], %r6;
    and.b32 %r7, %r5, 7;
    mul.wide.u32 %rd7, %r7, 4;
    add.u64 %rd8, %rd3, %rd7;
    red.global.add.u32 [%rd8], 1;
    red.global.max.u32 [%rd8+32], %r5;
    red.global.xor.b32 [%rd8+64], %r5;
    mov.u64 %rd9, total;
    red.global.add.u32 [%rd9], %r7;
    ret;
}
.visible .entry ordered(.param .u64 x)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [x];
    atom.global.add.u32 %r1, [%rd1], 1;
    ret;
}
"""


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        Client(cluster) as found,
    ):
        yield found


def arrays() -> list[Any]:
    x = np.random.default_rng(3).integers(0, 1 << 30, 64 * 20, dtype=np.uint32)
    return [x, np.zeros_like(x), np.zeros(24, np.uint32)]


@pytest.mark.long
def test_bytes_counts_and_variables_are_the_same(client: Any) -> None:
    here, there = arrays(), arrays()
    one, two = ptx.parse(TEXT), ptx.parse(TEXT)
    first = one.kernels["work"].launch(20, 64, [*here, 0], counters=True)
    second = two.kernels["work"].launch(
        20, 64, [*there, 0], client=client, counters=True
    )
    assert first.counters.read == 20 * 64 * 4 + 96 + 32  # and the variable's sector
    assert first.counters.to_dict() == second.counters.to_dict()
    for a, b in zip(here, there, strict=True):
        assert np.array_equal(a, b)
    assert here[2][:8].sum() == 64 * 20
    assert first.counts == second.counts
    assert (
        one.variables["total"].tobytes() == two.variables["total"].tobytes() != bytes(4)
    )


def test_a_byte_that_two_workers_wrote_is_an_error(client: Any) -> None:
    kernel = ptx.parse(TEXT).kernels["work"]
    with pytest.raises(KernelFault, match=r"byte 0 of argument 1 .* was written by"):
        kernel.launch(20, 64, [*arrays(), 1], watch=False, client=client)


def test_a_race_between_workers_is_reported_as_on_one_machine(client: Any) -> None:
    kernel = ptx.parse(TEXT).kernels["work"]
    with pytest.raises(KernelHazard, match=r"between blocks of the grid"):
        kernel.launch(20, 64, [*arrays(), 1], client=client)


@pytest.mark.parametrize("watch", some([False, True], 2))
def test_a_gemm_with_clusters_gives_the_same_bits(client: Any, watch: bool) -> None:
    """Tensor maps, multicast, mbarriers and wgmma, on real workers."""
    found = next(each for each in FEW if each.kernel.tile.cluster == 2)
    gemm = replace(found, m=700, n=129, k=136, blocks=6)
    outcome = launching.launch(gemm, watch=watch, client=client)
    assert outcome.right(gemm)
    assert not [e for e in outcome.result.problems if e.severity != "info"]


def test_blocks_whose_order_matters_stay_here(client: Any) -> None:
    kernel = ptx.parse(TEXT).kernels["ordered"]
    with pytest.raises(Error, match="their order matters"):
        kernel.launch(4, 32, [np.zeros(1, np.uint32)], client=client)


def test_a_fault_on_a_worker_is_raised_here(client: Any) -> None:
    kernel = ptx.parse(TEXT).kernels["work"]
    x, y, bins = arrays()
    with pytest.raises(KernelFault, match="out of bounds"):
        kernel.launch(21, 64, [x, y, bins, 0], client=client)
