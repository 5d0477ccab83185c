"""CUDA C++ as people write it is compiled: headers, a ``main``, templates, errors."""

import re

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.cuda.tools import compiler, headers, host_code, sources
from tests.thinning import some

KERNEL = "__global__ void k(int *x) { *x = 7; }\n"

# What people write beside a kernel, and what of it the host alone needs.
HOST = {
    "main": ("int main() { int *p; cudaMalloc(&p, 4); k<<<1, 1>>>(p); }", ["main"]),
    "explicit": ("__host__ void f(int x) { }", ["f"]),
    "declared": ("void f(int x);\nint g(const char *);", ["f", "g"]),
    "template": ("template <typename T, int N = 3>\n\tvoid f(T (&x)[N])\n{ }", ["f"]),
    "arrow": ("auto f(int x) -> int { return int{x}; }", ["f"]),
    "members": (
        "struct A { A() : a{0}, b(1) { } ~A() { free(0); } int a, b;\n"
        "  void f() const noexcept { missing(); }\n"
        "  bool operator<(const A &o) const { return a < o.a; } };",
        ["A", "~A", "f", "operator<("],
    ),
    "variables": ("static int n = 3;\nint table[4] = {1, 2, 3};", ["n", "table"]),
    "lambda": ("auto f = [](int x) { return x; };", ["f"]),
    "macro": (
        '#define CHECK(x) do { if (x) { printf("}"); exit(1); } } while (0)\n'
        "void f() { CHECK(cudaDeviceSynchronize()); } // }\nvoid g() { /* { */ }",
        ["f", "g"],
    ),
    "strings": ('void f() { puts("}}{"); puts(R"x(}})x"); char c = \'}\'; }', ["f"]),
    "many": ("\n".join(f"void f{i}() {{ }}" for i in range(130)), None),
}


@pytest.mark.parametrize("case", HOST)
@pytest.mark.parametrize("first", [True, False])
def test_the_code_of_the_host_is_left_out(case, first):
    text, names = HOST[case]
    code = f"{text}\n{KERNEL}" if first else f"{KERNEL}{text}\n"
    found = sources.to_ptx(code, "sm_90a", backend="nvrtc")
    assert ".entry _Z1kPi" in found.text
    assert len(found.code) == len(code)
    assert found.code.count("\n") == code.count("\n")
    assert KERNEL in found.code  # it is where it was
    (note,) = found.notes
    assert note.startswith("the code of the host is not compiled: ")
    for name in names or ():
        assert f"{name} in line " in note or "more" in note


def test_lines_are_those_of_the_source():
    code = f"int main()\n{{\n  return 0;\n}}\n{KERNEL}"
    found = sources.to_ptx(code, "sm_90a", backend="nvrtc")
    assert set(re.findall(r"\.loc\s+1 (\d+)", found.text)) == {"5"}


def test_constexpr_functions_are_for_both_sides():
    code = "constexpr int twice(int x) { return 2 * x; }\n"
    code += "__global__ void k(int *x) { *x = twice(*x); }\nint main() { }\n"
    x = np.array([21], np.int32)
    ptx.RawKernel(code, "k")((1,), (1,), (x,))
    assert x[0] == 42


def test_what_the_host_launches_is_instantiated():
    code = """template <class T, int N> __global__ void fill(T *x) { *x = N; }
    int main() { fill<float, 3><<<1, 1>>>(0); fill<double, 4> <<<1, 1>>>(0); }"""
    found = sources.to_ptx(code, "sm_90a", backend="nvrtc")
    assert found.names == {
        "fill<float, 3>": "_Z4fillIfLi3EEvPT_",
        "fill<double, 4>": "_Z4fillIdLi4EEvPT_",
    }
    assert all(f".entry {name}" in found.text for name in found.names.values())


def test_a_function_of_the_host_in_a_kernel_is_refused():
    code = "int f() { return 1; }\n__global__ void k(int *x) { *x = f(); }\n"
    with pytest.raises(fm.errors.CompileError, match=r"source\.cu:2:.*\bf\b"):
        sources.to_ptx(code, "sm_90a", backend="nvrtc")


def test_all_standard_headers_together():
    every = "".join(f"#include <{name}>\n" for name in headers.standard(None, None))
    unit = compiler.TranslationUnit(every + KERNEL, "sm_90a")
    nvrtc = compiler.find("nvrtc")
    nvrtc.__dict__["_headers"], before = headers.standard(None, None), nvrtc._headers
    try:
        assert b".entry _Z1kPi" in nvrtc.compile_ptx(unit)
    finally:
        nvrtc.__dict__["_headers"] = before


SIZES = """
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
extern "C" __global__ void sizes(double *x) {
    std::size_t at = 0;
    x[at++] = sizeof(int8_t) + 10 * sizeof(uint16_t) + 100 * sizeof(std::int32_t);
    x[at++] = sizeof(uint64_t) + 10 * sizeof(uintptr_t) + 100 * sizeof(uint_fast8_t);
    x[at++] = (int8_t)-1 + (uint8_t)-1;
    x[at++] = (double)INT_MIN + INT64_MAX - (double)UINT32_MAX + SCHAR_MIN + CHAR_BIT;
    x[at++] = FLT_MAX;
    x[at++] = DBL_EPSILON + FLT_MIN;
    x[at++] = M_PI * std::sqrt(4.0) + std::abs(-1.5f) + sqrtf(9.0f);
    x[at++] = INFINITY > FLT_MAX && NAN != NAN && EXIT_FAILURE == 1;
}"""


