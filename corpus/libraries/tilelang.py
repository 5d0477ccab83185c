"""TileLang: kernels of ours in its language, which it writes in CUDA C++.

NVRTC compiles that with the headers of the package.  For ``sm_90a`` TileLang writes
copies by tensor maps, warps that only copy, and ``wgmma``; for ``sm_80``, ``cp.async``
and ``mma``.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import tilelang
import tilelang.language as T
import torch
from tilelang import tvm
from tilelang.engine import lower

from corpus import host
from corpus.references import rms_norm
from corpus.registry import case
from corpus.trial import TOLERANCES, Trial
from fragmenta import ptx
from fragmenta.cuda.tools.raw import RawKernel
from fragmenta.engine.simt.arguments import Struct
from fragmenta.reference.shared.tensor_map import TensorMap, element_types

# ── how a kernel is launched ────────────────────────────────────────────────


@cache
def compiled(function: Any, target: str) -> tuple[Any, Any, Any]:
    """The kernel, what TileLang says about it, and its tensor maps by name."""
    with tvm.target.Target({"kind": "cuda", "arch": target}) as chosen:
        made = lower(function, target=chosen, enable_device_compile=False)
    ((name, device),) = made.device_mod.functions.items()
    home = Path(tilelang.__file__).parent
    folders = [home / "src", home / "3rdparty/cutlass/include", host.cccl()]
    kernel = RawKernel(
        "#include <tl_templates/cuda/nvrtc_std.h>\n" + made.kernel_source,
        name.name_hint,
        (
            "-std=c++17",
            "-default-device",
            "-DENABLE_BF16",
            *(f"-I{each}" for each in folders),
        ),
        target=target,
    )
    (caller,) = made.host_mod.functions.values()
    maps = dict(caller.attrs.get("tma_descriptor_args", {}))
    return kernel, device, {map.name: list(given) for map, given in maps.items()}


def launch(function: Any, target: str, *tensors: torch.Tensor) -> None:
    """Launch a kernel as the host code of TileLang does."""
    kernel, device, maps = compiled(function, target)
    names = [function.buffer_map[each].name for each in function.params]
    arrays = dict(zip(names, tensors, strict=True))
    arguments = [
        _map(maps[each.name], arrays) if each.name in maps else arrays[each.name]
        for each in device.params
    ]
    extent = {key: int(each) for key, each in device.attrs["thread_extent"].items()}
    grid, block = (
        tuple(extent.get(f"{kind}.{axis}", 1) for axis in "xyz")
        for kind in ("blockIdx", "threadIdx")
    )
    shared = int(device.attrs.get("dyn_shared_memory_buf", 0))
    # An H200 is what runs it, also what was compiled for its elder.
    kernel.kernel.launch(grid, block, arguments, shared=shared, target="sm_90a")


def _map(given: list[Any], arrays: dict[str, torch.Tensor]) -> Struct:
    """A tensor map, from what the driver is given."""
    _, _, kind, rank, tensor, *rest = given
    numbers = [int(each) for each in rest]
    sizes, strides, box, steps = (
        tuple(numbers[i * int(rank) : (i + 1) * int(rank)]) for i in range(4)
    )
    _, swizzle, l2, _ = numbers[4 * int(rank) :]
    (dtype,) = (each.name for each in element_types() if each.driver == int(kind))
    made = TensorMap(
        dtype,
        sizes,
        strides[1:],
        box,
        steps,
        swizzle=(0, 32, 64, 128)[swizzle],
        l2=("none", 64, 128, 256)[l2],
    )
    return Struct(made.encode(), ((0, ptx.pointer(arrays[tensor.name])),), 64)


ROWS = T.GemmWarpPolicy.FullRow
"""Each warp has rows of its own, so that scores stay in its registers."""

# ── kernels ─────────────────────────────────────────────────────────────────


def product(name: str, size: int, dtype: str, turned: bool, tile: Any) -> Any:
    """C = A B of square matrices; B is stored transposed if it is turned."""
    rows, columns, depth, threads = tile
    inner = (columns, depth) if turned else (depth, columns)

    @T.prim_func
    def made(
        A: T.Tensor((size, size), dtype),
        B: T.Tensor((size, size), dtype),
        C: T.Tensor((size, size), "float32"),
    ):
        with T.Kernel(size // columns, size // rows, threads=threads) as (x, y):
            left = T.alloc_shared((rows, depth), dtype)
            right = T.alloc_shared(inner, dtype)
            total = T.alloc_fragment((rows, columns), "float32")
            T.clear(total)
            for k in T.Pipelined(size // depth, num_stages=2):
                T.copy(A[y * rows, k * depth], left)
                if turned:
                    T.copy(B[x * columns, k * depth], right)
                else:
                    T.copy(B[k * depth, x * columns], right)
                T.gemm(left, right, total, transpose_B=turned)
            T.copy(total, C[y * rows, x * columns])

    return made.with_attr("global_symbol", name)


def attention(name: str, length: int, causal: bool) -> Any:
    """Attention of one head with 64 channels, in tiles of 64 queries and 64 keys."""
    size, scale = 64, 64**-0.5

    @T.prim_func
    def made(
        Q: T.Tensor((length, size), "float16"),
        K: T.Tensor((length, size), "float16"),
        V: T.Tensor((length, size), "float16"),
        Y: T.Tensor((length, size), "float32"),
    ):
        with T.Kernel(length // 64, threads=128) as x:
            q = T.alloc_shared((64, size), "float16")
            k = T.alloc_shared((64, size), "float16")
            v = T.alloc_shared((64, size), "float16")
            scores = T.alloc_fragment((64, 64), "float32")
            weights = T.alloc_fragment((64, 64), "float16")
            total = T.alloc_fragment((64, size), "float32")
            top = T.alloc_fragment((64,), "float32")
            before = T.alloc_fragment((64,), "float32")
            shrink = T.alloc_fragment((64,), "float32")
            part = T.alloc_fragment((64,), "float32")
            share = T.alloc_fragment((64,), "float32")
            T.copy(Q[x * 64, 0], q)
            T.clear(total)
            T.clear(share)
            T.fill(top, -T.infinity("float32"))
            for step in T.Pipelined(x + 1 if causal else length // 64, num_stages=1):
                T.copy(K[step * 64, 0], k)
                T.clear(scores)
                T.gemm(q, k, scores, transpose_B=True, policy=ROWS)
                if causal:
                    for i, j in T.Parallel(64, 64):
                        scores[i, j] = T.if_then_else(
                            x * 64 + i >= step * 64 + j,
                            scores[i, j],
                            -T.infinity("float32"),
                        )
                T.copy(top, before)
                T.reduce_max(scores, top, dim=1, clear=False)
                for i in T.Parallel(64):
                    shrink[i] = T.exp((before[i] - top[i]) * scale)
                for i, j in T.Parallel(64, 64):
                    scores[i, j] = T.exp((scores[i, j] - top[i]) * scale)
                T.reduce_sum(scores, part, dim=1)
                for i in T.Parallel(64):
                    share[i] = share[i] * shrink[i] + part[i]
                for i, j in T.Parallel(64, size):
                    total[i, j] *= shrink[i]
                T.copy(scores, weights)
                T.copy(V[step * 64, 0], v)
                T.gemm(weights, v, total, policy=ROWS)
            for i, j in T.Parallel(64, size):
                total[i, j] /= share[i]
            T.copy(total, Y[x * 64, 0])

    return made.with_attr("global_symbol", name)


@T.prim_func
def softmax(X: T.Tensor((12, 256), "float32"), Y: T.Tensor((12, 256), "float32")):
    with T.Kernel(3, threads=128) as x:
        rows = T.alloc_fragment((4, 256), "float32")
        top = T.alloc_fragment((4,), "float32")
        share = T.alloc_fragment((4,), "float32")
        T.copy(X[x * 4, 0], rows)
        T.reduce_max(rows, top, dim=1)
        for i, j in T.Parallel(4, 256):
            rows[i, j] = T.exp(rows[i, j] - top[i])
        T.reduce_sum(rows, share, dim=1)
        for i, j in T.Parallel(4, 256):
            rows[i, j] /= share[i]
        T.copy(rows, Y[x * 4, 0])


@T.prim_func
def norm(
    X: T.Tensor((12, 256), "float16"),
    W: T.Tensor((256,), "float16"),
    Y: T.Tensor((12, 256), "float16"),
):
    with T.Kernel(3, threads=128) as x:
        shared = T.alloc_shared((4, 256), "float16")
        rows = T.alloc_fragment((4, 256), "float32")
        squares = T.alloc_fragment((4, 256), "float32")
        sums = T.alloc_fragment((4,), "float32")
        T.copy(X[x * 4, 0], shared)
        T.copy(shared, rows)
        for i, j in T.Parallel(4, 256):
            squares[i, j] = rows[i, j] * rows[i, j]
        T.reduce_sum(squares, sums, dim=1)
        for i in T.Parallel(4):
            sums[i] = T.rsqrt(sums[i] / 256.0 + 1e-6)
        for i, j in T.Parallel(4, 256):
            rows[i, j] *= sums[i] * W[j]
        T.copy(rows, Y[x * 4, 0])


@T.prim_func
def running_sums(X: T.Tensor((8, 128), "float32"), Y: T.Tensor((8, 128), "float32")):
    with T.Kernel(2, threads=128) as x:
        rows = T.alloc_shared((4, 128), "float32")
        T.copy(X[x * 4, 0], rows)
        T.cumsum(rows, dim=1)
        T.copy(rows, Y[x * 4, 0])


@T.prim_func
def transposed(X: T.Tensor((64, 96), "float32"), Y: T.Tensor((96, 64), "float32")):
    with T.Kernel(3, 2, threads=128) as (x, y):
        tile = T.alloc_shared((32, 32), "float32")
        turned = T.alloc_fragment((32, 32), "float32")
        T.copy(X[y * 32, x * 32], tile)
        for i, j in T.Parallel(32, 32):
            turned[i, j] = tile[j, i]
        T.copy(turned, Y[x * 32, y * 32])


@T.prim_func
def scattered(
    X: T.Tensor((512,), "float32"),
    P: T.Tensor((512,), "int32"),
    Y: T.Tensor((32,), "float32"),
):
    with T.Kernel(4, threads=128) as x:
        for i in T.Parallel(128):
            T.atomic_add(Y[P[x * 128 + i]], X[x * 128 + i])


# ── cases ───────────────────────────────────────────────────────────────────

HOPPER, AMPERE = "sm_90a", "sm_80"
FEWER_BITS = 1e-3
"""Hopper sums products of 8-bit floats with 13 bits behind the greatest one's."""


