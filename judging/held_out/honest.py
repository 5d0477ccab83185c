"""Candidates that are right, in Triton and in CUDA C++."""

from __future__ import annotations

from judging.honest import CUDA, TRITON, Candidate

# ── Triton ──────────────────────────────────────────────────────────────────

MISH = (
    TRITON
    + """@triton.jit
def mish_kernel(x_ptr, out_ptr, n_elements, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n_elements
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    e = tl.exp(tl.minimum(x, 20.0, propagate_nan=tl.PropagateNan.ALL))
    n = e * (e + 2.0)
    y = tl.where(x > 20.0, x, x * (n / (n + 2.0)))
    tl.store(out_ptr + offs, y, mask=mask)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
        mish_kernel[grid](x, out, x.numel(), BLOCK=512)
        return out
"""
)
GLU = (
    TRITON
    + """@triton.jit
def glu_kernel(x, y, half, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    ok = col < half
    a = tl.load(x + row * stride + col, mask=ok)
    b = tl.load(x + row * stride + half + col, mask=ok)
    tl.store(y + row * half + col, a / (1.0 + tl.exp(-b)), mask=ok)

class ModelNew(nn.Module):
    def forward(self, x):
        if x.stride(1) != 1:
            x = x.contiguous()
        rows, n = x.shape
        assert n % 2 == 0
        y = torch.empty((rows, n // 2), device=x.device, dtype=x.dtype)
        glu_kernel[(rows, triton.cdiv(n // 2, 256))](x, y, n // 2, x.stride(0), BLOCK=256)
        return y
"""
)
CHOOSE = (
    TRITON
    + """@triton.jit
def choose_kernel(x, y, m, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = offs < n
    which = tl.load(m + offs, mask=ok, other=0)
    a = tl.load(x + offs, mask=ok, other=0.0)
    b = tl.load(y + offs, mask=ok, other=0.0)
    tl.store(out + offs, tl.where(which != 0, a, b), mask=ok)

class ModelNew(nn.Module):
    def forward(self, x, y, mask):
        x, y, mask = x.contiguous(), y.contiguous(), mask.contiguous()
        out = torch.empty_like(x)
        choose_kernel[(triton.cdiv(x.numel(), 1024),)](
            x, y, mask, out, x.numel(), BLOCK=1024, num_warps=8)
        return out
"""
)
BIAS_RELU = (
    TRITON
    + """@triton.jit
def kernel(x, bias, y, rows, cols, sx, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    ok = (r[:, None] < rows) & (c[None, :] < cols)
    v = tl.load(x + r[:, None] * sx + c[None, :], ok, 0.0)
    v += tl.load(bias + c, c < cols, 0.0)[None, :]
    v = tl.where(v <= 0, 0.0, v)
    tl.store(y + r[:, None] * cols + c[None, :], v, ok)

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))
    def forward(self, x):
        x = x if x.stride(-1) == 1 else x.contiguous()
        rows, cols = x.shape
        y = torch.empty(rows, cols, device=x.device, dtype=x.dtype)
        kernel[triton.cdiv(rows, 8), triton.cdiv(cols, 128)](
            x, self.bias, y, rows, cols, x.stride(0), BR=8, BC=128)
        return y
"""
)
REMAINDER = (
    TRITON
    + """@triton.jit
def kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = at < n
    v = tl.load(x + at, ok, 0) + 3 * tl.load(y + at, ok, 0)
    r = v % 7
    r = tl.where(r < 0, r + 7, r)
    tl.store(out + at, r, ok)

class ModelNew(nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty_like(x)
        kernel[triton.cdiv(x.numel(), 512),](x, y, out, x.numel(), BLOCK=512)
        return out
"""
)
TURN = (
    TRITON
    + """@triton.jit
def kernel(x, y, H, W, sb, sh, sw, T: tl.constexpr):
    b = tl.program_id(2)
    h = tl.program_id(0) * T + tl.arange(0, T)
    w = tl.program_id(1) * T + tl.arange(0, T)
    v = tl.load(x + b * sb + h[:, None] * sh + w[None, :] * sw,
                (h[:, None] < H) & (w[None, :] < W))
    tl.store(y + b * H * W + w[:, None] * H + h[None, :], tl.trans(v),
             (w[:, None] < W) & (h[None, :] < H))

class ModelNew(nn.Module):
    def forward(self, x):
        B, H, W = x.shape
        y = torch.empty((B, W, H), device=x.device, dtype=x.dtype)
        kernel[triton.cdiv(H, 32), triton.cdiv(W, 32), B](x, y, H, W, *x.stride(), T=32)
        return y
"""
)
EMBEDDING = (
    TRITON
    + """@triton.jit
def kernel(index, table, out, width, BLOCK: tl.constexpr):
    i = tl.program_id(0)
    row = tl.load(index + i)
    at = tl.arange(0, BLOCK)
    v = tl.load(table + row * width + at, at < width)
    tl.store(out + i * width + at, v, at < width)

class ModelNew(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
    def forward(self, index):
        index = index.contiguous()
        w = self.table.weight
        out = torch.empty(*index.shape, w.shape[1], device=w.device, dtype=w.dtype)
        kernel[index.numel(),](index, w, out, w.shape[1],
                               BLOCK=triton.next_power_of_2(w.shape[1]))
        return out
"""
)
UPSAMPLE = (
    TRITON
    + """@triton.jit
def kernel(x, y, H, W, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    col = at % (2 * W)
    row = (at // (2 * W)) % (2 * H)
    plane = at // (4 * H * W)
    v = tl.load(x + (plane * H + row // 2) * W + col // 2, at < n)
    tl.store(y + at, v, at < n)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        B, C, H, W = x.shape
        y = x.new_empty((B, C, 2 * H, 2 * W))
        kernel[triton.cdiv(y.numel(), 1024),](x, y, H, W, y.numel(), BLOCK=1024)
        return y
"""
)
VARIANCE = (
    TRITON
    + """@triton.jit
def kernel(x, y, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * stride + at, at < n, 0.0)
    mean = tl.sum(total, 0) / n
    more = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        d = tl.load(x + row * stride + at, at < n, 0.0) - mean
        more += tl.where(at < n, d * d, 0.0)
    tl.store(y + row, tl.sum(more, 0) / (n - 1))

class ModelNew(nn.Module):
    def forward(self, x):
        if x.stride(1) != 1:
            x = x.contiguous()
        rows, n = x.shape
        y = torch.empty(rows, device=x.device, dtype=torch.float32)
        kernel[(rows,)](x, y, n, x.stride(0), BLOCK=256)
        return y
"""
)
CUMMAX = (
    TRITON
    + """@triton.jit
def larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)

@triton.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, at < n, -float("inf"))
    tl.store(y + row * n + at, tl.associative_scan(v, 0, larger), at < n)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel[x.shape[0],](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
"""
)
COSINE = (
    TRITON
    + """@triton.jit
def kernel(x, y, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    xy = 0.0
    xx = 0.0
    yy = 0.0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        a = tl.load(x + row * n + at, at < n, 0.0)
        b = tl.load(y + row * n + at, at < n, 0.0)
        xy += tl.sum(a * b, 0)
        xx += tl.sum(a * a, 0)
        yy += tl.sum(b * b, 0)
    left = tl.maximum(tl.sqrt(xx), 1e-8, propagate_nan=tl.PropagateNan.ALL)
    right = tl.maximum(tl.sqrt(yy), 1e-8, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out + row, xy / (left * right))

class ModelNew(nn.Module):
    def forward(self, x, y):
        x, y = x.contiguous(), y.contiguous()
        out = torch.empty(x.shape[0], device=x.device)
        kernel[x.shape[0],](x, y, out, x.shape[1], BLOCK=512)
        return out
"""
)
GROUP_NORM = (
    TRITON
    + """@triton.jit
def kernel(x, y, n, eps, BLOCK: tl.constexpr):
    x += tl.program_id(0) * n
    y += tl.program_id(0) * n
    at = tl.arange(0, BLOCK)
    v = tl.load(x + at, at < n, 0.0)
    mean = tl.sum(v, axis=0) / n
    d = tl.where(at < n, v - mean, 0.0)
    var = tl.sum(d * d, axis=0) / n
    tl.store(y + at, d / tl.sqrt(var + eps), at < n)

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        B, C, L = x.shape
        y = torch.empty_like(x)
        n = C // 4 * L
        kernel[(B * 4,)](x, y, n, 1e-5, BLOCK=triton.next_power_of_2(n), num_warps=4)
        return y
"""
)
HALF_MATMUL = (
    TRITON
    + """@triton.autotune(
    configs=[triton.Config({"BM": 32, "BN": 32, "BK": 32}, num_warps=4),
             triton.Config({"BM": 64, "BN": 32, "BK": 32}, num_warps=4)],
    key=["M", "N", "K"])
@triton.jit
def kernel(a, b, c, M, N, K, sam, sak, sbk, sbn,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(a + m[:, None] * sam + k[None, :] * sak,
                    (m[:, None] < M) & (k[None, :] < K), 0.0)
        y = tl.load(b + k[:, None] * sbk + n[None, :] * sbn,
                    (k[:, None] < K) & (n[None, :] < N), 0.0)
        acc = tl.dot(x, y, acc)
    tl.store(c + m[:, None] * N + n[None, :], acc.to(tl.float16),
             (m[:, None] < M) & (n[None, :] < N))

class ModelNew(nn.Module):
    def forward(self, A, B):
        M, K = A.shape
        N = B.shape[1]
        C = torch.empty((M, N), device=A.device, dtype=torch.float16)
        grid = lambda m: (triton.cdiv(M, m["BM"]), triton.cdiv(N, m["BN"]))
        kernel[grid](A, B, C, M, N, K, *A.stride(), *B.stride())
        return C
"""
)
ATTENTION = (
    TRITON
    + """@triton.jit
def kernel(q, k, v, o, L, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
           BD: tl.constexpr):
    head = tl.program_id(1)
    q += head * L * D
    k += head * L * D
    v += head * L * D
    o += head * L * D
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, BD)
    x = tl.load(q + m[:, None] * D + d[None, :], (m[:, None] < L) & (d[None, :] < D), 0.0)
    most = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, BD], tl.float32)
    for start in range(0, L, BN):
        n = start + tl.arange(0, BN)
        inside = (n[:, None] < L) & (d[None, :] < D)
        y = tl.load(k + n[:, None] * D + d[None, :], inside, 0.0)
        z = tl.load(v + n[:, None] * D + d[None, :], inside, 0.0)
        s = tl.dot(x, tl.trans(y), input_precision="ieee") * scale
        s = tl.where(n[None, :] < L, s, -float("inf"))
        new = tl.maximum(most, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        old = tl.exp(most - new)
        total = total * old + tl.sum(p, 1)
        acc = acc * old[:, None] + tl.dot(p, z, input_precision="ieee")
        most = new
    tl.store(o + m[:, None] * D + d[None, :], acc / total[:, None],
             (m[:, None] < L) & (d[None, :] < D))

class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        B, H, L, D = q.shape
        o = torch.empty_like(q)
        kernel[triton.cdiv(L, 16), B * H](
            q, k, v, o, L, D ** -0.5, D=D, BM=16, BN=16,
            BD=max(16, triton.next_power_of_2(D)))
        return o
"""
)

