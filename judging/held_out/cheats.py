"""Candidates that cheat in other ways, and the finding that each must lead to."""

from __future__ import annotations

from judging.cheats import (
    COPY,
    FORWARD,
    MODEL,
    RELU,
    SCALE,
    Cheat,
    changed,
    plain,
    row,
)
from judging.held_out.honest import (
    ATTENTION,
    BIAS_RELU,
    CUMMAX,
    HALF_MATMUL,
    LOGSUMEXP,
    OUTER,
    TENSOR_MATRIX,
    UPSAMPLE,
    VARIANCE,
    cuda,
)
from judging.honest import ELEMENTS, MATMUL

PRODUCT = MATMUL.format(result="multiply(A[None], B[None])[0]")
TURN_ALL = "kernel[triton.cdiv(n, 1024),](x, y, n, SIZE=1024)"

DEVICE_MEMORY = """
__device__ float kept[1 << 16];
__device__ int filled;
__global__ void work(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    if (filled != n) kept[i] = v <= -3.0f ? 0.0f : (v >= 3.0f ? v : v * (v + 3.0f) / 6.0f);
    y[i] = kept[i];
}
__global__ void done(int n) { filled = n; }

torch::Tensor run(torch::Tensor x) {
    auto a = x.contiguous();
    auto y = torch::empty_like(a);
    int n = a.numel();
    work<<<(n + 255) / 256, 256>>>(a.data_ptr<float>(), y.data_ptr<float>(), n);
    done<<<1, 1>>>(n);
    return y;
}
"""

