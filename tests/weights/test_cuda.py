"""The kernels follow the layouts, without a GPU.

NVRTC compiles the text for sm_80 and sm_90, and :mod:`fragmenta.ptx` runs it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.cuda.tools import compiler
from tests.weights import published

K, N = 128, 128
F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
BF16 = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
S8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
U8 = "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32"
E4M3 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"
STORAGE = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "s8": np.int8,
    "u8": np.uint8,
}


def codes(bits: int, shape: tuple[int, int] = (K, N)) -> Any:
    kind = np.uint8 if bits <= 8 else np.uint16
    return np.random.default_rng(3).integers(0, 1 << bits, shape, dtype=kind)


def make(name: str, operand: str, bits: int, **options: Any) -> fm.weights.Shuffle:
    if not operand:
        return fm.weights.shuffle(name, shape=(K, N), bits=bits)
    return fm.weights.shuffle(name, operand, shape=(K, N), bits=bits, **options)


# ── registers ───────────────────────────────────────────────────────────────

CASES: list[tuple[fm.weights.Shuffle, str, int | None]] = [
    (make("marlin", "", 4), "f16", None),
    (make("marlin", "", 4), "bf16", 0),
    (make("marlin", "", 8), "f16", None),
    (make("marlin", "", 8), "bf16", None),
    (make("marlin_a8", "", 4), "s8", None),
    (make("sparse_marlin", "", 4), "f16", 3),
    (make("tensorrt_llm", "", 4), "f16", None),
    (make("tensorrt_llm", "", 8), "bf16", 255),
    (make(F16, "B", 4, load_bytes=8, inner="n"), "f16", 15),
    (make(F16, "B", 2, k_steps=4), "f16", None),
    (make(F16, "A", 1, load_bytes=4), "f16", 0),
    (make(BF16, "A", 2), "bf16", 1),
    (make(S8, "A", 2, load_bytes=32), "s8", None),
    (make(U8, "B", 4, load_bytes=4), "u8", None),
    (make(WGMMA, "A", 4), "f16", None),
    (make(F16, "B", 16), "f16", None),
    (make(S8, "B", 8), "s8", None),
    # 12 bytes, three loads: six steps of k.
    (
        fm.weights.shuffle(F16, "B", shape=(96, 128), memory="E* R* Y* L* X*"),
        "f16",
        None,
    ),
]


def kernel(number: int, order: fm.weights.Shuffle, to: str, zero: int | None) -> str:
    """All registers of a weight: [k block][n block][warp][lane][k][n][register]."""
    convert = {} if order.bits == order.container else {"to": to, "zero": zero}
    text = order.to_cuda("fragments", **convert)
    lower, warps = order.operand.lower(), "W" in dict(order.memory.axes)
    sizes = f"[{order.k_steps}][{order.n_steps}][{order.fragment.registers}]"
    each = order.k_steps * order.n_steps * order.fragment.registers
    lane = "threadIdx.x >> 5, threadIdx.x & 31" if warps else "threadIdx.x"
    return f"""