def test_integers_limits_and_constants_have_their_values():
    x = np.zeros(8)
    ptx.RawKernel(SIZES, "sizes")((1,), (1,), (x,))
    single = np.finfo(np.float32)
    assert x.tolist() == [
        421,
        188,
        254,
        float(-(2**31)) + float(2**63 - 1) - float(2**32 - 1) - 128 + 8,
        float(single.max),
        float(np.finfo(np.float64).eps) + float(single.tiny),
        float(np.pi) * 2 + 1.5 + 3,
        1,
    ]


INCLUDED = {
    "cuda.h": "sizeof(CUtensorMap) == 128 && CU_TENSOR_MAP_SWIZZLE_128B == 3",
    "mma.h": "nvcuda::wmma::mem_row_major == 0",
    "cuda_fp16.h": "sizeof(__half2) == 4",
    "cuda_runtime.h": "sizeof(float4) == 16",
    "cuComplex.h": "sizeof(cuDoubleComplex) == 16",
}
OF_CCCL = {
    "cooperative_groups.h": "cooperative_groups::this_thread_block().size() == 1",
    "type_traits": "std::is_same<int, int>::value",
    "limits": "std::numeric_limits<int>::max() == 2147483647",
}


@pytest.mark.parametrize("header", some([*INCLUDED, *OF_CCCL], 2))
def test_headers_of_cuda(header):
    if not compiler.includes():
        pytest.skip("no headers of CUDA")
    if header in OF_CCCL and compiler.libcu() is None:
        pytest.skip("no <cuda/std/...>: the wheel nvidia-cuda-cccl")
    code = f"""#include <{header}>
    extern "C" __global__ void k(int *x) {{ *x = {(INCLUDED | OF_CCCL)[header]}; }}"""
    x = np.zeros(1, np.int32)
    ptx.RawKernel(code, "k")((1,), (1,), (x,))
    assert x[0] == 1


def test_a_header_beside_the_file_is_found_and_counts(tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "deep.h").write_text("#define SEVEN 7\n")
    (tmp_path / "mine.cuh").write_text('#include "inner/deep.h"\n')
    path = tmp_path / "k.cu"
    path.write_text('#include "mine.cuh"\n__global__ void k(int *x) { *x = SEVEN; }\n')
    x = np.zeros(1, np.int32)
    ptx.load(path).kernels["k"].launch(1, 1, [x])
    assert x[0] == 7
    (tmp_path / "inner" / "deep.h").write_text("#define SEVEN 8\n")
    ptx.load(path).kernels["k"].launch(1, 1, [x])
    assert x[0] == 8
    (tmp_path / "mine.cuh").write_text("")
    with pytest.raises(
        fm.errors.CompileError, match=r'k\.cu:2:34:\s+error:\s.*"SEVEN"'
    ):
        ptx.load(path)
    code = path.read_text().replace("mine.cuh", "deep.h")
    folder = f"-I{tmp_path / 'inner'}"
    ptx.RawKernel(code, "k", [folder])((1,), (1,), (x,))
    assert x[0] == 8


def test_nvcc_compiles_what_nvrtc_cannot(tmp_path):
    try:
        compiler.find("nvcc")
    except fm.Error as why:
        pytest.skip(str(why))
    path = tmp_path / "go.cu"
    path.write_text("""template <int N> __global__ void fill(int *x) { *x = N; }
    template <int N> void go() { fill<N + 1><<<1, 1>>>(0); }
    int main() { go<6>(); }""")
    module = ptx.load(path)
    assert module.origin.notes == ("nvrtc cannot compile it, so nvcc does",)
    x = np.zeros(1, np.int32)
    module.kernels["fill<7>"].launch(1, 1, [x])
    assert x[0] == 7
    path.write_text("__global__ void k(int *x) { *x = y; }\nint main() { }\n")
    with pytest.raises(fm.errors.CompileError, match=r'go\.cu:1:34:\s+error:\s.*"y"'):
        ptx.load(path)


def test_errors_fit_into_80_columns():
    long = "__global__ void k(int *x) { " + "*x += 1; " * 20 + "y = 1; }"
    text = "\n".join(
        [long, *(f"__device__ int f{i}() {{ return g{i}; }}" for i in range(20))]
    )
    with pytest.raises(fm.errors.CompileError) as caught:
        sources.to_ptx(text, "sm_90a", backend="nvrtc")
    lines = str(caught.value).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1] == 'source.cu:1:209: error: identifier "y" is undefined'
    assert lines[2][lines[3].index("^")] == "y"
    assert lines[-1] == "and 13 more errors"
    assert "JIT" not in str(caught.value)


def test_places_of_refusals():
    said = (
        "a.cu(3): error: A function explicitly marked as a __host__ function is not "
        "allowed in JIT mode\n  __host__ void f(int x){}\n                ^\n"
    )
    assert host_code.refused(said, "a.cu") == [host_code.HostCode(3, 14, True)]
    assert host_code.refused(said, "b.cu") == []
