"""The CUDA of a loop moves what the loop moves.

NVRTC compiles it, and the CPU runs the PTX.
"""

import re

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.cuda.tools.compiler import to_cubin
from fragmenta.reference.shared.matrix_loop import MatrixLoop

F16 = fm.mma("m16n8k16", a="f16", d="f32")
D16 = fm.mma("m16n8k16", a="f16", d="f16")
S8 = fm.mma("m16n8k32", a="s8")
TF32 = fm.mma("m16n8k8", a="tf32", d="f32")
WGMMA = fm.wgmma("m64n8k16", a="f16", d="f32")

# The instruction, the tile, how it is stored, and the address in a step.
LOADS = [
    (
        F16,
        "A",
        (32, 64),
        {"order": "row", "swizzle": 128},
        "(address ^ 32 * k) + 2048 * m",
    ),
    (F16, "B", (64, 32), {"order": "col", "pitch": 144}, "address + 32 * k + 2304 * n"),
    (
        F16,
        "B",
        (64, 32),
        {"order": "col", "swizzle": 128, "along": "k"},
        "(address ^ 64 * k) + 1024 * n",
    ),
    (
        F16,
        "B",
        (32, 64),
        {"order": "row", "swizzle": 128},
        "(address ^ 32 * n) + 2048 * k",
    ),
    # The lines are longer than the swizzle, so its bits change with k.
    (
        F16,
        "A",
        (16, 128),
        {"order": "row", "swizzle": 128},
        "address ^ swizzle_3_4_3(32 * k)",
    ),
    # In boxes they are not, and k goes on to the next box.
    (
        F16,
        "A",
        (16, 128),
        {"order": "row", "swizzle": 128, "span": 128},
        "(address ^ 32 * (k & 3)) + 2048 * (k >> 2)",
    ),
    # Two n-tiles are a pattern of the swizzle.
    (
        F16,
        "B",
        (16, 32),
        {"order": "col", "swizzle": 128, "num": "x2", "pitch": 64},
        "(address ^ swizzle_3_4_3(512 * (n & 1))) + 1024 * (n >> 1)",
    ),
    (
        F16,
        "A",
        (32, 64),
        {"order": "row", "swizzle": 128, "pitch": 144},
        "shared + swizzle_3_4_3(offset + 32 * k + 2304 * m)",
    ),
    (
        F16,
        "A",
        (32, 32),
        {"order": "row", "swizzle": (2, 4, 4), "start": 96},
        "shared + swizzle_2_4_4(offset + 32 * k + 1024 * m)",
    ),
    (F16, "A", (16, 32), {"order": "row", "num": "x1", "swizzle": (2, 4, -3)}, None),
    (F16, "B", (16, 24), {"order": "col"}, "address + 256 * n"),
    (
        S8,
        "B",
        (64, 32),
        {"order": "col", "swizzle": 64},
        "(address ^ 32 * k) + 1024 * n",
    ),
    (TF32, "A", (16, 16), {"order": "row", "swizzle": 64}, "address ^ 32 * k"),
    (WGMMA, "A", (64, 32), {"order": "row", "swizzle": 64}, "address ^ 32 * k"),
]
STORES = [
    (D16, "D", (32, 32), {"order": "row", "swizzle": 64}),
    (D16, "D", (16, 24), {"order": "row", "pitch": 80}),
    (
        fm.wgmma("m64n64k16", a="f16", d="f16"),
        "D",
        None,
        {"order": "row", "swizzle": 128},
    ),
    (fm.wgmma("m64n24k16", a="f16", d="f16"), "D", None, {"order": "col"}),
]

KERNEL = """
extern "C" __global__ void kernel(const unsigned* before, unsigned* after, unsigned* out)
{{
    __shared__ __align__({align}) unsigned memory[{words}];
    for (int i = threadIdx.x; i < {words}; i += blockDim.x) memory[i] = before[i];
    __syncthreads();
    unsigned regs{sizes};
    unsigned* flat = reinterpret_cast<unsigned*>(&regs);
    {take}
    {name}(regs, memory);
    {give}
    __syncthreads();
    for (int i = threadIdx.x; i < {words}; i += blockDim.x) after[i] = memory[i];
}}
"""
COPY = "for (int i = 0; i < {count}; ++i) {to} = {of};"
OUT = "out[threadIdx.x * {count} + i]"