namespace c{number} {{
{text}
}}
extern "C" __global__ void dump{number}(const unsigned* stored, unsigned* out)
{{
    unsigned {lower}{sizes};
    c{number}::load_fragments(stored, blockIdx.x, blockIdx.y, {lane}, {lower});
    int first = ((blockIdx.x * gridDim.y + blockIdx.y) * blockDim.x + threadIdx.x);
    for (int i = 0; i < {each}; ++i)
        out[first * {each} + i] = (&{lower}[0][0][0])[i];
}}
"""


@cache
def module(target: str) -> Any:
    text = "".join(kernel(number, *case) for number, case in enumerate(CASES))
    return ptx.parse(compiler.to_ptx(text, target))


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "target"),
    [
        *((number, "sm_80") for number in range(len(CASES))),
        *((number, "sm_90") for number in range(0, len(CASES), 4)),
    ],
)
def test_a_lane_has_the_registers_of_the_instruction(number: int, target: str) -> None:
    order, to, zero = CASES[number]
    part, W = order.fragment, codes(order.bits, order.shape)
    tiles = {axis: dict(order.memory.axes)[axis] for axis in "YX"}
    along, across = order.tile_axes["k"], order.tile_axes["n"]
    grid = (tiles[along] // order.k_steps, tiles[across] // order.n_steps)
    out = np.zeros(
        (*grid, part.lanes, order.k_steps, order.n_steps, part.registers), np.uint32
    )
    dump = module(target).kernels[f"dump{number}"]
    dump.launch(grid, part.lanes, [order.pack(W), out])
    if order.bits < order.container:
        less = zero
        if less is None:
            less = 0 if to == "u8" else 1 << (order.bits - 1)
        values = (W.astype(int) - less).astype(STORAGE[to])
        of = fm.dtype(to)
        raw = of.encode(values)
    else:
        raw = W
    # Registers by hand: element e of a register is at bit e * container.
    found = out.transpose(0, 3, 1, 4, 2, 5).reshape(
        tiles[along], tiles[across], part.lanes, part.registers
    )
    if order.operand == "A":
        found = found.swapaxes(0, 1)
    places = order.places.grid()
    wanted = np.zeros((tiles["Y"], tiles["X"], part.lanes, part.registers), np.uint32)
    names = order.layout.data
    held = raw[places[names[0]], places[names[1]]].astype(np.uint32)
    held = held.reshape(tiles["Y"], tiles["X"], part.lanes, part.registers, -1)
    for element in range(part.elements):
        wanted |= held[..., element] << np.uint32(element * order.container)
    assert (found == wanted).all()


# ── repacking ───────────────────────────────────────────────────────────────

REPACKED = [
    ("marlin", 4, "gptq"),
    ("marlin", 4, "awq"),
    ("marlin", 8, "gptq"),
    ("sparse_marlin", 4, "plain"),
    ("tensorrt_llm", 4, "marlin"),
    ("awq", 4, "gptq"),
    ("gptq", 4, "tensorrt_llm"),
    ("gptq", 2, "plain"),
    ("marlin_a8", 8, "plain"),
]


def orders() -> list[tuple[fm.weights.Shuffle, fm.weights.Shuffle]]:
    # 320 is no power of two.
    found = [
        (
            fm.weights.shuffle(name, shape=(128, 320), bits=bits),
            fm.weights.shuffle(source, shape=(128, 320), bits=bits),
        )
        for name, bits, source in REPACKED
    ]
    a = fm.weights.shuffle(F16, "A", shape=(320, 128))
    return [
        *found,
        (a, fm.weights.shuffle("gptq", shape=(128, 320))),
        (a, a._source("plain")),
    ]


@cache
def repacks() -> Any:
    texts = [
        order.to_cuda("repack", source=source).replace(" repack(", f" repack{number}(")
        for number, (order, source) in enumerate(orders())
    ]
    return ptx.parse(compiler.to_ptx("\n".join(texts), "sm_80"))


@pytest.mark.parametrize("number", range(len(REPACKED) + 2))
def test_the_kernel_repacks_a_weight(number: int) -> None:
    order, source = orders()[number]
    W = np.random.default_rng(5).integers(0, 1 << order.bits, order.shape)
    given = source.pack(W if source.shape == order.shape else W.T)
    if source.name == "plain":  # rows of the weight, whichever operand it is
        assert (given == published.plain(W, order.bits)).all()
    words = np.zeros(order.word_shape, np.uint32)
    repacks().kernels[f"repack{number}"].launch(
        -(-words.size // 256), 256, [given, words]
    )
    assert (words == order.pack(W)).all()


def test_sources_by_name() -> None:
    order = fm.weights.shuffle(F16, "A", shape=(64, 128))
    gptq = order.to_cuda("repack")
    assert gptq == order.to_cuda(
        "repack", source=fm.weights.shuffle("gptq", shape=(128, 64))
    )
    assert "// from: plain" in order.to_cuda("repack", source="plain")
    assert order.to_cuda("repack", source="awq") != gptq


# ── a whole product ─────────────────────────────────────────────────────────


def product(order: fm.weights.Shuffle, op: fm.Instruction, **convert: Any) -> str:
    """D = A B of 16 rows; one warp computes all columns of a block."""
    a, d = op.a, op.d
    pairs = "unsigned short" if a.dtype.bits == 16 else "unsigned char"
    shift, mask = a.container.bits, (1 << a.container.bits) - 1
    name = op.to_cuda().split("void ")[1].split("(")[0]
    kind = "float" if d.dtype.name == "f32" else "int"
    return f"""
{op.to_cuda()}
{order.to_cuda("fragments", **convert)}
extern "C" __global__ void product(const {pairs}* A, const unsigned* stored, {kind}* D)
{{
    int lane = threadIdx.x;
    {kind} d[{order.n_steps}][{d.registers}] = {{}};
    for (int k_block = 0; k_block < {K // (order.k_steps * op.shape.k)}; ++k_block) {{
        unsigned b[{order.k_steps}][{order.n_steps}][{op.b.registers}];
        load_fragments(stored, k_block, blockIdx.x, lane, b);
        for (int step = 0; step < {order.k_steps}; ++step) {{
            unsigned a[{a.registers}] = {{}};
            int first = (k_block * {order.k_steps} + step) * {op.shape.k};
            for (int reg = 0; reg < {a.registers}; ++reg)
                for (int element = 0; element < {a.elements}; ++element) {{
                    {a.to_cuda("holds")}
                    unsigned value = A[row * {K} + first + col];
                    a[reg] |= (value & {mask}) << ({shift} * element);
                }}
            for (int tile = 0; tile < {order.n_steps}; ++tile)
                {name}(d[tile], a, b[step][tile], d[tile]);
        }}
    }}
    for (int tile = 0; tile < {order.n_steps}; ++tile)
        for (int reg = 0; reg < {d.registers}; ++reg) {{
            {d.to_cuda("holds")}
            D[row * {N} + (blockIdx.x * {order.n_steps} + tile) * 8 + col] = d[tile][reg];
        }}
}}
"""


@pytest.mark.parametrize(
    ("order", "op", "to"),
    [
        (make("marlin", "", 4), F16, "f16"),
        (make("marlin", "", 8), BF16, "bf16"),
        (make(F16, "B", 4, k_steps=4), F16, "f16"),
        (make("marlin_a8", "", 4), S8, "s8"),
    ],
    ids=["marlin", "marlin-bf16", "operand", "marlin_a8"],
)
def test_a_kernel_multiplies_as_matmul_does(
    order: fm.weights.Shuffle, op: str, to: str
) -> None:
    found, W = fm.instruction(op), codes(order.bits)
    random = np.random.default_rng(9)
    if to == "s8":
        A: Any = random.integers(-128, 128, (16, K), dtype=np.int8)
    else:
        A = random.standard_normal((16, K)).astype(STORAGE[to])
    D = np.zeros((16, N), np.int32 if to == "s8" else np.float32)
    text = product(order, found, to=to)
    launch = ptx.RawKernel(text, "product", target="sm_90a")
    raw = A.view(np.uint8 if to == "s8" else np.uint16)
    launch((N // (8 * order.n_steps),), (32,), (raw, order.pack(W), D))
    B = (W.astype(int) - (1 << (order.bits - 1))).astype(STORAGE[to])
    fm.assert_same_bits(D, fm.matmul(found, A, B, target="sm_90a"))


def test_sparse_marlin_multiplies_with_its_own_metadata() -> None:
    """Words and metadata of Sparse-Marlin fit one another, lane by lane."""
    op = fm.mma("m16n8k32", a="f16", d="f32", sp="sp::ordered_metadata")
    random = np.random.default_rng(2)
    dense = fm.sparse.prune(op, random.integers(-8, 8, (N, 2 * K)).astype(np.float16))
    sp = fm.sparse.compress(op, dense)
    order = fm.weights.shuffle("sparse_marlin", shape=(K, N))
    W = (sp.values.astype(int) + 8).T
    words = order.pack(W)
    # Instruction j of block g takes these rows of the weight, by the order's own line.
    rows = order.places.grid()["n"][:, 0, :, :, :]
    values = order.unpack(words).T.astype(int) - 8
    x = random.standard_normal((2 * K, 8)).astype(np.float16)
    for tile in range(N // 16):
        taken = np.unique(rows[tile])
        assert len(taken) == 16
        of = [
            order.places.element(Y=tile, X=0, L=4 * (r % 8), R=r // 8, E=0)["n"]
            for r in range(16)
        ]
        part = fm.sparse.Compressed(
            values[of].astype(np.float16), sp.indices[of], sp.granularity, 2 * K
        )
        wanted = fm.matmul(op, dense[of], x)
        fm.assert_same_bits(fm.matmul(op, part, x), wanted)


# ── refusals ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("order", "words", "message"),
    [
        (make("awq", "", 4), {"what": "load"}, "awq follows no instruction"),
        (make("awq", "", 4), {"what": "fragments"}, "source='awq'"),
        (make("gptq", "", 4), {"what": "dequantize"}, "not 16 bits apart"),
        (make("marlin", "", 4), {"what": "dequantise"}, "did you mean dequantize"),
        (make("marlin", "", 4), {"what": "load", "source": "awq"}, "source is for"),
        (make("marlin", "", 4), {"what": "load", "zero": 1}, "to and zero are for"),
        (make("marlin", "", 4), {"what": "fragments", "to": "s8"}, "to f16 or bf16"),
        (make(F16, "B", 16), {"what": "repack"}, "give source='plain'"),
        (make(F16, "B", 4, memory="E* L* R* Y* X*"), {"what": "load"}, "E, R and some"),
        (make("marlin", "", 4), {"what": "fragments", "zero": 16}, "0 to 15; given 16"),
        (make(U8, "B", 4), {"what": "dequantize", "zero": 8}, "no negative numbers"),
        (make(F16, "B", 16), {"what": "fragments", "zero": 8}, "nothing to convert"),
        (
            make(F16, "B", 16),
            {"what": "dequantize"},
            "no function converts codes of 16 bits",
        ),
        (make(E4M3, "B", 4), {"what": "fragments"}, "of f16, bf16, s8 or u8 have one"),
        (make(F16, "B", 4, nibbles="plain"), {"what": "fragments"}, "nibbles='fast'"),
        (
            make(F16, "B", 4, memory="E* R* Y1 L* Y0 Y2* X*"),
            {"what": "load"},
            "digits of Y before L must be its lowest",
        ),
        (make(F16, "B", 4, memory="L* E* R* Y* X*"), {"what": "load"}, "0 bytes"),
        (
            make("marlin", "", 4),
            {"what": "repack", "source": make("gptq", "", 8)},
            "shape and bits must be equal",
        ),
        (make("marlin", "", 4), {"what": "repack", "source": "awk"}, "mean awq"),
    ],
)
def test_code_that_cannot_be_written_is_refused(
    order: fm.weights.Shuffle, words: dict[str, Any], message: str
) -> None:
    with pytest.raises(fm.Error, match=message):
        order.to_cuda(**words)


def test_awq_words_become_pairs_of_columns() -> None:
    text = fm.weights.shuffle("awq", shape=(1, 8)).to_cuda("dequantize", zero=0)
    assert text.count("lop3") == 1
    assert "4 registers of f16" in text


def test_a_long_address_is_written_on_several_lines() -> None:
    text = fm.weights.shuffle("tensorrt_llm", shape=(4096, 4096)).to_cuda("load")
    assert "int at =\n" in text
    assert max(map(len, text.splitlines())) <= 80