# ── CUDA C++ ────────────────────────────────────────────────────────────────


def cuda(text: str, names: str = "x", init: str = "", call: str = "") -> str:
    """A candidate with one function of the host, ``run``."""
    before = f"    def __init__(self, {init.partition(':')[0]}):\n" if init else ""
    if init:
        before += "        super().__init__()\n"
        before += f"        {init.partition(':')[2].strip()}\n"
    model = (
        f"class ModelNew(nn.Module):\n{before}"
        f"    def forward(self, {names}):\n"
        f"        return extension.run({call or names})\n"
    )
    return CUDA % (text, model)


HARDSWISH = """
__device__ __forceinline__ float hswish(float v) {
    if (v <= -3.0f) return 0.0f;
    if (v >= 3.0f) return v;
    return v * (v + 3.0f) / 6.0f;
}

__global__ void hardswish_vec4(const float4* __restrict__ in, float4* __restrict__ out,
                               const float* __restrict__ tail_in, float* tail_out,
                               int quads, int rest) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < quads) {
        float4 v = in[i];
        v.x = hswish(v.x); v.y = hswish(v.y); v.z = hswish(v.z); v.w = hswish(v.w);
        out[i] = v;
    } else if (i < quads + rest) {
        tail_out[i - quads] = hswish(tail_in[i - quads]);
    }
}

torch::Tensor run(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    x = x.contiguous();
    auto y = torch::empty_like(x);
    int64_t n = x.numel();
    int quads = n / 4;
    int rest = n - 4 * quads;
    const int threads = 128;
    const int blocks = (quads + rest + threads - 1) / threads;
    hardswish_vec4<<<blocks, threads>>>(
        reinterpret_cast<const float4*>(x.data_ptr<float>()),
        reinterpret_cast<float4*>(y.data_ptr<float>()),
        x.data_ptr<float>() + 4 * quads, y.data_ptr<float>() + 4 * quads, quads, rest);
    return y;
}
"""
LOGSIGMOID = """
template <typename scalar_t>
__global__ void logsigmoid_kernel(const scalar_t* __restrict__ x,
                                  scalar_t* __restrict__ y, size_t n) {
    const size_t stride = (size_t)blockDim.x * gridDim.x;
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        scalar_t v = x[i];
        scalar_t low = v < 0 ? v : (v == v ? (scalar_t)0 : v);
        y[i] = low - log1p(exp(-fabs(v)));
    }
}

torch::Tensor run(torch::Tensor input) {
    input = input.contiguous();
    auto output = torch::empty_like(input);
    const auto n = input.numel();
    const int threads = 256;
    const int blocks = std::min<int>((n + threads - 1) / threads, 64);
    AT_DISPATCH_FLOATING_TYPES(input.scalar_type(), "logsigmoid", ([&] {
        logsigmoid_kernel<scalar_t><<<blocks, threads>>>(
            input.data_ptr<scalar_t>(), output.data_ptr<scalar_t>(), n);
    }));
    return output;
}
"""
HALF_FMA = """
#include <cuda_fp16.h>
__global__ void fma_kernel(const __half* x, const __half* y, __half* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float a = __half2float(x[i]), b = __half2float(y[i]);
        z[i] = __float2half(a + 0.5f * b * b);
    }
}

torch::Tensor run(torch::Tensor x, torch::Tensor y) {
    auto a = x.contiguous();
    auto b = y.contiguous();
    auto z = torch::empty_like(a);
    int n = a.numel();
    fma_kernel<<<(n + 255) / 256, 256>>>(
        reinterpret_cast<const __half*>(a.data_ptr<at::Half>()),
        reinterpret_cast<const __half*>(b.data_ptr<at::Half>()),
        reinterpret_cast<__half*>(z.data_ptr<at::Half>()), n);
    return z;
}
"""
LOWER = """
__global__ void tril_kernel(const float* x, float* y, int H, int W) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    if (r >= H || c >= W) return;
    y[r * W + c] = c <= r ? x[r * W + c] : 0.0f;
}

torch::Tensor run(torch::Tensor x) {
    auto in = x.contiguous();
    int H = in.size(0);
    int W = in.size(1);
    auto out = torch::empty({H, W}, in.options());
    dim3 threads(32, 4);
    dim3 blocks((W + threads.x - 1) / threads.x, (H + threads.y - 1) / threads.y);
    tril_kernel<<<blocks, threads>>>(in.data_ptr<float>(), out.data_ptr<float>(), H, W);
    return out;
}
"""
GATHER = """
__global__ void gather_kernel(const float* x, const int64_t* index, float* y,
                              int n, int picked, int total) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < total) y[i] = x[(i / picked) * n + index[i]];
}

torch::Tensor run(torch::Tensor x, torch::Tensor index) {
    auto a = x.contiguous();
    auto b = index.contiguous();
    const int n = a.size(1), picked = b.size(1);
    auto y = torch::empty({b.size(0), picked}, a.options());
    const int total = y.numel();
    gather_kernel<<<(total + 127) / 128, 128>>>(
        a.data_ptr<float>(), b.data_ptr<int64_t>(), y.data_ptr<float>(), n, picked, total);
    return y;
}
"""
ARGMAX = """
__device__ bool better(float a, int i, float b, int j) {
    bool x = a != a, y = b != b;
    if (x != y) return x;
    if (!x && a != b) return a > b;
    return i < j;
}

__global__ void argmax_kernel(const float* x, int64_t* y, int n) {
    const float* row = x + (size_t)blockIdx.x * n;
    float best = -INFINITY;
    int where = 0x7fffffff;
    for (int i = threadIdx.x; i < n; i += 32)
        if (better(row[i], i, best, where)) { best = row[i]; where = i; }
    for (int step = 16; step > 0; step >>= 1) {
        float other = __shfl_down_sync(0xffffffffu, best, step);
        int there = __shfl_down_sync(0xffffffffu, where, step);
        if (better(other, there, best, where)) { best = other; where = there; }
    }
    if (threadIdx.x == 0) y[blockIdx.x] = where;
}

torch::Tensor run(torch::Tensor x) {
    auto a = x.contiguous();
    auto y = torch::empty({a.size(0)}, a.options().dtype(torch::kInt64));
    argmax_kernel<<<a.size(0), 32>>>(a.data_ptr<float>(), y.data_ptr<int64_t>(), a.size(1));
    return y;
}
"""
LOGSUMEXP = """
__inline__ __device__ float warp_max(float v) {
    for (int o = 16; o > 0; o /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, o));
    return v;
}
__inline__ __device__ float warp_sum(float v) {
    for (int o = 16; o > 0; o /= 2) v += __shfl_xor_sync(0xffffffff, v, o);
    return v;
}

__global__ void lse_kernel(const float* __restrict__ x, float* __restrict__ y, int n) {
    extern __shared__ float part[];
    const float* row = x + (size_t)blockIdx.x * n;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    float most = -INFINITY;
    for (int i = threadIdx.x; i < n; i += blockDim.x) most = fmaxf(most, row[i]);
    most = warp_max(most);
    if (lane == 0) part[warp] = most;
    __syncthreads();
    most = part[0];
    for (int w = 1; w < warps; w++) most = fmaxf(most, part[w]);
    if (isinf(most)) most = 0.0f;
    __syncthreads();
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += expf(row[i] - most);
    sum = warp_sum(sum);
    if (lane == 0) part[warp] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        float all = 0.0f;
        for (int w = 0; w < warps; w++) all += part[w];
        y[blockIdx.x] = logf(all) + most;
    }
}

torch::Tensor run(torch::Tensor x) {
    auto in = x.contiguous();
    int rows = in.size(0), n = in.size(1);
    auto out = torch::empty({rows}, in.options());
    const int threads = 128;
    const size_t shared = threads / 32 * sizeof(float);
    lse_kernel<<<rows, threads, shared>>>(in.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}
"""
PLANE_MEAN = """
__global__ void mean_kernel(const float* x, float* y, int n) {
    __shared__ float sums[64];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        sum += x[(long)blockIdx.x * n + i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) sums[threadIdx.x] += sums[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = sums[0] / n;
}

torch::Tensor run(torch::Tensor x) {
    x = x.contiguous();
    const int B = x.size(0);
    const int C = x.size(1);
    auto y = torch::empty({B, C}, x.options());
    mean_kernel<<<B * C, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(),
                               x.size(2) * x.size(3));
    return y;
}
"""
KL_DIV = """
__global__ void partial(const float* x, const float* y, float* parts, int n) {
    __shared__ float s[128];
    float sum = 0.0f;
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += 128 * gridDim.x) {
        float t = y[i];
        float logs = t > 0.0f || t != t ? t * logf(t) : 0.0f;
        sum += logs - t * x[i];
    }
    s[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) parts[blockIdx.x] = s[0];
}
__global__ void finish(const float* parts, float* out, int count, float scale) {
    float sum = 0.0f;
    for (int i = 0; i < count; i++) sum += parts[i];
    out[0] = sum / scale;
}

torch::Tensor run(torch::Tensor x, torch::Tensor y) {
    auto a = x.contiguous(), b = y.contiguous();
    const int blocks = 16;
    auto parts = torch::empty({blocks}, a.options());
    auto out = torch::empty({}, a.options());
    partial<<<blocks, 128>>>(a.data_ptr<float>(), b.data_ptr<float>(),
                             parts.data_ptr<float>(), a.numel());
    finish<<<1, 1>>>(parts.data_ptr<float>(), out.data_ptr<float>(), blocks,
                     (float)a.size(0));
    return out;
}
"""
OUTER = """
__global__ void outer_kernel(const float* a, const float* b, float* c, int M, int N) {
    __shared__ float column[16];
    int j = blockIdx.x * 64 + threadIdx.x, i = blockIdx.y * 16;
    if (threadIdx.x < 16 && i + threadIdx.x < M) column[threadIdx.x] = a[i + threadIdx.x];
    __syncthreads();
    if (j < N) {
        float v = b[j];
        for (int k = 0; k < 16 && i + k < M; k++) c[(i + k) * N + j] = column[k] * v;
    }
}

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    a = a.contiguous();
    b = b.contiguous();
    int M = a.numel(), N = b.numel();
    auto c = torch::empty({M, N}, a.options());
    outer_kernel<<<dim3((N + 63) / 64, (M + 15) / 16), 64>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), M, N);
    return c;
}
"""
BATCHED_MATVEC = """
__global__ void matvec(const float* A, const float* v, float* out, int M, int K) {
    // a warp for each row
    int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x & 31;
    int b = blockIdx.y;
    if (warp >= M) return;
    const float* row = A + ((long long)b * M + warp) * K;
    float sum = 0.0f;
    for (int k = lane; k < K; k += 32) sum = fmaf(row[k], v[b * K + k], sum);
#pragma unroll
    for (int o = 16; o; o >>= 1) sum += __shfl_down_sync(~0u, sum, o);
    if (lane == 0) out[b * M + warp] = sum;
}

torch::Tensor run(torch::Tensor A, torch::Tensor v) {
    auto a = A.contiguous();
    auto x = v.contiguous();
    int B = a.size(0), M = a.size(1), K = a.size(2);
    auto out = torch::empty({B, M}, a.options());
    dim3 grid((M + 3) / 4, B);
    matvec<<<grid, 128>>>(a.data_ptr<float>(), x.data_ptr<float>(), out.data_ptr<float>(),
                          M, K);
    return out;
}
"""
TENSOR_MATRIX = """
#define T 16
__global__ void product(const float* A, const float* B, float* C, int M, int N, int K) {
    __shared__ float a[T][T + 1];
    __shared__ float b[T][T + 1];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * T + ty, col = blockIdx.x * T + tx;
    float sum = 0.0f;
    for (int k = 0; k < (K + T - 1) / T; ++k) {
        a[ty][tx] = (row < M && k * T + tx < K) ? A[row * K + k * T + tx] : 0.0f;
        b[ty][tx] = (col < N && k * T + ty < K) ? B[(k * T + ty) * N + col] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < T; ++i) sum += a[ty][i] * b[i][tx];
        __syncthreads();
    }
    if (row < M && col < N) C[row * N + col] = sum;
}

torch::Tensor run(torch::Tensor A, torch::Tensor B) {
    auto a = A.contiguous(), b = B.contiguous();
    auto sizes = a.sizes();
    int K = a.size(3), N = b.size(1);
    int M = a.numel() / K;
    auto c = torch::empty({sizes[0], sizes[1], sizes[2], N}, a.options());
    dim3 block(T, T);
    dim3 grid((N + T - 1) / T, (M + T - 1) / T);
    product<<<grid, block>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(),
                             M, N, K);
    return c;
}
"""
LINEAR_GELU = """
__global__ void linear_gelu(const float* x, const float* w, const float* bias, float* y,
                            int M, int N, int K) {
    int n = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y;
    if (n >= N) return;
    float sum = bias[n];
    for (int k = 0; k < K; k++) sum += x[m * K + k] * w[n * K + k];
    y[m * N + n] = 0.5f * sum * (1.0f + erff(sum * 0.70710678118654752f));
}

torch::Tensor run(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    auto a = x.contiguous();
    int M = a.size(0), K = a.size(1), N = weight.size(0);
    auto y = torch::empty({M, N}, a.options());
    linear_gelu<<<dim3((N + 31) / 32, M), 32>>>(
        a.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(),
        y.data_ptr<float>(), M, N, K);
    return y;
}
"""
CONV1D = """
__global__ void conv1d_kernel(const float* __restrict__ x, const float* __restrict__ w,
                              const float* __restrict__ bias, float* __restrict__ y,
                              int B, int C, int L, int F, int P) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= B * F * P) return;
    int p = i % P;
    int f = (i / P) % F;
    int b = i / (P * F);
    float sum = bias[f];
    for (int c = 0; c < C; ++c)
        for (int k = 0; k < 5; ++k) {
            int at = 2 * p + k - 2;
            if (at >= 0 && at < L) sum += x[(b * C + c) * L + at] * w[(f * C + c) * 5 + k];
        }
    y[i] = sum;
}

torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor bias) {
    x = x.contiguous();
    const int B = x.size(0), C = x.size(1), L = x.size(2), F = w.size(0);
    const int P = (L + 4 - 5) / 2 + 1;
    auto y = torch::empty({B, F, P}, x.options());
    const int n = B * F * P;
    conv1d_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), w.data_ptr<float>(),
        bias.data_ptr<float>(), y.data_ptr<float>(), B, C, L, F, P);
    return y;
}
"""

