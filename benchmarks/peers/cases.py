"""The problems that tools are compared on, and who takes part in each.

A case is one problem of one size.  Its kind is the module that feeds it to a tool:
``on_triton``, ``on_numba``, ``on_tiles`` or ``on_matrices``.  Inputs are drawn from the
same seeds for every tool, and what each tool returns is compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

OURS, WATCHED = "fragmenta", "fragmenta, watched"
INTERPRETER, SIMULATOR = "Triton's interpreter", "numba's simulator"
MMASIM, MATRICES, NUMPY = "MMA-Sim", "MMA-Sim, one by one", "NumPy in f32"
TOOLS = {
    OURS: "The bits of the GPU. Accesses outside of an array stop the kernel.",
    WATCHED: "The same, and races, missing waits and missing fences are reported.",
    INTERPRETER: (
        "Runs the Triton source with NumPy, block after block. `tl.dot` is a product "
        "of NumPy in f32, `tl.exp` is NumPy's. Nothing of what the compiler makes is "
        "run: no PTX, no shared memory, no barriers. No address is checked."
    ),
    MMASIM: (
        "The bits of single instructions, from vectors of a batch: a function inside "
        "of it that takes many tiles at once. No kernels."
    ),
    MATRICES: "The same through the call that it documents: one tile at a time.",
    SIMULATOR: (
        "Runs the Python source, with one thread of the host for each thread of a "
        "block. Arithmetic is Python's and NumPy's. Indices are checked as NumPy "
        "checks them; races are not noticed."
    ),
    NUMPY: (
        "The problem itself without a kernel: operands converted to f32, results "
        "rounded as f32. Not the bits of a GPU."
    ),
}
"""What each tool does and does not do."""


@dataclass(frozen=True)
class Case:
    """One problem of one size."""

    name: str
    kind: str
    what: str
    """In words, with the size."""
    tools: tuple[str, ...]
    sizes: dict[str, int] = field(default_factory=dict)
    near: float = 1e-5
    """How far a result may be from that in f64, relative to the largest."""
    exact: bool = True
    """Whether inputs of small whole numbers must give the same bits in every tool."""
    of: str = ""
    """The instruction, if it is one."""

    def sized(self, **sizes: int) -> Case:
        """The same problem with another size."""
        return replace(self, sizes={**self.sizes, **sizes})


TRITON = OURS, WATCHED, INTERPRETER
TILES = OURS, MMASIM, MATRICES, NUMPY
CASES = [
    Case(
        "add",
        "on_triton",
        "adds two vectors of 2^20 numbers, Triton, f32",
        (*TRITON, NUMPY),
        {"n": 1 << 20},
    ),
    Case(
        "softmax",
        "on_triton",
        "softmax of 1024 rows of 1000 numbers, Triton, f32",
        (*TRITON, NUMPY),
        {"rows": 1024, "columns": 1000},
        exact=False,
    ),
    Case(
        "matmul",
        "on_triton",
        "512 x 512 x 512, Triton, f16, `mma`",
        (*TRITON, NUMPY),
        {"m": 512, "n": 512, "k": 512},
    ),
    Case(
        "matmul_by_maps",
        "on_triton",
        "512 x 512 x 512, Triton, f16, tensor maps and `wgmma`",
        (*TRITON, NUMPY),
        {"m": 512, "n": 512, "k": 512},
    ),
    Case(
        "attention",
        "on_triton",
        "causal attention, 4 heads of 64, 512 tokens, Triton, f16",
        (*TRITON, NUMPY),
        {"heads": 4, "length": 512},
        near=4e-3,
        exact=False,
    ),
    Case(
        "saxpy",
        "on_numba",
        "a x + y of 4096 numbers, numba-cuda, f32",
        (OURS, WATCHED, SIMULATOR, NUMPY),
        {"n": 4096},
    ),
    Case(
        "product",
        "on_numba",
        "32 x 32 x 32 in shared memory, numba-cuda, f32",
        (OURS, WATCHED, SIMULATOR, NUMPY),
        {"n": 32},
    ),
    Case(
        "tiles_f16",
        "on_tiles",
        "1024 tiles of `mma` m16n8k16, f16, sm_90",
        TILES,
        {"tiles": 1024},
        of="sm_90 MMA m16n8k16.f32.f16.f16.f32",
    ),
    Case(
        "tiles_e4m3",
        "on_tiles",
        "1024 tiles 16 x 8 of `wgmma` k32, e4m3, sm_90a",
        TILES,
        {"tiles": 1024},
        near=1e-3,
        of="sm_90a WGMMA m64nNk32.f32.e4m3.e4m3",
    ),
    Case(
        "tiles_nvfp4",
        "on_tiles",
        "1024 tiles of `mma` m16n8k64, nvfp4, sm_120a",
        TILES,
        {"tiles": 1024},
        of="sm_120a MMABlockScale m16n8k64.kind::mxf4nvf4.block16.f32.e2m1.e2m1"
        ".f32.ue4m3",
    ),
    Case(
        "matrices_f16",
        "on_matrices",
        "1024 x 1024 x 1024, `fm.matmul`, f16",
        (OURS, NUMPY),
        {"n": 1024},
        of="mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    ),
    Case(
        "matrices_bf16",
        "on_matrices",
        "1024 x 1024 x 1024, `fm.matmul`, bf16",
        (OURS, NUMPY),
        {"n": 1024},
        of="mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
    ),
    Case(
        "matrices_e4m3",
        "on_matrices",
        "1024 x 1024 x 1024, `fm.matmul`, e4m3",
        (OURS, NUMPY),
        {"n": 1024},
        near=4e-3,  # 32 sums, each cut to 13 bits
        of="wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3",
    ),
    Case(
        "matrices_s8",
        "on_matrices",
        "1024 x 1024 x 1024, `fm.matmul`, s8",
        (OURS, NUMPY),
        {"n": 1024},
        of="mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
    ),
]
BY_NAME = {each.name: each for each in CASES}


class Growth(NamedTuple):
    """A problem whose size is varied along one axis."""

    axis: str
    """``blocks``, ``warps``, ``k`` or ``cores``."""
    case: Case
    tools: tuple[str, ...]
    points: list[tuple[int, dict[str, int]]]
    """Where it is on the axis, and the sizes."""


_SUMS = Case("block_sums", "on_numba", "sums in shared memory", (OURS,))
_GRIDS = ((1, 1), (2, 1), (2, 2), (4, 2), (4, 4), (8, 4), (8, 8))
_BLOCKS = [(i * j, {"m": 64 * i, "n": 64 * j, "k": 256}) for i, j in _GRIDS]
_DEPTHS = [(k, {"m": 128, "n": 128, "k": k}) for k in (64 << i for i in range(7))]
_CORES = [(cores, {"cores": cores}) for cores in (1, 2, 4, 8, 16)]
_LARGE = {"m": 1024, "n": 1024, "k": 128}
_BOTH = OURS, WATCHED
GROWTH = [
    Growth("blocks", BY_NAME["matmul"], TRITON, _BLOCKS),
    Growth("blocks", BY_NAME["matmul_by_maps"], _BOTH, _BLOCKS),
    Growth("k", BY_NAME["matmul"], TRITON, _DEPTHS),
    Growth("k", BY_NAME["matmul_by_maps"], _BOTH, _DEPTHS),
    Growth(
        "warps",
        _SUMS,
        (*_BOTH, SIMULATOR),
        [(1 << i, {"threads": 32 << i}) for i in range(6)],
    ),
    Growth("cores", BY_NAME["matmul"].sized(**_LARGE), _BOTH, _CORES),
    Growth("cores", BY_NAME["matmul_by_maps"].sized(**_LARGE), _BOTH, _CORES),
]
