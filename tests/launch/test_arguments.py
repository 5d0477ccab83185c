"""The arguments of a launch reach the kernel, or are refused."""

from __future__ import annotations

import ctypes
import itertools
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.errors import (
    AlignmentError,
    Error,
    KernelFault,
    ShapeError,
    ValueRangeError,
)
from fragmenta.reference.shared.tensor_map import Im2col, TensorMap
from tests.simt.kernels import kernel, run

KINDS = {
    "u8": 1,
    "s8": 1,
    "b8": 1,
    "u16": 2,
    "s16": 2,
    "b16": 2,
    "f16": 2,
    "u32": 4,
    "s32": 4,
    "b32": 4,
    "f32": 4,
    "u64": 8,
    "s64": 8,
    "b64": 8,
    "f64": 8,
}


@cache
def taking(kind: str) -> ptx.Kernel:
    """A kernel that stores a parameter, extended to 64 bits by the rules of its type."""
    size = KINDS[kind]
    load = kind if kind[0] in "us" else f"b{8 * size}"
    to = "%rd1" if size > 2 or kind[0] != "f" else "%h1"
    body = f"ld.param.{load} {to}, [x];\n"
    if to == "%h1":
        body += "cvt.u64.u16 %rd1, %h1;\n"
    return kernel(body + "st.global.u64 [%out], %rd1;", f".param .{kind} x")


def passed(kind: str, value: Any) -> int:
    out = np.zeros(1, np.uint64)
    run(taking(kind), out, value, threads=1)
    return int(out[0])


@pytest.mark.parametrize(
    "kind, value, bits",
    [
        ("u8", 255, 255),
        ("s8", -1, (1 << 64) - 1),
        ("b8", -1, 255),
        ("u16", 65535, 65535),
        ("s16", -32768, (1 << 64) - 32768),
        ("u32", np.uint32(1 << 31), 1 << 31),
        ("u32", -1, 0xFFFFFFFF),
        ("s32", np.int64(-5), (1 << 64) - 5),
        ("u32", True, 1),
        ("s64", -(1 << 63), 1 << 63),
        ("u64", (1 << 64) - 1, (1 << 64) - 1),
        ("b64", np.float64(1.0), 0x3FF0000000000000),
        ("b32", np.float32(-2.0), 0xC0000000),
        ("b16", ml_dtypes.bfloat16(1.0), 0x3F80),
        ("b16", np.float16(1.0), 0x3C00),
        ("f16", 65504.0, 0x7BFF),
        ("f16", 1, 0x3C00),
        ("f32", 0.1, 0x3DCCCCCD),
        ("f32", np.float64(0.1), 0x3DCCCCCD),
        ("f32", float("inf"), 0x7F800000),
        ("f64", np.float16(0.5), 0x3FE0000000000000),
        ("u32", b"\x01\x02\x03\x04", 0x04030201),
    ],
)
def test_numbers_are_converted_to_the_declared_type(
    kind: str, value: Any, bits: int
) -> None:
    assert passed(kind, value) == bits


@pytest.mark.parametrize(
    "kind, value",
    [
        ("u8", 256),
        ("u8", -129),
        ("s8", 128),
        ("b8", 256),
        ("s16", 32768),
        ("u16", 65536),
        ("u32", 1 << 32),
        ("s32", 1 << 31),
        ("s64", 1 << 63),
        ("u64", 1 << 64),
        ("f16", 65520.0),
        ("f32", 1e39),
        ("f32", 10**400),
        ("f64", 10**400),
    ],
)
def test_numbers_that_do_not_fit_are_refused(kind: str, value: Any) -> None:
    with pytest.raises(ValueRangeError, match=r"argument 1 \(x\) is a " + kind):
        passed(kind, value)


@pytest.mark.parametrize(
    "kind, value",
    [
        ("u32", 1.0),
        ("u32", np.float32(1)),
        ("u32", None),
        ("u32", "1"),
        ("f32", "1.5"),
        ("f32", 1j),
        ("f32", None),
        ("u32", np.zeros(1, np.uint32)),
        ("f32", [1.0]),
        ("u32", np.array(3)),
    ],
)
def test_what_is_not_a_number_is_refused(kind: str, value: Any) -> None:
    with pytest.raises(Error, match=r"argument 1 \(x\)"):
        passed(kind, value)


