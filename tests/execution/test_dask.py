"""Many machines, the same bits: two processes stand for a cluster."""

import dask.array as da
import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from fragmenta import instruction

E4M3 = instruction("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32")
SPARSE = instruction(
    "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16"
)
SCALED = (
    "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
    ".f32.e4m3.e4m3.f32.ue8m0"
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


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")  # distributed warns about its own start-up
@pytest.mark.xdist_group("dask")
def test_two_processes_give_the_bits_of_one(cluster):
    A, B = matrices(ml_dtypes.float8_e4m3fn, 70, 50, 200)
    C = np.random.default_rng(6).standard_normal((70, 50)).astype(np.float32)
    whole = fm.matmul(E4M3, A, B, C, target="sm_89")
    lazy = fm.matmul(
        E4M3,
        da.from_array(A, chunks=(32, 64)),
        da.from_array(B, chunks=(64, 24)),
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
    A = fm.sparse.prune(SPARSE, A)
    lazy = fm.matmul(SPARSE, da.from_array(A, chunks=(20, 32)), da.from_array(B))
    whole = fm.matmul(SPARSE, A, B)
    assert lazy.compute(scheduler="synchronous").tobytes() == whole.tobytes()


def test_a_tile_may_not_straddle_blocks():
    A, B = matrices(np.float16, 32, 16, 64)
    op = fm.mma("m16n8k16", a="f16", d="f32")
    with pytest.raises(fm.errors.ShapeError, match="rechunk A to 32 columns"):
        fm.matmul(op, da.from_array(A, chunks=(32, 24)), da.from_array(B))
    with pytest.raises(fm.errors.ShapeError, match="columns and B has"):
        fm.matmul(op, da.from_array(A), da.from_array(B[:32]))
    with pytest.raises(fm.Error, match="two axes"):
        fm.matmul(op, da.from_array(A[None]), da.from_array(B))


def test_block_scales_are_cut_as_the_matrices_are():
    op = instruction(SCALED)
    A, B = matrices(ml_dtypes.float8_e4m3fn, 40, 20, 96)
    rng = np.random.default_rng(1)
    scales = [
        (2.0 ** rng.integers(-3, 3, shape)).astype(ml_dtypes.float8_e8m0fnu)
        for shape in ((40, 3), (3, 20))
    ]
    named = dict(zip(("scale_a", "scale_b"), scales, strict=True))
    lazy = da.from_array(A, chunks=(16, 32)), da.from_array(B, chunks=(64, 8))
    found = fm.matmul(op, *lazy, **named).compute(scheduler="synchronous")
    np.testing.assert_array_equal(found, fm.matmul(op, A, B, **named))
    with pytest.raises(fm.Error, match="needs scale_a and scale_b"):
        fm.matmul(op, *lazy)
    with pytest.raises(fm.errors.ShapeError, match="scale_a is 40x3"):
        fm.matmul(op, *lazy, scale_a=scales[0][:3], scale_b=scales[1])
    with pytest.raises(fm.Error, match="takes no scales"):
        fm.matmul(E4M3, *lazy, **named)


def test_what_numpy_matrices_are_refused_for():
    A, B = (da.ones(shape, dtype="f2") for shape in ((16, 32), (32, 16)))
    f16 = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    mixed = instruction("wmma.mma.sync.aligned.row.col.m16n16k16.f16.f32")
    for op, C, said in (
        (mixed, None, "cannot use its D as the next C"),
        (f16, np.ones((3, 3), "f4"), "A B is 16x16; C has shape"),
        (instruction("ldmatrix.sync.aligned.m8n8.x1.shared.b16"), None, "does not mul"),
    ):
        with pytest.raises(fm.Error, match=said):
            fm.matmul(op, A, B, C)
    with pytest.raises(fm.errors.UnsupportedTarget):
        fm.matmul(f16, A, B, target="sm_75")
    sp = fm.sparse.compress(SPARSE, np.zeros((16, 32), np.float16))
    with pytest.raises(fm.Error, match="not cut into blocks"):
        fm.matmul(SPARSE, sp, B)
