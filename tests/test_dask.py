"""Many machines, the same bits: two processes stand for a cluster."""

import dask.array as da
import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from fragmenta.isa.parse import instruction

E4M3 = instruction("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32")
SPARSE = instruction(
    "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16"
)


@pytest.fixture(scope="module")
def cluster():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
        ) as local,
        Client(local) as client,
    ):
        yield client


def matrices(of, m, n, k):
    rng = np.random.default_rng(5)
    scale = 2.0 ** rng.integers(-6, 6, (m, k))
    A = (rng.standard_normal((m, k)) * scale).astype(of)
    return A, rng.standard_normal((k, n)).astype(of)


@pytest.mark.filterwarnings("ignore")  # distributed warns about its own start-up
@pytest.mark.xdist_group("dask")
def test_two_processes_give_the_bits_of_one(cluster):
    A, B = matrices(ml_dtypes.float8_e4m3fn, 70, 50, 200)
    C = np.random.default_rng(6).standard_normal((70, 50)).astype(np.float32)
    whole = fm.matmul(A, B, E4M3, C, target="sm_89")
    lazy = fm.matmul(
        da.from_array(A, chunks=(32, 64)),
        da.from_array(B, chunks=(64, 24)),
        E4M3,
        da.from_array(C, chunks=(32, 24)),
        target="sm_89",
    )
    assert isinstance(lazy, da.Array)
    assert lazy.shape == whole.shape
    assert lazy.dtype == whole.dtype
    assert lazy.numblocks == (3, 3)
    found = cluster.compute(lazy).result()
    assert found.tobytes() == whole.tobytes()
    assert len(cluster.scheduler_info()["workers"]) == 2


def test_sparse_and_without_c():
    A, B = matrices(np.float16, 40, 20, 128)
    A = fm.prune(A, SPARSE)
    lazy = fm.matmul(da.from_array(A, chunks=(20, 32)), da.from_array(B), SPARSE)
    whole = fm.matmul(A, B, SPARSE)
    assert lazy.compute(scheduler="synchronous").tobytes() == whole.tobytes()


def test_a_tile_may_not_straddle_blocks():
    A, B = matrices(np.float16, 32, 16, 64)
    op = fm.mma("m16n8k16", a="f16", d="f32")
    with pytest.raises(fm.ShapeError, match="rechunk A to 32 columns"):
        fm.matmul(da.from_array(A, chunks=(32, 24)), da.from_array(B), op)
    with pytest.raises(fm.ShapeError, match="columns and B has"):
        fm.matmul(da.from_array(A), da.from_array(B[:32]), op)
    with pytest.raises(fm.Error, match="two axes"):
        fm.matmul(da.from_array(A[None]), da.from_array(B), op)
