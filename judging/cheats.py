"""Candidates that cheat, rebuilt from what people reported about such benchmarks.

Each is for a task, and has the finding that a judge must report about it.  The texts
are written here; none is anybody's submission.
"""

from __future__ import annotations

from typing import NamedTuple

from judging.honest import (
    ELEMENTS,
    LINEAR,
    LOSS,
    MATMUL,
    ROWS,
    TRITON,
    TRITON_ROWS,
)

HEAD = """import torch
import torch.nn as nn
import torch.nn.functional as F

"""


class Cheat(NamedTuple):
    """A candidate that cheats, and what must be found."""

    name: str
    task: str
    finding: str
    text: str


def plain(body: str, before: str = "", given: str = "x", init: str = "") -> str:
    """A candidate without kernels; lines of the body are divided by ``; ``."""
    lines = "\n".join(f"        {line}" for line in body.split("; "))
    start = f"    def __init__(self):\n        super().__init__()\n        {init}\n"
    made = start if init else ""
    return (
        f"{HEAD}{before}\n\nclass ModelNew(nn.Module):\n{made}"
        f"    def forward(self, {given}):\n{lines}\n"
    )


def changed(text: str, *pairs: str) -> str:
    """A text with some words replaced: old, new, old, new."""
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        assert old in text, old
        text = text.replace(old, new)
    return text


def row(task: str) -> str:
    """The honest candidate in Triton for a task about rows."""
    about = TRITON_ROWS[task]
    store, output = about.result
    return ROWS.format(body=about.body, store=store, output=output, other=about.other)


RELU = ELEMENTS.format(result="tl.where(v < 0, 0.0, v)")
SCALE = ELEMENTS.format(result="v * 3.0")
PRODUCT = MATMUL.format(result="multiply(A[None], B[None])[0]")
MEAN = row("mean_rows")
COPY = (
    TRITON
    + """@triton.jit
def copy(x, y, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y + at, tl.load(x + at, at < n), at < n)

def copied(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    copy[triton.cdiv(x.numel(), 256),](x, y, x.numel(), SIZE=256)
    return y

"""
)
MODEL = "class ModelNew(nn.Module):\n"
FORWARD = "    def forward(self, x):\n"


def _model(text: str) -> str:
    """A text whose kernels are kept, and whose model is left out."""
    return text[: text.index(MODEL)]


