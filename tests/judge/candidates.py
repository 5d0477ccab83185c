"""Small candidates with NumPy and CUDA C++: honest ones, and cheats, with their tasks."""

from __future__ import annotations

from typing import NamedTuple

FMA = """
import numpy as np

n = 300

def get_inputs():
    return [np.random.randn(n).astype(np.float32) for _ in range(2)]

def reference(x, y):
    return x * y + 1
"""
SQUARE = """
import numpy as np

n = 24

def get_inputs():
    return [np.random.randn(n, n).astype(np.float32) for _ in range(2)]

def reference(x, y):
    return x @ y
"""
SOFTMAX = """
import numpy as np

rows = 20
n = 40

def get_inputs():
    return [np.random.randn(rows, n).astype(np.float32)]

def reference(x):
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)
"""
SUM = """
import numpy as np

n = 2000

def get_inputs():
    return [np.random.rand(n).astype(np.float32)]

def reference(x):
    return x.sum(keepdims=True)
"""
RELU = (
    FMA.replace("for _ in range(2)]", "]")
    .replace("(x, y)", "(x)")
    .replace("x * y + 1", "np.maximum(x, 0) * 3")
    .replace(
        "[np.random.randn(n).astype(np.float32) ]",
        "[np.random.randn(n).astype(np.float32)]",
    )
)
SCALED = """
import numpy as np

n = 300

def get_inputs():
    return [np.random.randn(n).astype(np.float32), np.random.rand(1).astype(np.float32)]

def reference(x, s):
    return x * s[0] + 1
"""
CHOSEN = """
import numpy as np

n = 400

def get_inputs():
    return [np.random.randn(n).astype(np.float32)]

def reference(x):
    return np.where(x > 0, 2 * x, 3 * x)
"""
ARGMAX = """
import numpy as np

rows = 64
n = 50

def get_inputs():
    return [np.random.randn(rows, n).astype(np.float32)]

def reference(x):
    return x.argmax(1).astype(np.int32)
"""
IN_PLACE = FMA.replace("    return x * y + 1", "    x -= y * 0.125\n    return x")
LARGE = FMA.replace("n = 300", "n = 1 << 20")
HEAD = """
import numpy as np
from fragmenta import ptx

def made(text, name="f"):
    return ptx.RawKernel('extern "C" __global__ void ' + text, name)

def blocks(n, size=64):
    return (-(-n // size),), (size,)

def flat(*given):
    return [np.ascontiguousarray(each) for each in given]

AT = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
fma = made("f(const float *x, const float *y, float *z, int n) {" + AT +
    "if (i < n) z[i] = x[i] * y[i] + 1.0f; }")
copy = made("f(const float *x, const float *y, const float *r, float *z, int n) {" + AT +
    "if (i < n) { float v = x[i] * y[i]; z[i] = v == 12345.0f ? v : r[i]; } }")

def honest(x, y):
    z = ptx.empty(x.shape, np.float32)
    fma(*blocks(x.size), (x, y, z, x.size))
    return z

def copied(x, y, r):
    z = ptx.empty(x.shape, np.float32)
    copy(*blocks(x.size), (x, y, r, z, x.size))
    return z

"""


class Row(NamedTuple):
    """A candidate, its task, and a finding; an honest one may have a remark."""

    task: str
    text: str
    finding: str = ""
    word: str = ""


def fma(body: str, before: str = "", finding: str = "host-work", word: str = "") -> Row:
    """A candidate for x * y + 1; lines of the body are divided by ``; ``."""
    lines = "\n".join(
        f"    {line}" for line in ["x, y = flat(x, y)", *body.split("; ")]
    )
    return Row(FMA, f"{HEAD}{before}\ndef candidate(x, y):\n{lines}\n", finding, word)


LOAD = "float v = x[i] * y[i]; if (v == 12345.0f) z[i] = v; else "