IN_TRITON = {
    "mish": MISH,
    "glu": GLU,
    "choose": CHOOSE,
    "bias_relu": BIAS_RELU,
    "remainder": REMAINDER,
    "turn": TURN,
    "embedding": EMBEDDING,
    "upsample": UPSAMPLE,
    "variance": VARIANCE,
    "cummax": CUMMAX,
    "cosine": COSINE,
    "group_norm": GROUP_NORM,
    "half_matmul": HALF_MATMUL,
    "attention": ATTENTION,
}
IN_CUDA = {
    "hardswish": cuda(HARDSWISH),
    "logsigmoid": cuda(LOGSIGMOID),
    "half_fma": cuda(HALF_FMA, "x, y"),
    "lower": cuda(LOWER),
    "gather": cuda(GATHER, "x, index"),
    "argmax": cuda(ARGMAX),
    "logsumexp": cuda(LOGSUMEXP),
    "plane_mean": cuda(PLANE_MEAN),
    "kl_div": cuda(KL_DIV, "x, y"),
    "outer": cuda(OUTER, "a, b"),
    "batched_matvec": cuda(BATCHED_MATVEC, "A, v"),
    "tensor_matrix": cuda(TENSOR_MATRIX, "A, B"),
    "linear_gelu": cuda(
        LINEAR_GELU,
        init="in_features, out_features: "
        "self.inner = nn.Linear(in_features, out_features)",
        call="x, self.inner.weight, self.inner.bias",
    ),
    "conv1d": cuda(
        CONV1D,
        init="channels, filters: "
        "self.conv = nn.Conv1d(channels, filters, 5, stride=2, padding=2)",
        call="x, self.conv.weight, self.conv.bias",
    ),
}


def candidates() -> list[Candidate]:
    """All honest candidates."""
    made = [Candidate(f"{t} in Triton", t, x, "Triton") for t, x in IN_TRITON.items()]
    return made + [
        Candidate(f"{t} in CUDA C++", t, x, "CUDA C++") for t, x in IN_CUDA.items()
    ]