def test_structs_are_bytes() -> None:
    made = kernel(
        "ld.param.v2.u32 {%r1, %r2}, [x+8]; st.global.v2.u32 [%out], {%r2, %r1};",
        ".param .align 8 .b8 x[16]",
    )
    out = np.zeros(2, np.uint32)
    data = np.arange(4, dtype=np.uint32)
    for given in (
        data.tobytes(),
        bytearray(data.tobytes()),
        memoryview(data).cast("B"),
        data.view("V16")[0],
    ):
        out[:] = 0
        run(made, out, given, threads=1)
        assert out.tolist() == [3, 2]
    with pytest.raises(ShapeError, match="has 16 bytes; given bytes of 15 bytes"):
        run(made, out, data.tobytes()[:15])
    with pytest.raises(Error, match="struct of 16 bytes; give its bytes"):
        run(made, out, 5)


COPY = """
    ld.param.u64 %rd1, [from];
    cvt.u64.u32 %rd2, %t;
    add.u64 %rd3, %rd1, %rd2;
    add.u64 %rd4, %out, %rd2;
    ld.global.u8 %r1, [%rd3];
    st.global.u8 [%rd4], %r1;
"""
DTYPES = [
    bool,
    "u1",
    "i1",
    "u2",
    "i2",
    "u4",
    "i4",
    "u8",
    "i8",
    "f2",
    "f4",
    "f8",
    "c8",
    "c16",
    "M8[s]",
    "S5",
    "V3",
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
    ml_dtypes.int4,
    np.dtype([("a", "u1"), ("b", "f4")]),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_arrays_of_every_type_are_memory(dtype: Any) -> None:
    source, out = np.zeros(7, dtype), np.zeros(7, dtype)
    size = source.nbytes
    source.view(np.uint8)[:] = np.random.default_rng(1).integers(0, 2, size)
    run(kernel(COPY, ".param .u64 from"), out, source, threads=size)
    assert out.tobytes() == source.tobytes()


@pytest.mark.parametrize("shape", [(), (1,), (2, 3, 4)])
def test_arrays_of_every_shape_are_memory(shape: tuple[int, ...]) -> None:
    source, out = np.full(shape, 7.5), np.zeros(shape)
    run(kernel(COPY, ".param .u64 from"), out, source, threads=source.nbytes)
    assert (out == source).all()


def test_arrays_that_would_be_misread() -> None:
    made, out = kernel(COPY, ".param .u64 from"), np.zeros(8, np.uint8)
    for swapped in (">f4", [("a", ">i4"), ("b", "u1")]):
        with pytest.raises(Error, match=r"argument 1 \(from\) is not in native byte"):
            run(made, out, np.zeros(8, swapped))
        with pytest.raises(Error, match="native byte order"):
            ptx.pointer(np.zeros(8, swapped))
    with pytest.raises(Error, match="masked array"):
        run(made, out, np.ma.masked_less(np.arange(8), 2))


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ([1.0] * 100, "… of list; memory is given as an array"),
        (None, "given None of NoneType; a null pointer is 0"),
        ("x", "given 'x' of str; memory is given as an array"),
        (bytes(5), "given bytes of 5 bytes; memory is given as an array"),
    ],
)
def test_what_is_not_memory_is_told_how_to_be(given: Any, hint: str) -> None:
    made, out = kernel(COPY, ".param .u64 from"), np.zeros(8, np.uint8)
    with pytest.raises(Error) as found:
        run(made, out, given)
    assert hint in str(found.value)
    assert len(str(found.value)) < 200


@pytest.mark.parametrize("given", [None, 5, "out", b"out", {"out": 1}, np.zeros(1)])
def test_arguments_are_a_list(given: Any) -> None:
    with pytest.raises(Error, match="arguments is a list with one item for each"):
        kernel("ret;").launch(1, 1, given)


class _Pair(ctypes.Structure):
    _fields_ = (("a", ctypes.c_int32), ("b", ctypes.c_float))


