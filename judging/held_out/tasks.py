"""References for other operations, in the form of KernelBench."""

from __future__ import annotations

from judging.tasks import NORMAL, PICTURE, PIXELS, rows, task

TWO = f"{NORMAL}, {NORMAL}"

TASKS: dict[str, str] = {
    # elements
    "mish": rows("F.mish(x)"),
    "hardswish": rows("F.hardswish(x)"),
    "logsigmoid": rows("F.logsigmoid(x)"),
    "glu": rows("F.glu(x, dim=1)"),
    "choose": rows(
        "torch.where(mask, x, y)",
        f"{TWO}, torch.rand(batch_size, dim) < 0.5",
        "x, y, mask",
    ),
    "bias_relu": task(
        "torch.relu(x + self.bias)",
        "batch_size = 48; features = 2048",
        "torch.randn(batch_size, features)",
        parameters="features",
        made="self.bias = nn.Parameter(torch.randn(features))",
        init="features",
    ),
    "half_fma": rows(
        "torch.addcmul(x, y, y, value=0.5)",
        "torch.randn(batch_size, dim).half(), torch.randn(batch_size, dim).half()",
        "x, y",
    ),
    "remainder": rows(
        "(x + 3 * y) % 7",
        "torch.randint(0, 1000, (batch_size, dim), dtype=torch.int32), "
        "torch.randint(0, 1000, (batch_size, dim), dtype=torch.int32)",
        "x, y",
    ),
    # moves
    "turn": task(
        "x.transpose(1, 2).contiguous()",
        "batch_size = 3; high = 80; wide = 112",
        "torch.randn(batch_size, high, wide)",
    ),
    "lower": task("torch.tril(x)", "high = 160; wide = 144", "torch.randn(high, wide)"),
    "embedding": task(
        "self.table(index)",
        "batch_size = 24; length = 40; vocabulary = 96; width = 32",
        "torch.randint(0, vocabulary, (batch_size, length))",
        "index",
        parameters="vocabulary, width",
        made="self.table = nn.Embedding(vocabulary, width)",
        init="vocabulary, width",
    ),
    "gather": task(
        "torch.gather(x, 1, index)",
        "batch_size = 64; dim = 200; picked = 50",
        "torch.randn(batch_size, dim), torch.randint(0, dim, (batch_size, picked))",
        "x, index",
    ),
    "upsample": task(
        'F.interpolate(x, scale_factor=2, mode="nearest")', PICTURE, PIXELS
    ),
    # rows
    "argmax": rows("torch.argmax(x, dim=1)"),
    "variance": rows("torch.var(x, dim=1)"),
    "logsumexp": rows("torch.logsumexp(x, dim=1)"),
    "cummax": rows("torch.cummax(x, dim=1)[0]"),
    "cosine": rows("F.cosine_similarity(x, y, dim=1)", TWO, "x, y"),
    "group_norm": task(
        "F.group_norm(x, 4)",
        "batch_size = 6; channels = 16; length = 120",
        "torch.randn(batch_size, channels, length)",
    ),
    "plane_mean": task("x.mean(dim=(2, 3))", PICTURE, PIXELS),
    "kl_div": task(
        'F.kl_div(x, y, reduction="batchmean")',
        "batch_size = 96; classes = 80",
        "torch.log_softmax(torch.randn(batch_size, classes), 1), "
        "torch.softmax(torch.randn(batch_size, classes), 1)",
        "x, y",
    ),
    # products
    "outer": task(
        "torch.outer(a, b)",
        "M = 150; N = 210",
        "torch.randn(M), torch.randn(N)",
        "a, b",
    ),
    "batched_matvec": task(
        'torch.einsum("bij,bj->bi", A, v)',
        "batch_size = 8; M = 60; K = 72",
        "torch.randn(batch_size, M, K), torch.randn(batch_size, K)",
        "A, v",
    ),
    "tensor_matrix": task(
        'torch.einsum("bijl,lk->bijk", A, B)',
        "batch_size = 2; I = 12; J = 16; L = 48; K = 40",
        "torch.randn(batch_size, I, J, L), torch.randn(L, K)",
        "A, B",
    ),
    "half_matmul": task(
        "torch.matmul(A, B)",
        "M = 96; N = 80; K = 128",
        "torch.randn(M, K).half(), torch.randn(K, N).half()",
        "A, B",
    ),
    "attention": task(
        "F.scaled_dot_product_attention(q, k, v)",
        "batch_size = 2; heads = 2; length = 64; width = 32",
        "torch.randn(batch_size, heads, length, width), "
        "torch.randn(batch_size, heads, length, width), "
        "torch.randn(batch_size, heads, length, width)",
        "q, k, v",
    ),
    "linear_gelu": task(
        "F.gelu(self.inner(x))",
        "batch_size = 40; in_features = 96; out_features = 72",
        "torch.randn(batch_size, in_features)",
        parameters="in_features, out_features",
        made="self.inner = nn.Linear(in_features, out_features)",
        init="in_features, out_features",
    ),
    "conv1d": task(
        "self.conv(x)",
        "batch_size = 4; channels = 6; length = 200; filters = 10",
        "torch.randn(batch_size, channels, length)",
        parameters="channels, filters",
        made="self.conv = nn.Conv1d(channels, filters, 5, stride=2, padding=2)",
        init="channels, filters",
    ),
}