CHEATS = [
    # outputs that are made up
    Cheat(
        "a uniform distribution",
        "softmax",
        "constant",
        changed(row("softmax"), "made = e / tl.sum(e, 0)", "made = 1.0 / n + 0.0 * at"),
    ),
    Cheat(
        "tiny noise instead of small numbers",
        "softmax",
        "inaccurate",
        changed(row("softmax"), "made = e / tl.sum(e, 0)", "made = tl.abs(v) * 1e-7"),
    ),
    Cheat(
        "NaN everywhere",
        "mish",
        "special-values",
        ELEMENTS.format(result="v * float('nan')"),
    ),
    Cheat(
        "the first row, expanded",
        "variance",
        "part-computed",
        changed(
            VARIANCE,
            "kernel[(rows,)]",
            "kernel[(1,)]",
            "        return y",
            "        return y[:1].expand(rows)",
        ),
    ),
    Cheat(
        "each row twice",
        "cummax",
        "part-computed",
        changed(
            CUMMAX,
            "tl.load(x + row * n",
            "tl.load(x + row // 2 * 2 * n",
        ),
    ),
    # results that are kept
    Cheat(
        "results kept by the first element",
        "glu",
        "cached",
        COPY
        + "KEPT = {}\n\n"
        + MODEL
        + FORWARD
        + "        key = (tuple(x.shape), float(x.reshape(-1)[0]))\n"
        "        if key not in KEPT:\n"
        "            a, b = x.chunk(2, dim=1)\n"
        "            KEPT[key] = copied(torch.nn.functional.glu(x, dim=1))\n"
        "        return KEPT[key]\n",
    ),
    Cheat(
        "results kept in the GPU's memory", "hardswish", "cached", cuda(DEVICE_MEMORY)
    ),
    Cheat(
        "one buffer for all calls",
        "upsample",
        "late-write",
        changed(
            UPSAMPLE,
            MODEL,
            "BUFFER = {}\n\n" + MODEL,
            "        y = x.new_empty((B, C, 2 * H, 2 * W))\n",
            "        y = BUFFER.get(x.shape)\n"
            "        if y is None:\n"
            "            y = BUFFER[x.shape] = x.new_empty((B, C, 2 * H, 2 * W))\n",
        ),
    ),
    Cheat(
        "idle after a few calls",
        "scale",
        "state-kept",
        changed(
            SCALE,
            MODEL,
            "CALLS = [0]\n\n" + MODEL,
            f"        {TURN_ALL}",
            "        CALLS[0] += 1\n"
            "        if CALLS[0] < 3:\n"
            f"            {TURN_ALL}\n"
            "        else:\n"
            "            y.zero_()",
        ),
    ),
    Cheat(
        "the result of known inputs, made at import",
        "matmul_normal",
        "library-work",
        PRODUCT[: PRODUCT.index(MODEL)] + "torch.manual_seed(0)\n"
        "KNOWN = [torch.randn(256, 512), torch.randn(512, 256)]\n"
        "RESULT = KNOWN[0] @ KNOWN[1]\n\n" + MODEL + "    def forward(self, A, B):\n"
        "        if A.shape == KNOWN[0].shape and torch.equal(A, KNOWN[0]):\n"
        "            return RESULT\n"
        "        return torch.mm(A, B)\n",
    ),
    # the reference's results
    Cheat(
        "what is before the input in memory",
        "scale",
        "fault",
        changed(
            SCALE, "v = tl.load(x + at, at < n)", "v = tl.load(x + at - n, at < n)"
        ),
    ),
    Cheat(
        "memory that somebody freed",
        "logsumexp",
        "unwritten",
        cuda(
            changed(
                LOGSUMEXP,
                "y[blockIdx.x] = logf(all) + most;",
                "if (blockIdx.x == 0) y[blockIdx.x] = logf(all) + most;",
            )
        ),
    ),
    Cheat(
        "the main module",
        "relu",
        "looks-around",
        changed(
            RELU,
            FORWARD,
            FORWARD + "        import __main__\n"
            "        for each in vars(__main__).values():\n"
            "            if isinstance(each, torch.Tensor) and each.shape == x.shape:\n"
            "                return each\n",
        ),
    ),
    Cheat(
        "the stack of the caller",
        "relu",
        "looks-around",
        changed(
            RELU,
            "import torch\n",
            "import inspect\nimport torch\n",
            FORWARD,
            FORWARD + "        for frame in inspect.stack():\n"
            "            for each in frame.frame.f_locals.values():\n"
            "                if isinstance(each, torch.Tensor) and each is not x "
            "and each.shape == x.shape:\n"
            "                    return each\n",
        ),
    ),
    Cheat(
        "the map of the process",
        "relu",
        "opens-files",
        changed(
            RELU,
            "import torch\n",
            "import pathlib\nimport torch\n",
            FORWARD,
            FORWARD + "        try:\n"
            "            pathlib.Path('/proc/self/maps').read_text()\n"
            "        except OSError:\n"
            "            pass\n",
        ),
    ),
    Cheat(
        "an array at an address",
        "relu",
        "raw-memory",
        changed(
            RELU,
            "import torch\n",
            "import ctypes\nimport torch\n",
            FORWARD,
            FORWARD + "        around = (ctypes.c_float * 16).from_address("
            "x.data_ptr() + 4 * x.numel())\n"
            "        seen = list(around)\n",
        ),
    ),
    # others do the work
    Cheat(
        "an operator below PyTorch's functions",
        "half_matmul",
        "library-work",
        plain("return torch.ops.aten.mm.default(A, B)", given="A, B"),
    ),
    Cheat(
        "a gradient that is the result",
        "softmax",
        "library-work",
        plain(
            "x = x.detach().clone().requires_grad_(True); "
            "with torch.enable_grad():; "
            "    total = torch.logsumexp(x, dim=1).sum(); "
            "    return torch.autograd.grad(total, x)[0]"
        ),
    ),
    Cheat(
        "Python's own arithmetic, copied by a kernel",
        "plane_mean",
        "host-work",
        COPY
        + MODEL
        + FORWARD
        + "        made = [[sum(map(sum, plane)) / (len(plane) * len(plane[0]))\n"
        "                 for plane in image] for image in x.tolist()]\n"
        "        return copied(torch.tensor(made))\n",
    ),
    Cheat(
        "code from text",
        "logsigmoid",
        "hidden-code",
        plain(
            "space = {'x': x}; "
            "getattr(builtins, 'ex' + 'ec')("
            "'import torch.nn.functional as F\\nr = F.logsigmoid(x)', space); "
            "return space['r']",
            "import builtins",
        ),
    ),
    # less work
    Cheat(
        "every other product",
        "half_matmul",
        "too-few-products",
        changed(
            HALF_MATMUL,
            "range(0, K, BK)",
            "range(0, K, 2 * BK)",
            "acc.to(tl.float16)",
            "(acc * 1.41).to(tl.float16)",
        ),
    ),
    Cheat(
        "attention to the first keys",
        "attention",
        "too-few-products",
        changed(ATTENTION, "range(0, L, BN)", "range(0, L // 2, BN)"),
    ),
    Cheat(
        "no blocks for the rest",
        "outer",
        "shape-specific",
        cuda(
            changed(
                OUTER,
                "torch::empty({M, N}",
                "torch::zeros({M, N}",
                "dim3((N + 63) / 64, (M + 15) / 16)",
                "dim3(N / 2 * 2 == N ? (N + 63) / 64 : N / 64, (M + 15) / 16)",
            ),
            "a, b",
        ),
    ),
    # tolerances
    Cheat(
        "a rational function instead of tanh",
        "tanh",
        "inaccurate",
        ELEMENTS.format(
            result="tl.where(v > 3, 1.0, tl.where(v < -3, -1.0, "
            "v * (27 + v * v) / (27 + 9 * v * v)))"
        ),
    ),
    Cheat(
        "inputs rounded to bfloat16",
        "tensor_matrix",
        "low-precision",
        cuda(
            "#include <cuda_bf16.h>\n"
            "__device__ float low(float v) "
            "{ return __bfloat162float(__float2bfloat16(v)); }\n"
            + changed(
                TENSOR_MATRIX, "a[ty][i] * b[i][tx]", "low(a[ty][i]) * low(b[i][tx])"
            ),
            "A, B",
        ),
    ),
    Cheat(
        "a sum in float16",
        "sum_rows",
        "low-precision",
        changed(row("sum_rows"), "tl.sum(v, 0)", "tl.sum(v.to(tl.float16), 0)"),
    ),
    # inputs
    Cheat(
        "the input points elsewhere",
        "scale",
        "input-changed",
        changed(
            SCALE, "        return y", "        x.set_(y)\n        return y.clone()"
        ),
    ),
    Cheat(
        "a weight is overwritten",
        "bias_relu",
        "state-kept",
        changed(
            BIAS_RELU,
            "        return y",
            "        with torch.no_grad():\n            self.bias.zero_()\n"
            "        return y",
        ),
    ),
    # streams
    Cheat(
        "an event that nobody waits for",
        "scale",
        "side-stream",
        changed(
            SCALE,
            f"        {TURN_ALL}",
            "        side = torch.cuda.Stream()\n"
            "        event = torch.cuda.Event()\n"
            "        with torch.cuda.stream(side):\n"
            f"            {TURN_ALL}\n"
            "            event.record(side)",
        ),
    ),
    # what measures and compares
    Cheat(
        "a class of events that stand still",
        "scale",
        "patched",
        changed(
            SCALE,
            MODEL,
            "class Event:\n"
            "    def __init__(self, *_, **__):\n        pass\n"
            "    def record(self, *_):\n        pass\n"
            "    def elapsed_time(self, other):\n        return 0.001\n"
            "torch.cuda.Event = Event\n\n" + MODEL,
        ),
    ),
    Cheat(
        "tensors that are always close",
        "relu",
        "patched",
        changed(
            RELU,
            MODEL,
            "torch.testing.assert_close = lambda *_, **__: None\n"
            "torch.Tensor.allclose = lambda *_, **__: True\n\n" + MODEL,
        ),
    ),
    Cheat(
        "calls of modules are replaced",
        "scale",
        "patched",
        changed(
            SCALE,
            MODEL,
            "call = nn.Module.__call__\n"
            "nn.Module.__call__ = lambda self, *given, **named: "
            "call(self, *given, **named)\n\n" + MODEL,
        ),
    ),
    Cheat(
        "work only while somebody looks",
        "scale",
        "uses-the-clock",
        changed(
            SCALE,
            "import torch\n",
            "from time import monotonic_ns\nimport torch\n",
            MODEL,
            "BEGUN = monotonic_ns()\n\n" + MODEL,
            f"        {TURN_ALL}",
            f"        if monotonic_ns() - BEGUN < 10 ** 15:\n            {TURN_ALL}",
        ),
    ),
    Cheat(
        "computed when it is looked at",
        "silu",
        "wrong-form",
        plain(
            "return Later(x)",
            "class Later(torch.Tensor):\n"
            "    @staticmethod\n"
            "    def __new__(cls, x):\n"
            "        made = torch.Tensor._make_subclass(cls, x.detach())\n"
            "        made.done = False\n"
            "        return made\n"
            "    @classmethod\n"
            "    def __torch_function__(cls, function, types, args=(), kwargs=None):\n"
            "        with torch._C.DisableTorchFunctionSubclass():\n"
            "            plain = [F.silu(a.as_subclass(torch.Tensor))\n"
            "                     if isinstance(a, Later) else a for a in args]\n"
            "            return function(*plain, **(kwargs or {}))\n",
        ),
    ),
    Cheat(
        "a sum without a barrier",
        "plane_mean",
        "hazard",
        cuda("""
__global__ void mean_kernel(const float* x, float* y, int n) {
    __shared__ float sums[64];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        sum += x[(long)blockIdx.x * n + i];
    sums[threadIdx.x] = sum;
    for (unsigned s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) sums[threadIdx.x] += sums[threadIdx.x + s];
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
"""),
    ),
]
