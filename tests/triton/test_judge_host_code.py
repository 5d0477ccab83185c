"""Functions in C++ that launch kernels: what is understood, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fragmenta.frontends.judge.libraries.host_code import Host
from fragmenta.frontends.judge.libraries.host_values import Data, Dim3
from fragmenta.frontends.judge.libraries.host_words import NotRun
from fragmenta.frontends.judge.libraries.load_inline import (
    CUDA_FLAGS,
    HOST_FLAGS,
    check_flags,
    constants,
    split,
)

LAUNCHES: list[Any] = []


def run(body: str, *given: Any, before: str = "", head: str = "torch::Tensor x") -> Any:
    """What a function returns."""
    LAUNCHES.clear()
    text = f"{before}\ntorch::Tensor f({head}) {{ {body} }}"
    code, functions = split(text)
    host = Host(functions, lambda *launch: LAUNCHES.append(launch), constants(code))
    return host.call("f", given)


def test_what_rounds_a_size_is_a_step() -> None:
    head = "torch::Tensor x, int n"
    for body in (
        "int(1.0 / (1.0 + (n - 9.0)))",
        "static_cast<int>(n / 99.0)",
        "n & 64",
    ):
        text = f"torch::Tensor f({head}) {{ int a = n; return {body}; }}"
        code, functions = split(text)
        host = Host(functions, lambda *launch: None, constants(code))
        for n in (3, 12, 30):
            host.call("f", (X, n))
        assert host.not_run(), body


def test_a_return_for_nothing_need_not_run() -> None:
    """Of an empty tensor; any other condition must go both ways."""
    for condition, dead in (
        ("x.numel() == 0", False),
        ("n == 0 || x.size(-1) == 0", False),
        ("m == 0", True),
        ("n == 1", True),
        ("n == 0 && m == 2", True),
    ):
        body = f"int n = x.size(0); int m = n - 1; if ({condition}) return x; return x;"
        code, functions = split(f"torch::Tensor f(torch::Tensor x) {{ {body} }}")
        host = Host(functions, lambda *launch: None, constants(code))
        host.call("f", (X,))
        assert bool(host.not_run()) == dead, condition


HELPER = "static inline int ceil_div(int a, int b) { return (a + b - 1) / b; }"


def test_a_helper_without_words_of_cuda_is_of_the_host() -> None:
    before = "template <int N> __global__ void k(int *x) { x[0] = N; }\n" + HELPER
    assert run("return ceil_div(x.size(0), 2);", X, before=before) == 2
    code, _ = split(before)  # behind a template, NVRTC would make an empty kernel
    assert "ceil_div" not in code
    assert "x[0] = N" in code


@pytest.mark.parametrize(
    "text",
    [
        "__device__ int g(int a) { return a; }",
        "constexpr int g(int a) { return a; }",
        "static constexpr int g(int a) { return a; }",
        "template <typename T> T g(T a) { return a; }",
        "struct alignas(16) G { float x[4]; };",
        "static const int g[2] = {1, 2};",
    ],
)
def test_what_kernels_may_need_is_theirs(text: str) -> None:
    assert split(text) == (text, {})


X = torch.arange(12.0).view(3, 4)
VALUES: dict[str, Any] = {
    "return x.size(0) * x.size(1);": 12,
    "const int n = x.numel(); return (n + 4) / 5;": 3,
    "int a = -7; return a / 2;": -3,
    "int a = -7; return a % 4;": -3,
    "float a = 7; return a / 2;": 3.5,
    "int a = 7.9; return a;": 7,
    "return 1 + 2 * 3 - 4 / 2;": 5,
    "return (1 << 3) > 7 ? 256 >> 2 : 2;": 64,
    "int t = 32; while (t < 256 && t < 100) t *= 2; return t;": 128,
    "return reinterpret_cast<uintptr_t>(x.data_ptr<float>() + 1) % 4 == 0;": True,
    "return x.scalar_type() == at::ScalarType::Float;": True,
    "return 0x10 + 1u + 2L;": 19,
    "return x.dim() == 2 && !(x.size(0) > 3) ? 1.5f : 2.5f;": 1.5,
    "int s = 0; for (int i = 0; i < 4; i++) { s += i; } return s;": 6,
    "int s = 0; for (int i = 4; i > 0; --i) s += i; return s;": 10,
    "int s = 1; if (s > 3) { s = 5; } else if (s == 1) s = 7; return s;": 7,
    "if (x.dim() == 2) { return 1; } return 2;": 1,
    "auto y = torch::zeros({2, 3}, x.options()); return y.size(1);": 3,
    "auto y = torch::empty_like(x); return y.numel();": 12,
    "return std::min(3, 4) + std::max(1, 2);": 5,
    "return static_cast<int>(2.9f) + (int)3.9;": 5,
    "return sizeof(float) * 3;": 12,
    "return reinterpret_cast<const float4*>(x.data_ptr<float>());": Data(X, 16),
    "return (const float2 *)x.data_ptr<float>() + 1;": Data(X, 8, 8),
    "return (float*)(x.data_ptr<float>() + 2);": Data(X, 4, 8),
    "return 1 + x.data_ptr<float>() - 3;": Data(X, 4, -8),
    "float4* p = reinterpret_cast<float4*>(x.data_ptr<float>()); return p + 2;": Data(
        X, 16, 32
    ),
    "return (x.size(0)) * 2;": 6,
    "dim3 b(4, 5); return b.x * b.y * b.z;": 20,
    'TORCH_CHECK(x.is_cuda(), "on the GPU"); return 1;': 1,
    "cudaDeviceSynchronize(); return 1;": 1,
    "auto s = x.sizes(); return s[1];": 4,
    "using T = float; return sizeof(T);": 4,
    "int a = 1, b = 2; return a + b;": 3,
    "return 2147483647 + 0;": 2147483647,
    "int a = 3; a *= 2; a -= 1; return a;": 5,
    "while (true) {} return 1;": NotRun,
    "return cublasCreate(x);": NotRun,
    "float* p = nullptr; return p;": 0,
    "return x.softmax(1);": NotRun,
    "return unknown;": NotRun,
    "goto end;": NotRun,
    "int a[3]; return a;": NotRun,
    "static int calls = 0; calls += 1; return calls;": NotRun,
    "static const int n = 3; return n;": 3,
    "return 2; // a comment that ends with \\\n return 1;\n return 3;": 2,
    "// \\\n return 1;\n return 3;": 3,
}


@pytest.mark.parametrize("body", VALUES)
def test_statements(body: str) -> None:
    wanted = VALUES[body]
    if wanted is NotRun:
        with pytest.raises(NotRun):
            run(body, X)
    else:
        assert run(body, X) == wanted


TWICE = "int g() { return 1; }\n"


@pytest.mark.parametrize(
    "text",
    [
        f"#ifndef A\n{TWICE}#else\n{TWICE}#endif",
        f"#if 1\n{TWICE}#endif",
        TWICE + TWICE,
        "#ifdef __CUDACC_RTC__\n#define N 1\n#else\n#define N 2\n#endif",
        "__device__ int g() { return __LINE__; }",
        "#define J(a, b) a##b",
        "#if __NVCC__\n#define N 1\n#endif",
    ],
)
def test_what_another_compiler_reads_differently_is_refused(text: str) -> None:
    with pytest.raises(NotRun):
        split(text)


def test_conditions_of_kernels_are_left_to_the_compiler() -> None:
    text = "#ifndef T\n#define T 3\n#endif\n__global__ void k() {}\n" + TWICE
    code, functions = split(text + '__device__ const char *s() { return "__LINE__"; }')
    assert "#ifndef T" in code
    assert list(functions) == ["g"]


def test_flags() -> None:
    """What changes results goes to NVRTC; what is not known is refused."""
    known = f"{CUDA_FLAGS}|{HOST_FLAGS}"
    given = [
        "-O3",
        "--use_fast_math",
        "-DSTEP=4",
        "-gencode=arch=compute_90,code=sm_90",
    ]
    assert check_flags(given, known) == ["--use_fast_math", "-DSTEP=4"]
    for each in ("-include", "-DF(x)=x", "-Ifolder"):
        with pytest.raises(NotRun, match="flag"):
            check_flags([each], known)
    with pytest.raises(NotRun, match="-DN=1"):
        check_flags(["-DN=1"], HOST_FLAGS)


def test_much_shared_memory_must_be_allowed() -> None:
    launch = "k<<<1, 32, 65536>>>(x.data_ptr<float>()); return x;"
    with pytest.raises(RuntimeError, match="most are 49,152"):
        run(launch, X)
    allow = "cudaFuncSetAttribute({}, cudaFuncAttributeMaxDynamicSharedMemorySize, {});"
    with pytest.raises(RuntimeError, match="most are 60,000"):
        run(allow.format("(const void*)k", 60000) + launch, X)
    run(allow.format("k", "16 * 4096") + launch, X)
    ((_, _, _, shared, _),) = LAUNCHES
    assert shared == 65536
    run(allow.format("k<float>", 65536) + launch.replace("k<<<", "k<float><<<"), X)


def test_a_launch() -> None:
    run(
        "int n = x.numel(); const dim3 grid((n + 7) / 8, 2);"
        "f_kernel<float, 4><<<grid, 32, n * sizeof(float)>>>(x.data_ptr<float>(), n, 2.5f);"
        "return x;",
        X,
    )
    ((name, grid, block, shared, given),) = LAUNCHES
    assert (name, grid, block, shared) == (
        "f_kernel<float,4>",
        Dim3(2, 2),
        Dim3(32),
        48,
    )
    assert isinstance(given[0], Data)
    assert given[0].tensor is X
    assert given[1:] == [12, 2.5]


def test_a_dispatch_names_the_type() -> None:
    body = (
        'AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "f", ([&] {'
        "k<scalar_t><<<1, 32>>>(x.data_ptr<scalar_t>()); })); return x;"
    )
    run(body, X.double())
    assert LAUNCHES[0][0] == "k<double>"


def test_a_branch_that_is_not_taken_launches_nothing() -> None:
    run("if (x.dim() == 5) { k<<<1, 1>>>(x.data_ptr<float>()); } return x;", X)
    assert not LAUNCHES


def test_a_check_that_fails() -> None:
    with pytest.raises(RuntimeError, match="two axes"):
        run('TORCH_CHECK(x.dim() == 2, "two axes"); return x;', X[0])


def test_an_int_that_overflows_is_refused() -> None:
    with pytest.raises(OverflowError):
        run("int n = 2147483647; int m = n + 1; return m;", X)


@pytest.mark.parametrize(
    "body",
    [
        "return (n > 5000) * 3;",
        "return n / 5000;",
        "return std::min(n, 5000);",
        "int k = n >= 5000; return k;",
    ],
)
def test_a_step_that_no_size_passed_is_named(body: str) -> None:
    _, functions = split(f"torch::Tensor f(torch::Tensor x, int n) {{ {body} }}")
    host = Host(functions, lambda *launch: None, {})
    for n in (300, 251):
        host.call("f", (X, n))
    assert host.not_run()
    host.call("f", (X, 60_000))
    assert host.not_run() == []


def test_a_constant_is_an_argument_of_a_template() -> None:
    run("constexpr int w = 64; k<float, w><<<1, w>>>(x.data_ptr<float>());", X)
    assert LAUNCHES[0][0] == "k<float,64>"


def test_functions_call_one_another() -> None:
    before = "torch::Tensor g(torch::Tensor x, int n) { return x.size(0) + n; }"
    assert run("return g(x, 4);", X, before=before) == 7


def test_constants_of_the_file_are_known() -> None:
    before = (
        "#define T 16\n#define TWICE (2 * T)\n#define MAX(a, b) a\n"
        "constexpr int WIDE = 8;\nstatic const float EPS = 1e-5f;\n"
        "__constant__ float table[3];"
    )
    assert run("return TWICE + WIDE;", X, before=before) == 40
    assert run("return EPS;", X, before=before) == 1e-5
    with pytest.raises(NotRun, match="table"):
        run("return table;", X, before=before)


def test_sources_are_divided() -> None:
    code, host = split(
        "#include <torch/extension.h>\n#include <cuda_fp16.h>\n#define N 4\n"
        "// torch::Tensor nothing(torch::Tensor x) {}\n"
        "struct Pair { float a, b; };\n__constant__ float table[N];\n"
        "template <typename T>\n__global__ void k(T* x) { x[0] = N; }\n"
        "torch::Tensor run(torch::Tensor x, int n = 3) {\n  k<<<1, 1>>>(x); }\n"
        'PYBIND11_MODULE(name, m) { m.def("run", &run); }\n'
    )
    assert [*host] == ["run"]
    assert host["run"].parameters == [("torch::Tensor", "x"), ("int", "n")]
    assert host["run"].body[0].line == 9
    for kept in (
        "cuda_fp16",
        "#define N 4",
        "struct Pair",
        "__constant__",
        "__global__",
    ):
        assert kept in code
    for dropped in ("torch", "PYBIND", "<<<"):
        assert dropped not in code
