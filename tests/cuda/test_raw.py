"""A kernel in CUDA C++ runs as it does with CuPy."""

import pickle
import resource

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.cuda.tools import compiler

SCALE = r"""
extern "C" __global__ void scale(float *x, const float factor, const int n)
{
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) x[i] *= factor;
}"""


def test_arrays_are_changed_in_place():
    x = np.arange(100, dtype=np.float32)
    kernel = ptx.RawKernel(SCALE, "scale")
    result = kernel((2,), (64,), (x, np.float32(0.5), np.int32(99)))
    assert x.tolist() == [*(np.arange(99) / 2), 99]
    assert result.instructions > 0
    assert ".target sm_90a" in kernel.ptx


def test_dynamic_shared_memory_and_two_dimensions():
    code = r"""
    extern "C" __global__ void turn(int *x) {
        extern __shared__ int kept[];
        int i = threadIdx.y * blockDim.x + threadIdx.x, n = blockDim.x * blockDim.y;
        kept[n - 1 - i] = x[i];
        __syncthreads();
        x[i] = kept[i];
    }"""
    x = np.arange(128, dtype=np.int32)
    ptx.RawKernel(code, "turn", target="sm_80")((1,), (16, 8), (x,), shared=512)
    assert x.tolist() == list(range(127, -1, -1))


def test_headers_are_found():
    code = r"""
    #include <cuda_fp16.h>
    #include <cuda_bf16.h>
    #include <mma.h>
    extern "C" __global__ void twice(__half *x) {
        x[threadIdx.x] = __hadd(x[threadIdx.x], x[threadIdx.x]);
    }"""
    if not compiler.includes():
        pytest.skip("no headers of CUDA")
    x = np.arange(32, dtype=np.float16)
    ptx.RawKernel(code, "twice")((1,), (32,), (x,))
    assert x.tolist() == [2 * i for i in range(32)]


@pytest.mark.parametrize(
    ("header", "said"),
    [("cuda_not_there.h", "nvidia-cuda-runtime"), ("not_there.h", "--flags -IFOLDER")],
)
def test_a_missing_header_names_the_wheel_or_the_option(header, said):
    kernel = ptx.RawKernel(f"#include <{header}>\n", "f")
    before = resource.getrlimit(resource.RLIMIT_STACK)
    with pytest.raises(fm.errors.CompileError, match=said):
        kernel.compile()
    assert resource.getrlimit(resource.RLIMIT_STACK) == before


def test_options_reach_the_compiler():
    code = 'extern "C" __global__ void f(int *x) { *x = SEVEN; }'
    x = np.zeros(1, np.int32)
    ptx.RawKernel(code, "f", ("-DSEVEN=7", "-std=c++17"))((1,), (1,), (x,))
    assert x[0] == 7
    with pytest.raises(fm.errors.CompileError, match='identifier "SEVEN" is undefined'):
        ptx.RawKernel(code, "f").compile()


def test_both_compilers_agree():
    found = []
    for backend in ("nvrtc", "nvcc"):
        x = np.random.default_rng(1).standard_normal(64).astype(np.float32)
        kernel = ptx.RawKernel(SCALE, "scale", backend=backend)
        kernel((1,), (64,), (x, 1 / 3, 64))
        found.append(x)
        assert '"source.cu"' in kernel.ptx
        assert "/source.cu" not in kernel.ptx
    fm.assert_same_bits(*found)


def test_a_mangled_name_is_found_if_there_is_one():
    code = "template <class T> __device__ T two() { return 2; }\n"
    code += "__global__ void f(int *x) { *x = two<int>(); }\n"
    code += "__global__ void g(int *x) {}\n__global__ void g(float *x) {}"
    x = np.zeros(1, np.int32)
    ptx.RawKernel(code, "f")((1,), (1,), (x,))
    assert x[0] == 2
    with pytest.raises(fm.Error, match=r'no kernel g; it has .*extern "C" keeps'):
        ptx.RawKernel(code, "g").compile()


