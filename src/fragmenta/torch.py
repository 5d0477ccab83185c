"""How does a PyTorch program use a sparse weight?

    compress        a weight -> SparseMatrix: pruned, compressed, packed
    sparse_mm       D = A B, with a sparse A
    sparse_linear   y = x W^T + bias, with a sparse W
    dense_mm        the same kernels with a dense A
    binary_mm       how many bits two rows share, or differ in
    SparseLinear    torch.nn.Linear with a sparse weight

On a Hopper GPU these are one kernel each, on the caller's stream; anywhere else
the same bits are computed by emulation, slowly.  All are ``torch.library``
operators, so that ``torch.compile`` and CUDA graphs take them.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from fragmenta.dtype import dtype as element
from fragmenta.errors import Error, ShapeError, one_of
from fragmenta.kernels.config import ALIGNMENT, Kernel, Tile
from fragmenta.kernels.emulate import Epilogue, emulate
from fragmenta.kernels.packing import Packed, pack, packed_shape, unpack
from fragmenta.kernels.prepare import accepts, compress_on_device, count_bits
from fragmenta.kernels.tuning import known, tune
from fragmenta.pruning import prune
from fragmenta.sparsity import compress as compress_matrix
from fragmenta.sparsity import decompress

TYPES: dict[torch.dtype, str] = {
    torch.float8_e4m3fn: "e4m3",
    torch.float8_e5m2: "e5m2",
    torch.int8: "s8",
    torch.uint8: "u8",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.float32: "tf32",
}
"""The element type that the tensor core reads a tensor as."""
OUTPUTS: dict[torch.dtype, str] = {
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
    torch.int32: "s32",
}
_DTYPES = {name: kind for kind, name in TYPES.items()}
_RESULTS = {name: kind for kind, name in OUTPUTS.items()}
_INTEGERS = ("s8", "u8")


# ── a sparse matrix ─────────────────────────────────────────────────────────


class SparseMatrix:
    """A 2:4 (tf32: 1:2) matrix in the order the kernels read.

    ``data`` is one tensor of bytes, the values and the metadata; see
    :mod:`fragmenta.kernels.packing`.

    >>> weight = torch.tensor([[0.0, 1.0, 2.0, 0.0]] * 8, dtype=torch.bfloat16)
    >>> compress(weight)
    <SparseMatrix 8x4 bf16 on cpu, 18432 bytes>
    """

    def __init__(self, data: Tensor, a: str, shape: tuple[int, int]) -> None:
        wanted = packed_shape(a, *shape)
        if tuple(data.shape) != wanted or data.dtype != torch.uint8:
            raise ShapeError(
                f"{shape[0]}x{shape[1]} of {a} are bytes of shape {wanted}; given "
                f"{data.dtype} of shape {tuple(data.shape)}"
            )
        self.data = data
        self.a = a
        self.shape = shape

    @property
    def dtype(self) -> torch.dtype:
        """The type of the elements."""
        return _DTYPES[self.a]

    @property
    def device(self) -> torch.device:
        """Where the bytes are."""
        return self.data.device

    def to(self, device: torch.device | str) -> SparseMatrix:
        """The same matrix on another device."""
        return SparseMatrix(self.data.to(device), self.a, self.shape)

    def to_dense(self) -> Tensor:
        """The matrix with its zeros again.

        >>> weight = torch.tensor([[0, 1, 2, 0], [3, 0, 0, 4]], dtype=torch.int8)
        >>> compress(weight).to_dense()
        tensor([[0, 1, 2, 0],
                [3, 0, 0, 4]], dtype=torch.int8)
        """
        packed = Packed(_bytes(self.data), self.a, self.shape)
        op = Kernel(self.a).instruction
        return _tensor(decompress(unpack(packed), op), self.dtype).to(self.device)

    def __repr__(self) -> str:
        rows, columns = self.shape
        return (
            f"<SparseMatrix {rows}x{columns} {self.a} on {self.device}, "
            f"{self.data.numel()} bytes>"
        )


def compress(weight: Tensor, *, prune: bool = True) -> SparseMatrix:
    """A weight with the largest magnitudes of each chunk, packed for the kernels.

    Without ``prune``, a weight that is not sparse already is refused.

    >>> compress(torch.ones(4, 8, dtype=torch.bfloat16)).to_dense()[0]
    tensor([1., 1., 0., 0., 1., 1., 0., 0.], dtype=torch.bfloat16)
    """
    if weight.dtype not in TYPES or weight.ndim != 2:
        kinds = one_of(str(kind).removeprefix("torch.") for kind in TYPES)
        raise Error(
            f"a weight is a matrix of {kinds}; given {weight.dtype} of shape "
            f"{tuple(weight.shape)}"
        )
    a, shape = TYPES[weight.dtype], (weight.shape[0], weight.shape[1])
    if weight.is_cuda and prune and accepts(a, weight):
        return SparseMatrix(compress_on_device(weight, a), a, shape)
    return SparseMatrix(_compress_on_host(weight, a, prune).to(weight.device), a, shape)


def _compress_on_host(weight: Tensor, a: str, pruned: bool) -> Tensor:
    op = Kernel(a).instruction
    matrix = _matrix(weight, a)
    if pruned:
        matrix = prune(matrix, op, pad=True)[:, : weight.shape[1]]
    return torch.from_numpy(pack(compress_matrix(matrix, op, pad=True), op).data)


# ── operators ───────────────────────────────────────────────────────────────

Part: TypeAlias = Tensor | None


def _sparse_mm(
    packed: Tensor,
    b: Tensor,
    a: str,
    m: int,
    out: torch.dtype,
    scale: Part,
    scale_m: Part,
    scale_n: Part,
    bias: Part,
    transposed: bool,
    promote: bool,
    tile: list[int],
) -> Tensor:
    parts = {"scale": scale, "scale_m": scale_m, "scale_n": scale_n, "bias": bias}
    kernel = _kernel(a, b, out, parts, True, transposed, promote)
    if not b.is_cuda:
        matrix = Packed(_bytes(packed), a, (m, b.shape[1]))
        return _emulated(kernel, matrix, b, parts)
    return run(_tiled(kernel, m, b, tile), packed, b, m, parts)


def _dense_mm(
    a: Tensor,
    b: Tensor,
    out: torch.dtype,
    scale: Part,
    scale_m: Part,
    scale_n: Part,
    bias: Part,
    transposed: bool,
    promote: bool,
    tile: list[int],
) -> Tensor:
    parts = {"scale": scale, "scale_m": scale_m, "scale_n": scale_n, "bias": bias}
    kernel = _kernel(TYPES[a.dtype], b, out, parts, False, transposed, promote)
    if not b.is_cuda:
        return _emulated(kernel, _matrix(a, kernel.a), b, parts)
    return run(_tiled(kernel, a.shape[0], b, tile), a, b, a.shape[0], parts)


def _binary_mm(a: Tensor, b: Tensor, xor: bool, tile: list[int]) -> Tensor:
    kernel = Kernel("b1", sparse=False, xor=xor)
    if not b.is_cuda:
        left, right = (np.unpackbits(_bytes(x), axis=-1) for x in (a, b))
        return torch.from_numpy(emulate(kernel, left, right))
    parts: dict[str, Part] = {}
    if xor:
        parts = {
            "count_m": count_bits(_rows_aligned(a)),
            "count_n": count_bits(_rows_aligned(b)),
        }
    return run(_tiled(kernel, a.shape[0], b, tile), a, b, a.shape[0], parts)


def _register() -> None:
    """The three operators, with what they return when nothing is computed."""
    epilogue = "Tensor? scale, Tensor? scale_m, Tensor? scale_n, Tensor? bias"
    rest = f"{epilogue}, bool transposed, bool promote, int[] tile) -> Tensor"

    def shaped(b: Tensor, m: int, out: torch.dtype, transposed: bool) -> Tensor:
        n = b.shape[0]
        return b.new_empty((n, m) if transposed else (m, n), dtype=out)

    listed: tuple[tuple[str, Any, Any, str], ...] = (
        (
            "sparse_mm",
            _sparse_mm,
            lambda packed, b, a, m, out, *rest: shaped(b, m, out, rest[4]),
            f"(Tensor packed, Tensor b, str a, int m, ScalarType out, {rest}",
        ),
        (
            "dense_mm",
            _dense_mm,
            lambda a, b, out, *rest: shaped(b, a.shape[0], out, rest[4]),
            f"(Tensor a, Tensor b, ScalarType out, {rest}",
        ),
        (
            "binary_mm",
            _binary_mm,
            lambda a, b, xor, tile: shaped(b, a.shape[0], torch.int32, False),
            "(Tensor a, Tensor b, bool xor, int[] tile) -> Tensor",
        ),
    )
    for name, implementation, fake, schema in listed:
        made: Any = torch.library.custom_op(
            f"fragmenta::{name}", implementation, mutates_args=(), schema=schema
        )
        made.register_fake(fake)


_register()


def sparse_mm(
    a: SparseMatrix,
    b: Tensor,
    *,
    out_dtype: torch.dtype | None = None,
    scale: Tensor | None = None,
    scale_m: Tensor | None = None,
    scale_n: Tensor | None = None,
    bias: Tensor | None = None,
    transposed: bool = False,
    promote: bool = False,
    tile: Tile | None = None,
) -> Tensor:
    """D = A B for a sparse A (m x k) and B given as n x k: k along memory.

    ``scale`` (one), ``scale_m``, ``bias`` (one for each row of D) and
    ``scale_n`` (one for each column) are float32; D is ``sum * (scale *
    scale_m) * scale_n + bias``.  ``transposed`` returns n x m.  ``promote``
    adds fp8 products in f32 every 128 of k.  Integers give int32 unless they
    are scaled.  A B whose rows do not begin on multiples of 16 bytes is copied.

    CuPy and NumPy arrays are taken through DLPack and answered in kind.

    >>> a = compress(torch.tensor([[0, 1, 2, 0]], dtype=torch.int8))
    >>> sparse_mm(a, torch.tensor([[5, 6, 7, 8], [1, 1, 1, 1]], dtype=torch.int8))
    tensor([[20,  3]], dtype=torch.int32)
    """
    if not isinstance(b, Tensor):
        given = {"scale": scale, "scale_m": scale_m, "scale_n": scale_n, "bias": bias}
        parts: Any = {x: None if y is None else _taken(y) for x, y in given.items()}
        options: Any = {"transposed": transposed, "promote": promote, "tile": tile}
        d = sparse_mm(a, _taken(b), out_dtype=out_dtype, **options, **parts)
        return _in_kind(d, b)
    scaled = any(part is not None for part in (scale, scale_m, scale_n, bias))
    if b.ndim != 2 or b.shape[1] != a.shape[1]:
        raise ShapeError(
            f"A is {a.shape[0]}x{a.shape[1]}; B {tuple(b.shape)}, not n x k"
        )
    out: Tensor = torch.ops.fragmenta.sparse_mm(
        a.data, b, a.a, a.shape[0], out_dtype or _default(a.a, scaled), scale, scale_m,
        scale_n, bias, transposed, promote, _sizes(tile),
    )  # fmt: skip
    return out


def dense_mm(
    a: Tensor,
    b: Tensor,
    *,
    out_dtype: torch.dtype | None = None,
    scale: Tensor | None = None,
    scale_m: Tensor | None = None,
    scale_n: Tensor | None = None,
    bias: Tensor | None = None,
    transposed: bool = False,
    promote: bool = False,
    tile: Tile | None = None,
) -> Tensor:
    """D = A B for a dense A (m x k) and B given as n x k; see :func:`sparse_mm`.

    >>> one = torch.ones(2, 4, dtype=torch.int8)
    >>> dense_mm(one, 2 * one)
    tensor([[8, 8],
            [8, 8]], dtype=torch.int32)
    """
    scaled = any(part is not None for part in (scale, scale_m, scale_n, bias))
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ShapeError(f"A {tuple(a.shape)} and B {tuple(b.shape)} share no k")
    out: Tensor = torch.ops.fragmenta.dense_mm(
        a, b, out_dtype or _default(TYPES[a.dtype], scaled), scale, scale_m, scale_n,
        bias, transposed, promote, _sizes(tile),
    )  # fmt: skip
    return out


def sparse_linear(
    x: Tensor,
    weight: SparseMatrix,
    bias: Tensor | None = None,
    *,
    out_dtype: torch.dtype | None = None,
    scale: Tensor | None = None,
    scale_x: Tensor | None = None,
    scale_weight: Tensor | None = None,
    promote: bool = False,
) -> Tensor:
    """y = x W^T + bias with a sparse W (out x in); x is (…, in).

    The result has the type of x unless ``out_dtype`` is given or x is 8 bits
    wide.  ``scale_x`` is one number for each row of x, ``scale_weight`` one for
    each output.

    >>> weight = compress(torch.tensor([[0, 1, 2, 0]] * 3, dtype=torch.bfloat16))
    >>> sparse_linear(torch.ones(2, 4, dtype=torch.bfloat16), weight)
    tensor([[3., 3., 3.],
            [3., 3., 3.]], dtype=torch.bfloat16)
    """
    flat = x.reshape(-1, x.shape[-1])
    kind = out_dtype or (x.dtype if x.dtype in OUTPUTS else None)
    single = None if bias is None else bias.float()
    y = sparse_mm(
        weight, flat, out_dtype=kind, scale=scale, scale_m=scale_weight,
        scale_n=scale_x, bias=single, transposed=True, promote=promote,
    )  # fmt: skip
    return y.reshape(*x.shape[:-1], weight.shape[0])


def binary_mm(
    a: Tensor, b: Tensor, *, op: str = "xor", tile: Tile | None = None
) -> Tensor:
    """How many bits each row of A shares with ("and"), or differs in from ("xor"), B's.

    A (m x k/8) and B (n x k/8) are bits packed into uint8.

    >>> a = torch.tensor([[0b1100, 0]], dtype=torch.uint8)
    >>> b = torch.tensor([[0b1010, 1]], dtype=torch.uint8)
    >>> binary_mm(a, b, op="and").item(), binary_mm(a, b).item()
    (1, 3)
    """
    if op not in ("and", "xor"):
        raise Error(f"bits are multiplied by and, or compared by xor; given {op!r}")
    kinds = (torch.uint8, torch.uint8)
    if (a.dtype, b.dtype) != kinds or a.shape[1:] != b.shape[1:] or a.ndim != 2:
        raise ShapeError("bits are uint8 matrices m x k/8 and n x k/8")
    out: Tensor = torch.ops.fragmenta.binary_mm(a, b, op == "xor", _sizes(tile))
    return out


def _taken(x: Any) -> Tensor:
    """An array of another library, without a copy."""
    return x if isinstance(x, Tensor) else from_dlpack(x)


def _in_kind(out: Tensor, like: Any) -> Any:
    """The result as the library of an argument holds arrays."""
    library = sys.modules[type(like).__module__.partition(".")[0]]
    return library.from_dlpack(out)


# ── on the GPU ──────────────────────────────────────────────────────────────


def run(
    kernel: Kernel,
    a: Tensor,
    b: Tensor,
    m: int,
    parts: dict[str, Part],
    out: Tensor | None = None,
) -> Tensor:
    """One launch on the current stream; D is allocated unless ``out`` is given.

    The copy engine stores whole units of 16 bytes, so the rows of an ``out``
    must be a whole number of them.
    """
    from fragmenta.kernels.launch import Matrix, launch

    if out is not None and out.shape[-1] * out.element_size() % ALIGNMENT:
        raise ShapeError(f"rows of D are multiples of {ALIGNMENT} bytes")

    b, n = _rows_aligned(b), b.shape[0]
    rows, columns = (n, m) if kernel.transposed else (m, n)
    result = _result(rows, columns, kernel, b.device) if out is None else out
    k = b.shape[1] * (8 if kernel.a == "b1" else 1)
    left = a.data_ptr() if kernel.sparse else Matrix(*_described(_rows_aligned(a)))
    held = {name: _single(part, name, m, n) for name, part in parts.items()}
    with torch.cuda.device(b.device):
        launch(
            kernel,
            left,
            Matrix(*_described(b)),
            Matrix(*_described(result)),
            m,
            n,
            k,
            stream=torch.cuda.current_stream().cuda_stream,
            epilogue={x: 0 if t is None else t.data_ptr() for x, t in held.items()},
        )
    return result if result.is_contiguous() or out is not None else result.contiguous()


def _result(rows: int, columns: int, kernel: Kernel, device: torch.device) -> Tensor:
    """Room for D whose rows begin where the copy engine can write."""
    kind = _RESULTS[kernel.out]
    per = ALIGNMENT // torch.empty((), dtype=kind).element_size()
    pitch = -(-columns // per) * per
    return torch.empty((rows, pitch), dtype=kind, device=device)[:, :columns]


def _rows_aligned(x: Tensor) -> Tensor:
    """The matrix itself, or a copy whose rows begin on multiples of 16 bytes."""
    size = x.element_size()
    along = x.shape[1] == 1 or x.stride(1) == 1
    if along and not x.data_ptr() % ALIGNMENT and not x.stride(0) * size % ALIGNMENT:
        return x
    per = ALIGNMENT // size
    padded = x.new_zeros((x.shape[0], -(-x.shape[1] // per) * per))
    padded[:, : x.shape[1]] = x
    return padded[:, : x.shape[1]]


def _described(x: Tensor) -> tuple[int, int, int, int]:
    size = x.element_size()
    return x.data_ptr(), x.shape[0], x.shape[1] * size, x.stride(0) * size


def _single(part: Tensor | None, name: str, m: int, n: int) -> Tensor | None:
    """An epilogue operand, checked."""
    if part is None:
        return None
    wanted = {"scale": 1, "scale_n": n, "count_n": n}.get(name, m)
    kind = torch.int32 if name.startswith("count") else torch.float32
    if part.numel() != wanted or part.dtype != kind:
        raise ShapeError(
            f"{name} has {wanted} numbers of {kind}; given {part.dtype} of shape "
            f"{tuple(part.shape)}"
        )
    return part.contiguous()


# ── which kernel ────────────────────────────────────────────────────────────


def _kernel(
    a: str,
    b: Tensor,
    out: torch.dtype,
    parts: dict[str, Part],
    sparse: bool,
    transposed: bool,
    promote: bool,
) -> Kernel:
    """The kernel, before its tile is chosen."""
    scaled = any(part is not None for part in parts.values())
    if b.dtype not in TYPES or out not in OUTPUTS:
        raise Error(f"there is no kernel that multiplies {b.dtype} into {out}")
    return Kernel(
        a, TYPES[b.dtype], OUTPUTS[out], Tile(64, 64), sparse=sparse, promote=promote,
        scaled=scaled, transposed=transposed,
    )  # fmt: skip


def _tiled(kernel: Kernel, m: int, b: Tensor, tile: list[int]) -> Kernel:
    """The kernel with the given tile, or the best that is known for the shape."""
    if tile:
        return replace(kernel, tile=Tile(*tile))
    n, width = b.shape
    return _known(kernel, (m, n, width * (8 if kernel.a == "b1" else 1)), b.device)


@lru_cache(maxsize=4096)
def _known(kernel: Kernel, shape: tuple[int, int, int], device: torch.device) -> Kernel:
    return known(kernel, shape, torch.cuda.get_device_name(device))


def autotune(
    a: SparseMatrix,
    b: Tensor,
    *,
    out_dtype: torch.dtype | None = None,
    transposed: bool = True,
    scaled: bool = False,
    promote: bool = False,
) -> Tile:
    """Measure the promising tiles of a product on this GPU, and keep the best.

    Later calls with the same types and sizes use it, in other processes too.
    """
    parts = {"scale": torch.ones(1, device=b.device) if scaled else None}
    out = out_dtype or _default(a.a, scaled)
    kernel = _kernel(a.a, b, out, parts, True, transposed, promote)
    m, k = a.shape

    event: Any = torch.cuda.Event

    def measure(each: Kernel) -> float:
        times: list[float] = []
        for _ in range(12):
            before, after = (event(enable_timing=True) for _ in range(2))
            before.record()
            run(each, a.data, b, m, parts)
            after.record()
            after.synchronize()
            times.append(before.elapsed_time(after))
        return sorted(times[2:])[5]

    name = torch.cuda.get_device_name(b.device)
    best = tune(kernel, (m, b.shape[0], k), name, measure)
    _known.cache_clear()
    return best.tile


def _sizes(tile: Tile | None) -> list[int]:
    return [] if tile is None else [tile.m, tile.n, tile.cluster]


def _default(a: str, scaled: bool) -> torch.dtype:
    return torch.int32 if a in _INTEGERS and not scaled else torch.float32


# ── without a GPU ───────────────────────────────────────────────────────────


def _emulated(kernel: Kernel, a: Any, b: Tensor, parts: dict[str, Part]) -> Tensor:
    given = {
        name: None if part is None else part.detach().cpu().numpy()
        for name, part in parts.items()
    }
    if (scale := given.get("scale")) is not None:
        given["scale"] = scale.reshape(())
    out = emulate(kernel, a, _matrix(b, kernel.b), Epilogue(**given))
    return _tensor(out, _RESULTS[kernel.out])


def _bytes(x: Tensor) -> NDArray[np.uint8]:
    found: NDArray[np.uint8] = x.detach().cpu().contiguous().numpy()
    return found


def _matrix(x: Tensor, name: str) -> NDArray[Any]:
    """A tensor as a NumPy array of the element type."""
    raw: NDArray[Any] = x.detach().cpu().contiguous().view(torch.uint8).numpy()
    return raw.view(element(name).storage).reshape(x.shape)


def _tensor(array: NDArray[Any], kind: torch.dtype) -> Tensor:
    raw = np.ascontiguousarray(array)
    flat = torch.from_numpy(raw.reshape(-1).view(np.uint8)).view(kind)
    return flat.reshape(raw.shape)


# ── torch.nn ────────────────────────────────────────────────────────────────


class SparseLinear(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """``torch.nn.Linear`` with a sparse weight, for inference.

    The state dict holds ``weight_packed`` and, if there is one, ``bias``.

    >>> layer = SparseLinear.from_linear(torch.nn.Linear(8, 4).bfloat16())
    >>> layer(torch.ones(2, 8, dtype=torch.bfloat16)).shape
    torch.Size([2, 4])
    """

    weight_packed: Tensor
    bias: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        dtype: torch.dtype = torch.bfloat16,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight_type = TYPES[dtype]
        shape = packed_shape(self.weight_type, out_features, in_features)
        empty = torch.zeros(shape, dtype=torch.uint8, device=device)
        self.register_buffer("weight_packed", empty)
        values = torch.zeros(out_features, device=device) if bias else None
        self.register_buffer("bias", values)

    @classmethod
    def from_linear(
        cls, module: torch.nn.Linear, *, prune: bool = True
    ) -> SparseLinear:
        """The layer with its weight pruned (unless it is sparse) and compressed."""
        weight = module.weight.detach()
        has_bias = module.bias is not None
        made = cls(
            module.in_features, module.out_features, has_bias, dtype=weight.dtype,
            device=weight.device,
        )  # fmt: skip
        made.weight_packed.copy_(compress(weight, prune=prune).data)
        if has_bias:
            made.bias.copy_(module.bias.detach())  # type: ignore[union-attr, unused-ignore]
        return made

    @property
    def weight(self) -> SparseMatrix:
        """The weight, out x in."""
        shape = (self.out_features, self.in_features)
        return SparseMatrix(self.weight_packed, self.weight_type, shape)

    def forward(self, x: Tensor) -> Tensor:
        """y = x W^T + bias, in the type of x."""
        return sparse_linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """What ``print(module)`` shows."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"weight={self.weight_type} 2:4"
        )


def linears(model: torch.nn.Module, *, least: int = 1) -> torch.nn.Module:
    """Replace every ``torch.nn.Linear`` of a model, in place, by a SparseLinear.

    ``least`` spares layers with fewer weights.

    >>> print(linears(torch.nn.Sequential(torch.nn.Linear(8, 4).bfloat16())))
    Sequential(
      (0): SparseLinear(in_features=8, out_features=4, weight=bf16 2:4)
    )
    """
    for name, child in model.named_children():
        if type(child) is torch.nn.Linear and math.prod(child.weight.shape) >= least:
            setattr(model, name, SparseLinear.from_linear(child))
        else:
            linears(child, least=least)
    return model