def _compare(
    trial: Trial,
    function: Any,
    target: str,
    reference: Callable[..., torch.Tensor],
    *inputs: torch.Tensor,
    dtype: torch.dtype = torch.float32,
    tolerance: float | None = None,
) -> None:
    def run(*given: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(reference(*map(torch.Tensor.float, given)).shape, dtype=dtype)
        launch(function, target, *given, out)
        return out

    trial.compare(run, reference, *inputs, gradients=False, tolerance=tolerance)


def _product(
    trial: Trial, name: str, dtype: torch.dtype, target: str, **how: Any
) -> None:
    turned, tile = how.get("turned", False), how.get("tile", (64, 64, 32, 128))
    kind = str(dtype).removeprefix("torch.")
    size = 128
    _compare(
        trial,
        product(name, size, kind, turned, tile),
        target,
        lambda a, b: a @ (b.mT if turned else b),
        *(trial.floats(size, size).to(dtype) for _ in range(2)),
        tolerance=how.get("tolerance"),
    )


@case(small=True)
def product_hopper(trial: Trial) -> None:
    _product(trial, "product_hopper", torch.float16, HOPPER)


@case()
def product_hopper_bfloat16(trial: Trial) -> None:
    tile = (64, 128, 64, 256)
    _product(
        trial, "product_hopper_bfloat16", torch.bfloat16, HOPPER, turned=True, tile=tile
    )


@case()
def product_hopper_fp8(trial: Trial) -> None:
    tile = (64, 64, 64, 128)
    _product(
        trial,
        "product_hopper_fp8",
        torch.float8_e4m3fn,
        HOPPER,
        turned=True,
        tile=tile,
        tolerance=FEWER_BITS,
    )


@case()
def product_ampere(trial: Trial) -> None:
    _product(trial, "product_ampere", torch.float16, AMPERE)


@case()
def product_ampere_turned(trial: Trial) -> None:
    _product(trial, "product_ampere_turned", torch.bfloat16, AMPERE, turned=True)


def _attention(trial: Trial, name: str, target: str, causal: bool) -> None:
    _compare(
        trial,
        attention(name, 192, causal),
        target,
        lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal
        ),
        *(trial.floats(192, 64, dtype=torch.float16) for _ in range(3)),
        tolerance=TOLERANCES[torch.float16],
    )


