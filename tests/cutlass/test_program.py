"""Programs of the CuTe DSL run as they are: its host code calls the client."""

import numpy as np

import fragmenta as fm
from tests.frontends.running import EXAMPLES, changed, found, run

NAME = "cute_dsl_add.py"
GEMM = """
import sys
import numpy as np
import cutlass
from cuda.bindings import driver
from cutlass import cute
from cutlass.cute.runtime import make_ptr
from tests.cutlass.dsl_gemm import kernels

M, N, K = 256, 128, 320
host = kernels(cutlass.Float16, 2)


@cute.jit
def main(a: cute.Pointer, b: cute.Pointer, c: cute.Pointer):
    host(
        cute.make_tensor(a, cute.make_layout((M, K), stride=(K, 1))),
        cute.make_tensor(b, cute.make_layout((N, K), stride=(K, 1))),
        cute.make_tensor(c, cute.make_layout((M, N), stride=(N, 1))),
    )


driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
arrays = [np.load(each) for each in sys.argv[1:3]] + [np.zeros((M, N), np.float32)]
places = [driver.cuMemAlloc(each.nbytes)[1] for each in arrays]
for place, each in zip(places, arrays):
    driver.cuMemcpyHtoD(place, each.ctypes.data, each.nbytes)
kinds = [cutlass.Float16, cutlass.Float16, cutlass.Float32]
pointers = [
    make_ptr(kind, int(place), cute.AddressSpace.gmem, assumed_align=128)
    for kind, place in zip(kinds, places)
]
cute.compile(main, *pointers)(*pointers)
driver.cuMemcpyDtoH(arrays[2].ctypes.data, places[2], arrays[2].nbytes)
np.save(sys.argv[3], arrays[2])
"""


def test_a_program_as_it_is():
    report, said = run(EXAMPLES / NAME)
    assert "added" in said
    (launch,) = report["launches"]
    assert launch["grid"] == [4, 1, 1]
    assert found(report) == report["refused"] == []


def test_a_race_is_found_at_its_line(tmp_path):
    made = changed(
        NAME,
        tmp_path,
        race=("out[i] = x[i] + y[i]", "out[0] = x[i] + y[i]"),
        check=("assert np.array_equal(result, 2 * values)", ""),
    )
    report, _ = run(made, status=1)
    lines = made.read_text().splitlines()
    line = next(i for i, each in enumerate(lines, 1) if "out[0] =" in each)
    assert ("global-race", line) in found(report)


def test_a_gemm_with_tensor_maps_and_a_cluster(tmp_path, monkeypatch):
    """The host code of the DSL makes the maps, and launches with a cluster."""
    monkeypatch.setenv("PYTHONPATH", ".", prepend=":")
    random = np.random.default_rng(4)
    a, b = (random.standard_normal((n, 320)).astype(np.float16) for n in (256, 128))
    files = [str(tmp_path / f"{name}.npy") for name in "abc"]
    for name, each in zip(files, (a, b), strict=False):
        np.save(name, each)
    (tmp_path / "gemm.py").write_text(GEMM)
    report, _ = run(tmp_path / "gemm.py", *files)
    assert found(report) == report["refused"] == []
    op = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
    fm.assert_same_bits(np.load(files[2]), fm.matmul(op, a, b.T, target="sm_90a"))
