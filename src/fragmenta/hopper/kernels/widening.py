"""Makes a sparse A of 8 or 16 bits from one of 4-bit integers.

Kernels for 4-bit integers read the fewest bytes, which decides the time of small
products.  In large ones converting decides, so that A is converted once, before.  Its
places stay; an integer is multiplied with the scale of its group and rounded once::

    value = round(integer * scale / power)

``power`` is a power of two for each row, with which no value is beyond 448, the
largest e4m3.  The product is multiplied with it afterwards, which is exact.  Without
groups, values are the integers themselves and the scale of a row is applied to the
product, as before.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import as_array
from fragmenta.cuda.tools.compiler import to_cubin
from fragmenta.errors import BadCall, one_of
from fragmenta.hopper.kernels.config import SLAB_S4, Kernel, Tile
from fragmenta.hopper.kernels.four_bits import (
    SCALE_TYPES,
    Integers,
    PackedIntegers,
    numbers_of,
    pack_integers,
    unpack_integers,
)
from fragmenta.hopper.kernels.packing import BLOCK, Packed, pack, packed_shape, places
from fragmenta.hopper.kernels.source import TARGET, text
from fragmenta.reference.registers.dtype import dtype
from fragmenta.reference.shared.descriptor import UNIT
from fragmenta.reference.sparse.compression import Compressed, sparse

if TYPE_CHECKING:
    from torch import Tensor

THREADS = 256
_WORDS = 512  # of the integers of a block
_MOST = 448.0  # the largest e4m3


def wide_types(integers: Integers) -> tuple[str, ...]:
    """The types that integers become: those that they are multiplied with.

    >>> wide_types(Integers("e4m3", 64)), wide_types(Integers("bf16", 0))
    (('e4m3',), ('bf16', 'f16'))
    """
    return integers.takes


def _check(integers: Integers, to: str) -> None:
    if to not in wide_types(integers):
        raise BadCall(
            f"integers of {integers.name} become {one_of(wide_types(integers))}; "
            f"given {to}"
        )


# ── on the CPU ──────────────────────────────────────────────────────────────


def row_powers(scales: ArrayLike) -> NDArray[np.float32]:
    """The power of two of each row: the least with which 8 x scale is at most 448.

    >>> row_powers(np.float16([[1.0, 0.25], [100, 1], [56, 0]]))
    array([0.03125, 2.     , 1.     ], dtype=float32)
    """
    most = np.abs(as_array(scales).astype(np.float64)).max(axis=1) * 8 / _MOST
    fraction, exponent = np.frexp(most)
    exponent = exponent - (fraction == 0.5)  # a power of two is enough itself
    bounded = np.clip(np.where(most > 0, exponent, 0), -126, 127)
    found: NDArray[np.float32] = np.ldexp(np.float32(1), bounded).astype(np.float32)
    return found


def widened(packed: PackedIntegers, to: str, powers: ArrayLike | None = None) -> Packed:
    """The same matrix with elements of 8 or 16 bits; ``powers`` is one for each row.

    >>> import fragmenta as fm
    >>> from fragmenta.hopper.kernels.four_bits import quantize_groups
    >>> op = fm.wgmma("m64n8k32", a="bf16", d="f32", sp="sp")
    >>> sp = fm.sparse.compress(op, np.array([[0, 1, -3.5, 0]], "bfloat16"))
    >>> integers = pack_integers(*quantize_groups(sp, 32), group=32)
    >>> widened(integers, "bf16")
    <Packed 1x4 bf16, 18432 bytes>
    """
    _check(Integers(packed.b, packed.group, packed.scales), to)
    found, scales = unpack_integers(packed)
    values = np.asarray(found.values).astype(np.float32)
    if scales is not None:
        values = numbers_of(found, scales, packed.group)
    if powers is not None:
        values = values * (np.float32(1) / as_array(powers).astype(np.float32))[:, None]
    stored = values.astype(dtype(to).storage)
    made = Compressed(stored, found.indices, found.granularity, found.width)
    return pack(Kernel(to, tile=Tile(64, 8)).instruction, made)


def row_scales(packed: PackedIntegers) -> NDArray[np.float32]:
    """The scales of groups, (rows, groups), without the integers."""
    integers = Integers(packed.b, packed.group, packed.scales)
    (m, k), places = packed.shape, scale_places(integers)
    stored = np.ascontiguousarray(packed.data[..., -2 * places.size :])
    found = stored.view(SCALE_TYPES[packed.scales])[..., places]
    rows = found.transpose(0, 1, 3, 2, 4).reshape(-1, found.shape[2] * places.shape[1])
    wanted: NDArray[np.float32] = rows[:m, : -(-k // packed.group)].astype(np.float32)
    return wanted


# ── the kernel ──────────────────────────────────────────────────────────────


def _probes(integers: Integers) -> NDArray[np.int64]:
    """Which stored element each place has: (words, turns, elements of a word).

    Blocks are packed whose integers are three bits of the numbers of their elements.
    """
    granularity = sparse(integers.kernel().instruction)[1]
    numbers = np.arange(BLOCK * SLAB_S4 // 2).reshape(BLOCK, -1)
    codes = np.full((BLOCK, SLAB_S4 // 4), granularity.empty, np.uint8)
    turns = np.arange(0, 8 if integers.b == "e4m3" else 16, 4)[None, :, None]
    apart, mask = (8, 7) if integers.b == "e4m3" else (16, 15)
    shifts = np.arange(0, 32, apart)[None, None, :]
    found = np.zeros((_WORDS, turns.size, shifts.size), np.int64)
    for bit in range(0, 12, 3):
        part = Compressed((numbers >> bit & 7).astype(np.int8), codes, granularity)
        data = pack_integers(part, b=integers.b).data[0, 0, 0, : 4 * _WORDS]
        words = np.ascontiguousarray(data).view(np.uint32).astype(np.int64)
        words = words[:, None, None]
        turned = words >> turns | words << 32 - turns
        found |= (turned >> shifts & mask) - (0 if mask == 7 else 8) << bit
    return found


@lru_cache(maxsize=32)
def sources(integers: Integers, to: str) -> NDArray[np.int64]:
    """For each word of the new values: word, turn, row and scale that it comes from.

    >>> sources(Integers("bf16", 128), "bf16").shape
    (2048, 4)
    """
    _check(integers, to)
    per = 32 // dtype(to).bits  # elements of a word
    known = _probes(integers)[..., 0]
    owner = np.zeros((BLOCK * SLAB_S4 // 2, 2), np.int64)
    owner[known.ravel()] = np.argwhere(np.ones(known.shape, bool))
    numbers = np.arange(BLOCK * SLAB_S4 // 2).reshape(BLOCK, -1)
    columns = UNIT * 4 * 8 // dtype(to).bits  # stored elements of a row in a new block
    first = np.concatenate(
        [
            _in_places(numbers[:, at : at + columns], to)
            for at in range(0, numbers.shape[1], columns)
        ]
    )[:, ::per].ravel()
    row, stored = np.divmod(first, numbers.shape[1])
    where = scale_places(integers)
    column = 2 * stored // (integers.group or SLAB_S4)
    turn = 4 * owner[first, 1]
    return np.stack([owner[first, 0], turn, row, where[row, column]], axis=1)


def _in_places(numbers: NDArray[np.int64], to: str) -> NDArray[np.int64]:
    """Elements of 64 rows in the order of a packed block, unit by unit."""
    units = numbers.reshape(BLOCK * 4, -1)
    ordered = np.empty_like(units)
    ordered[places(to)] = units
    return ordered


def scale_places(integers: Integers) -> NDArray[np.int64]:
    """Where the scale of each row and group is, in the scales of a block.

    >>> scale_places(Integers("bf16", 64))[:3]
    array([[ 0,  2],
           [ 4,  6],
           [ 8, 10]])
    """
    groups = integers.kernel().groups
    if not integers.group:
        return np.zeros((BLOCK, groups), np.int64)
    _, granularity = sparse(integers.kernel().instruction)
    codes = np.full((BLOCK, SLAB_S4 // 4), granularity.empty, np.uint8)
    zeros = Compressed(np.zeros((BLOCK, SLAB_S4 // 2), np.int8), codes, granularity)
    numbers = np.arange(BLOCK * groups).reshape(BLOCK, groups).astype(np.float16)
    packed = pack_integers(zeros, numbers, b=integers.b, group=integers.group)
    stored = packed.data[0, 0, 0, -2 * BLOCK * groups :].view(np.float16)
    found = np.empty(BLOCK * groups, np.int64)
    found[stored.astype(np.int64)] = np.arange(BLOCK * groups)
    return found.reshape(BLOCK, groups)


@lru_cache(maxsize=32)
def widen_source(integers: Integers, to: str) -> str:
    """The CUDA C++ source of the kernel in ``widen.cu``.

    >>> "#define PARTS 2" in widen_source(Integers("bf16", 64), "f16")
    True
    """
    rows = ", ".join("{" + ", ".join(map(str, x)) + "}" for x in sources(integers, to))
    macros = {
        "TO": {"bf16": 1, "f16": 2, "e4m3": 8}[to],
        "BYTES": int(integers.b == "e4m3"),
        "GROUP_SCALES": {"f16": 2, "bf16": 1}[integers.scales] if integers.group else 0,
        "BLOCK_IN": integers.kernel().block_bytes,
        "BLOCK_OUT": Kernel(to, tile=Tile(64, 8)).block_bytes,
        "PARTS": SLAB_S4 // Kernel(to, tile=Tile(64, 8)).slab_k,
        "SOURCES": rows,
    }
    lines = (f"#define {name} {value}\n" for name, value in macros.items())
    return "".join(lines) + text("widen.cu")


@lru_cache(maxsize=32)
def widen_cubin(integers: Integers, to: str) -> bytes:
    """The machine code of the kernel.

    >>> widen_cubin(Integers("e4m3", 0), "e4m3")[1:4]
    b'ELF'
    """
    return to_cubin(widen_source(integers, to), TARGET)


def widen_grid(integers: Integers, m: int, k: int) -> tuple[int, int]:
    """The blocks of a launch: one for each 64 rows and 128 columns.

    >>> widen_grid(Integers(), 300, 256)
    (2, 8)
    """
    tall, blocks, slabs, _ = integers.packed_shape(m, k)
    return slabs, tall * blocks


def widen_on_device(
    packed: Tensor,
    integers: Integers,
    shape: tuple[int, int],
    to: str,
    powers: Tensor | None,
    wide: Tensor,
) -> None:
    """Launch it on the current stream: packed integers to packed elements."""
    import torch

    from fragmenta.hopper.kernels.launch import adopt_context, load, start

    m, k = shape
    arguments = [
        ctypes.c_void_p(packed.data_ptr()),
        ctypes.c_void_p(0 if powers is None else powers.data_ptr()),
        ctypes.c_void_p(wide.data_ptr()),
        ctypes.c_int(m),
        ctypes.c_int(packed_shape(to, m, k)[1]),
    ]
    raw: ModuleType = torch._C
    with torch.cuda.device(packed.device):
        stream = raw._cuda_getCurrentRawStream(packed.device.index)
        adopt_context(packed.device.index)
        handle = load(widen_cubin(integers, to), "widen")
        grid = widen_grid(integers, m, k)
        places = [ctypes.addressof(x) for x in arguments]
        start(handle, grid, THREADS, 0, stream, places)


# ── which product ───────────────────────────────────────────────────────────

#: Columns of B up to which 4-bit integers are multiplied as they are, by the type of B,
#: and by whether the wide matrix is made in each call, which takes time, or kept.
_LIMITS = {
    ("e4m3", "kept"): 96,
    ("bf16", "kept"): 144,
    ("e4m3", "made"): 1024,
    ("bf16", "made"): 1280,
}
FALLBACKS = ("made", "kept")
"""When the wide matrix is made: in each call that needs it, or once."""


def narrow_limit(integers: Integers, fallback: str) -> int:
    """The most columns of B for which 4-bit integers are multiplied as they are.

    About where the times of ``benchmarks/gpu/bench_fallback.py`` cross: in five layers
    from 64 to 144 (fp8) and from 112 to 192 columns for ``kept``, from 512 to 1536 and
    from 1024 to 2048 for ``made``.

    >>> narrow_limit(Integers("e4m3"), "kept"), narrow_limit(Integers("bf16"), "made")
    (96, 1280)
    """
    return _LIMITS[integers.b, fallback]