def test_numbers_of_c() -> None:
    made = kernel(
        "ld.param.u32 %r1, [n]; ld.param.v2.u32 {%r2, %r3}, [pair];"
        "ld.param.u16 %h1, [half]; cvt.u32.u16 %r4, %h1;"
        "st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4};",
        ".param .u32 n, .param .align 8 .b8 pair[8], .param .align 2 .b8 half[2]",
    )
    out = np.zeros(4, np.uint32)
    one = np.float16(1)
    run(made, out, ctypes.c_int32(-1), _Pair(7, 1.0), one, threads=1)
    assert out.tolist() == [0xFFFFFFFF, 7, 0x3F800000, 0x3C00]
    run(made, out, 5, np.complex64(1 + 2j), one, threads=1)
    assert out.tolist() == [5, 0x3F800000, 0x40000000, 0x3C00]
    with pytest.raises(ShapeError, match="4 bytes; given c_double of 8 bytes"):
        run(made, out, ctypes.c_double(1), _Pair(), one)
    with pytest.raises(Error, match="a struct of 8 bytes; given an array"):
        run(made, out, 5, np.zeros(2, np.float32), one)
    with pytest.raises(Error, match=r"a u32; given an array.*array\.item\(\)"):
        run(made, out, np.array(5), _Pair(), one)
    with pytest.raises(Error, match="not in native byte order"):
        run(made, out, 5, np.zeros(1, [("a", ">i4"), ("b", "f4")])[0], one)


def test_the_same_memory_writable_and_not() -> None:
    made = kernel(COPY, ".param .u64 from")
    out = np.arange(8, dtype=np.uint8)
    fixed = out.view()
    fixed.flags.writeable = False
    run(made, out, fixed, threads=8)
    with pytest.raises(KernelFault, match="read-only"):
        run(made, fixed, out, threads=8)


def test_arrays_that_cannot_be_used() -> None:
    made, out = kernel(COPY, ".param .u64 from"), np.zeros(8, np.uint8)
    with pytest.raises(ShapeError, match=r"argument 1 \(from\) is not contiguous"):
        run(made, out, np.zeros((4, 4))[:, ::2])
    with pytest.raises(Error, match="holds Python objects"):
        run(made, out, np.array([None]))
    with pytest.raises(Error, match=r"out \(a u64\) and from \(a u64\); given 1"):
        run(made, out)
    with pytest.raises(Error, match="given 3 arguments"):
        run(made, out, out, out)


def test_an_empty_array_has_no_bytes() -> None:
    made = kernel(COPY, ".param .u64 from")
    with pytest.raises(KernelFault, match="0 bytes past the end of argument 1"):
        run(made, np.zeros(8, np.uint8), np.zeros(0, np.uint8))


def test_a_pointer_into_an_array() -> None:
    made = kernel(COPY, ".param .u64 from")
    source, out = np.arange(16, dtype=np.uint8), np.zeros(16, np.uint8)
    given = ptx.pointer(out, 8), ptx.pointer(source, 3)
    run(made, *given, threads=8)
    assert out.tolist() == [0] * 8 + list(range(3, 11))
    for offset in (1.5, True, "1"):
        with pytest.raises(Error, match="offset counts bytes"):
            ptx.pointer(source, offset)
    with pytest.raises(ValueRangeError, match="from the start of its array"):
        run(made, out, ptx.pointer(source, -(1 << 40)))
    with pytest.raises(KernelFault, match="2 bytes before the start of argument 1"):
        run(made, out, ptx.pointer(source, -2))
    with pytest.raises(KernelFault, match="1 bytes past the end of argument 1"):
        run(made, out, ptx.pointer(source, 17))
    with pytest.raises(Error, match="must be an array; given list"):
        ptx.pointer([1, 2])


def test_a_read_only_array_is_read_but_not_written() -> None:
    made = kernel(COPY, ".param .u64 from")
    source, out = np.arange(8, dtype=np.uint8), np.zeros(8, np.uint8)
    source.flags.writeable = False
    run(made, out, source, threads=8)
    assert (out == source).all()
    with pytest.raises(KernelFault) as caught:
        run(made, source, out, threads=8)
    assert caught.value.kind == "read_only"
    assert "writes 1 bytes at byte 0 of argument 0 (out)" in str(caught.value)
    assert source.tolist() == list(range(8))


def test_a_read_only_view_of_an_array_that_is_written() -> None:
    made = kernel(COPY, ".param .u64 from")
    memory = np.arange(16, dtype=np.uint8)
    view = memory[:]
    view.flags.writeable = False
    run(made, memory[8:], view, threads=8)
    assert memory.tolist() == [*range(8)] * 2
    with pytest.raises(KernelFault, match="read-only"):
        run(made, view, memory, threads=8)