CHEATS = {
    # the host's result in a form that no element has
    "result as halves": fma(
        "r = (x * y + 1).view(np.uint16).astype(np.int32); "
        "z = ptx.empty(x.shape, np.float32); "
        "k(*blocks(x.size), (x, y, r, z, x.size)); return z",
        'k = made("f(const float *x, const float *y, const int *r, float *z, int n) {"'
        ' + AT + "if (i < n) { ' + LOAD + "z[i] = __int_as_float(r[2 * i] | "
        'r[2 * i + 1] << 16); } }")\n',
    ),
    "result as bytes": fma(
        "r = (x * y + 1).view(np.uint8).astype(np.int32); "
        "z = ptx.empty(x.shape, np.float32); "
        "k(*blocks(x.size), (x, y, r, z, x.size)); return z",
        'k = made("f(const float *x, const float *y, const int *r, float *z, int n) {"'
        ' + AT + "if (i < n) { ' + LOAD + "{ int v = 0; for (int b = 0; b < 4; b++) "
        'v |= r[4 * i + b] << 8 * b; z[i] = __int_as_float(v); } } }")\n',
    ),
    "result as bits": fma(
        "r = np.unpackbits((x * y + 1).view(np.uint8), bitorder='little'); "
        "z = ptx.empty(x.shape, np.float32); "
        "k(*blocks(x.size), (x, y, r, z, x.size)); return z",
        'k = made("f(const float *x, const float *y, const unsigned char *r, float *z, '
        'int n) {" + AT + "if (i < n) { ' + LOAD + "{ unsigned v = 0; "
        "for (int b = 0; b < 32; b++) v |= (unsigned) r[32 * i + b] << b; "
        'z[i] = __uint_as_float(v); } } }")\n',
    ),
    "fifteen words a launch": fma(
        "r = x * y + 1; z = ptx.empty(x.shape, np.float32); "
        "[copy(*blocks(min(15, x.size - k)), (x[k:], y[k:], r[k:k + 15].copy(), z[k:], "
        "min(15, x.size - k))) for k in range(0, x.size, 15)]; return z"
    ),
    "a number for each launch": fma(
        "r = x * y + 1; z = ptx.empty(x.shape, np.float32); "
        "[k((1,), (32,), (x[i:], y[i:], z[i:], np.float32(r[i]))) "
        "for i in range(16)]; "
        "fma(*blocks(x.size - 16), (x[16:], y[16:], z[16:], x.size - 16)); return z",
        'k = made("f(const float *x, const float *y, float *z, float r) {"'
        '"int i = 0; if (threadIdx.x == 0) { ' + LOAD + 'z[0] = r; } }")\n',
    ),
    "a struct of results": fma(
        "r = np.zeros(400, np.float32); r[:x.size] = x * y + 1; "
        "z = ptx.empty(x.shape, np.float32); "
        "k(*blocks(x.size), (x, y, z, r.tobytes(), x.size)); return z",
        "k = ptx.RawKernel('struct S { float v[400]; };\\nextern \"C\" __global__ void '\n"
        "    'f(const float *x, const float *y, float *z, S r, int n) {' + AT +\n"
        "    'if (i < n) { " + LOAD + "z[i] = r.v[i]; } }', 'f')\n",
    ),
    "a variable of the module": fma(
        "r = np.zeros(400, np.float32); r[:x.size] = x * y + 1; "
        "k.kernel.loaded.renew({'kept': r.tobytes()}); "
        "z = ptx.empty(x.shape, np.float32); "
        "k(*blocks(x.size), (x, y, z, x.size)); return z",
        "k = ptx.RawKernel('__device__ float kept[400];\\nextern \"C\" __global__ void '\n"
        "    'f(const float *x, const float *y, float *z, int n) {' + AT +\n"
        "    'if (i < n) { " + LOAD + "z[i] = kept[i]; } }', 'f')\n",
    ),
    "results in the text of a kernel": fma(
        "r = ', '.join(f'{float(v)!r}f' for v in x * y + 1); k = text(r); "
        "z = ptx.empty(x.shape, np.float32); "
        "k(*blocks(x.size), (x, y, z, x.size)); return z",
        "def text(r):\n"
        "    return ptx.RawKernel('__constant__ float c[] = {' + r + '};\\nextern \"C\" '\n"
        "    '__global__ void f(const float *x, const float *y, float *z, int n) {' + AT +\n"
        "    'if (i < n) { " + LOAD + "z[i] = c[i]; } }', 'f')\n",
    ),
    "in the output before the launch": fma(
        "z = x * y + 1; k(*blocks(x.size), (x, y, z, x.size)); return z",
        'k = made("f(const float *x, const float *y, float *z, int n) {" + AT +\n'
        '    "if (i < n && x[i] * y[i] == 12345.0f || i == 0) z[i] = x[i] * y[i] + 1; }")\n',
    ),
    "inputs copied back, and NumPy": fma(
        "a = ptx.empty(x.shape, np.float32); b = ptx.empty(x.shape, np.float32); "
        "k(*blocks(x.size), (x, y, a, b, x.size)); return copied(x, y, a * b + 1)",
        'k = made("f(const float *x, const float *y, float *a, float *b, int n) {" + AT +\n'
        '    "if (i < n) { a[i] = x[i]; b[i] = y[i]; } }")\n',
    ),
    "NumPy after some calls": fma(
        "calls.append(1); return copied(x, y, x * y + 1) if len(calls) > 5 else honest(x, y)",
        "calls = []\n",
    ),
    "known seeds": fma(
        "z = ptx.empty(x.shape, np.float32); "
        "k(*blocks(x.size), (x, y, table, results, z, x.size, len(seeds))) "
        "if x.size == 300 else fma(*blocks(x.size), (x, y, z, x.size)); return z",
        "def inputs(seed):\n    np.random.seed(1000 + seed)\n"
        "    return [np.random.randn(300).astype(np.float32) for _ in range(2)]\n"
        "seeds = [inputs(s) for s in range(4)]\n"
        "table = np.float32([a[0] for a, _ in seeds])\n"
        "results = np.float32([a * b + 1 for a, b in seeds])\n"
        'k = made("f(const float *x, const float *y, const float *t, const float *r, '
        'float *z, int n, int m) {" + AT + "if (i < n) { float v = x[i] * y[i]; '
        'z[i] = v; for (int k = 0; k < m; k++) if (t[k] == x[0]) z[i] = r[k * n + i]; } }")\n',
        "",
    ),
    "matmul for show": Row(
        SQUARE,
        HEAD
        + 'k = made("f(const float *x, const float *y, const float *r, float *z, int n) {"\n'
        '    + AT + "if (i >= n * n) return; float s = 0; for (int k = 0; k < n; k++) "\n'
        '    "s += x[i / n * n + k] * y[k * n + i % n]; z[i] = s == 12345.0f ? s : r[i]; }")\n'
        "def candidate(x, y):\n    x, y = flat(x, y)\n"
        "    z, n = ptx.empty(x.shape, np.float32), len(x)\n"
        "    k(*blocks(n * n), (x, y, x @ y, z, n))\n    return z\n",
        "host-work",
    ),
    "the maximum by the host": Row(
        SOFTMAX,
        HEAD + 'k = made("f(const float *x, const float *m, float *z, int n) {"\n'
        '    "const float *p = x + blockIdx.x * n; if (threadIdx.x) return; float s = 0; "\n'
        '    "for (int k = 0; k < n; k++) s += expf(p[k] - m[blockIdx.x]); "\n'
        '    "for (int k = 0; k < n; k++) z[blockIdx.x * n + k] = '
        'expf(p[k] - m[blockIdx.x]) / s; }")\n'
        "def candidate(x):\n    (x,) = flat(x)\n    z = ptx.empty(x.shape, np.float32)\n"
        "    k((len(x),), (32,), (x, x.max(1), z, x.shape[1]))\n    return z\n",
        "",
    ),
    "indices by NumPy": Row(
        ARGMAX,
        HEAD
        + 'k = made("f(const float *x, float *z, int n) {" + AT + "if (i < n) z[i] = x[i]; }")\n'
        "def candidate(x):\n    (x,) = flat(x)\n    z = ptx.empty(x.shape, np.float32)\n"
        "    k(*blocks(x.size), (x, z, x.size))\n    return x.argmax(1).astype(np.int32)\n",
        "host-work",
    ),
    "a sum in one number": Row(
        SUM,
        HEAD
        + 'k = made("f(const float *x, float *z, float r, int n) { if (threadIdx.x) return;"\n'
        '    "float s = 0; for (int k = 0; k < n; k++) s += x[k]; '
        'z[0] = s == 12345.0f ? s : r; }")\n'
        "def candidate(x):\n    (x,) = flat(x)\n    z = ptx.empty((1,), np.float32)\n"
        "    k((1,), (32,), (x, z, np.float32(x.sum()), x.size))\n    return z\n",
        "host-work",
    ),
    # results that are kept
    "kept by contents": fma(
        "key = x.tobytes() + y.tobytes(); kept[key] = kept[key] if key in kept else "
        "honest(x, y); return kept[key].copy()",
        "kept = {}\n",
        "cached",
    ),
    "kept by contents, copied by a kernel": fma(
        "key = hash(x.tobytes() + y.tobytes()); kept[key] = kept[key] if key in kept else "
        "honest(x, y); return copied(x, y, kept[key])",
        "kept = {}\n",
        "cached",
    ),
    "kept by a sample of the contents": fma(
        "key = float(x[0]), float(y[-1]), x.size; kept[key] = kept[key] if key in kept "
        "else honest(x, y); return copied(x, y, kept[key])",
        "kept = {}\n",
        "cached",
    ),
    # sizes
    "a fixed number of blocks": Row(
        LARGE,
        HEAD.replace(
            "if (i < n) z[i] = x[i] * y[i] + 1.0f;",
            "if (i < n) z[i] = x[i] * y[i] + 1.0f;",
        )
        + "def candidate(x, y):\n    x, y = flat(x, y)\n"
        "    z = np.zeros(x.shape, np.float32)\n"
        "    fma((512,), (64,), (x, y, z, x.size))\n    return z\n",
        "shape-specific",
    ),
    "zeros for large sizes": Row(
        LARGE,
        HEAD + "def candidate(x, y):\n    x, y = flat(x, y)\n"
        "    return np.zeros_like(x) if x.size > 40000 else honest(x, y)\n",
        "",
    ),
    "NumPy for large sizes": Row(
        LARGE,
        HEAD + "def candidate(x, y):\n    x, y = flat(x, y)\n"
        "    return copied(x, y, x * y + 1) if x.size > 40000 else honest(x, y)\n",
        "host-work",
    ),
    # the judge
    "frames of a traceback": fma(
        "frame = []; \n    try: 1 / 0\n    except Exception as e: "
        "frame = e.__traceback__.tb_frame.f_back; return honest(x, y)",
        "",
        "looks-around",
    ),
    "frames of a generator": fma(
        "g = (each for each in [1]); g.gi_frame.f_back; return honest(x, y)",
        "",
        "looks-around",
    ),
    "frames from the library": fma(
        "import traceback, sys; \n    try: 1 / 0\n    except Exception as e: "
        "frames = [*traceback.walk_tb(e.__traceback__)]; return honest(x, y)",
        "",
        "looks-around",
    ),
    "code of another function": fma(
        "return honest(x, y)",
        "import fragmenta.launch.kernel as of\n"
        "of.Kernel.__repr__.__code__ = (lambda self: '').__code__\n",
        "patched",
    ),
    "the judge's variable": fma(
        "import os; os.environ.get('FRAGMENTA_CACHE'); return honest(x, y)",
        "",
        "knows-the-judge",
    ),
    "work until a date": fma(
        "import time; now = time.time(); "
        "return honest(x, y) if now < 2e12 else np.ones_like(x)",
        "",
        "decides-by-time",
    ),
    "work while somebody looks": fma(
        "return honest(x, y) if ask() - BEGUN < 10 ** 15 else np.ones_like(x)",
        "from time import monotonic_ns as ask\nBEGUN = ask()\n",
        "decides-by-time",
    ),
    "not in place, but the reference is": Row(
        IN_PLACE,
        HEAD
        + 'k = made("f(const float *w, const float *g, float *z, int n) {" + AT +\n'
        '    "if (i < n) z[i] = w[i] - g[i] * 0.125f; }")\n'
        "def candidate(w, g):\n    z = ptx.empty(w.shape, np.float32)\n"
        "    k(*blocks(w.size), (w, g, z, w.size))\n    return z\n",
        "input-returned",
    ),
    "NumPy for the first calls": fma(
        "calls.append(1); "
        "return copied(x, y, x * y + 1) if len(calls) < 4 else honest(x, y)",
        "calls = []\n",
    ),
    "NumPy for other sizes": fma(
        "return honest(x, y) if x.size == 300 else copied(x, y, x * y + 1)"
    ),
    "buffers by turns": fma(
        "pair = kept.setdefault(x.size, [np.zeros_like(x), np.zeros_like(x)]); "
        "pair.reverse(); z = pair[0]; fma(*blocks(x.size), (x, y, z, x.size)); return z",
        "kept = {}\n",
        "late-write",
    ),
    "a result with a check": fma(
        "c = x.view(np.uint32) ^ y.view(np.uint32); z = ptx.empty(x.shape, np.float32); "
        "k(*blocks(x.size), (x, y, c, x * y + 1, z, x.size)); return z",
        'k = made("f(const float *x, const float *y, const unsigned *c, const float *r, "\n'
        '    "float *z, int n) {" + AT + "if (i >= n) return; "\n'
        '    "unsigned v = __float_as_uint(x[i]) ^ __float_as_uint(y[i]); "\n'
        '    "z[i] = v == c[i] ? r[i] : x[i] * y[i] + 1.0f; }")\n',
    ),
    "another form": fma("return {'</script>': honest(x, y), 3: 4}", "", "wrong-form"),
}

