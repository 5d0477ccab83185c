"""Kernels with ``tcgen05`` leave in tensor memory what the instructions say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import fragmenta as fm
from fragmenta.errors import KernelFault
from fragmenta.reference.isa.table import read
from fragmenta.reference.shared.tiles import pair_halves
from fragmenta.reference.tensor_memory.copying import copy
from tests.ptx.tensor_kernels import run

SCHEDULES: tuple[str | int, ...] = ("eager", "lazy")
D, A, SCALE_A, SCALE_B, METADATA = 256, 0, 64, 128, 192
"""Columns of tensor memory."""

#: Instructions with what stands behind the descriptor of B, and shapes to try.
PRODUCTS = """
instruction                             | rest                                               | shape       | a    | b    | d   | more
mma.cta_group::1.kind::f16              | %idesc_, %p                                        | m128n64k16  | f16  |      | f32 |
mma.cta_group::1.kind::f16              | %idesc_, %p                                        | m64n32k16   | bf16 |      | f32 |
mma.cta_group::1.kind::f16              | %idesc_, {%lane0_, %lane1_, %lane2_, %lane3_}, %p  | m128n16k16  | f16  |      | f16 | lanes
mma.cta_group::1.kind::f16              | %idesc_, %p, 3                                     | m128n16k16  | f16  |      | f32 | scaled
mma.cta_group::1.kind::tf32             | %idesc_, !%p                                       | m128n32k8   | tf32 |      | f32 | negated
mma.cta_group::1.kind::f8f6f4           | %idesc_, %p                                        | m128n32k32  | e4m3 | e2m1 | f32 |
mma.cta_group::1.kind::i8               | %idesc_, %p                                        | m128n32k32  | u8   | s8   | s32 |
mma.cta_group::1.kind::mxf8f6f4.block_scale          | %idesc_, [%scale_a_], [%scale_b_], %p | m128n32k32  | e5m2 | e3m2 | f32 |
mma.cta_group::1.kind::mxf4.block_scale              | %idesc_, [%scale_a_], [%scale_b_], %p | m128n32k64  | e2m1 |      | f32 |
mma.cta_group::1.kind::mxf4nvf4.block_scale.block16  | %idesc_, [%scale_a_], [%scale_b_], %p | m128n32k64  | e2m1 |      | f32 |
mma.sp.cta_group::1.kind::f16           | [%metadata_], %idesc_, %p                          | m128n32k32  | f16  |      | f32 |
mma.sp.cta_group::1.kind::i8            | [%metadata_], %idesc_, %p                          | m128n32k64  | s8   |      | s32 |
mma.ws.cta_group::1.kind::f16           | %idesc_, %p                                        | m32n64k16   | f16  |      | f32 |
mma.ws.cta_group::1.kind::tf32          | %idesc_, %p, %zero_                                | m64n64k8    | tf32 |      | f32 | zero
mma.ws.sp.cta_group::1.kind::f8f6f4     | [%metadata_], %idesc_, %p                          | m128n64k64  | e4m3 |      | f32 |
"""
PAIRS = """
instruction                    | rest                       | shape       | a    | b | d   | more
mma.cta_group::2.kind::f16     | %idesc_, %p                | m256n64k16  | f16  |   | f32 |
mma.cta_group::2.kind::f8f6f4  | %idesc_, %p                | m128n64k32  | e4m3 |   | f32 |
mma.sp.cta_group::2.kind::tf32 | [%metadata_], %idesc_, %p  | m256n64k16  | tf32 |   | f32 |
"""


CP = "tcgen05.cp.cta_group::1.32x128b.warpx4"
#: Copies of scale factors, if a descriptor is given.
COPIES = f"""
setp.eq.u64 %q, %zero_, 0;
@%q bra COPIED;
add.u64 %l6, %zero_, %l5;
{CP} [%d+{SCALE_A}], %l6;
add.u64 %l6, %l6, 32;
{CP} [%d+{SCALE_B}], %l6;
COPIED:
"""


def _work(table: str) -> tuple[str, ...]:
    lines = read(table)
    found = [
        f"tcgen05.{line['instruction']} [%d+{D}], {a}, %b_, {line['rest']};"
        for a in ("%a_", "[%a_tmem_]")
        for line in lines
    ]
    first = next((i for i, text in enumerate(found) if "mxf8f6f4" in text), None)
    if first is not None:
        found[first] = COPIES + found[first]
    return tuple(found)


class Case(NamedTuple):
    """An instruction with its memories."""

    op: Any
    shared: NDArray[np.uint8]
    memory: NDArray[np.uint32]
    a: int
    b: int
    options: dict[str, Any]
    """What ``op.execute`` takes besides."""
    given: dict[str, Any]
    """What the kernel takes besides."""


def _numbers(of: Any, shape: tuple[int, ...], seed: int) -> NDArray[Any]:
    random = np.random.default_rng(seed)
    if of.storage.kind in "iu":
        return random.integers(
            -100 if of.storage.kind == "i" else 0, 100, shape
        ).astype(of.storage)
    return random.normal(size=shape).astype(np.float32).astype(of.storage)


def _case(line: Mapping[str, str], **tile: Any) -> Case:
    words = line["instruction"].split(".")
    kind = next(w for w in words if w.startswith("kind")).removeprefix("kind::")
    group = 2 if "cta_group::2" in words else 1
    more: dict[str, Any] = {"scale_vec": "block16"} if "block16" in words else {}
    op: Any = fm.tcgen05(
        line["shape"],
        kind=kind,
        a=line["a"],
        b=line["b"] or None,
        d=line["d"],
        cta_group=group,
        sp="sp" in words,
        ws="ws" in words,
        **more,
    )
    m, n, k = op.shape
    memory: Any = np.random.default_rng(5).integers(0, 2, (128, 512)).astype(np.uint32)
    memory = memory if group == 1 else np.stack([memory, memory + np.uint32(1)])
    options: dict[str, Any] = {"d": D, "enable_input_d": 1}
    given: dict[str, Any] = {"p": int(line["more"] != "negated")}
    left = _numbers(op.types["a"], (m, k), 1)
    if op.sparse:
        packed = fm.sparse.compress(op, fm.sparse.prune(op, left))
        left = packed.values
        memory = op.metadata.pack(packed.indices, address=METADATA, image=memory)
        options["metadata"] = given["metadata"] = METADATA
    for name, column in (("scale_a", SCALE_A), ("scale_b", SCALE_B)):
        if op.scale_vec:
            part = getattr(op, name)
            scales = np.random.default_rng(2).integers(0, 3, part.shape)
            values = (2.0**scales).astype(part.dtype.storage)
            memory = part.pack(values, address=column, image=memory)
            options[name] = given[name] = column
    right = _numbers(op.types["b"], (k, n), 3)
    parts = {"A": left, "B": right}
    if group == 2:
        parts = {name: pair_halves(of, op, name) for name, of in parts.items()}
    image, a = fm.shared.tile(op, "A", parts["A"], **tile)
    image, b = fm.shared.tile(op, "B", parts["B"], image=image, **tile)
    memory = op.a.pack(left, address=A, image=memory)
    if line["more"] == "lanes":
        options["disable_output_lane"] = given["lanes"] = [0xFF, 0, 1 << 31, 0xF0F0]
    if line["more"] == "scaled":
        old = _numbers(op.types["d"], (m, n), 4)
        memory = op.d.pack(old, address=D, image=memory)
        options["scale_input_d"] = 3
    if line["more"] == "zero":
        mask = 1 << 39 | 3 << 40 | 7 << 48 | 1 << 32
        options["zero_column_mask"] = given["zero"] = mask
    return Case(op, image, memory, a.encode(), b.encode(), options, given)


def _compare(case: Case, work: tuple[str, ...], which: int, tensor: bool) -> None:
    a: Any = fm.tensor_memory.TensorAddress(0, A) if tensor else case.a
    wanted = case.op.execute(
        case.memory, a, case.b, smem=case.shared, target="sm_100a", **case.options
    )
    assert (wanted != case.memory).any()
    for schedule in (3,) if tensor else SCHEDULES:
        found = run(
            work,
            which,
            case.shared,
            case.memory,
            group=case.op.cta_group,
            a=case.a,
            b=case.b,
            a_tmem=A,
            idesc=case.op.idesc,
            schedule=schedule,
            **case.given,
        )
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("tensor", [False, True], ids=["shared", "tensor"])
@pytest.mark.parametrize("number", range(len(read(PRODUCTS))))
def test_products(number: int, tensor: bool) -> None:
    lines = read(PRODUCTS)
    _compare(
        _case(lines[number]), _work(PRODUCTS), number + tensor * len(lines), tensor
    )


@pytest.mark.parametrize("number", range(len(read(PAIRS))))
def test_products_of_a_pair_of_blocks(number: int) -> None:
    _compare(_case(read(PAIRS)[number]), _work(PAIRS), number, False)


def test_without_a_swizzle_base_offsets_have_no_effect() -> None:
    lines = read(PRODUCTS)
    plain = _case(lines[0], swizzle=0)
    based = plain._replace(a=plain.a | 3 << 49, b=plain.b | 7 << 49)
    wanted, found = (
        case.op.execute(case.memory, case.a, case.b, smem=case.shared, **case.options)
        for case in (plain, based)
    )
    assert np.array_equal(found, wanted)
    _compare(based, _work(PRODUCTS), 0, False)


def test_the_two_highest_bits_of_a_scale_address_are_no_part_of_it() -> None:
    """CUTLASS keeps the id of the descriptor there."""
    number, line = next(
        (i, each)
        for i, each in enumerate(read(PRODUCTS))
        if "mxf4nvf4" in each["instruction"]
    )
    case = _case(line)
    bits = {"scale_a": 1 << 30, "scale_b": 3 << 30}
    given = {name: each | bits.get(name, 0) for name, each in case.given.items()}
    _compare(case._replace(given=given), _work(PRODUCTS), number, False)


@pytest.mark.parametrize("base", [0, 4], ids=["plain", "with a base offset"])
def test_scale_factors_come_by_copies(base: int) -> None:
    """Copies are done before the product that the same thread issues behind them.

    Triton writes a base offset of 4 into descriptors of scales, without a swizzle.
    """
    number, line = next(
        (i, each)
        for i, each in enumerate(read(PRODUCTS))
        if "mxf8" in each["instruction"]
    )
    case = _case(line)
    start = -(-case.shared.size // 128) * 128
    shared = np.zeros(start + 1024, np.uint8)
    shared[: case.shared.size] = case.shared
    shared[start:] = np.random.default_rng(9).integers(126, 130, 1024)
    memory = case.memory
    for place, column in ((start, SCALE_A), (start + 512, SCALE_B)):
        where = fm.shared.Descriptor(place, 0, 128, 0, family="tcgen05")
        memory = copy(CP, memory, shared, column, where)
    wanted = case.op.execute(memory, case.a, case.b, smem=shared, **case.options)
    where = fm.shared.Descriptor(start, 0, 128, 0, base, family="tcgen05")
    for schedule in SCHEDULES:
        found = run(
            _work(PRODUCTS),
            number,
            shared,
            case.memory,
            a=case.a,
            b=case.b,
            idesc=case.op.idesc,
            schedule=schedule,
            zero=where.encode(),
            **case.given,
        )
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("schedule", ["eager", "lazy", 1, 2])
def test_what_is_wrong_when_a_product_runs_names_its_line(schedule: str | int) -> None:
    """Metadata is read when the product runs, which may be when nobody has a turn."""
    number, line = next(
        (i, each)
        for i, each in enumerate(read(PRODUCTS))
        if "mma.sp" in each["instruction"]
    )
    case = _case(line)
    memory = case.memory.copy()
    memory[:, METADATA] = 0
    with pytest.raises(KernelFault, match=r"at PTX line \d+: tcgen05.mma.sp") as caught:
        run(
            _work(PRODUCTS),
            number,
            case.shared,
            memory,
            a=case.a,
            b=case.b,
            idesc=case.op.idesc,
            schedule=schedule,
            **case.given,
        )
    assert caught.value.kind == "illegal-metadata"