def test_an_array_given_twice() -> None:
    made = kernel(COPY, ".param .u64 from")
    memory = np.arange(8, dtype=np.uint8)
    with pytest.raises(
        KernelFault, match=r"argument 0 \(out\) and argument 1 \(from\)"
    ):
        run(made, memory, memory, threads=9)
    shift = kernel(
        "ld.param.u64 %rd1, [from]; setp.eq.u64 %p1, %rd1, %out;"
        "selp.u32 %r1, 5, 6, %p1; st.global.u8 [%out], %r1;",
        ".param .u64 from",
    )
    run(shift, memory, memory, threads=1)
    assert memory[0] == 5


def test_views_that_overlap_are_one_memory() -> None:
    # The distance of the pointers is that of the arrays, and what is written through
    # one is seen through the other.
    made = kernel(
        """
        ld.param.u64 %rd1, [from];
        sub.u64 %rd2, %rd1, %out;
        st.global.u64 [%out], %rd2;
        st.global.u32 [%rd1], 77;
        ld.global.u32 %r1, [%out+12];
        st.global.u32 [%rd1+4], %r1;""",
        ".param .u64 from",
    )
    memory = np.zeros(16, np.uint32)
    run(made, memory[2:10], memory[5:14], threads=1)
    assert memory.tolist() == [0, 0, 12, 0, 0, 77, 77] + [0] * 9
    # A vector is aligned as in the array.
    vector = kernel(
        "ld.param.u64 %rd1, [from]; ld.global.v2.u32 {%r1, %r2}, [%rd1];",
        ".param .u64 from",
    )
    run(vector, memory, memory[2:], threads=1)
    with pytest.raises(KernelFault, match="misaligned"):
        run(vector, memory, memory[3:], threads=1)


def test_memory_that_is_not_aligned_here() -> None:
    raw = np.zeros(41, np.uint8)
    start = -raw.ctypes.data % 8 + 1
    array = raw[start : start + 16].view(np.uint32)
    made = kernel(
        "red.global.add.u32 [%out], 3; atom.global.add.u64 %rd1, [%out+8], 5;"
    )
    run(made, array)
    assert array.tolist() == [96, 0, 160, 0]
    assert raw.sum() == 96 + 160
    trap = kernel("st.global.u32 [%out], 9; trap;")
    with pytest.raises(KernelFault):
        run(trap, array)
    assert array[0] == 9


