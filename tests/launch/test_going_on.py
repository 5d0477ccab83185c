"""A launch goes on after what hardware survives, if problems are only reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.simt.layout import GRANULE, POISON
from tests.launch.loopback import Loopback
from tests.simt.kernels import kernel

LOADS = {
    "u32": ("ld.global.u32 %r1, [%rd1];", 4, POISON),
    "u8": ("ld.global.u8 %r1, [%rd1];", 1, None),
    "s8": ("ld.global.s8 %r1, [%rd1];", 1, None),
    "u16": ("ld.global.u16 %r1, [%rd1];", 2, 0x7FFF),
    "generic": ("ld.u32 %r1, [%rd1];", 4, POISON),
    "v2": ("ld.global.v2.u32 {%r2, %r1}, [%rd1];", 8, POISON),
    "v4": ("ld.global.v4.u32 {%r2, %r3, %r4, %r1}, [%rd1];", 16, POISON),
    "b64": ("ld.global.b64 %rd2, [%rd1]; cvt.u32.u64 %r1, %rd2;", 8, POISON),
    "guarded": ("setp.eq.u32 %p1, 0, 0; @%p1 ld.global.u32 %r1, [%rd1];", 4, POISON),
}
"""How a thread loads: the text, the bytes, and the number that it gets past the end."""
BODY = """
    ld.param.u64 %rd1, [x];
    mad.wide.u32 %rd1, %t, SIZE, %rd1;
    mov.u32 %r1, 0;
    LOAD
    st.global.u32 [%mine], %r1;
    ret;
"""


def loader(name: str) -> ptx.Kernel:
    """A kernel whose threads load side by side, and store what they got."""
    text, size, _ = LOADS[name]
    return kernel(
        BODY.replace("LOAD", text).replace("SIZE", str(size)), ".param .u64 x"
    )


def launched(name: str, count: int, threads: int, **options: Any) -> tuple[Any, Any]:
    """What threads got of so many bytes, and the result."""
    out = np.zeros(threads, np.uint32)
    given = [out, np.full(count, 5, np.uint8)]
    options.setdefault("watch", "report")
    return out, loader(name).launch(1, threads, given, **options)


@pytest.mark.parametrize("name", LOADS)
def test_a_load_in_the_granule_gets_poison(name: str) -> None:
    _, size, poison = LOADS[name]
    out, result = launched(name, 8 * size, 16)
    assert result.complete
    (found,) = [each for each in result.problems if each.severity == "error"]
    assert found.rule == "fault"
    assert f"it reads {size} bytes from byte {8 * size} of argument 1" in found.message
    assert "Let no thread load past the end" in found.hint
    assert len(set(out[:8].tolist())) == 1
    assert out[0] != POISON
    past = [0x7F, 0xFF] if poison is None else [poison]
    if name == "s8":
        past = [0x7F, 0xFFFFFFFF]
    assert set(out[8:].tolist()) == set(past)


def test_a_load_across_the_end_gets_what_is_there() -> None:
    out, result = launched("v2", 12, 2)
    assert out.tolist() == [0x05050505, POISON]  # its first word is in the array
    assert result.complete


@pytest.mark.parametrize(
    ("count", "threads"), [(4, 65), (GRANULE, 65), (GRANULE + 4, 129), (0, 1)]
)
def test_after_the_granule_it_is_a_fault(count: int, threads: int) -> None:
    out, result = launched("u32", count, threads)
    assert not result.complete
    assert any("out of bounds" in each.message for each in result.problems)
    assert launched("u32", max(count, 4), 1)[1].complete
    assert out[-1] == 0


def test_it_is_a_fault_unless_problems_are_reported() -> None:
    for options in ({"watch": True}, {"watch": False}, {"watch": "strict"}):
        with pytest.raises(ptx.KernelFault, match="out of bounds: ld"):
            launched("u32", 64, 32, **options)


def test_stores_and_other_spaces_are_faults() -> None:
    for text in (
        "st.global.u32 [%rd1], %t;",
        "atom.global.add.u32 %r1, [%rd1], 1;",
        ".shared .b32 word[4]; mov.u64 %rd2, word; ld.shared.u32 %r1, [%rd2+16];",
        ".local .b32 word[4]; mov.u64 %rd2, word; ld.local.u32 %r1, [%rd2+16];",
        "ld.global.u32 %r1, [%rd1+2];",
    ):
        made = kernel(BODY.replace("LOAD", text).replace("SIZE", "4"), ".param .u64 x")
        given = [np.zeros(32, np.uint32), np.zeros(12, np.uint32)]
        assert not made.launch(1, 32, given, watch="report").complete, text


def test_a_run_that_follows_undefined_bits_goes_on() -> None:
    """A run that follows unwritten memory meets the same load, and goes on.

    The load is reported once; what is done with the poison is not.
    """
    body = """
    .shared .b32 tile[64];
    .reg .b32 %s;
    mov.u32 %s, tile; mad.lo.u32 %s, %t, 4, %s;
    ld.shared.u32 %r2, [%s];
    ld.param.u64 %rd1, [x];
    mad.wide.u32 %rd1, %t, 4, %rd1;
    ld.global.u32 %r1, [%rd1];
    USE
    ret;
    """
    for use, rules in (
        ("st.global.u32 [%mine], %r1;", {"fault"}),
        ("st.global.u32 [%mine], %r2;", {"fault", "uninitialised"}),
    ):
        made = kernel(body.replace("USE", use), ".param .u64 x")
        given = [np.zeros(32, np.uint32), np.zeros(16, np.uint32)]
        result = made.launch(1, 32, given, watch="report")
        assert result.complete
        assert {e.rule for e in result.problems if e.severity != "info"} == rules


def test_workers_of_a_dask_cluster_go_on() -> None:
    out = np.zeros(64, np.uint32)
    given = [out, np.full(64, 5, np.uint8)]
    result = loader("u32").launch(2, 32, given, watch="report", client=Loopback())
    assert result.complete
    (found,) = [each for each in result.problems if each.severity == "error"]
    assert "it reads 4 bytes from byte 64 of argument 1" in found.message
    assert (out.reshape(2, 32)[:, :16] == 0x05050505).all()
    assert (out.reshape(2, 32)[:, 16:] == POISON).all()
