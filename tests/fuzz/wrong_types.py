"""Wrong types: every argument that makes no sense is refused in words.

Each public function is called as it should be, but for one or two arguments that are
something else: a number, an array, None, objects, a text.  The judge: an answer, or a
:class:`fragmenta.Error`; nothing else comes out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fragmenta as fm
from fragmenta import ptx, tensor_memory, wmma
from tests.fuzz.engine import Ask, Surface

KERNEL = """.version 8.0
.target sm_80
.address_size 64
.visible .entry f(.param .u64 x, .param .u32 n) { ret; }
"""
WRITES = """.version 8.0
.target sm_80
.address_size 64
.visible .entry g(.param .u64 x) {
    .reg .b64 %rd<2>; .reg .f32 %f<2>;
    ld.param.u64 %rd1, [x];
    ld.global.f32 %f1, [%rd1];
    add.f32 %f1, %f1, %f1;
    st.global.f32 [%rd1], %f1;
    ret;
}
"""


class Odd:
    """An object that is nothing."""

    def __repr__(self) -> str:
        return "Odd()"


WRONG: tuple[Any, ...] = (
    None,
    True,
    0,
    1,
    -1,
    32,
    2**62,
    2**64,
    -(2**70),
    1.5,
    float("nan"),
    float("inf"),
    1j,
    "",
    "x",
    "é\0",
    "m16n8k16",
    b"",
    b"x",
    [],
    [None],
    [[1], [2, 3]],
    ["x"],
    (),
    (1, 2, 3),
    {},
    {"a": 1},
    {1},
    range(3),
    object,
    Odd(),
    np.zeros(2),
    np.zeros(0),
    np.zeros((2, 1, 1, 0)),
    np.array(1),
    np.array("x"),
    np.array(["a", "b"]),
    np.array([None, 1], object),
    np.array([[Odd()]], object),
    np.zeros(3, "M8[s]"),
    np.zeros(2, [("a", "i4")]),
    np.zeros((16, 16), complex),
    np.ones((16, 16), bool),
    np.full((16, 16), np.nan),
    np.float16(1),
    np.zeros((16, 16), np.float16)[::2, ::2],
    np.zeros((3, 5, 7), np.uint32),
    np.ma.masked_array([1.0], [True]),
    lambda: None,
)


class Right(NamedTuple):
    """A call that is right."""

    function: Callable[..., Any]
    named: Mapping[str, Any]
    listed: tuple[Any, ...] = ()
    """What is given by place, where names are not possible."""


@cache
def right() -> dict[str, Right]:
    """A right call of each public function and of the methods that take arguments."""
    op = fm.mma("m16n8k16", a="f16", d="f32")
    sp = fm.mma("m16n8k32", a="f16", d="f32", sp="sp::ordered_metadata")
    mx = fm.find("mma.m16n8k32.block_scale.f32.e4m3.e4m3.f32.ue8m0")
    wg = fm.wgmma("m64n8k16", a="f16", d="f32")
    found: dict[str, Right] = {}

    def add(function: Any, *listed: Any, **named: Any) -> None:
        name = getattr(function, "__qualname__", type(function).__name__)
        found[f"{function.__module__.removeprefix('fragmenta.')}.{name}"] = Right(
            function, named, listed
        )

    _instructions(add, op)
    _sparse(add, sp)
    _shared(add, wg)
    _methods(add, op, sp, wg)
    x = np.ones((16, 64), np.float32)
    q = fm.quant.quantize(mx, x)
    add(
        fm.quant.quantize,
        X=x,
        op=mx,
        operand="A",
        per=None,
        rule=None,
        tensor_scale=None,
    )
    add(fm.quant.dequantize, q=q)
    add(fm.quant.report, X=x, q=q)
    scaled = fm.quant.to_scaled_mm(q)
    add(fm.quant.to_scaled_mm, q=q)
    add(
        fm.quant.from_scaled_mm,
        values=scaled.values,
        scales=scaled.scales,
        format=q.format,
        operand="A",
        tensor_scale=scaled.tensor_scale,
    )
    a, b = np.ones((16, 16), np.float16), np.ones((16, 8), np.float16)
    add(fm.matmul, A=a, B=b, op=op, C=None, scale_a=None, scale_b=None, target="sm_90")
    add(fm.compare, ops=op, targets="sm_90", k=16, input="normal", seed=0)
    add(fm.assert_same_bits, got=a, want=a, most=5)
    _launches(add)
    _tensor_memory(add)
    _wmma(add)
    return found


def _instructions(add: Any, op: fm.Instruction) -> None:
    add(fm.instruction, text=str(op), idesc=None)
    add(fm.find, text="mma.m16n8k16.f32.f16.f16.f32")
    add(fm.search, text="m16n8k16", every=False)
    add(fm.from_sass, text="HMMA.16816.F32", target="sm_90")
    add(fm.mma, shape="m16n8k16", a="f16", b=None, d="f32")
    add(fm.wgmma, shape="m64n8k16", a="f16", b=None, d="f32")
    add(
        fm.tcgen05,
        shape="m128n64k16",
        a="f16",
        b=None,
        d="f32",
        kind=None,
        cta_group=1,
        sp=False,
        ws=False,
        scale=None,
        scale_vec=None,
        collector="",
        ashift=False,
    )
    add(fm.catalogue, family="mma", form=None)
    add(fm.dtype, name="f16")
    add(
        fm.weights.shuffle,
        order=str(op),
        operand="B",
        shape=(64, 64),
        bits=4,
        load_bytes=None,
        k_steps=None,
        n_steps=None,
        inner=None,
        memory=None,
        nibbles=None,
    )


def _sparse(add: Any, sp: fm.Instruction) -> None:
    dense = np.zeros((64, 128), np.float16)
    made = fm.sparse.compress(sp, dense)
    more = {"pad": False}
    add(fm.sparse.prune, A=dense, op=sp, scores=None, **more)
    for each in (fm.sparse.compress, fm.sparse.check, fm.sparse.report):
        add(each, A=dense, op=sp, keep_negative_zero=False, **more)
    add(fm.sparse.decompress, sp=made, op=sp)
    add(fm.sparse.read_words, op=sp, words=[0x4444], lane=0, warp=0)
    add(fm.sparse.to_nibbles, sp=made)
    add(
        fm.sparse.from_nibbles,
        values=made.values,
        nibbles=fm.sparse.to_nibbles(made),
        op=sp,
    )
    add(fm.sparse.to_torch, sp=made, op=sp)
    packed, meta = fm.sparse.to_torch(sp, made)
    add(fm.sparse.from_torch, packed=packed, meta=meta, op=sp)
    add(fm.sparse.to_marlin, sp=made, op=sp)
    packed, meta = fm.sparse.to_marlin(sp, made)
    add(fm.sparse.from_marlin, packed=packed, meta=meta, op=sp)
    add(fm.sparse.to_cutlass_sm90, sp=made, op=sp, tile_k=128)
    add(
        fm.sparse.from_cutlass_sm90,
        values=made.values,
        metadata=fm.sparse.to_cutlass_sm90(sp, made),
        op=sp,
        tile_k=128,
    )
    add(
        fm.sparse.compress_registers,
        op="spcompress.b8.b4.sp::2:4.x1",
        data=[0x03020100, 0x07060504],
        spdesc=0,
    )
    add(
        fm.sparse.decompress_registers,
        op="spdecompress.b8.b4.sp::2:4.x2",
        mdata=[0x3121],
        cdata=[0x060503F9],
    )
    add(fm.sparse.to_bitmask, sp=made)
    add(
        fm.sparse.from_bitmask,
        values=made.values,
        bitmask=fm.sparse.to_bitmask(made),
        op=sp,
        width=-1,
    )
    add(
        fm.weights.from_marlin_24,
        weight_packed=np.zeros((4, 128), np.int32),
        scale_packed=np.ones((1, 64), np.float16),
        meta=np.full((4, 128), 0x4444, np.int16),
    )
    zeros = np.zeros((1, 128), np.int32), np.ones((1, 64), np.float16)
    found = fm.weights.from_marlin_24(*zeros, np.full((1, 128), 0x4444, np.int16))
    add(fm.weights.to_marlin_24, sp=found.compressed, scales=found.scales, bits=4)


def _shared(add: Any, wg: fm.Instruction) -> None:
    image, place = fm.shared.tile(wg, "A", np.ones((64, 16), np.float16))
    more = {"swizzle": None, "major": None, "start": None, "order": None}
    add(
        fm.shared.tile,
        matrix=np.ones((64, 16), np.float16),
        op=wg,
        operand="A",
        image=None,
        **more,
    )
    add(
        fm.shared.read_tile,
        image=image,
        descriptor=place,
        op=wg,
        operand="A",
        major=None,
        packed=False,
    )
    load, rows = fm.find("ldmatrix.m8n8.x1.b16"), np.arange(32) * 16 % 128
    store, words = fm.find("stmatrix.m8n8.x1.b16"), np.zeros((32, 1), np.uint32)
    memory = np.zeros(512, np.uint8)
    add(fm.shared.ldmatrix, op=load, image=memory, addresses=rows)
    add(fm.shared.stmatrix, op=store, image=memory, addresses=rows, registers=words)
    add(fm.shared.movmatrix, op=fm.find("movmatrix"), registers=words)
    op = fm.mma("m16n8k16", a="f16", d="f16")
    same = {"order": "row", "pitch": None, "start": 0, "swizzle": 0, "along": None}
    for each in (fm.shared.ldmatrix_loop, fm.shared.stmatrix_loop):
        add(
            each,
            op=op,
            operand="A" if each is fm.shared.ldmatrix_loop else "D",
            tile=None,
            span=None,
            num=None,
            target="sm_90a",
            **same,
        )
    for each in (fm.shared.ldmatrix_addresses, fm.shared.stmatrix_addresses):
        add(
            each,
            op=op,
            operand="A" if each is fm.shared.ldmatrix_addresses else "D",
            tiles=1,
            target="sm_90a",
            **same,
        )
    add(
        fm.shared.suggest_swizzle,
        op=op,
        operand="A",
        tile=(64, 64),
        order="row",
        copy=None,
        move=None,
        num=None,
        along=None,
        packed=False,
        target="sm_90a",
    )
    add(fm.shared.bank_conflicts, addresses=rows, width=16)
    add(
        fm.shared.swizzle_picture,
        32,
        rows=8,
        row_bytes=128,
        pitch=None,
        access="ldmatrix",
    )
    add(fm.shared.Descriptor, start=0, leading=16, stride=256, swizzle=0, base_offset=0)
    add(fm.shared.LaneAddresses, addresses=rows, width=16, used=None)


def _methods(
    add: Any, op: fm.Instruction, sp: fm.Instruction, wg: fm.Instruction
) -> None:
    a, b, c = (np.zeros(shape) for shape in ((16, 32), (32, 8), (16, 8)))
    made = fm.sparse.compress(sp, a)
    add(
        sp.execute,
        sp.a.pack(made.values),
        sp.b.pack(b),
        sp.c.pack(c),
        metadata=sp.metadata.pack(made.indices),
        selector=0,
        target="sm_90",
    )
    add(op.explain, a[:, :16], b[:16], c, row=3, col=5, target="sm_90")
    add(op.supported_on, target="sm_90")
    add(op.native_on, target="sm_90")
    add(op.a.pack, a[:, :16])
    add(op.a.unpack, op.a.pack(a[:, :16]))
    add(op.a.where, 3, 7)
    add(op.a.holds, lane=13)
    add(sp.metadata.pack, made.indices, selector=0)
    image, place = fm.shared.tile(wg, "A", np.ones((64, 16)))
    image, other = fm.shared.tile(wg, "B", np.ones((16, 8)), image=image)
    add(wg.execute, np.zeros((128, 4), np.uint32), place, other, smem=image, scale_d=1)


def _launches(add: Any) -> None:
    data = np.zeros((64, 64), np.float32)
    made = ptx.parse(KERNEL)
    add(ptx.empty, shape=(2, 3), dtype=np.float32)
    add(ptx.load, path=str(Path(__file__).parents[1] / "ptx/files/inline.ptx"))
    add(ptx.parse, text=KERNEL, name="k.ptx")
    call = ptx.Call(ptx.parse(WRITES).kernels["g"], 1, 1, [data])
    file = Path(__file__).parents[1] / "golden/launches/reduce.npz"
    add(ptx.recorded, path=str(file), launch="reduce_tree")
    add(ptx.same, call, call, tries=1, watch=False)
    add(ptx.classes, programs={"a": call}, tries=1, watch=False)
    add(ptx.invariant, lambda _: call, over=[1], tries=1)
    add(ptx.targets, call, names=["sm_80"], tries=1)
    add(fm.assert_same_bits_for_all_inputs, call, call, tries=1)
    add(ptx.pointer, array=data, offset=8)
    add(ptx.struct, np.int32(1), size=None)
    add(
        ptx.tensor_map,
        array=data,
        box=(8, 8),
        strides=None,
        swizzle=0,
        interleave=0,
        fill="zeros",
        element_strides=None,
        l2="none",
        dtype=None,
        im2col=None,
    )
    add(ptx.RawKernel, code="", name="f", options=(), backend="nvrtc", target="sm_90a")
    add(made.check, target="sm_80")
    add(made.kernels["f"].problems, target="sm_80")
    add(
        made.kernels["f"].launch,
        grid=1,
        block=32,
        arguments=[data, 5],
        cluster=None,
        shared=0,
        target="sm_80",
        contract=True,
        schedule="eager",
        watch=False,
        limits=ptx.Limits(seconds=60, output=100, instructions=1000, stack=1024),
        replay=False,
        numerics=False,
        nan="report",
    )
    add(ptx.Window, blocks=(0,), first=0, most=100)
    add(recorded, blocks=(0,), first=0, most=100)
    _replays(add, recorded())
    add(ptx.Watch, problems="raise", strict=False)


def recorded(
    blocks: Any = (), first: Any = 0, most: Any = 100, schedule: Any = None
) -> ptx.Replay:
    """A launch with a window, which is checked when it is used."""
    run = ptx.parse(WRITES).kernels["g"].launch
    window = ptx.Window(blocks, first, most)
    made = run(1, 1, [np.zeros(2, np.float32)], watch=False, replay=window)
    return made.replay(schedule)


def _replays(add: Any, replay: ptx.Replay) -> None:
    add(replay.registers_at, step=0, warp=0)
    add(replay.memory_at, step=0, memory=0)
    for each in (replay.writer, replay.next_write, replay.readers, replay.origins):
        add(each, step=0, memory=1, offset=0)
    add(replay.next_step, step=0, warp=0, by="line", back=False)
    add(replay.steps_of_line, file=replay.ptx_file, line=5)
    add(replay.steps_of_warp, warp=0)
    add(replay.entries, lines=replay.line_numbers)
    add(replay.aligned, step=0, other=replay)
    add(replay.beside, other=replay, name="again")
    add(replay.errors, memory=0, step=0)


def _tensor_memory(add: Any) -> None:
    load = fm.find("tcgen05.ld.sync.aligned.32x32b.x1.b32")
    store = fm.find("tcgen05.st.sync.aligned.32x32b.x1.b32")
    image, words = np.zeros((128, 512), np.uint32), np.zeros((32, 1), np.uint32)
    add(tensor_memory.base_lanes, op=load, warp=0)
    add(tensor_memory.load, image=image, op=load, address=0, warp=0, imm=None)
    add(
        tensor_memory.store,
        image=image,
        op=store,
        address=0,
        registers=words,
        warp=0,
        imm=None,
    )
    add(tensor_memory.reach, warp=0)
    add(tensor_memory.reached, op=load, address=0, warp=0, imm=None)
    copy = fm.find("tcgen05.cp.cta_group::1.128x128b")
    add(tensor_memory.copies, op=copy)
    place = fm.shared.Descriptor(0, 128, 128, 0, family="tcgen05")
    add(
        tensor_memory.copy,
        image=image,
        smem=np.zeros(4096, np.uint8),
        op=copy,
        address=0,
        descriptor=place,
    )
    add(
        tensor_memory.expanded, rows=np.zeros((8, 16), np.uint8), form="b8x16.b4x16_p64"
    )
    less = fm.find("tcgen05.ld.red.sync.aligned.32x32b.x2.max.u32")
    add(tensor_memory.reduce, op=less, registers=np.zeros((32, 2), np.uint32))
    blocks = tensor_memory.scale_blocks(np.zeros((128, 4), np.uint8))
    add(tensor_memory.scale_blocks, matrix=np.zeros((128, 4), np.uint8))
    add(tensor_memory.scale_matrix, blocks=blocks, rows=128, factors=4)
    mx = fm.tcgen05("m128n64k32", a="e4m3", kind="mxf8f6f4")
    add(tensor_memory.scale_copy, op=mx, operand="scale_A")
    add(
        tensor_memory.shift,
        image=image,
        op=fm.find("tcgen05.shift.cta_group::1.down"),
        address=0,
    )


def _wmma(add: Any) -> None:
    a = wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.half, wmma.row_major)
    b = wmma.fragment(wmma.matrix_b, 16, 16, 16, wmma.half, wmma.col_major)
    c = wmma.fragment(wmma.accumulator, 16, 16, 16, np.float32)
    memory = np.zeros((16, 16), np.float16)
    add(
        wmma.fragment,
        use=wmma.matrix_a,
        m=16,
        n=16,
        k=16,
        type=wmma.half,
        layout=wmma.row_major,
        warps=(),
    )
    add(wmma.fill_fragment, frag=c, value=1.0)
    add(wmma.float_to_tf32, value=1.0)
    add(wmma.mma, shape="m16n16k16", a="f16", d="f32")
    add(
        wmma.load_matrix_sync,
        frag=a,
        memory=memory,
        ldm=16,
        layout=None,
        offset=0,
        target=None,
    )
    add(
        wmma.store_matrix_sync,
        memory=np.zeros((16, 16), np.float32),
        frag=c,
        ldm=16,
        layout=wmma.mem_row_major,
        offset=0,
        target=None,
    )
    for each in (a, b, c):
        wmma.fill_fragment(each, 0.0)
    add(wmma.mma_sync, d=c, a=a, b=b, c=c, satf=False, target="sm_90")
    bit, major = wmma.experimental.precision.b1, (wmma.row_major, wmma.col_major)
    uses = (wmma.matrix_a, wmma.matrix_b)
    a, b = (
        wmma.fragment(use, 8, 8, 128, bit, way)
        for use, way in zip(uses, major, strict=True)
    )
    c = wmma.fragment(wmma.accumulator, 8, 8, 128, np.int32)
    for each in (a, b, c):
        wmma.fill_fragment(each, 0)
    add(wmma.bmma_sync, d=c, a=a, b=b, c=c, target="sm_80")


def public() -> set[str]:
    """The functions that users call."""
    found = set()
    for room in (fm, *(getattr(fm, name) for name in fm._ROOMS)):
        for name in room.__all__:
            each = getattr(room, name)
            if inspect.isfunction(each):
                module = each.__module__.removeprefix("fragmenta.")
                found.add(f"{module}.{each.__qualname__}")
    return found


def places(call: Right) -> list[int | str]:
    """The arguments of a call: by place, then by name."""
    return [*range(len(call.listed)), *call.named]


def changed(call: Right, place: int | str, value: Any) -> Right:
    """The same call with another argument."""
    if isinstance(place, str):
        return call._replace(named={**call.named, place: value})
    listed = list(call.listed)
    listed[place] = value
    return call._replace(listed=tuple(listed))


def every() -> Iterator[tuple[str, int | str, int]]:
    """Every argument of every call, with the number of every wrong value."""
    for name, call in right().items():
        for place in places(call):
            for number in range(len(WRONG)):
                yield name, place, number


ALLOWED: dict[str, type[Exception]] = {
    "assert_same_bits": AssertionError,  # it is there to raise that
    "load": OSError,  # a file that is not there
}
"""What a function may raise besides a :class:`fragmenta.Error`."""


def made(call: Right) -> None:
    """Call it, and use what comes lazily."""
    try:
        found = call.function(*call.listed, **call.named)
    except ALLOWED.get(call.function.__name__, fm.Error) as why:
        raise fm.Error(str(why)) from why
    if inspect.isgenerator(found):
        next(found, None)


# ── games ───────────────────────────────────────────────────────────────────


def one_or_two(ask: Ask) -> None:
    """A call in which one or two arguments are wrong."""
    call = ask.rng.choice(list(right().values()))
    for _ in range(ask.rng.choice((1, 1, 2))):
        place = ask.rng.choice(places(call))
        call = changed(call, place, ask.rng.choice(WRONG))
    ask(made, call)


@cache
def sparse_rows() -> fm.Instruction:
    return fm.mma("m16n8k32", a="f16", d="f32", sp="sp::ordered_metadata")


def odd_compressed(ask: Ask) -> None:
    """Sparse matrices of odd shapes and types, written in every order."""
    rng, op = ask.rng, sparse_rows()
    shape = tuple(rng.choice((0, 1, 2, 32, 64)) for _ in range(rng.randrange(5)))
    kind = rng.choice((np.float16, np.float32, np.uint8, np.int64, object, bool))
    codes = np.full((*shape[:-1], (shape[-1] if shape else 4) // 2), 4, np.uint8)
    sp = ask(fm.sparse.Compressed, np.zeros(shape, kind), codes, op.granularity)
    way = rng.choice(
        (
            fm.sparse.to_torch,
            fm.sparse.to_marlin,
            fm.sparse.to_cutlass_sm90,
            fm.sparse.to_nibbles,
            fm.sparse.to_bitmask,
            fm.sparse.decompress,
        )
    )
    ask(
        way,
        *((op,) if way not in (fm.sparse.to_nibbles, fm.sparse.to_bitmask) else ()),
        sp,
    )


SURFACE = Surface("wrong_types", {one_or_two: 8, odd_compressed: 1}, share=0.02)