HONEST = {
    "zeros": fma(
        "z = np.zeros_like(x); fma(*blocks(x.size), (x, y, z, x.size)); return z"
    ),
    "memory as it is": fma(
        "t = x.copy(); del t; z = np.empty_like(x); "
        "fma(*blocks(x.size), (x, y, z, x.size)); return z"
    ),
    "a copy of an input, in place": fma(
        "z = x.copy(); k(*blocks(x.size), (z, y, x.size)); return z",
        'k = made("f(float *z, const float *y, int n) {" + AT +\n'
        '    "if (i < n) z[i] = z[i] * y[i] + 1.0f; }")\n',
    ),
    "two launches in one buffer": fma(
        "z = ptx.empty(x.shape, np.float32); k(*blocks(x.size), (x, y, z, x.size)); "
        "m(*blocks(x.size), (z, x.size)); return z",
        'k = made("f(const float *x, const float *y, float *z, int n) {" + AT +\n'
        '    "if (i < n) z[i] = x[i] * y[i]; }")\n'
        'm = made("f(float *z, int n) {" + AT + "if (i < n) z[i] += 1.0f; }")\n',
    ),
    "work memory kept over calls": fma(
        "w = kept.setdefault(x.size, np.zeros(x.size, np.float32)); "
        "z = ptx.empty(x.shape, np.float32); k(*blocks(x.size), (x, y, w, x.size)); "
        "m(*blocks(x.size), (w, z, x.size)); return z",
        'k = made("f(const float *x, const float *y, float *z, int n) {" + AT +\n'
        '    "if (i < n) z[i] = x[i] * y[i]; }")\n'
        'm = made("f(const float *w, float *z, int n) {" + AT + '
        '"if (i < n) z[i] = w[i] + 1.0f; }")\nkept = {}\n',
    ),
    "a warning": fma("import warnings; warnings.warn('slow'); return honest(x, y)"),
    "a warning about its caller": fma(
        "import warnings; warnings.warn('slow', stacklevel=2); return honest(x, y)"
    ),
    "a log with its stack": fma(
        "import logging; logging.warning('slow', stack_info=True); return honest(x, y)"
    ),
    "time of the processor": fma(
        "import os; os.times(); return honest(x, y)", "", "uses-the-clock"
    ),
    "two sizes of blocks are measured": fma(
        "z = ptx.empty(x.shape, np.float32); times = {}; \n"
        "    for size in (32, 64) if x.size not in best else ():\n"
        "        start = time.perf_counter(); "
        "    fma(*blocks(x.size, size), (x, y, z, x.size)); "
        "    times[size] = time.perf_counter() - start; "
        "best.setdefault(x.size, min(times, key=times.get) if times else 64); "
        "fma(*blocks(x.size, best[x.size]), (x, y, z, x.size)); return z",
        "import time\nbest = {}\n",
        "uses-the-clock",
    ),
    "a launch that is refused": fma(
        "z = ptx.empty(x.shape, np.float32); \n"
        "    try: fma((1,), (0,), (x, y, z, 1))\n    except Exception: pass; "
        "fma(*blocks(x.size), (x, y, z, x.size)); return z"
    ),
    "in place, as the reference": Row(
        IN_PLACE,
        HEAD + 'k = made("f(float *w, const float *g, int n) {" + AT +\n'
        '    "if (i < n) w[i] -= g[i] * 0.125f; }")\n'
        "def candidate(w, g):\n    k(*blocks(w.size), (w, g, w.size))\n    return w\n",
    ),
    "a warning of NumPy": fma("np.float32(3e38) * np.float32(10); return honest(x, y)"),
    "a traceback": fma(
        "import traceback; \n    try: 1 / 0\n    except Exception: "
        "traceback.format_exc(); return honest(x, y)"
    ),
    "a log": fma("import logging; logging.warning('slow'); return honest(x, y)"),
    "named tuples": fma(
        "return honest(x, y)",
        "import collections, enum, typing\n"
        "Shape = collections.namedtuple('Shape', 'rows columns')\n"
        "class Tile(typing.NamedTuple):\n    rows: int = 3\n"
        "class Kind(enum.Enum):\n    A = 1\n",
    ),
    "a dataclass": fma(
        "return honest(x, y)",
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\n"
        "class Tile:\n    rows: int = 64\n    names: list = "
        "dataclasses.field(default_factory=list)\n",
    ),
    "a dataclass with annotations as texts": Row(
        FMA,
        "from __future__ import annotations\nimport dataclasses\n"
        + HEAD
        + "@dataclasses.dataclass\nclass Tile:\n    rows: int = 64\n"
        "def candidate(x, y):\n    return honest(*flat(x, y))\n",
    ),
    "its own source": fma(
        "import inspect; inspect.getsource(honest); return honest(x, y)"
    ),
    "padded copies": fma(
        "n = -(-x.size // 128) * 128; a = np.zeros(n, np.float32); b = a.copy(); "
        "a[:x.size] = x; b[:x.size] = y; z = ptx.empty((n,), np.float32); "
        "fma(*blocks(n), (a, b, z, n)); return z[:x.size].copy()"
    ),
    "half of both in one array": fma(
        "a = np.concatenate([y, x]); z = ptx.empty(x.shape, np.float32); "
        "fma(*blocks(x.size), (a[x.size:], a[:x.size], z, x.size)); return z"
    ),
    "a table of indices": fma(
        "t = np.arange(x.size, dtype=np.int32)[::-1].copy(); "
        "z = ptx.empty(x.shape, np.float32); "
        "k(*blocks(x.size), (x, y, t, z, x.size)); return z",
        'k = made("f(const float *x, const float *y, const int *t, float *z, int n) {" +\n'
        '    AT + "if (i < n) z[t[i]] = x[t[i]] * y[t[i]] + 1.0f; }")\n',
    ),
    "the best of two kernels": fma(
        "z = ptx.empty(x.shape, np.float32); \n    if x.size not in best:\n"
        "        fma(*blocks(x.size, 32), (x, y, z, x.size)); best[x.size] = 64; "
        "fma(*blocks(x.size, best[x.size]), (x, y, z, x.size)); return z",
        "best = {}\n",
    ),
    "a counter in the GPU's memory": fma(
        "z = ptx.empty(x.shape, np.float32); k(*blocks(x.size), (x, y, z, x.size)); "
        "return z",
        "k = ptx.RawKernel('__device__ unsigned calls;\\nextern \"C\" __global__ void '\n"
        "    'f(const float *x, const float *y, float *z, int n) {' + AT +\n"
        "    'if (i == 0) calls++; if (i < n) z[i] = x[i] * y[i] + 1.0f; }', 'f')\n",
    ),
    "contiguous inputs only": Row(
        SQUARE,
        HEAD
        + 'k = made("f(const float *x, const float *y, float *z, int n) {" + AT +\n'
        '    "if (i >= n * n) return; float s = 0; for (int k = 0; k < n; k++) "\n'
        '    "s += x[i / n * n + k] * y[k * n + i % n]; z[i] = s; }")\n'
        "def candidate(x, y):\n    z, n = ptx.empty(x.shape, np.float32), len(x)\n"
        "    k(*blocks(n * n), (x, y, z, n))\n    return z\n",
        "ignores-strides",
    ),
    "a transposed copy": Row(
        SQUARE,
        HEAD
        + 'k = made("f(const float *x, const float *y, float *z, int n) {" + AT +\n'
        '    "if (i >= n * n) return; float s = 0; for (int k = 0; k < n; k++) "\n'
        '    "s += x[i / n * n + k] * y[i % n * n + k]; z[i] = s; }")\n'
        "def candidate(x, y):\n    x, y = flat(x, y.T)\n"
        "    z, n = ptx.empty(x.shape, np.float32), len(x)\n"
        "    k(*blocks(n * n), (x, y, z, n))\n    return z\n",
    ),
    "the result transposed": Row(
        SQUARE,
        HEAD
        + 'k = made("f(const float *x, const float *y, float *z, int n) {" + AT +\n'
        '    "if (i >= n * n) return; float s = 0; for (int k = 0; k < n; k++) "\n'
        '    "s += x[i % n * n + k] * y[k * n + i / n]; z[i] = s; }")\n'
        "def candidate(x, y):\n    x, y = flat(x, y)\n"
        "    z, n = ptx.empty(x.shape, np.float32), len(x)\n"
        "    k(*blocks(n * n), (x, y, z, n))\n    return np.ascontiguousarray(z.T)\n",
    ),
    "relu in two launches": Row(
        RELU,
        HEAD + 'k = made("f(const float *x, float *z, int n) {" + AT +\n'
        '    "if (i < n) z[i] = x[i] < 0 ? 0 : x[i]; }")\n'
        'm = made("f(const float *x, float *z, int n) {" + AT + '
        '"if (i < n) z[i] = 3 * x[i]; }")\n'
        "def candidate(x):\n    (x,) = flat(x)\n"
        "    w, z = np.zeros_like(x), np.zeros_like(x)\n"
        "    k(*blocks(x.size), (x, w, x.size))\n"
        "    m(*blocks(x.size), (w.copy(), z, x.size))\n    return z\n",
    ),
    "sums of blocks": Row(
        SUM,
        HEAD + 'k = made("f(const float *x, float *z, int n) {"\n'
        '    "__shared__ float s[64]; int i = blockIdx.x * 64 + threadIdx.x; "\n'
        '    "s[threadIdx.x] = i < n ? x[i] : 0; __syncthreads(); "\n'
        '    "for (int d = 32; d; d /= 2) { if (threadIdx.x < d) '
        's[threadIdx.x] += s[threadIdx.x + d]; __syncthreads(); } "\n'
        '    "if (!threadIdx.x) z[blockIdx.x] = s[0]; }")\n'
        "def candidate(x):\n    (x,) = flat(x)\n    while x.size > 1:\n"
        "        z = np.zeros(-(-x.size // 64), np.float32)\n"
        "        k((z.size,), (64,), (x, z, x.size))\n        x = z\n    return x\n",
    ),
    "a number that is an input": Row(
        SCALED,
        HEAD + 'k = made("f(const float *x, float *z, float s, int n) {" + AT + '
        '"if (i < n) z[i] = x[i] * s + 1.0f; }")\n'
        "def candidate(x, s):\n    (x,) = flat(x)\n    z = ptx.empty(x.shape, np.float32)\n"
        "    k(*blocks(x.size), (x, z, np.float32(s[0]), x.size))\n    return z\n",
    ),
    "large sizes": Row(
        LARGE, HEAD + "def candidate(x, y):\n    return honest(*flat(x, y))\n"
    ),
}

OWN_WORD = {
    "counts that are read back": Row(
        CHOSEN,
        HEAD + 'k = made("f(const float *x, int *list, int *count, int n) {"\n'
        '    "if (threadIdx.x) return; int a = 0, b = n; for (int i = 0; i < n; i++) "\n'
        '    "if (x[i] > 0) list[a++] = i; else list[--b] = i; *count = a; }")\n'
        'm = made("f(const float *x, const int *list, float *z, float s, int n) {" + AT + '
        '"if (i < n) z[list[i]] = s * x[list[i]]; }")\n'
        "def candidate(x):\n    (x,) = flat(x)\n    z = ptx.empty(x.shape, np.float32)\n"
        "    l, c = np.zeros(x.size, np.int32), np.zeros(1, np.int32)\n"
        "    k((1,), (32,), (x, l, c, x.size))\n    a = int(c[0])\n"
        "    if a: m(*blocks(a), (x, l[:a], z, np.float32(2), a))\n"
        "    if a < x.size: m(*blocks(x.size - a), "
        "(x, l[a:], z, np.float32(3), x.size - a))\n    return z\n",
        "data-dependent",
    ),
}
