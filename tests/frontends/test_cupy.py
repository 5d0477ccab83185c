"""Programs that import CuPy run here: structs, Fortran order, modules, events."""

import runpy
import sys

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.frontends import cupy as front

# A program as people write it: structs by value as arrays with one element, arrays in
# Fortran order, instances of templates, a variable of the module, times.
PROGRAM = '''
import cupy as cp
import numpy as np

code = r"""
struct Pair { short a; double b[2]; };
template <typename T> struct Square { T value[2][2]; };
__constant__ float factor[2];
extern "C" __global__ void sum(const double3 *x, double3 y, Pair pair, double *out) {
    int i = threadIdx.x;
    out[i] = x[i].x + y.x + (x[i].y + y.y) * (x[i].z + y.z) + pair.a * pair.b[1];
}
template <typename T>
__global__ void corner(const T *x, int rows, const Square<T> by, T *out) {
    extern __shared__ char room[];
    T *kept = (T *)room;
    kept[threadIdx.x] = x[threadIdx.x * rows];
    __syncthreads();
    out[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x] * by.value[1][0] + factor[1];
}
"""
N = 8
double3 = np.dtype({"names": list("xyz"), "formats": [np.float64] * 3})
pair = np.dtype([("a", np.int16), ("b", np.float64, 2)], align=True)

x = cp.random.rand(3 * N, dtype=np.float64).reshape(N, 3)
y = np.random.rand(3)
out = cp.empty(N)
given = np.array([(3, (0, 0.5))], pair)
cp.RawKernel(code, "sum")((1,), (N,), (x, y.view(double3), given, out))
wanted = x[:, 0] + y[0] + (x[:, 1] + y[1]) * (x[:, 2] + y[2]) + 1.5
cp.testing.assert_array_almost_equal(out, wanted, decimal=12)

names = [f"corner<{each}>" for each in ("float", "double")]
module = cp.RawModule(code=code, options=("-std=c++17",), name_expressions=names)
cp.ndarray(2, cp.float32, module.get_global("factor"))[...] = [1, 2]
with cp.cuda.Device(0):
    start, end = cp.cuda.Event(), cp.cuda.Event()
    for name, dtype in zip(names, (cp.float32, cp.float64)):
        matrix = cp.asfortranarray(cp.arange(3 * N, dtype=dtype).reshape(3, N))
        by = np.array([1, 2, 3, 4], dtype).reshape(2, 2)
        square = np.dtype({"names": ["value"], "formats": [(dtype, (2, 2))]})
        result = cp.zeros(N, dtype)
        start.record()
        module.get_function(name)(
            (1,), (N,), args=(matrix, 3, by.ravel().view(square), result), shared_mem=8 * N
        )
        end.record()
        end.synchronize()
        assert cp.cuda.get_elapsed_time(start, end) > 0
        assert np.array_equal(cp.asnumpy(result), matrix.get()[0, ::-1] * 3 + 2)
cp.cuda.Stream.null.synchronize()
print("done")
'''


def test_a_program_runs_as_it_is(tmp_path, capsys):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    with front.on_cpu("sm_80") as cpu:
        runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out == "done\n"
    assert cpu.last.target == "sm_80"
    assert not [each for each in cpu.last.problems if each.severity == "error"]
    assert "cupy" not in sys.modules or sys.modules["cupy"].__spec__ is not None


def test_a_race_is_raised_in_the_program():
    code = 'extern "C" __global__ void f(int *x) { x[threadIdx.x / 2] = threadIdx.x; }'
    with front.on_cpu(watch="report") as cpu:
        import cupy

        cupy.RawKernel(code, "f")((1,), (32,), (cupy.zeros(16, cupy.int32),))
        assert cpu.last.problems[0].rule == "global-race"
        assert cpu.last.problems[0].source.line == 1
    with front.on_cpu():
        import cupy

        kernel, x = cupy.RawKernel(code, "f"), cupy.zeros(16, cupy.int32)
        with pytest.raises(fm.errors.KernelHazard, match=r"source\.cu:1"):
            kernel((1,), (32,), (x,))


@pytest.mark.parametrize("name", ["ElementwiseKernel", "zeross"])
def test_what_is_not_here_is_named(name):
    with front.on_cpu():
        import cupy

        with pytest.raises(AttributeError, match=rf"cupy\.{name} is not here"):
            getattr(cupy, name)


def test_modules_of_ptx_are_used_in_the_same_way():
    """``ptx.RawModule`` alone: kernels share its variables, names are checked."""
    code = """__device__ int count[1];
    template <int N> __global__ void add(int *x) { count[0] += N; *x = count[0]; }
    extern "C" __global__ void get(int *x) { *x = count[0]; }"""
    module = ptx.RawModule(code=code, name_expressions=["add<2>", "add<3>"])
    x = np.zeros(1, np.int32)
    for name, wanted in (("add<2>", 2), ("add<3>", 5), ("get", 5)):
        module.get_function(name)((1,), (1,), (x,))
        assert x[0] == wanted
    assert module.get_global("count").view(np.int32).tolist() == [5]
    with pytest.raises(fm.Error, match=r"no variable cont \(did you mean count\?\)"):
        module.get_global("cont")
    with pytest.raises(fm.Error, match=r"no kernel add<4>.*it has .*add<2>"):
        module.get_function("add<4>")
    with pytest.raises(fm.Error, match="give the code, or the path"):
        ptx.RawModule()
    with pytest.raises(fm.Error, match="name_expressions is a sequence"):
        ptx.RawModule(code=code, name_expressions="add<2>")
    with pytest.raises(fm.Error, match="arguments is given twice"):
        module.get_function("get")((1,), (1,), (x,), args=(x,))
