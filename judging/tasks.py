"""References in the form of KernelBench's level 1, each written anew."""

from __future__ import annotations

HEAD = """import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self{parameters}):
        super().__init__()
{made}
    def forward(self, {names}):
        return {result}

{sizes}

def get_inputs():
    return [{inputs}]

def get_init_inputs():
    return [{init}]
"""


def task(
    result: str,
    sizes: str,
    inputs: str,
    names: str = "x",
    parameters: str = "",
    made: str = "        pass",
    init: str = "",
) -> str:
    """The text of a reference."""
    return HEAD.format(
        result=result,
        sizes=sizes.replace("; ", "\n"),
        inputs=inputs,
        names=names,
        parameters=f", {parameters}" if parameters else "",
        made="\n".join(f"        {line.strip()}" for line in made.strip().splitlines()),
        init=init,
    )


ROWS = "batch_size = 64; dim = 4096"
NORMAL = "torch.randn(batch_size, dim)"
PICTURE = "batch_size = 4; channels = 8; height = 64; width = 64"
PIXELS = "torch.randn(batch_size, channels, height, width)"


def rows(result: str, inputs: str = NORMAL, names: str = "x") -> str:
    """A task about rows."""
    return task(result, ROWS, inputs, names)


TASKS: dict[str, str] = {
    # elements
    "relu": rows("torch.relu(x)"),
    "leaky_relu": rows("F.leaky_relu(x, negative_slope=0.01)"),
    "sigmoid": rows("torch.sigmoid(x)"),
    "tanh": rows("torch.tanh(x)"),
    "silu": rows("x * torch.sigmoid(x)"),
    "gelu": rows("F.gelu(x)"),
    "selu": rows("torch.selu(x)"),
    "hardsigmoid": rows("F.hardsigmoid(x)"),
    "softplus": rows("F.softplus(x)"),
    "softsign": rows("x / (1 + torch.abs(x))"),
    "elu": rows("F.elu(x, alpha=1.0)"),
    "hardtanh": rows("F.hardtanh(x, min_val=-1.0, max_val=1.0)"),
    "scale": rows("x * 3.0"),
    # rows
    "softmax": rows("torch.softmax(x, dim=1)"),
    "log_softmax": rows("F.log_softmax(x, dim=1)"),
    "layer_norm": rows("F.layer_norm(x, x.shape[1:])"),
    "rms_norm": rows("x / torch.sqrt(torch.mean(x ** 2, dim=1, keepdim=True) + 1e-5)"),
    "l1_norm": rows("x / torch.mean(torch.abs(x), dim=1, keepdim=True)"),
    "l2_norm": rows("x / torch.norm(x, p=2, dim=1, keepdim=True)"),
    "sum_rows": rows("torch.sum(x, dim=1)"),
    "mean_rows": rows("torch.mean(x, dim=1)", "torch.rand(batch_size, dim)"),
    "max_rows": rows("torch.max(x, dim=1)[0]"),
    "min_rows": rows("torch.min(x, dim=1)[0]"),
    "cumsum": rows("torch.cumsum(x, dim=1)"),
    "cumprod": rows("torch.cumprod(x, dim=1)", "1 + 0.1 * torch.rand(batch_size, dim)"),
    "reverse_cumsum": rows("torch.cumsum(x.flip(1), dim=1).flip(1)"),
    "masked_cumsum": rows(
        "torch.cumsum(x * mask, dim=1)",
        f"{NORMAL}, torch.randint(0, 2, (batch_size, dim)).bool()",
        "x, mask",
    ),
    "masked": rows(
        "torch.where(mask, x * 3, x)",
        f"{NORMAL}, torch.ones(batch_size, dim).bool()",
        "x, mask",
    ),
    "halves": rows("x * y", f"{NORMAL}.half(), {NORMAL}", "x, y"),
    # losses
    "mse": rows("torch.mean((x - y) ** 2)", f"{NORMAL}, {NORMAL}", "x, y"),
    "huber": rows("F.smooth_l1_loss(x, y)", f"{NORMAL}, {NORMAL}", "x, y"),
    "hinge": rows(
        "torch.mean(torch.clamp(1 - x * y, min=0))",
        f"{NORMAL}, torch.randint(0, 2, (batch_size, dim)).float() * 2 - 1",
        "x, y",
    ),
    "cross_entropy": task(
        "F.cross_entropy(x, labels)",
        "batch_size = 512; num_classes = 64",
        "torch.randn(batch_size, num_classes), "
        "torch.randint(0, num_classes, (batch_size,))",
        "x, labels",
    ),
    # matrices
    "matmul": task(
        "torch.matmul(A, B)",
        "M = 512; N = 256; K = 1024",
        "torch.rand(M, K), torch.rand(K, N)",
        "A, B",
    ),
    "matmul_normal": task(
        "torch.matmul(A, B)",
        "M = 256; N = 256; K = 512",
        "torch.randn(M, K), torch.randn(K, N)",
        "A, B",
    ),
    "matmul_transposed_a": task(
        "torch.matmul(A.T, B)",
        "M = 256; N = 256; K = 512",
        "torch.rand(K, M), torch.rand(K, N)",
        "A, B",
    ),
    "matmul_transposed_b": task(
        "torch.matmul(A, B.T)",
        "M = 256; N = 256; K = 512",
        "torch.rand(M, K), torch.rand(N, K)",
        "A, B",
    ),
    "batched_matmul": task(
        "torch.bmm(A, B)",
        "batch_size = 8; M = 64; N = 64; K = 128",
        "torch.rand(batch_size, M, K), torch.rand(batch_size, K, N)",
        "A, B",
    ),
    "matvec": task(
        "torch.matmul(A, B)",
        "M = 256; K = 4096",
        "torch.rand(M, K), torch.rand(K, 1)",
        "A, B",
    ),
    "diagonal": task(
        "torch.diag(A) @ B",
        "N = 256; M = 512",
        "torch.randn(N), torch.randn(N, M)",
        "A, B",
    ),
    "triangular": task(
        "torch.triu(torch.matmul(A, B))",
        "N = 256",
        "torch.triu(torch.randn(N, N)), torch.triu(torch.randn(N, N))",
        "A, B",
    ),
    "linear": task(
        "self.inner(x)",
        "batch_size = 64; in_features = 256; out_features = 128",
        "torch.randn(batch_size, in_features)",
        parameters="in_features, out_features",
        made="self.inner = nn.Linear(in_features, out_features)",
        init="in_features, out_features",
    ),
    # pictures
    "conv2d": task(
        "self.conv(x)",
        PICTURE + "; filters = 16; kernel_size = 3",
        PIXELS,
        parameters="channels, filters, kernel_size",
        made="self.conv = nn.Conv2d(channels, filters, kernel_size, bias=False)",
        init="channels, filters, kernel_size",
    ),
    "depthwise": task(
        "self.conv(x)",
        PICTURE + "; kernel_size = 3",
        PIXELS,
        parameters="channels, kernel_size",
        made="self.conv = nn.Conv2d(channels, channels, kernel_size, "
        "groups=channels, bias=False)",
        init="channels, kernel_size",
    ),
    "pointwise": task(
        "self.conv(x)",
        PICTURE + "; filters = 16",
        PIXELS,
        parameters="channels, filters",
        made="self.conv = nn.Conv2d(channels, filters, 1, bias=False)",
        init="channels, filters",
    ),
    "max_pool": task("F.max_pool2d(x, 2, 2)", PICTURE, PIXELS),
    "avg_pool": task("F.avg_pool2d(x, 3, 3)", PICTURE, PIXELS),
    "batch_norm": task(
        "self.norm(x)",
        PICTURE,
        PIXELS,
        parameters="channels",
        made="self.norm = nn.BatchNorm2d(channels)",
        init="channels",
    ),
    "instance_norm": task("F.instance_norm(x)", PICTURE, PIXELS),
}
