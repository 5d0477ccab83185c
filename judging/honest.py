"""Candidates that are right, in Triton and in CUDA C++."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Candidate(NamedTuple):
    """A candidate, and the task that it is for."""

    name: str
    task: str
    text: str
    language: str


# ── Triton: elements ────────────────────────────────────────────────────────

TRITON = """import torch
import torch.nn as nn
import triton
import triton.language as tl

"""
ELEMENTS = (
    TRITON
    + """@triton.jit
def kernel(x, y, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    v = tl.load(x + at, at < n)
    tl.store(y + at, {result}, at < n)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        kernel[triton.cdiv(n, 1024),](x, y, n, SIZE=1024)
        return y
"""
)
TRITON_ELEMENTS = {
    "relu": "tl.where(v < 0, 0.0, v)",
    "leaky_relu": "tl.where(v < 0, 0.01 * v, v)",
    "sigmoid": "1 / (1 + tl.exp(-v))",
    "silu": "v / (1 + tl.exp(-v))",
    "gelu": "0.5 * v * (1 + tl.erf(v * 0.7071067811865476))",
    "hardsigmoid": "tl.where(v < -3, 0.0, tl.where(v > 3, 1.0, v / 6 + 0.5))",
    "softsign": "v / (1 + tl.abs(v))",
    "elu": "tl.where(v < 0, tl.exp(v) - 1, v)",
    "hardtanh": "tl.where(v < -1, -1.0, tl.where(v > 1, 1.0, v))",
    "scale": "v * 3.0",
}

# ── Triton: rows ────────────────────────────────────────────────────────────

ROWS = (
    TRITON
    + """@triton.jit
def greater(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)

@triton.jit
def less(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)

@triton.jit
def times(a, b):
    return a * b

@triton.jit
def kernel(x, y, n, SIZE: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, SIZE)
    inside = at < n
    v = tl.load(x + row * n + at, inside, {other})
    {body}
    {store}

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        rows, n = x.shape
        y = {output}
        kernel[rows,](x, y, n, SIZE=triton.next_power_of_2(n))
        return y
"""
)
WHOLE = ("tl.store(y + row * n + at, made, inside)", "torch.empty_like(x)")
ONE = ("tl.store(y + row, made)", "torch.empty(rows, device=x.device, dtype=x.dtype)")


class Row(NamedTuple):
    """What a program does with its row."""

    body: str
    result: tuple[str, str] = WHOLE
    other: str = "0.0"


TRITON_ROWS = {
    "softmax": Row(
        "e = tl.exp(v - tl.max(v, 0)); made = e / tl.sum(e, 0)",
        other="-float('inf')",
    ),
    "log_softmax": Row(
        "z = v - tl.max(v, 0); made = z - tl.log(tl.sum(tl.exp(z), 0))",
        other="-float('inf')",
    ),
    "layer_norm": Row(
        "c = tl.where(inside, v - tl.sum(v, 0) / n, 0.0); "
        "made = c * (1 / tl.sqrt(tl.sum(c * c, 0) / n + 1e-5))"
    ),
    "rms_norm": Row("made = v / tl.sqrt(tl.sum(v * v, 0) / n + 1e-5)"),
    "l1_norm": Row("made = v / (tl.sum(tl.abs(v), 0) / n)"),
    "l2_norm": Row("made = v / tl.sqrt(tl.sum(v * v, 0))"),
    "sum_rows": Row("made = tl.sum(v, 0)", ONE),
    "mean_rows": Row("made = tl.sum(v, 0) / n", ONE),
    "max_rows": Row("made = tl.reduce(v, 0, greater)", ONE, "-float('inf')"),
    "min_rows": Row("made = tl.reduce(v, 0, less)", ONE, "float('inf')"),
    "cumsum": Row("made = tl.cumsum(v, 0)"),
    "cumprod": Row("made = tl.associative_scan(v, 0, times)", other="1.0"),
    "reverse_cumsum": Row("made = tl.cumsum(v, 0, reverse=True)"),
}

# ── Triton: matrices ────────────────────────────────────────────────────────

MATMUL = (
    TRITON
    + """@triton.jit
def kernel(a, b, c, M, N, K, sab, sam, sak, sbb, sbk, sbn,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    a += tl.program_id(2) * sab
    b += tl.program_id(2) * sbb
    c += tl.program_id(2) * M * N
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        rk = k + tl.arange(0, BK)
        x = tl.load(a + rm[:, None] * sam + rk[None, :] * sak,
                    (rm[:, None] < M) & (rk[None, :] < K), 0.0)
        y = tl.load(b + rk[:, None] * sbk + rn[None, :] * sbn,
                    (rk[:, None] < K) & (rn[None, :] < N), 0.0)
        total += tl.dot(x, y, input_precision="ieee")
    tl.store(c + rm[:, None] * N + rn[None, :], total,
             (rm[:, None] < M) & (rn[None, :] < N))

def multiply(A, B):
    batch, M, K = A.shape
    N = B.shape[2]
    C = torch.empty((batch, M, N), device=A.device, dtype=A.dtype)
    kernel[triton.cdiv(M, 16), triton.cdiv(N, 32), batch](
        A, B, C, M, N, K, *A.stride(), *B.stride(), BM=16, BN=32, BK=16)
    return C

class ModelNew(nn.Module):
    def forward(self, A, B):
        return {result}
"""
)
TRITON_MATMULS = {
    "matmul": "multiply(A[None], B[None])[0]",
    "matmul_normal": "multiply(A[None], B[None])[0]",
    "matmul_transposed_a": "multiply(A.T[None], B[None])[0]",
    "matmul_transposed_b": "multiply(A[None], B.T[None])[0]",
    "batched_matmul": "multiply(A, B)",
}

LINEAR = (
    MATMUL[: MATMUL.index("class ModelNew")]
    .replace(
        "    tl.store(c +",
        "    total += tl.load(bias + rn, rn < N, 0.0)[None, :]\n    tl.store(c +",
    )
    .replace("def kernel(a, b, c,", "def kernel(a, b, bias, c,")
    .replace("def multiply(A, B):", "def multiply(A, B, bias):")
    .replace("        A, B, C,", "        A, B, bias, C,")
    + """class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.inner = nn.Linear(in_features, out_features)
    def forward(self, x):
        return multiply(x[None], self.inner.weight.T[None], self.inner.bias)[0]
"""
)

CONV = (
    TRITON
    + """@triton.jit
def kernel(x, w, y, C, H, W, F, P, Q, M, K: tl.constexpr,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    image, p, q = rm // (P * Q), rm // Q % P, rm % Q
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, C * K * K, BK):
        rk = k + tl.arange(0, BK)
        c, r, s = rk // (K * K), rk // K % K, rk % K
        at = ((image[:, None] * C + c[None, :]) * H + p[:, None] + r[None, :]) * W \\
            + q[:, None] + s[None, :]
        inside = (rm[:, None] < M) & (rk[None, :] < C * K * K)
        a = tl.load(x + at, inside, 0.0)
        b = tl.load(w + rn[None, :] * C * K * K + rk[:, None],
                    (rn[None, :] < F) & (rk[:, None] < C * K * K), 0.0)
        total += tl.dot(a, b, input_precision="ieee")
    at = ((image[:, None] * F + rn[None, :]) * P + p[:, None]) * Q + q[:, None]
    tl.store(y + at, total, (rm[:, None] < M) & (rn[None, :] < F))

class ModelNew(nn.Module):
    def __init__(self, channels, filters, kernel_size=1):
        super().__init__()
        self.conv = nn.Conv2d(channels, filters, kernel_size, bias=False)
    def forward(self, x):
        x, w = x.contiguous(), self.conv.weight
        B, C, H, W = x.shape
        F, K = w.shape[0], w.shape[2]
        P, Q = H - K + 1, W - K + 1
        y = torch.empty((B, F, P, Q), device=x.device, dtype=x.dtype)
        M = B * P * Q
        kernel[triton.cdiv(M, 32), triton.cdiv(F, 16)](
            x, w, y, C, H, W, F, P, Q, M, K=K, BM=32, BN=16, BK=16)
        return y
"""
)

LOSS = (
    TRITON
    + """@triton.jit
def kernel(x, y, out, n, SIZE: tl.constexpr):
    total = tl.zeros((SIZE,), dtype=tl.float32)
    for start in range(0, n, SIZE):
        at = start + tl.arange(0, SIZE)
        a = tl.load(x + at, at < n, 0.0)
        b = tl.load(y + at, at < n, 0.0)
        total += tl.where(at < n, {loss}, 0.0)
    tl.store(out, tl.sum(total, 0) / n)

class ModelNew(nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty((), device=x.device, dtype=x.dtype)
        kernel[1,](x, y, out, x.numel(), SIZE=1024)
        return out
"""
)
TRITON_LOSSES = {
    "mse": "(a - b) * (a - b)",
    "huber": "tl.where(tl.abs(a - b) < 1, 0.5 * (a - b) * (a - b), tl.abs(a - b) - 0.5)",
    "hinge": "tl.where(1 - a * b < 0, 0.0, 1 - a * b)",
}

ENTROPY = (
    TRITON
    + """@triton.jit
def kernel(x, labels, out, rows, n, SIZE: tl.constexpr):
    total = 0.0
    at = tl.arange(0, SIZE)
    for row in range(rows):
        v = tl.load(x + row * n + at, at < n, -float('inf'))
        most = tl.max(v, 0)
        right = tl.load(x + row * n + tl.load(labels + row))
        total += tl.log(tl.sum(tl.exp(v - most), 0)) + most - right
    tl.store(out, total / rows)

class ModelNew(nn.Module):
    def forward(self, x, labels):
        x = x.contiguous()
        labels = labels.contiguous()
        out = torch.empty((), device=x.device, dtype=x.dtype)
        rows, n = x.shape
        kernel[1,](x, labels, out, rows, n, SIZE=triton.next_power_of_2(n))
        return out
"""
)

# ── CUDA C++: elements ──────────────────────────────────────────────────────

CUDA = '''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <cmath>
%s
"""
extension = load_inline(
    name="kernels", cpp_sources="", cuda_sources=source, functions=["run"])

%s'''
CUDA_ELEMENT = """
__global__ void element(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i];
        y[i] = RESULT;
    }
}

torch::Tensor run(torch::Tensor given) {
    auto x = given.contiguous();
    auto y = torch::empty_like(x);
    const int n = x.numel();
    const int threads = 256;
    const int blocks = (n + threads - 1) / threads;
    element<<<blocks, threads>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""
ONE_INPUT = """class ModelNew(nn.Module):
    def forward(self, x):
        return extension.run(x)
"""
CUDA_ELEMENTS = {
    "relu": "v < 0.0f ? 0.0f : v",
    "tanh": "tanhf(v)",
    "silu": "v / (1.0f + expf(-v))",
    "gelu": "0.5f * v * (1.0f + erff(v * 0.70710678f))",
    "selu": "1.0507009873554805f * (v > 0.0f ? v : 1.6732632423543772f * expm1f(v))",
    "softplus": "v > 20.0f ? v : log1pf(expf(v))",
    "softsign": "v / (1.0f + fabsf(v))",
    "hardtanh": "v < -1.0f ? -1.0f : (v > 1.0f ? 1.0f : v)",
}

# ── CUDA C++: rows ──────────────────────────────────────────────────────────

CUDA_ROW = """
#define THREADS 128
__device__ float all(float v, float* shared) {
    shared[threadIdx.x] = v;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            float a = shared[threadIdx.x], b = shared[threadIdx.x + half];
            shared[threadIdx.x] = COMBINE;
        }
        __syncthreads();
    }
    float made = shared[0];
    __syncthreads();
    return made;
}

__global__ void row_kernel(const float* x, float* y, int n) {
    __shared__ float shared[THREADS];
    x += (long long)blockIdx.x * n;
    BODY
}

torch::Tensor run(torch::Tensor given) {
    TORCH_CHECK(given.dim() == 2, "two axes");
    auto x = given.contiguous();
    int rows = x.size(0), n = x.size(1);
    auto y = OUTPUT;
    row_kernel<<<rows, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""
EACH = "for (int i = threadIdx.x; i < n; i += THREADS)"
ADDED = "a + b"
LIKE, SINGLE = "torch::empty_like(x)", "torch::empty({rows}, x.options())"
CUDA_ROWS = {
    "softmax": (
        "",
        f"float most = -INFINITY; {EACH} most = fmaxf(most, x[i]); "
        "shared[threadIdx.x] = most; __syncthreads(); "
        "for (int i = 0; i < THREADS; i++) most = fmaxf(most, shared[i]); "
        "__syncthreads(); y += (long long)blockIdx.x * n; "
        f"float sum = 0; {EACH} sum += expf(x[i] - most); sum = all(sum, shared); "
        f"{EACH} y[i] = expf(x[i] - most) / sum;",
        LIKE,
    ),
    "layer_norm": (
        "",
        f"float sum = 0; {EACH} sum += x[i]; float mean = all(sum, shared) / n; "
        f"float more = 0; {EACH} more += (x[i] - mean) * (x[i] - mean); "
        "float scale = 1.0f / sqrtf(all(more, shared) / n + 1e-5f); "
        f"y += (long long)blockIdx.x * n; {EACH} y[i] = (x[i] - mean) * scale;",
        LIKE,
    ),
    "rms_norm": (
        "",
        f"float sum = 0; {EACH} sum += x[i] * x[i]; "
        "float root = sqrtf(all(sum, shared) / n + 1e-5f); "
        f"y += (long long)blockIdx.x * n; {EACH} y[i] = x[i] / root;",
        LIKE,
    ),
    "l2_norm": (
        "",
        f"float sum = 0; {EACH} sum += x[i] * x[i]; "
        "float root = sqrtf(all(sum, shared)); "
        f"y += (long long)blockIdx.x * n; {EACH} y[i] = x[i] / root;",
        LIKE,
    ),
    "sum_rows": (
        "",
        f"float sum = 0; {EACH} sum += x[i]; sum = all(sum, shared); "
        "if (threadIdx.x == 0) y[blockIdx.x] = sum;",
        SINGLE,
    ),
    "max_rows": (
        "(a > b || a != a) ? a : b",
        f"float most = -INFINITY; {EACH} most = (most > x[i] || most != most) ? "
        "most : x[i]; most = all(most, shared); "
        "if (threadIdx.x == 0) y[blockIdx.x] = most;",
        SINGLE,
    ),
    "cumsum": (
        "",
        "y += (long long)blockIdx.x * n; if (threadIdx.x == 0) { float sum = 0; "
        "for (int i = 0; i < n; i++) { sum += x[i]; y[i] = sum; } }",
        LIKE,
    ),
}

# ── CUDA C++: matrices and pictures ─────────────────────────────────────────

CUDA_MATMUL = """
#define TILE 16
__global__ void multiply(const float* a, const float* b, float* c,
                         int M, int N, int K) {
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
    a += (long long)blockIdx.z * M * K;
    b += (long long)blockIdx.z * K * N;
    float total = 0;
    for (int start = 0; start < K; start += TILE) {
        int i = start + threadIdx.x, j = start + threadIdx.y;
        left[threadIdx.y][threadIdx.x] = row < M && i < K ? LEFT : 0.0f;
        right[threadIdx.y][threadIdx.x] = j < K && col < N ? RIGHT : 0.0f;
        __syncthreads();
        for (int k = 0; k < TILE; k++)
            total += left[threadIdx.y][k] * right[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && col < N)
        c[((long long)blockIdx.z * M + row) * N + col] = total;
}

torch::Tensor run(torch::Tensor A, torch::Tensor B) {
    auto a = A.contiguous();
    auto b = B.contiguous();
    SIZES
    const dim3 block(TILE_SIZE, TILE_SIZE);
    dim3 grid((N + TILE_SIZE - 1) / TILE_SIZE, (M + TILE_SIZE - 1) / TILE_SIZE, batch);
    multiply<<<grid, block>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), M, N, K);
    return c;
}
""".replace("TILE_SIZE", "16")
TWO_INPUTS = """class ModelNew(nn.Module):
    def forward(self, A, B):
        return extension.run(A, B)
"""
PLAIN_SIZES = (
    "int batch = 1, M = a.size(0), K = a.size(1), N = b.size(1);\n"
    "    auto c = torch::empty({M, N}, a.options());"
)
CUDA_MATMULS = {
    "matmul": ("a[row * K + i]", "b[j * N + col]", PLAIN_SIZES),
    "matmul_transposed_a": (
        "a[i * M + row]",
        "b[j * N + col]",
        PLAIN_SIZES.replace(
            "M = a.size(0), K = a.size(1)", "M = a.size(1), K = a.size(0)"
        ),
    ),
    "matmul_transposed_b": (
        "a[row * K + i]",
        "b[col * K + j]",
        PLAIN_SIZES.replace("b.size(1)", "b.size(0)"),
    ),
    "batched_matmul": (
        "a[row * K + i]",
        "b[j * N + col]",
        "int batch = a.size(0), M = a.size(1), K = a.size(2), N = b.size(2);\n"
        "    auto c = torch::empty({batch, M, N}, a.options());",
    ),
    "triangular": ("a[row * K + i]", "b[j * N + col]", PLAIN_SIZES),
}
MATVEC = """
__global__ void matvec(const float* a, const float* b, float* c, int K) {
    __shared__ float shared[128];
    float sum = 0;
    for (int k = threadIdx.x; k < K; k += 128) sum += a[blockIdx.x * K + k] * b[k];
    shared[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) c[blockIdx.x] = shared[0];
}

torch::Tensor run(torch::Tensor A, torch::Tensor B) {
    auto a = A.contiguous(), b = B.contiguous();
    int M = a.size(0), K = a.size(1);
    auto c = torch::empty({M, 1}, a.options());
    matvec<<<M, 128>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), K);
    return c;
}
"""
DIAGONAL = """
__global__ void scale_rows(const float* d, const float* b, float* c, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n * m) c[i] = d[i / m] * b[i];
}

torch::Tensor run(torch::Tensor A, torch::Tensor B) {
    auto d = A.contiguous(), b = B.contiguous();
    int n = b.size(0), m = b.size(1);
    auto c = torch::empty_like(b);
    scale_rows<<<(n * m + 255) / 256, 256>>>(
        d.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), n, m);
    return c;
}
"""
POOL = """
__global__ void pool(const float* x, float* y, int H, int W, int P, int Q, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int q = i % Q, p = i / Q % P, plane = i / (P * Q);
    float made = START;
    for (int r = 0; r < SIDE; r++)
        for (int s = 0; s < SIDE; s++) {
            float v = x[(plane * H + p * SIDE + r) * W + q * SIDE + s];
            made = COMBINE;
        }
    y[i] = FINISH;
}

torch::Tensor run(torch::Tensor given) {
    auto x = given.contiguous();
    int B = x.size(0), C = x.size(1), H = x.size(2), W = x.size(3);
    int P = (H - SIDE) / SIDE + 1, Q = (W - SIDE) / SIDE + 1;
    auto y = torch::empty({B, C, P, Q}, x.options());
    int n = y.numel();
    pool<<<(n + 127) / 128, 128>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), H, W, P, Q, n);
    return y;
}
"""
DEPTHWISE = """
__global__ void conv(const float* x, const float* w, float* y, int C, int H, int W,
                     int K, int P, int Q, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int q = i % Q, p = i / Q % P, plane = i / (P * Q), c = plane % C;
    float total = 0;
    for (int r = 0; r < K; r++)
        for (int s = 0; s < K; s++)
            total += x[(plane * H + p + r) * W + q + s] * w[(c * K + r) * K + s];
    y[i] = total;
}

torch::Tensor run(torch::Tensor given, torch::Tensor weight) {
    auto x = given.contiguous();
    int B = x.size(0), C = x.size(1), H = x.size(2), W = x.size(3), K = weight.size(2);
    int P = H - K + 1, Q = W - K + 1;
    auto y = torch::empty({B, C, P, Q}, x.options());
    int n = y.numel();
    conv<<<(n + 127) / 128, 128>>>(x.data_ptr<float>(), weight.data_ptr<float>(),
                                   y.data_ptr<float>(), C, H, W, K, P, Q, n);
    return y;
}
"""
DEPTHWISE_MODEL = """class ModelNew(nn.Module):
    def __init__(self, channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size, groups=channels,
                              bias=False)
    def forward(self, x):
        return extension.run(x, self.conv.weight)
"""
BATCH_NORM = """
#define THREADS 128
__global__ void norm(const float* x, const float* w, const float* b, float* y,
                     const float* means, const float* spreads, int kept,
                     int B, int C, int S) {
    __shared__ float shared[THREADS];
    int c = blockIdx.x, n = B * S;
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += THREADS) sum += x[(i / S * C + c) * S + i % S];
    shared[threadIdx.x] = sum;
    __syncthreads();
    float mean = 0;
    for (int i = 0; i < THREADS; i++) mean += shared[i];
    mean /= n;
    __syncthreads();
    float more = 0;
    for (int i = threadIdx.x; i < n; i += THREADS) {
        float v = x[(i / S * C + c) * S + i % S] - mean;
        more += v * v;
    }
    shared[threadIdx.x] = more;
    __syncthreads();
    float spread = 0;
    for (int i = 0; i < THREADS; i++) spread += shared[i];
    if (kept) mean = means[c];
    float scale = 1.0f / sqrtf((kept ? spreads[c] : spread / n) + 1e-5f);
    for (int i = threadIdx.x; i < n; i += THREADS) {
        int at = (i / S * C + c) * S + i % S;
        y[at] = (x[at] - mean) * scale * (w ? w[c] : 1.0f) + (b ? b[c] : 0.0f);
    }
}
"""
BATCH_RUN = """
torch::Tensor run(torch::Tensor given, torch::Tensor w, torch::Tensor b,
                  torch::Tensor means, torch::Tensor spreads, int64_t kept) {
    auto x = given.contiguous();
    auto y = torch::empty_like(x);
    int B = x.size(0), C = x.size(1), S = x.size(2) * x.size(3);
    norm<<<C, 128>>>(x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(),
                     y.data_ptr<float>(), means.data_ptr<float>(),
                     spreads.data_ptr<float>(), kept, B, C, S);
    return y;
}
"""
BATCH_MODEL = """class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
    def forward(self, x):
        n, kept = self.norm, 0 if self.training else 1
        return extension.run(
            x, n.weight, n.bias, n.running_mean, n.running_var, kept)
"""
INSTANCE_RUN = """
torch::Tensor run(torch::Tensor given) {
    auto x = given.contiguous();
    auto y = torch::empty_like(x);
    int planes = x.size(0) * x.size(1), S = x.size(2) * x.size(3);
    norm<<<planes, 128>>>(x.data_ptr<float>(), nullptr, nullptr,
                          y.data_ptr<float>(), nullptr, nullptr, 0, 1, planes, S);
    return y;
}
"""


def _pool(task: str) -> str:
    words = {
        "max_pool": ("-INFINITY", "(made > v || made != made) ? made : v", "made", "2"),
        "avg_pool": ("0.0f", "made + v", "made / 9.0f", "3"),
    }[task]
    text = POOL
    for word, new in zip(("START", "COMBINE", "FINISH", "SIDE"), words, strict=True):
        text = text.replace(word, new)
    return text


def _triton() -> Iterator[tuple[str, str]]:
    for task, result in TRITON_ELEMENTS.items():
        yield task, ELEMENTS.format(result=result)
    for task, row in TRITON_ROWS.items():
        store, output = row.result
        yield (
            task,
            ROWS.format(body=row.body, store=store, output=output, other=row.other),
        )
    for task, result in TRITON_MATMULS.items():
        yield task, MATMUL.format(result=result)
    yield "linear", LINEAR
    yield "conv2d", CONV
    yield "pointwise", CONV
    for task, loss in TRITON_LOSSES.items():
        yield task, LOSS.format(loss=loss)
    yield "cross_entropy", ENTROPY


def _cuda() -> Iterator[tuple[str, str]]:
    for task, result in CUDA_ELEMENTS.items():
        yield task, CUDA % (CUDA_ELEMENT.replace("RESULT", result), ONE_INPUT)
    for task, (combine, body, output) in CUDA_ROWS.items():
        text = CUDA_ROW.replace("COMBINE", combine or ADDED).replace("BODY", body)
        yield task, CUDA % (text.replace("OUTPUT", output), ONE_INPUT)
    for task, (left, right, sizes) in CUDA_MATMULS.items():
        text = CUDA_MATMUL.replace("LEFT", left).replace("RIGHT", right)
        if task == "triangular":
            text = text.replace("+ col] = total;", "+ col] = row > col ? 0.0f : total;")
        yield task, CUDA % (text.replace("SIZES", sizes), TWO_INPUTS)
    yield "matvec", CUDA % (MATVEC, TWO_INPUTS)
    yield "diagonal", CUDA % (DIAGONAL, TWO_INPUTS)
    for task in ("max_pool", "avg_pool"):
        yield task, CUDA % (_pool(task), ONE_INPUT)
    yield "depthwise", CUDA % (DEPTHWISE, DEPTHWISE_MODEL)
    yield "batch_norm", CUDA % (BATCH_NORM + BATCH_RUN, BATCH_MODEL)
    yield "instance_norm", CUDA % (BATCH_NORM + INSTANCE_RUN, ONE_INPUT)


# ── as programs are written ─────────────────────────────────────────────────

_AFFINE = ELEMENTS.format(result="v * 3.0")


def _with(*pairs: str) -> str:
    """The kernel for x * 3 with some words replaced: old, new, old, new."""
    text = _AFFINE
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        assert old in text, old
        text = text.replace(old, new)
    return text


_CALL = "        kernel[triton.cdiv(n, 1024),](x, y, n, SIZE=1024)\n"
ORDINARY = {
    "a return for nothing": _with(
        _CALL, "        if y.numel() == 0:\n            return y\n" + _CALL
    ),
    "output made by zeros_like": _with("torch.empty_like(x)", "torch.zeros_like(x)"),
    "a copy changed in place": _with(
        "torch.empty_like(x)", "x.clone()", "](x, y, n, SIZE", "](y, y, n, SIZE"
    ),
    "work memory kept over calls": _with(
        "class ModelNew",
        "KEPT = {}\n\nclass ModelNew",
        _CALL,
        "        w = KEPT.setdefault(x.shape, torch.zeros_like(x))\n"
        + _CALL.replace("(x, y,", "(x, w,")
        + "        copy[triton.cdiv(n, 1024),](w, y, n, SIZE=1024)\n",
        "@triton.jit\ndef kernel",
        "@triton.jit\ndef copy(x, y, n, SIZE: tl.constexpr):\n"
        "    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)\n"
        "    tl.store(y + at, tl.load(x + at, at < n), at < n)\n\n"
        "@triton.jit\ndef kernel",
    ),
    "a dataclass, a named tuple and a warning": _with(
        "class ModelNew",
        "import collections\nimport dataclasses\nimport warnings\n\n"
        "@dataclasses.dataclass\nclass Tile:\n    size: int = 1024\n\n"
        "Shape = collections.namedtuple('Shape', 'rows columns')\n\nclass ModelNew",
        _CALL,
        "        warnings.warn('small tiles')\n" + _CALL,
    ),
    "contiguous inputs only": _with(
        "        x = x.contiguous()\n",
        "",
        "torch.empty_like(x)",
        "torch.empty(x.shape)",
    ),
}
"""Honest candidates for ``scale`` that look like a cheat, or like none in particular."""


def candidates() -> list[Candidate]:
    """All honest candidates."""
    made = [Candidate(f"{t} in Triton", t, text, "Triton") for t, text in _triton()]
    made += [Candidate(f"{t} in CUDA C++", t, x, "CUDA C++") for t, x in _cuda()]
    return made + [Candidate(n, "scale", x, "Triton") for n, x in ORDINARY.items()]