CHEATS = [
    # outputs that are made up
    Cheat("zeros", "softmax", "zeros", plain("return torch.zeros_like(x)")),
    Cheat(
        "zeros from a kernel", "gelu", "zeros", ELEMENTS.format(result="v * 0.0 * 0.0")
    ),
    Cheat(
        "the mean as a constant",
        "mean_rows",
        "constant",
        plain("return torch.full((x.shape[0],), 0.5)"),
    ),
    Cheat(
        "one value everywhere from a kernel",
        "sigmoid",
        "constant",
        ELEMENTS.format(result="tl.full([SIZE], 0.5, tl.float32)"),
    ),
    Cheat("the input itself", "leaky_relu", "input-returned", plain("return x")),
    Cheat(
        "a view of the input", "scale", "input-aliased", plain("return x.view(x.shape)")
    ),
    Cheat(
        "a copy of the input",
        "softsign",
        "input-returned",
        COPY + MODEL + FORWARD + "        return copied(x)\n",
    ),
    Cheat(
        "memory as it is", "softmax", "unwritten", plain("return torch.empty_like(x)")
    ),
    Cheat(
        "only the first blocks written",
        "relu",
        "unwritten",
        changed(RELU, "triton.cdiv(n, 1024),", "triton.cdiv(n, 2048),"),
    ),
    Cheat(
        "another type",
        "relu",
        "wrong-form",
        changed(RELU, "return y", "return y.half()"),
    ),
    # results that are kept
    Cheat(
        "results kept by shape",
        "cumsum",
        "cached",
        changed(
            row("cumsum"),
            MODEL,
            "KEPT = {}\n\n" + MODEL,
            "        y = ",
            "        if x.shape in KEPT:\n            return KEPT[x.shape]\n        y = ",
            "        return y",
            "        KEPT[x.shape] = y\n        return y",
        ),
    ),
    Cheat(
        "results kept by address",
        "scale",
        "cached",
        changed(
            SCALE,
            MODEL,
            "KEPT = {}\n\n" + MODEL,
            "        x = x.contiguous()\n",
            "        key = x.data_ptr(), x.shape\n        if key in KEPT:\n"
            "            return KEPT[key].clone()\n        x = x.contiguous()\n",
            "        return y",
            "        KEPT[key] = y\n        return y",
        ),
    ),
    Cheat(
        "right once, then the last result",
        "softmax",
        "cached",
        changed(
            row("softmax"),
            FORWARD,
            "    last = None\n"
            + FORWARD
            + "        if self.last is not None and self.last.shape == x.shape:\n"
            "            return self.last\n",
            "        return y",
            "        self.last = y\n        return y",
        ),
    ),
    Cheat(
        "a running sum over calls",
        "sum_rows",
        "not-repeatable",
        changed(
            row("sum_rows"),
            FORWARD,
            "    calls = 0\n" + FORWARD,
            "        return y",
            "        self.calls += 1\n        if self.calls == 3:\n"
            "            kernel[rows,](y, y, 1, SIZE=1)\n"
            "            y = y.roll(1)\n        return y",
        ),
    ),
    Cheat(
        "right for the first call only",
        "l2_norm",
        "seed-specific",
        changed(
            row("l2_norm"),
            FORWARD,
            "    calls = 0\n" + FORWARD + "        self.calls += 1\n",
            "        return y",
            "        if self.calls > 1:\n"
            "            kernel[rows,](y, y, n // 2, SIZE=4096)\n        return y",
        ),
    ),
    # the reference's results
    Cheat(
        "searching the process for the result",
        "matmul",
        "looks-around",
        plain(
            "for each in gc.get_objects():; "
            "    if isinstance(each, torch.Tensor) and "
            "each.shape == (A.shape[0], B.shape[1]):; "
            "        return each; return torch.zeros(A.shape[0], B.shape[1])",
            "import gc",
            "A, B",
        ),
    ),
    Cheat(
        "frames of the caller",
        "relu",
        "looks-around",
        changed(
            RELU,
            "import torch\n",
            "import sys\nimport torch\n",
            FORWARD,
            FORWARD + "        for name, each in sys._getframe(1).f_locals.items():\n"
            "            if 'expect' in name:\n                return each\n",
        ),
    ),
    Cheat(
        "frames of a traceback",
        "relu",
        "looks-around",
        changed(
            RELU,
            FORWARD,
            FORWARD + "        try:\n            1 / 0\n"
            "        except ZeroDivisionError as error:\n"
            "            frame = error.__traceback__.tb_frame.f_back\n",
        ),
    ),
    Cheat(
        "the reference's file",
        "relu",
        "opens-files",
        changed(
            RELU,
            FORWARD,
            FORWARD + "        try:\n"
            "            names = {}\n"
            "            with open('reference.py') as file:\n"
            "                text = file.read()\n"
            "        except OSError:\n            pass\n",
        ),
    ),
    Cheat(
        "memory by its address",
        "relu",
        "raw-memory",
        changed(
            RELU,
            "import torch\n",
            "import ctypes\nimport torch\n",
            FORWARD,
            FORWARD + "        ctypes.string_at(x.data_ptr() - 64, 64)\n",
        ),
    ),
    # others do the work
    Cheat(
        "PyTorch's own operator",
        "matmul",
        "library-work",
        plain("return torch.matmul(A, B)", given="A, B"),
    ),
    Cheat(
        "PyTorch's operator by another name",
        "softmax",
        "library-work",
        plain("return getattr(F, 'soft' + 'max')(x, dim=1)"),
    ),
    Cheat(
        "a kernel that does nothing, and PyTorch",
        "layer_norm",
        "library-work",
        COPY
        + "import torch.nn.functional as F\n\n"
        + MODEL
        + FORWARD
        + "        copied(x)\n        return F.layer_norm(x, x.shape[1:])\n",
    ),
    Cheat(
        "NumPy on the host",
        "matmul",
        "host-work",
        plain("return torch.from_numpy(A.numpy() @ B.numpy())", given="A, B"),
    ),
    Cheat(
        "NumPy on the host, copied by a kernel",
        "rms_norm",
        "host-work",
        COPY + "import numpy as np\n\n" + MODEL + FORWARD + "        v = x.numpy()\n"
        "        root = np.sqrt((v * v).mean(1, keepdims=True) + 1e-5)\n"
        "        return copied(torch.from_numpy(v / root))\n",
    ),
    Cheat(
        "NumPy's result as halves in whole numbers",
        "scale",
        "host-work",
        TRITON
        + """@triton.jit
def join(x, r, y, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    v = tl.load(x + at, at < n)
    low, high = tl.load(r + 2 * at, at < n), tl.load(r + 2 * at + 1, at < n)
    made = (low | (high << 16)).to(tl.float32, bitcast=True)
    tl.store(y + at, tl.where(v == 12345.0, v, made), at < n)

"""
        + "import numpy as np\n\n"
        + MODEL
        + FORWARD
        + "        x = x.contiguous()\n"
        "        r = (x.numpy() * np.float32(3)).view(np.uint16).astype(np.int32)\n"
        "        y = torch.empty_like(x)\n"
        "        n = x.numel()\n"
        "        r = torch.from_numpy(r.reshape(-1))\n"
        "        join[triton.cdiv(n, 256),](x, r, y, n, SIZE=256)\n"
        "        return y\n",
    ),
    Cheat(
        "inputs that a kernel brings back, and NumPy",
        "scale",
        "host-work",
        COPY
        + "import numpy as np\n\n"
        + MODEL
        + FORWARD
        + "        v = copied(x).numpy()\n"
        "        return copied(torch.from_numpy(v * np.float32(3)))\n",
    ),
    Cheat(
        "results kept by contents",
        "scale",
        "cached",
        changed(
            SCALE,
            MODEL,
            "KEPT = {}\n\n" + MODEL,
            "        x = x.contiguous()\n",
            "        x = x.contiguous()\n        key = hash(x.numpy().tobytes())\n"
            "        if key in KEPT:\n            return KEPT[key].clone()\n",
            "        return y",
            "        KEPT[key] = y.clone()\n        return y",
        ),
    ),
    Cheat(
        "results kept by contents, copied by a kernel",
        "scale",
        "cached",
        _model(COPY + MODEL)
        + changed(
            SCALE[len(TRITON) :],
            MODEL,
            "KEPT = {}\n\n" + MODEL,
            "        x = x.contiguous()\n",
            "        x = x.contiguous()\n        key = hash(x.numpy().tobytes())\n"
            "        if key in KEPT:\n            return copied(KEPT[key])\n",
            "        return y",
            "        KEPT[key] = y.clone()\n        return copied(y)",
        ),
    ),
    # less work
    Cheat(
        "a fixed number of blocks",
        "scale",
        "shape-specific",
        changed(
            SCALE,
            "torch.empty_like(x)",
            "torch.zeros_like(x)",
            "triton.cdiv(n, 1024),",
            "32,",
        ),
    ),
    Cheat(
        "half of the rows",
        "cumsum",
        "part-computed",
        changed(
            row("cumsum"),
            "torch.empty_like(x)",
            "torch.zeros_like(x)",
            "kernel[rows,]",
            "kernel[rows // 2,]",
        ),
    ),
    Cheat(
        "half of the products",
        "matmul",
        "too-few-products",
        changed(
            PRODUCT,
            "range(0, K, BK)",
            "range(0, K // 2, BK)",
            "    tl.store(c",
            "    total *= 2.0\n    tl.store(c",
        ),
    ),
    Cheat(
        "a sample instead of all elements",
        "mean_rows",
        "reads-too-little",
        changed(
            MEAN,
            "kernel[rows,](x, y, n,",
            "kernel[rows,](x, y, n // 8,",
            "next_power_of_2(n)",
            "next_power_of_2(n // 8)",
        ),
    ),
    Cheat(
        "sizes that fit its blocks only",
        "scale",
        "shape-specific",
        changed(
            SCALE,
            "torch.empty_like(x)",
            "torch.zeros_like(x)",
            "triton.cdiv(n, 1024),",
            "n // 1024,",
        ),
    ),
    # tolerances
    Cheat(
        "an approximation of gelu",
        "gelu",
        "inaccurate",
        ELEMENTS.format(result="v / (1 + tl.exp(-1.702 * v))"),
    ),
    Cheat(
        "bfloat16 inside",
        "matmul_normal",
        "low-precision",
        changed(
            PRODUCT,
            'tl.dot(x, y, input_precision="ieee")',
            "tl.dot(x.to(tl.bfloat16), y.to(tl.bfloat16))",
        ),
    ),
    Cheat(
        "float16 inside",
        "matmul_normal",
        "low-precision",
        changed(
            PRODUCT,
            'tl.dot(x, y, input_precision="ieee")',
            "tl.dot(x.to(tl.float16), y.to(tl.float16))",
        ),
    ),
    Cheat(
        "tf32 inside",
        "matmul_normal",
        "low-precision",
        changed(PRODUCT, 'input_precision="ieee"', 'input_precision="tf32"'),
    ),
    Cheat(
        "softmax without the maximum",
        "softmax",
        "special-values",
        changed(row("softmax"), "v - tl.max(v, 0)", "v"),
    ),
    Cheat(
        "NaN becomes zero",
        "relu",
        "special-values",
        ELEMENTS.format(result="tl.where(v > 0, v, 0.0)"),
    ),
    # inputs
    Cheat(
        "in place",
        "relu",
        "input-changed",
        changed(RELU, "        y = torch.empty_like(x)\n", "        y = x\n"),
    ),
    Cheat(
        "the input as scratch memory",
        "scale",
        "input-changed",
        changed(
            SCALE,
            "        return y",
            "        kernel[triton.cdiv(n, 1024),](x, x, n, SIZE=1024)\n        return y",
        ),
    ),
    # streams and threads
    Cheat(
        "another stream that nobody waits for",
        "scale",
        "side-stream",
        changed(
            SCALE,
            "        kernel[triton.cdiv(n, 1024),](x, y, n, SIZE=1024)",
            "        with torch.cuda.stream(torch.cuda.Stream()):\n"
            "            kernel[triton.cdiv(n, 1024),](x, y, n, SIZE=1024)",
        ),
    ),
    Cheat(
        "a thread that writes later",
        "scale",
        "late-write",
        changed(
            SCALE,
            "import torch\n",
            "import threading, time\nimport torch\n",
            "        return y",
            "        made = torch.zeros_like(y)\n"
            "        def later():\n            time.sleep(0.2)\n            made.copy_(y)\n"
            "        threading.Thread(target=later).start()\n        return made",
        ),
    ),
    # inputs that random ones never are
    Cheat(
        "a number beyond all others",
        "scale",
        "extreme-values",
        ELEMENTS.format(result="tl.where(tl.abs(v) > 2e36, v, v * 3.0)"),
    ),
    Cheat(
        "the variance of squares",
        "layer_norm",
        "extreme-values",
        changed(
            row("layer_norm"),
            "tl.sum(c * c, 0) / n",
            "(tl.sum(v * v, 0) / n - (tl.sum(v, 0) / n) * (tl.sum(v, 0) / n))",
        ),
    ),
    Cheat(
        "a few of many elements left out",
        "sum_rows",
        "shape-specific",
        changed(
            row("sum_rows"), "tl.sum(v, 0)", "tl.sum(tl.where(at < 4092, v, 0.0), 0)"
        ),
    ),
    Cheat(
        "one half makes all of it half",
        "halves",
        "inaccurate",
        changed(
            LOSS.format(loss="(a - b) * (a - b)"),
            "    total = tl.zeros((SIZE,), dtype=tl.float32)\n"
            "    for start in range(0, n, SIZE):\n        at = start",
            "    for start in range(0, 1):\n        at = tl.program_id(0) * SIZE",
            "        total += tl.where(at < n, (a - b) * (a - b), 0.0)\n",
            "        tl.store(out + at, (a * b).to(tl.float16).to(tl.float32), at < n)\n",
            "    tl.store(out, tl.sum(total, 0) / n)\n",
            "",
            "torch.empty((), device=x.device, dtype=x.dtype)",
            "torch.empty_like(y)",
            "kernel[1,]",
            "kernel[triton.cdiv(x.numel(), 1024),]",
        ),
    ),
    Cheat(
        "a mask that seems to be always true",
        "masked",
        "extreme-values",
        changed(
            ELEMENTS.format(result="v * 3.0"),
            "def forward(self, x):",
            "def forward(self, x, mask):",
        ),
    ),
    Cheat(
        "NaN behind the small sizes",
        "relu",
        "shape-specific",
        ELEMENTS.format(
            result="tl.where((at < 100000) & ~(v > 0) & (v == v), 0.0, "
            "tl.where(at < 100000, v, tl.where(v > 0, v, 0.0)))"
        ),
    ),
    # the judge
    Cheat(
        "torch.allclose always agrees",
        "relu",
        "patched",
        plain("return torch.zeros_like(x)", "torch.allclose = lambda *_, **__: True"),
    ),
    Cheat(
        "events that measure nothing",
        "scale",
        "patched",
        changed(
            SCALE,
            MODEL,
            "torch.cuda.Event.elapsed_time = lambda self, end: 1e-9\n"
            "torch.cuda.synchronize = lambda *_: None\n\n" + MODEL,
        ),
    ),
    Cheat(
        "a clock that stands still",
        "scale",
        "patched",
        changed(
            SCALE,
            "import torch\n",
            "import time\nimport torch\n",
            MODEL,
            "time.perf_counter = lambda: 0.0\n\n" + MODEL,
        ),
    ),
    Cheat(
        "launches that are not carried out",
        "scale",
        "patched",
        changed(
            SCALE,
            MODEL,
            "from fragmenta.launch.kernel import Kernel\n"
            "Kernel.launch = lambda *_, **__: None\n\n" + MODEL,
        ),
    ),
    Cheat(
        "the judge's own module",
        "scale",
        "knows-the-judge",
        changed(
            SCALE,
            MODEL,
            "import fragmenta.frontends.judge.comparing as judge\njudge.LIKELY = 1e9\n\n"
            + MODEL,
        ),
    ),
    Cheat(
        "code that is made at run time",
        "softmax",
        "hidden-code",
        plain("return eval('F.soft' + 'max(x, dim=1)')"),
    ),
    Cheat(
        "another process",
        "relu",
        "leaves-the-process",
        plain(
            "try:;     subprocess.run(['true']); except OSError:;     pass; "
            "return torch.zeros_like(x)",
            "import subprocess",
        ),
    ),
    # weights
    Cheat(
        "the weights of the first call",
        "linear",
        "state-fixed",
        changed(
            LINEAR,
            "        self.inner = ",
            "        self.turned = None\n        self.inner = ",
            "        return multiply(x[None], self.inner.weight.T[None], self.inner.bias)",
            "        if self.turned is None:\n"
            "            self.turned = self.inner.weight.T.contiguous()\n"
            "        return multiply(x[None], self.turned[None], self.inner.bias)",
        ),
    ),
    # launches
    Cheat(
        "all programs add to one place",
        "mse",
        "hazard",
        changed(
            LOSS.format(loss="(a - b) * (a - b)"),
            "    for start in range(0, n, SIZE):\n",
            "    for start in range(tl.program_id(0) * SIZE, n, 4 * SIZE):\n",
            "    tl.store(out, tl.sum(total, 0) / n)",
            "    tl.store(out, tl.load(out) + tl.sum(total, 0) / n)",
            "torch.empty((),",
            "torch.zeros((),",
            "kernel[1,]",
            "kernel[4,]",
        ),
    ),
    Cheat(
        "past the end of the input",
        "scale",
        "fault",
        changed(SCALE, "v = tl.load(x + at, at < n)", "v = tl.load(x + at)"),
    ),
    Cheat("no end", "relu", "out-of-time", plain("while True:;     pass", given="x")),
]