class Tensor:
    """Like a tensor of another library: only its memory can be had."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **given: Any) -> Any:
        return self._array.__dlpack__(**given)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def test_tensors_of_other_libraries_share_their_memory() -> None:
    memory = np.zeros(8, np.uint8)
    source = Tensor(np.arange(8, dtype=np.uint8))
    run(kernel(COPY, ".param .u64 from"), Tensor(memory), source, threads=8)
    assert memory.tolist() == list(range(8))


def test_bytes_around_an_array_are_not_touched() -> None:
    memory = np.full(256, 0xA5, np.uint8)
    inner = memory[64:192].view(np.uint32)
    run(kernel("st.global.u32 [%mine], %t;"), inner)
    assert inner.tolist() == list(range(32))
    assert (memory[:64] == 0xA5).all()
    assert (memory[192:] == 0xA5).all()


def test_many_arrays() -> None:
    count = 60
    names = [f"a{i}" for i in range(count)]
    loads = "".join(
        f"ld.param.u64 %rd1, [{n}]; ld.global.u32 %r2, [%rd1]; add.u32 %r1, %r1, %r2;"
        for n in names
    )
    made = kernel(
        f"mov.u32 %r1, 0; {loads} st.global.u32 [%mine], %r1;",
        ", ".join(f".param .u64 {n}" for n in names),
    )
    out = np.zeros(32, np.uint32)
    run(made, out, *(np.array([i], np.uint32) for i in range(count)))
    assert (out == sum(range(count))).all()


@pytest.mark.parametrize(
    "grid, block, message",
    [
        (1, 0, "1 to 1,024 threads"),
        (1, 1025, "1 to 1,024 threads"),
        (1, (1, 1, 65), "at most 64 along z"),
        ((1, 1 << 16), 32, "at most 2,147,483,647 blocks"),
        (1.5, 32, "grid is one to three whole numbers"),
        ((1, 2, 3, 4), 32, "grid is one to three whole numbers"),
        ((), 32, "grid is one to three whole numbers"),
        (-1, 32, "grid is one to three whole numbers"),
        (1, True, "block is one to three whole numbers"),
        (1, "32", "block is one to three whole numbers"),
        (1, None, "block is one to three whole numbers"),
    ],
)
def test_shapes_that_are_refused(grid: Any, block: Any, message: str) -> None:
    with pytest.raises(Error, match=message):
        kernel("ret;").launch(grid, block, [np.zeros(1)])


def test_options_that_are_refused() -> None:
    made = kernel("ret;")
    for options in (
        {"instructions": -1},
        {"instructions": 1.5},
        {"stack": -1},
        {"stack": "1"},
        {"seconds": 0},
        {"memory": 1.5},
    ):
        (name,) = options
        with pytest.raises(Error, match=f"{name} is"):
            run(made, np.zeros(1), limits=ptx.Limits(**options))
    for name, value in (
        ("shared", -1),
        ("shared", 1.5),
        ("limits", {"seconds": 1}),
        ("limits", None),
        ("watch", None),
        ("watch", "raport"),
        ("watch", 1),
    ):
        with pytest.raises(Error, match=f"{name} is"):
            run(made, np.zeros(1), **{name: value})
    for several in ([], ()):
        with pytest.raises(Error, match="schedule is one"):
            run(made, np.zeros(1), schedule=several)


def test_shared_memory_that_a_block_does_not_have() -> None:
    made = kernel("st.shared.u8 [own], 1; ret;", before=".shared .b8 own[1000];")
    run(made, np.zeros(1), shared=227 * 1024 - 1008, target="sm_90a")
    most = "a block on sm_90a has 232,448 bytes of shared memory; the kernel declares"
    with pytest.raises(ValueRangeError, match=most):
        run(made, np.zeros(1), shared=227 * 1024, target="sm_90a")


def test_what_is_not_ptx_is_recognised() -> None:
    text = ".version 8.0 .target sm_80 .address_size 64 .entry f() { ret; }"
    assert list(ptx.parse(text.encode() + b"\0").kernels) == ["f"]
    for given, what in (
        ("__global__ void f() {}", "CUDA C\\+\\+, not PTX; ptx.RawKernel"),
        ("folder/kernel.ptx", "the path of a file; ptx.load reads it"),
        ("hello", "here may stand '.version'"),
        (5, "PTX is a text; given int"),
    ):
        with pytest.raises(Error, match=what):
            ptx.parse(given)  # type: ignore[arg-type]


def test_blocks_that_the_kernel_does_not_take() -> None:
    text = """.version 8.0 .target sm_80 .address_size 64
    .entry exact() .reqntid 32, 2 { ret; }
    .entry most() .maxntid 64 { ret; }"""
    kernels = ptx.parse(text).kernels
    kernels["exact"].launch(1, (32, 2))
    with pytest.raises(Error, match=r"exact needs blocks of \(32, 2, 1\)"):
        kernels["exact"].launch(1, 64)
    kernels["most"].launch(1, 64)
    with pytest.raises(Error, match="most allows 64 threads"):
        kernels["most"].launch(1, 65)
    with pytest.raises(Error, match=r"no kernel mist.*there are exact and most"):
        kernels["mist"]


class _Tensor:
    """As a tensor of PyTorch: another library's memory, with strides."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def contiguous(self) -> _Tensor:
        raise AssertionError("memory is used as it is")


def test_a_tensor_that_is_not_contiguous() -> None:
    every_second = np.zeros((2, 6), np.float32)[:, ::2]
    with pytest.raises(ShapeError, match=r"shape \(2, 3\).*; \.contiguous\(\) makes"):
        run(kernel("ret;"), _Tensor(every_second))