def test_instances_of_templates_and_kernels_of_namespaces():
    code = """template <class T, int N> __global__ void fill(T *x) { *x = N; }
    namespace inner { __global__ void one(int *x) { *x = 1; } }"""
    for name, kind, value in (
        ("fill<float, 3>", np.float32, 3),
        ("fill<double, 4>", np.float64, 4),
        ("inner::one", np.int32, 1),
    ):
        x = np.zeros(1, kind)
        ptx.RawKernel(code, name)((1,), (1,), (x,))
        assert x[0] == value
    with pytest.raises(fm.errors.CompileError, match="fil"):
        ptx.RawKernel(code, "fil<float, 3>").compile()
    ptx.RawKernel(code, "inner::one", backend="nvcc").compile()
    with pytest.raises(fm.Error, match="nvrtc understands and nvcc does not"):
        ptx.RawKernel(code, "fill<int, 1>", backend="nvcc").compile()


def test_what_was_printed_before_a_fault_is_not_lost():
    code = r"""extern "C" __global__ void f(int n) {
        printf("%d ", threadIdx.x);
        assert(threadIdx.x < n);
    }"""
    with pytest.raises(fm.errors.KernelFault, match=r"threadIdx\.x < n") as caught:
        ptx.RawKernel(code, "f")((1,), (4,), (3,))
    assert caught.value.output == "0 1 2 3 "
    assert caught.value.__notes__ == ["The kernel had printed:\n0 1 2 3 "]
    copied = pickle.loads(pickle.dumps(caught.value))
    assert copied.output == "0 1 2 3 "


def test_a_kernel_says_that_it_needs_clusters():
    cluster = """extern "C" __global__ void __cluster_dims__(2, 1, 1) f(int *x) {
        asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(x[blockIdx.x]));
    }"""
    x = np.full(4, 9, np.int32)
    ptx.RawKernel(cluster, "f")((4,), (1,), (x,))
    assert x.tolist() == [0, 1, 0, 1]


def test_kernels_that_need_what_is_not_supported():
    x = np.zeros(4, np.int32)
    memory = 'extern "C" __global__ void f(int **x) { *x = (int *)malloc(4); }'
    with pytest.raises(
        fm.errors.KernelFault, match=r"malloc .* supported.*\n.*\n.*:1"
    ) as why:
        ptx.RawKernel(memory, "f")((1,), (1,), (x,))
    assert (why.value.kind, why.value.source) == ("unsupported", "source.cu:1")
    nested = '__global__ void g() {} extern "C" __global__ void f() { g<<<1, 1>>>(); }'
    said = r"cudaGetParameterBufferV2 is of dynamic .* supported\n.*\n.*source\.cu:1 "
    with pytest.raises(fm.errors.KernelFault, match=said) as why:
        ptx.RawKernel(nested, "f", ("-rdc=true",))((1,), (1,), ())
    assert why.value.kind == "unsupported"


def test_a_fault_names_the_line_of_the_source():
    kernel = ptx.RawKernel(SCALE.replace("i < n", "true"), "scale")
    with pytest.raises(fm.Error, match=r"source\.cu:5") as caught:
        kernel((1,), (64,), (np.zeros(10, np.float32), 2.0, 10))
    assert caught.value.kind == "bounds"


def test_a_wrong_use_is_refused_before_anything_is_compiled():
    with pytest.raises(fm.errors.UnsupportedTarget, match="did you mean sm_90"):
        ptx.RawKernel(SCALE, "scale", target="sm_91")
    with pytest.raises(fm.Error, match="options is a sequence"):
        ptx.RawKernel(SCALE, "scale", "-std=c++17")
    with pytest.raises(fm.Error, match="the target is given as target="):
        ptx.RawKernel(SCALE, "scale", ("-arch=sm_100",))
    with pytest.raises(fm.Error, match="code is a text; given bytes"):
        ptx.RawKernel(SCALE.encode(), "scale")
    with pytest.raises(AttributeError, match="has no attribute 'RawKernal'"):
        _ = ptx.RawKernal


def test_what_was_compiled_once_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("FRAGMENTA_CACHE", str(tmp_path))
    first = compiler.to_ptx(SCALE, "sm_80")
    monkeypatch.setattr(compiler.Nvrtc, "compile_ptx", None)
    assert compiler.to_ptx(SCALE, "sm_80") == first
    with pytest.raises(TypeError):
        compiler.to_ptx(SCALE, "sm_90a")
