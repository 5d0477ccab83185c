"""What is a kernel launched with?

The grid and the sizes are known before there are any data; the arguments follow from
where the matrices are.  A matrix is an address on the GPU or an array on the CPU, and
who launches makes the tensor maps.  So a launch on a GPU and one without it start from
the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from fragmenta.errors import ShapeError
from fragmenta.kernels.config import ALIGNMENT, SLAB_BYTES, Kernel

EPILOGUE = ("scale", "scale_m", "scale_n", "bias", "count_m", "count_n")
"""The pointers of the struct ``Epilogue`` in ``gemm.cu``, in order."""
_NO_EPILOGUE = (0,) * len(EPILOGUE)


class Matrix(NamedTuple):
    """Rows of bytes: where they are, their number, their width and their distance."""

    pointer: Any
    """An address on the GPU, or an array."""
    rows: int
    width: int
    pitch: int

    def check(self, name: str) -> None:
        """Refuse a matrix that the copy engine cannot address."""
        if self.pointer % ALIGNMENT or self.pitch % ALIGNMENT:
            raise ShapeError(
                f"rows of {name} must begin on multiples of {ALIGNMENT} bytes; given "
                f"address {self.pointer:#x}, rows {self.pitch} bytes apart"
            )
        if not self.rows or not self.width:
            raise ShapeError(
                f"{name} is empty; given {self.rows} rows of {self.width} bytes"
            )


class Box(NamedTuple):
    """What one copy takes of a matrix: bytes, rows, and the bytes of a swizzle."""

    wide: int
    high: int
    swizzle: int


class Geometry(NamedTuple):
    """All of a launch that does not depend on where the matrices are."""

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


def geometry(kernel: Kernel, m: int, n: int, k: int, blocks: int) -> Geometry:
    """The launch of an m x n x k product whose tiles ``blocks`` thread blocks share.

    >>> made = geometry(Kernel("bf16"), 300, 200, 100, 4)
    >>> made.grid, made.block, made.cluster, made.shared, made.sizes
    (4, 384, (1, 1, 1), 229376, (300, 200, 2))
    >>> made.box_d
    Box(wide=128, high=64, swizzle=128)
    """
    tile = kernel.tile
    kernel.parts(k)  # refuses a k that is too short for its tile
    wide, high = kernel.box
    return Geometry(
        kernel,
        kernel.grid(m, n, blocks),
        kernel.threads,
        (tile.cluster * tile.split, 1, 1),
        kernel.shared_bytes,
        (m, n, -(-k // kernel.slab_k)),
        Box(SLAB_BYTES, tile.m, SLAB_BYTES),
        # Each block of a cluster copies its share of the rows of B.
        Box(SLAB_BYTES, tile.n // tile.cluster, SLAB_BYTES),
        Box(wide, high, wide if wide > 16 else 0),
    )


MapMaker: TypeAlias = Callable[[str, Matrix, Box], Any]
"""Makes the tensor map of a matrix, given its name."""


class Arguments(NamedTuple):
    """The parameters of ``gemm``, in order."""

    map_a: Any
    map_b: Any
    map_d: Any
    packed: Any
    """Where a packed A is; 0 for a dense A."""
    epilogue: tuple[Any, ...]
    """The pointers of :data:`EPILOGUE`; 0 for what is not given."""
    m: int
    n: int
    slabs: int


def arguments(
    of: Geometry,
    a: Any,
    b: Matrix,
    d: Matrix,
    tensor_map: MapMaker,
    epilogue: Mapping[str, Any] | None = None,
) -> Arguments:
    """The arguments of D = A B; ``a`` is a dense matrix, or where a packed A is.

    A sparse A has no tensor map: the kernel does not look at the one it is given.

    >>> def named(name, matrix, box):
    ...     return name
    >>> rows = Matrix(4096, 64, 128, 128)
    >>> given = geometry(Kernel("bf16"), 64, 64, 64, 1)
    >>> arguments(given, 256, rows, rows, named, {"bias": 512})
    Arguments(map_a='B', map_b='B', map_d='D', packed=256, \
epilogue=(0, 0, 0, 512, 0, 0), m=64, n=64, slabs=1)
    """
    map_b = tensor_map("B", b, of.box_b)
    map_d = tensor_map("D", d, of.box_d)
    packed, map_a = a, map_b
    if isinstance(a, Matrix):
        packed, map_a = 0, tensor_map("A", a, of.box_a)
    parts = tuple(epilogue.get(x, 0) for x in EPILOGUE) if epilogue else _NO_EPILOGUE
    return Arguments(map_a, map_b, map_d, packed, parts, *of.sizes)