def test_the_axes_may_be_in_any_order_in_memory() -> None:
    """A kernel sees memory: CuPy's Fortran arrays, and transposes, are as good."""
    made = kernel(COPY, ".param .u64 from")
    memory = np.arange(24, dtype=np.uint8)
    cube = memory.reshape(2, 3, 4)
    for axes in itertools.permutations(range(3)):
        for given in (cube.transpose(axes), _Tensor(cube.transpose(axes))):
            out = np.zeros((4, 6), np.uint8, order="F")
            run(made, out, given, threads=24)
            assert out.ravel(order="K").tolist() == memory.tolist()
    for wrong in (cube[:, ::-1], cube[:, :2], np.broadcast_to(memory, (2, 24))):
        with pytest.raises(ShapeError, match="is not contiguous"):
            run(made, np.zeros(24, np.uint8), wrong, threads=24)


# ── structs with pointers, and tensor maps ──────────────────────────────────


def following() -> ptx.Kernel:
    """A kernel that stores what the two pointers of a struct point to."""
    return kernel(
        """ld.param.u32 %r1, [s];
        ld.param.u64 %rd1, [s+8];
        ld.param.u64 %rd2, [s+16];
        ld.global.u32 %r2, [%rd1];
        ld.global.u32 %r3, [%rd2];
        st.global.u32 [%out], %r1;
        st.global.u32 [%out+4], %r2;
        st.global.u32 [%out+8], %r3;""",
        ".param .align 8 .b8 s[24]",
    )


def test_a_struct_has_pointers_in_it() -> None:
    x, out = np.arange(10, 20, dtype=np.int32), np.zeros(3, np.int32)
    given = ptx.struct(np.int32(5), x, ptx.pointer(x, 16))
    run(following(), out, given, threads=1)
    assert out.tolist() == [5, 10, 14]


def test_a_struct_is_an_array_with_one_element() -> None:
    """As CuPy takes it: numpy.zeros(1, dtype) for a struct by value."""
    made = kernel(
        """ld.param.u32 %r1, [s+4];
        ld.param.u32 %r2, [s+8];
        st.global.u32 [%out], %r1;
        st.global.u32 [%out+4], %r2;""",
        ".param .align 8 .b8 s[16]",
    )
    fields = [("kind", "u1"), ("count", "u4"), ("value", "u8")]
    aligned, packed = np.dtype(fields, align=True), np.dtype(fields)
    for shape in ((), (1,), (1, 1)):
        given = np.zeros(shape, aligned)
        given["count"], given["value"] = 7, 9
        out = np.zeros(2, np.uint32)
        run(made, out, given, threads=1)
        assert out.tolist() == [7, 9]
    with pytest.raises(ShapeError, match=r"of 13 bytes; numpy.dtype\(…, align=True\)"):
        run(made, out, np.zeros(1, packed))
    with pytest.raises(Error, match=r"a struct of 16 bytes; given an array"):
        run(made, out, np.zeros(2, aligned))
    with pytest.raises(Error, match="holds Python objects"):
        run(made, out, np.zeros(1, [("a", object), ("b", "u8")]))
    with pytest.raises(Error, match="not in native byte order"):
        run(made, out, np.zeros(1, [("a", ">u8"), ("b", "u8")]))


def test_a_null_pointer_in_a_struct_points_nowhere() -> None:
    given = ptx.struct(np.int32(5), np.zeros(1, np.int32), None)
    with pytest.raises(KernelFault, match="null pointer"):
        run(following(), np.zeros(3, np.int32), given, threads=1)


def test_a_struct_of_another_size_is_refused() -> None:
    with pytest.raises(ShapeError, match="24 bytes; given bytes of 8"):
        run(following(), np.zeros(3, np.int32), ptx.struct(None), threads=1)
    with pytest.raises(Error, match="given int"):
        ptx.struct(5)


def test_a_struct_may_hold_others_and_tensor_maps() -> None:
    x = np.zeros((8, 16), np.float32)
    map_ = ptx.tensor_map(x, box=(4, 16))
    inner = ptx.struct(np.int16(1), np.float64(2.0))
    made = ptx.struct(np.int8(5), map_, inner, b"abc", x)
    assert len(made.data) == 256  # the map is at a multiple of 64, and so is the end
    assert [at for at, _ in made.pointers] == [64, 64 + 128 + 16 + 8]
    assert made.data[0] == 5
    assert made.data[72:192] == map_.data[8:]
    assert made.data[192:208] == inner.data
    assert made.data[208:211] == b"abc"


