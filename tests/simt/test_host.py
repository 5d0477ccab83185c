"""A kernel prints as C does, and a failed assertion says what failed."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from fragmenta.errors import Error, KernelFault
from tests.simt.kernels import kernel, run

VPRINTF = ".extern .func (.param .b32 r) vprintf(.param .b64 text, .param .b64 given);"


def text_of(name: str, text: str) -> str:
    data = ", ".join(str(byte) for byte in text.encode() + b"\0")
    return f".global .align 1 .b8 {name}[{len(text.encode()) + 1}] = {{{data}}};"


def printing(text: str, values: str = "0") -> str:
    return f"""
    {{ .param .b64 text; .param .b64 given; .param .b32 count;
      mov.u64 %rd1, {text};
      st.param.b64 [text], %rd1;
      st.param.b64 [given], {values};
      call (count), vprintf, (text, given);
      ld.param.b32 %r1, [count]; }}"""


def printed(text: str, *values: Any, kinds: str = "") -> tuple[str, int]:
    """What one thread prints, and what printf returns."""
    data = struct.pack("<" + kinds, *values).ljust(64, b"\0")
    words = np.frombuffer(data, np.uint32)
    stores = "".join(
        f"st.local.u32 [room+{4 * i}], {word};" for i, word in enumerate(words)
    )
    body = f"""
        .local .align 8 .b8 room[64];
        {stores}
        mov.u64 %rd2, room;
        cvta.local.u64 %rd2, %rd2;
        {printing("format", "%rd2" if kinds else "0")}
        st.global.u32 [%out], %r1;"""
    made = kernel(body, before="\n".join([VPRINTF, text_of("format", text)]))
    out = np.zeros(1, np.uint32)
    return run(made, out, threads=1).output, int(out[0])


@pytest.mark.parametrize(
    "text, kinds, values, want",
    [
        ("plain\n", "", (), "plain\n"),
        ("%d|%i", "ii", (-5, 7), "-5|7"),
        ("%u %x %X %o", "IIII", (1 << 31, 255, 255, 8), "2147483648 ff FF 10"),
        ("%#x %#o %+d % d", "IIii", (255, 8, 3, 4), "0xff 010 +3  4"),
        ("%5d|%-5d|%05d", "iii", (42, 42, 42), "   42|42   |00042"),
        ("%.3d|%8.3d", "ii", (5, 5), "005|     005"),
        ("%*d|%.*f", "iii4xd", (6, 1, 2, 1.239), "     1|1.24"),
        (
            "%lld %llu %ld",
            "qQq",
            (-(1 << 60), 1 << 63, -1),
            f"{-(1 << 60)} {1 << 63} -1",
        ),
        ("%d %lld", "i4xq", (1, 1 << 40), f"1 {1 << 40}"),
        ("%hhd %hu %hhx", "iIi", (300, 65537, -1), "44 1 ff"),
        (
            "%f %.2f %e %g",
            "dddd",
            (1.5, 2.345, 12345.678, 1e-10),
            f"1.500000 {2.345:.2f} 1.234568e+04 1e-10",
        ),
        ("%F %E %G", "ddd", (1.5, 0.5, 1e20), "1.500000 5.000000E-01 1E+20"),
        (
            "%f %f %f",
            "ddd",
            (float("inf"), float("-inf"), float("nan")),
            "inf -inf nan",
        ),
        ("%a %a %A", "ddd", (1.5, 0.0, 10.0), "0x1.8p+0 0x0p+0 0X1.4P+3"),
        ("%c%c|%5c", "iii", (72, 105, 33), "Hi|    !"),
        ("100%% %d%%", "i", (5,), "100% 5%"),
        ("%p", "Q", (0x1234,), "0x1234"),
        ("ärgerlich ☃ %d", "i", (1,), "ärgerlich ☃ 1"),
    ],
)
def test_formats(text: str, kinds: str, values: tuple[Any, ...], want: str) -> None:
    assert printed(text, *values, kinds=kinds)[0] == want


def test_printf_returns_how_many_values_it_printed() -> None:
    assert printed("%d %d", 1, 2, kinds="ii")[1] == 2
    assert printed("none %%")[1] == 0


def test_strings_and_lanes_in_their_order() -> None:
    before = "\n".join([VPRINTF, text_of("format", "<%s %d>"), text_of("word", "abc")])
    made = kernel(
        f"""
        .local .align 8 .b8 room[16];
        mov.u64 %rd3, word;
        st.local.u64 [room], %rd3;
        st.local.u32 [room+8], %all;
        mov.u64 %rd2, room;
        cvta.local.u64 %rd2, %rd2;
        setp.lt.u32 %p1, %lane, 3;
        @!%p1 bra END;
        {printing("format", "%rd2")}
    END: ret;""",
        before=before,
    )
    want = "".join(
        f"<abc {block * 32 + lane}>" for block in range(9) for lane in range(3)
    )
    for cores in (1, 4):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fragmenta.launch.grid.cores", lambda cores=cores: cores)
            assert run(made, np.zeros(1), blocks=9).output == want


def test_a_format_that_is_nowhere() -> None:
    made = kernel(printing("4096"), before=VPRINTF)
    with pytest.raises(Error, match="0x1000, where nothing is"):
        run(made, np.zeros(1))


ASSERT = """.extern .func __assertfail(.param .b64 message, .param .b64 file,
    .param .b32 line, .param .b64 function, .param .b64 size);"""


def test_a_failed_assertion() -> None:
    before = "\n".join(
        [
            ASSERT,
            text_of("message", "x < 3"),
            text_of("file", "a.cu"),
            text_of("function", "void f(int)"),
        ]
    )
    names = {"message": "message", "file": "file", "function": "function"}
    addresses = "".join(
        f".param .b64 p_{name}; mov.u64 %rd1, {name}; st.param.b64 [p_{name}], %rd1;"
        for name in names
    )
    made = kernel(
        f"""
        st.global.u32 [%mine], %all;
        setp.lt.u32 %p1, %all, 37;
        @%p1 bra END;
        .param .b32 p_line; .param .b64 p_size;
        {addresses}
        st.param.b32 [p_line], 12;
        st.param.b64 [p_size], 1;
        call __assertfail, (p_message, p_file, p_line, p_function, p_size);
    END: ret;""",
        before=before,
    )
    out = np.zeros(64, np.uint32)
    with pytest.raises(KernelFault) as caught:
        run(made, out, blocks=2)
    error = caught.value
    assert error.kind == "assert"
    assert (error.block, error.thread) == ((1, 0, 0), (5, 0, 0))
    assert error.source == "a.cu:12"
    for part in ("a.cu:12", "void f(int)", "x < 3"):
        assert part in str(error)
    assert out.tolist() == list(range(64))


def test_memory_of_the_device_is_refused() -> None:
    made = kernel(
        ".param .b64 size; .param .b64 got; st.param.b64 [size], 8;"
        "call (got), malloc, (size);",
        before=".extern .func (.param .b64 r) malloc(.param .b64 size);",
    )
    with pytest.raises(Error, match="malloc in a kernel is not supported"):
        run(made, np.zeros(1))
