"""The sizes and arguments of a launch.

The grid and the sizes are known before the data; the arguments depend on where the
matrices are.  A matrix is an address on the GPU or an array on the CPU, and the caller
makes the tensor maps.  So a launch on a GPU and one without it start from the same
values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from fragmenta.errors import AlignmentError, BadCall, ShapeError
from fragmenta.hopper.kernels.config import ALIGNMENT, MOST_EXPERTS, SLAB_BYTES, Kernel

EPILOGUE = ("scale", "scale_m", "scale_n", "bias", "count_m", "count_n")
"""The pointers of the struct ``Epilogue`` in ``gemm.cu``, in order."""
_NO_EPILOGUE = (0,) * len(EPILOGUE)

Place = TypeVar("Place")
"""Where data are: an address on the GPU, or an array."""
Map = TypeVar("Map")
"""A tensor map."""


class Matrix(NamedTuple, Generic[Place]):
    """Rows of bytes: where they are, their number, their width and their distance."""

    pointer: Place
    rows: int
    width: int
    pitch: int


def check_matrix(name: str, matrix: Matrix[int]) -> None:
    """Refuse a matrix that the copy engine cannot address."""
    if matrix.pointer % ALIGNMENT or matrix.pitch % ALIGNMENT:
        raise AlignmentError(
            f"rows of {name} must begin on multiples of {ALIGNMENT} bytes; given "
            f"address {matrix.pointer:#x}, rows {matrix.pitch} bytes apart"
        )
    if not matrix.rows or not matrix.width:
        raise ShapeError(
            f"{name} is empty; given {matrix.rows} rows of {matrix.width} bytes"
        )


class Box(NamedTuple):
    """The part of a matrix that one copy moves: bytes, rows, and bytes of a swizzle."""

    wide: int
    high: int
    swizzle: int


class Geometry(NamedTuple):
    """The part of a launch that does not depend on where the matrices are."""

    kernel: Kernel
    grid: int
    block: int
    cluster: tuple[int, int, int]
    shared: int
    """Bytes of dynamic shared memory."""
    sizes: tuple[int, int, int]
    """m, n and the number of slabs."""
    box_a: Box
    box_b: Box
    box_d: Box
    experts: int = 0
    """The experts of a grouped product."""


def geometry(
    kernel: Kernel, m: int, n: int, k: int, blocks: int, experts: int = 0
) -> Geometry:
    """The launch of an m x n x k product whose tiles ``blocks`` thread blocks share.

    A grouped product has ``experts`` of m x k, and n rows of B in all.

    >>> made = geometry(Kernel("bf16"), 300, 200, 100, 4)
    >>> made.grid, made.block, made.cluster, made.shared, made.sizes
    (4, 384, (1, 1, 1), 229376, (300, 200, 2))
    >>> made.box_d
    Box(wide=128, high=64, swizzle=128)
    """
    tile = kernel.tile
    kernel.parts(k)  # refuses a k that is too short for its tile
    check_experts(kernel, experts)
    wide, high = kernel.box
    return Geometry(
        kernel,
        kernel.grid(m, n, blocks, experts),
        kernel.threads,
        (tile.cluster * tile.split, 1, 1),
        kernel.shared_bytes,
        (m, n, -(-k // kernel.slab_k)),
        Box(SLAB_BYTES, tile.m, SLAB_BYTES),
        # Each block of a cluster copies its share of the rows of B.
        Box(SLAB_BYTES, tile.n // tile.cluster, SLAB_BYTES),
        Box(wide, high, wide if wide > 16 else 0),
        experts,
    )


def check_experts(kernel: Kernel, experts: int) -> None:
    """Refuse a number of experts that a kernel cannot have.

    >>> check_experts(Kernel("bf16", transposed=True, grouped=True), 1000)
    Traceback (most recent call last):
    fragmenta.errors.ShapeError: a grouped product has 1 to 512 experts; given 1000
    """
    if kernel.grouped and not 1 <= experts <= MOST_EXPERTS:
        raise ShapeError(
            f"a grouped product has 1 to {MOST_EXPERTS} experts; given {experts}"
        )
    if experts and not kernel.grouped:
        raise ShapeError(f"{kernel} is not grouped, but {experts} experts are given")


class Arguments(NamedTuple, Generic[Map, Place]):
    """The parameters of ``gemm``, in order."""

    map_a: Map
    map_b: Map
    map_d: Map
    packed: Place | int
    """Where a packed A is; 0 for a dense A."""
    epilogue: tuple[Place | int, ...]
    """The pointers of :data:`EPILOGUE`; 0 for what is not given."""
    m: int
    n: int
    slabs: int
    group: tuple[Place | int, ...] = ()
    """For a grouped product: the ends of the experts' rows of B, the number of experts,
    where D is, the bytes from one of its rows to the next, and if they are settled."""


def arguments(
    of: Geometry,
    a: Matrix[Place] | Place,
    b: Matrix[Place],
    d: Matrix[Place],
    tensor_map: Callable[[str, Matrix[Place], Box], Map],
    epilogue: Mapping[str, Place] | None = None,
    ends: Place | None = None,
    settled: bool = False,
) -> Arguments[Map, Place]:
    """The arguments of D = A B; ``a`` is a dense matrix, or where a packed A is.

    A grouped product needs the ``ends`` of its experts' rows of B, int32.  They are
    ``settled`` if the previous kernel of the stream writes neither them nor A.

    ``tensor_map`` makes the tensor map of a matrix, given its name.  A sparse A has
    none; the kernel gets that of B in its place, and does not use it.

    >>> def named(name, matrix, box):
    ...     return name
    >>> rows = Matrix(4096, 64, 128, 128)
    >>> given = geometry(Kernel("bf16"), 64, 64, 64, 1)
    >>> arguments(given, 256, rows, rows, named, {"bias": 512})
    Arguments(map_a='B', map_b='B', map_d='D', packed=256, \
epilogue=(0, 0, 0, 512, 0, 0), m=64, n=64, slabs=1, group=())
    """
    map_b = tensor_map("B", b, of.box_b)
    map_d = tensor_map("D", d, of.box_d)
    parts: tuple[Place | int, ...] = _NO_EPILOGUE
    if epilogue:
        parts = tuple(epilogue.get(x, 0) for x in EPILOGUE)
    if isinstance(a, Matrix):
        map_a = tensor_map("A", a, of.box_a)
        return Arguments(map_a, map_b, map_d, 0, parts, *of.sizes)
    group: tuple[Place | int, ...] = ()
    if of.kernel.grouped:
        if ends is None:
            raise BadCall(f"{of.kernel} needs the ends of its experts' rows")
        group = (ends, of.experts, d.pointer, d.pitch, int(settled))
    return Arguments(map_b, map_b, map_d, a, parts, *of.sizes, group)