def test_a_struct_of_fields_by_their_offsets() -> None:
    x, out = np.arange(10, 20, dtype=np.int32), np.zeros(3, np.int32)
    given = ptx.struct({0: np.int32(5), 16: ptx.pointer(x, 16), 8: x}, size=24)
    run(following(), out, given, threads=1)
    assert out.tolist() == [5, 10, 14]
    with pytest.raises(Error, match="needs its size"):
        ptx.struct({0: x})
    for fields in ({4: x, 8: x}, {20: x}, {-8: x}):
        with pytest.raises(ShapeError, match="within 24 bytes"):
            ptx.struct(fields, size=24)


def test_a_tensor_map_says_where_its_array_is() -> None:
    taking_map = kernel(
        """ld.param.u64 %rd1, [map];
        ld.global.u32 %r1, [%rd1];
        st.global.u32 [%out], %r1;
        ld.param.u32 %r2, [map+32];
        st.global.u32 [%out+4], %r2;""",
        ".param .align 64 .b8 map[128]",
    )
    x, out = np.arange(64, dtype=np.int32).reshape(4, 16), np.zeros(2, np.int32)
    run(taking_map, out, ptx.tensor_map(x[1:, :12], box=(2, 4)), threads=1)
    assert out.tolist() == [16, 11]  # the first element; the size less one


def test_a_tensor_map_may_be_of_im2col() -> None:
    x = np.zeros((2, 5, 5, 16), np.float16)
    column = Im2col((-1, -1), (-1, -1), 16, 64)
    made = TensorMap.decode(ptx.tensor_map(x, im2col=column).data)
    assert (made.im2col, made.sizes, made.box) == (column, (16, 5, 5, 2), ())


def test_the_memory_of_a_tensor_map_goes_on_behind_its_last_row() -> None:
    """The copy engine stores 16 bytes where a row of 4 bytes ends."""
    x = np.zeros((2, 16), np.uint8)
    ((_, row),) = ptx.tensor_map(x[1:, :4], box=(1, 16), strides=[16]).pointers
    assert (row.array.nbytes, row.offset) == (32, 16)


def test_the_array_of_a_tensor_map_lies_in_one_piece() -> None:
    with pytest.raises(Error, match="made of an array; given list"):
        ptx.tensor_map([[1, 2]], box=(1, 2))
    with pytest.raises(AlignmentError, match=r"multiple of 16 .* begins at byte 4"):
        ptx.tensor_map(np.zeros((4, 64), np.float32)[:, 1:33], box=(4, 4))
    loose = np.asfortranarray(np.zeros((4, 4)))[:, :2]
    with pytest.raises(ShapeError, match="adjacent"):
        ptx.tensor_map(loose, box=(2, 2))
    words = np.lib.stride_tricks.as_strided(np.zeros(64), (4, 2), (128, 8))
    with pytest.raises(ShapeError, match="contiguous"):
        ptx.tensor_map(words, box=(2, 2))


MANGLED = """.version 8.0
.target sm_90
.address_size 64
.visible .entry _ZN3lib5scaleILi4EEEvPfi(.param .u64 _ZN3lib5scaleILi4EEEvPfi_param_0,
    .param .u32 _ZN3lib5scaleILi4EEEvPfi_param_1)
.maxntid 64, 1, 1
{
    .reg .b64 %rd1;
    ld.param.u64 %rd1, [_ZN3lib5scaleILi4EEEvPfi_param_0];
    st.global.u32 [%rd1+64], 1;
    ret;
}
"""


@pytest.mark.parametrize(
    "block, given, message",
    [
        (128, [np.zeros(1, np.float32), 1], "lib::scale allows 64 threads"),
        (32, [1], r"lib::scale has 2 parameters: lib::scale_param_0 \(a u64\)"),
        (32, [np.zeros(1, np.float32), 1.5], r"argument 1 \(lib::scale_param_1\)"),
        (1, [np.zeros(1, np.float32), 1], r"end of argument 0 \(lib::scale_param_0\)"),
    ],
)
def test_a_kernel_is_called_by_its_name_in_cpp(
    block: int, given: list[Any], message: str
) -> None:
    loaded = ptx.parse(MANGLED).kernels["_ZN3lib5scaleILi4EEEvPfi"]
    assert repr(loaded).startswith("Kernel(lib::scale(")
    with pytest.raises(Error, match=message) as caught:
        loaded.launch(1, block, given)
    assert "_ZN3" not in str(caught.value).split(" at PTX line")[0]