def kernel_around(loop: MatrixLoop) -> str:
    """A kernel that calls the function of the loop."""
    source = loop.to_cuda()
    (name,) = re.findall(r"void (\w+)\(", source)
    assert all(len(line) <= 88 for line in source.splitlines())
    count = int(np.prod(loop.fragments))
    out = OUT.format(count=count)
    take = COPY.format(count=count, to="flat[i]", of=out)
    give = COPY.format(count=count, to=out, of="flat[i]")
    loads = loop.move.family == "ldmatrix"
    return source + KERNEL.format(
        align=max(16, loop.memory.repeat),
        words=loop.memory.end // 4,
        sizes="".join(f"[{size}]" for size in loop.fragments),
        name=name,
        take="" if loads else take,
        give=give if loads else "",
    )


def run(loop: MatrixLoop, image: np.ndarray, fragments: np.ndarray) -> np.ndarray:
    """What the function leaves in shared memory; loaded fragments are changed."""
    kernel = ptx.RawKernel(kernel_around(loop), "kernel")
    # A lane has all its registers in a row; fragments have lanes before registers.
    lanes = loop.part.lanes
    flat = np.ascontiguousarray(np.moveaxis(fragments, -2, 0)).reshape(lanes, -1)
    after = np.zeros_like(image)
    kernel((1,), (lanes,), (image.view("u4"), after.view("u4"), flat))
    fragments[...] = np.moveaxis(flat.reshape(lanes, *loop.fragments), 0, -2)
    return after


@pytest.mark.parametrize(("op", "operand", "tile", "place", "address"), LOADS)
def test_what_a_function_loads(op, operand, tile, place, address):
    loop = fm.shared.ldmatrix_loop(op, operand, tile=tile, **place)
    if address is not None:
        assert f'"r"({address})' in loop.to_cuda()
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, loop.memory.end, dtype=np.uint8)
    wanted = loop.load(image)
    found = np.zeros_like(wanted)
    assert (run(loop, image, found) == image).all()
    assert (found == wanted).all()


@pytest.mark.parametrize(("op", "operand", "tile", "place"), STORES)
def test_what_a_function_stores(op, operand, tile, place):
    loop = fm.shared.stmatrix_loop(op, operand, tile=tile, **place)
    rng = np.random.default_rng(1)
    shape = (*loop.fragments[:-1], loop.part.lanes, loop.fragments[-1])
    words = rng.integers(0, 1 << 32, shape, dtype=np.uint32)
    image = rng.integers(0, 256, loop.memory.end, dtype=np.uint8)
    assert (run(loop, image, words) == loop.store(image, words)).all()


def test_a_name_may_be_given():
    loop = fm.shared.ldmatrix_loop(F16, "A", order="row")
    assert "void mine(" in loop.to_cuda("mine")
    assert "void load_a_m16k16_f16(" in loop.to_cuda()
    with pytest.raises(fm.Error, match=r"the name is an identifier.*given 'a b'"):
        loop.to_cuda("a b")


def test_what_is_there_is_not_written_again():
    a = fm.shared.ldmatrix_loop(F16, "A", tile=(16, 64), order="row", swizzle=128)
    b = fm.shared.ldmatrix_loop(F16, "B", tile=(64, 16), order="col", swizzle=64)
    source = F16.to_cuda()
    source += a.to_cuda(after=source)
    source += b.to_cuda(after=source)
    assert source.count("int lane_id()\n") == 1
    assert source.count("__forceinline__ unsigned swizzle_") == 2
    assert a.to_cuda(after=source).startswith("// Load A")
    assert to_cubin(source, "sm_80")


def test_a_load_of_blackwell_compiles():
    loop = fm.shared.ldmatrix_loop(
        S8, "B", tile=(64, 32), order="row", target="sm_120a"
    )
    source = loop.to_cuda()
    assert "ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8" in source
    assert '"=r"(b[k][2 * n][0]), "=r"(b[k][2 * n + 1][0])' in source
    assert to_cubin(kernel_around(loop), "sm_120a")