@case()
def attention_hopper(trial: Trial) -> None:
    _attention(trial, "attention_hopper", HOPPER, False)


@case()
def attention_hopper_causal(trial: Trial) -> None:
    _attention(trial, "attention_hopper_causal", HOPPER, True)


@case()
def attention_ampere_causal(trial: Trial) -> None:
    _attention(trial, "attention_ampere_causal", AMPERE, True)


@case()
def softmax_of_rows(trial: Trial) -> None:
    _compare(trial, softmax, HOPPER, lambda x: x.softmax(-1), trial.floats(12, 256))


@case()
def norm_of_rows(trial: Trial) -> None:
    x, w = (trial.floats(*size, dtype=torch.float16) for size in ((12, 256), (256,)))
    _compare(
        trial,
        norm,
        HOPPER,
        lambda x, w: rms_norm(x, w, 1e-6),
        x,
        w,
        dtype=torch.float16,
    )


@case()
def scans_of_rows(trial: Trial) -> None:
    _compare(trial, running_sums, HOPPER, lambda x: x.cumsum(-1), trial.floats(8, 128))


@case()
def transposition(trial: Trial) -> None:
    _compare(trial, transposed, HOPPER, lambda x: x.mT, trial.floats(64, 96))


@case()
def scattered_sums(trial: Trial) -> None:
    where = trial.whole(512, high=32, dtype=torch.int32)
    _compare(
        trial,
        scattered,
        HOPPER,
        lambda x, i: x.new_zeros(32).index_add(0, i.long(), x),
        trial.floats(512),
        where,
    )
