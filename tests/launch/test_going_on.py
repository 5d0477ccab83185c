"""A launch goes on after what hardware survives, if problems are only reported."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.planes import shadows
from fragmenta.engine.simt.compiled import aligned
from fragmenta.engine.simt.layout import GRANULE, POISON
from tests.launch.loopback import Loopback
from tests.simt.kernels import kernel
from tests.thinning import repeats

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
    assert "Let no thread access what is past the end" in found.hint
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


STORES = {
    "u32": ("st.global.u32 [%rd1], %t;", 4),
    "u8": ("st.global.u8 [%rd1], %t;", 1),
    "u16": ("cvt.u16.u32 %h1, %t; st.global.u16 [%rd1], %h1;", 2),
    "generic": ("st.u32 [%rd1], %t;", 4),
    "v2": ("st.global.v2.u32 [%rd1], {%t, %t};", 8),
    "v4": ("st.global.v4.u32 [%rd1], {%t, %t, %t, %t};", 16),
    "b64": ("cvt.u64.u32 %rd2, %t; st.global.b64 [%rd1], %rd2;", 8),
    "guarded": ("setp.ge.u32 %p1, %t, 4; @%p1 st.global.u32 [%rd1], %t;", 4),
    "relaxed": ("st.relaxed.gpu.global.u32 [%rd1], %t;", 4),
}
"""How a thread stores: the text, and the bytes."""
READ_BACK = "bar.warp.sync -1; ld.param.u64 %rd1, [x]; mad.wide.u32 %rd1, %t, 4, %rd1;"
READ_BACK += "ld.global.u32 %r1, [%rd1];"


@pytest.mark.parametrize("name", STORES)
def test_a_store_in_the_granule_is_lost(name: str) -> None:
    """What is in the array is stored; what is not comes back as poison."""
    text, size = STORES[name]
    body = BODY.replace("LOAD", text + READ_BACK).replace("SIZE", str(size))
    out, given = np.zeros(32, np.uint32), np.full(8 * size, 0xEE, np.uint8)
    wide = np.full(GRANULE, 0xEE, np.uint8)  # all that is stored
    made = kernel(body, ".param .u64 x")
    assert made.launch(1, 16, [np.zeros(32, np.uint32), wide]).complete
    result = made.launch(1, 16, [out, given], watch="report")
    assert result.complete
    assert (given == wide[: 8 * size]).all()
    found = [each for each in result.problems if each.rule == "fault"]
    stores = [each for each in found if "it writes" in each.message]
    assert f"it writes {size} bytes from byte {8 * size} of arg" in stores[0].message
    assert "what it writes is lost" in stores[0].message
    assert (out[2 * size : 16] == POISON).all()
    with pytest.raises(ptx.KernelFault, match="out of bounds: st"):
        made.launch(1, 16, [out, given])


def test_a_store_after_the_granule_is_a_fault() -> None:
    for text, _ in STORES.values():
        body = BODY.replace("LOAD", text).replace("SIZE", "4").replace("%t, 4", "%t, 0")
        body = body.replace("[%rd1]", f"[%rd1+{2 * GRANULE}]")
        made = kernel(body, ".param .u64 x")
        given = [np.zeros(32, np.uint32), np.zeros(GRANULE + 4, np.uint8)]
        assert not made.launch(1, 32, given, watch="report").complete, text


COPIES = {
    "cp.async": "cp.async.ca.shared.global [%s], [%rd1], 16; cp.async.wait_all;",
    "some of it": "cp.async.ca.shared.global [%s], [%rd1], 16, 12; cp.async.wait_all;",
}


# Every copy at every place, and in every schedule.
@repeats(together=2)
@pytest.mark.parametrize("schedule", ["eager", "lazy", 3])
@pytest.mark.parametrize("name", COPIES)
@pytest.mark.parametrize("there", [136, 128, 140, 16])
def test_lanes_copy_poison(name: str, schedule: Any, there: int) -> None:
    """16 lanes of 16 bytes from an array of some bytes."""
    body = f"""
    .shared .align 16 .b8 tile[512]; .reg .b32 %s;
    mov.u32 %s, tile; mad.lo.u32 %s, %t, 16, %s;
    ld.param.u64 %rd1, [x]; mad.wide.u32 %rd1, %t, 16, %rd1;
    {COPIES[name]}
    ld.shared.v4.u32 {{%r1, %r2, %r3, %r4}}, [%s];
    mad.wide.u32 %mine, %t, 16, %out;
    st.global.v4.u32 [%mine], {{%r1, %r2, %r3, %r4}}; ret;
    """
    given = np.arange(there, dtype=np.uint8)
    out = np.zeros(64, np.uint32)
    made = kernel(body, ".param .u64 x")
    result = made.launch(1, 16, [out, given], watch="report", schedule=schedule)
    assert result.complete
    want = np.full(256, POISON & 0xFF, np.uint8)
    want[1::2] = POISON >> 8 & 0xFF
    want[:there] = given
    want = want.reshape(16, 16)
    if name == "some of it":
        want[:, 12:] = 0
    assert (out.view(np.uint8).reshape(16, 16) == want).all()
    (found,) = [each for each in result.problems if each.severity == "error"]
    assert "it reads 16 bytes from byte" in found.message
    with pytest.raises(ptx.KernelFault):
        made.launch(1, 16, [out, given], schedule=schedule)


BULK = """
    .shared .align 128 .b8 tile[256]; .shared .align 8 .b64 bar; .reg .b32 %s, %b;
    mov.u32 %s, tile; mov.u32 %b, bar; ld.param.u64 %rd1, [x];
    mad.lo.u32 %r2, %t, 4, %s;
    st.shared.u32 [%r2], %t; st.shared.u32 [%r2+128], %t;
    fence.proxy.async; bar.warp.sync -1;
    setp.ne.u32 %p1, %t, 0;
    @%p1 bra done;
    mbarrier.init.shared::cta.b64 [%b], 1;
    COPY
done:
    bar.warp.sync -1; ld.shared.u32 %r1, [%r2]; ld.shared.u32 %r3, [%r2+128];
    st.global.u32 [%mine], %r1; st.global.u32 [%mine+128], %r3; ret;
"""
LOAD = """
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%b], 256;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
        [%s], [%rd1], 256, [%b];
again:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%b], 0;
    @!%p2 bra again;
"""
STORE = """
    cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%s], 256;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
"""


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
@pytest.mark.parametrize("there", [16, 100, 240])
def test_a_bulk_copy_in_the_granule(there: int, schedule: str) -> None:
    load = kernel(BULK.replace("COPY", LOAD), ".param .u64 x")
    store = kernel(BULK.replace("COPY", STORE), ".param .u64 x")
    given, out = np.arange(there, dtype=np.uint8), np.zeros(64, np.uint32)
    result = load.launch(1, 32, [out, given], watch="report", schedule=schedule)
    assert result.complete
    assert (out.view(np.uint8)[:there] == given).all()
    left = out.view(np.uint8)[there:]
    assert set(left.tolist()) == {POISON & 0xFF, POISON >> 8 & 0xFF}
    (found,) = [each for each in result.problems if each.severity == "error"]
    assert "it reads 256 bytes from byte 0 of argument 1" in found.message
    result = store.launch(1, 32, [out, given], watch="report", schedule=schedule)
    assert result.complete
    want = np.tile(np.arange(32, dtype=np.uint32), 2).view(np.uint8)
    assert (given == want[:there]).all()
    (found,) = [each for each in result.problems if each.severity == "error"]
    assert "it writes 256 bytes from byte 0" in found.message
    for each in (load, store):
        with pytest.raises(ptx.KernelFault):
            each.launch(1, 32, [out, given], schedule=schedule)
        assert each.launch(1, 32, [out, np.zeros(256, np.uint8)]).complete


def test_what_hardware_does_not_survive_is_a_fault() -> None:
    for text in (
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


UNWRITTEN = """
    .shared .b32 tile[32];
    .reg .b32 %s;
    mov.u32 %s, tile; mad.lo.u32 %s, %t, 4, %s;
    ld.shared.u32 %r1, [%s];
    ld.param.u64 %rd1, [x];
    mad.wide.u32 %rd1, %t, 4, %rd1;
"""
OVER = {
    "ld": "ld.global.u32 %r1, [%rd1];",
    "st": "st.global.u32 [%rd1], %t; mov.u32 %r1, 0;",
    "cp.async": """
    cp.async.ca.shared.global [%s], [%rd1], 4; cp.async.wait_all;
    ld.shared.u32 %r1, [%s];
    """,
}


@pytest.mark.parametrize("name", OVER)
def test_what_is_past_the_end_is_defined(name: str, monkeypatch: Any) -> None:
    """It is reported once.  What was undefined before it does not stay so.

    The lanes that got nothing are noted in the shadow of their warp, which is all
    memory that machine code may write.
    """
    made: list[tuple[int, Any]] = []

    def surrounded(size: int) -> Any:
        memory = aligned(size + 4096)
        memory[size:] = 0xA5
        made.append((size, memory))
        return memory[:size]

    monkeypatch.setattr(shadows, "aligned", surrounded)
    loads = kernel(
        f"{UNWRITTEN} {OVER[name]} st.global.u32 [%mine], %r1; ret;", ".param .u64 x"
    )
    given = [np.zeros(32, np.uint32), np.zeros(16, np.uint32)]
    result = loads.launch(1, 32, given, watch="report", schedule="eager")
    assert result.complete
    assert {e.rule for e in result.problems if e.severity != "info"} == {"fault"}
    assert made
    assert all((memory[size:] == 0xA5).all() for size, memory in made)


def test_workers_of_a_dask_cluster_go_on() -> None:
    out = np.zeros(64, np.uint32)
    given = [out, np.full(64, 5, np.uint8)]
    result = loader("u32").launch(2, 32, given, watch="report", client=Loopback())
    assert result.complete
    (found,) = [each for each in result.problems if each.severity == "error"]
    assert "it reads 4 bytes from byte 64 of argument 1" in found.message
    assert (out.reshape(2, 32)[:, :16] == 0x05050505).all()
    assert (out.reshape(2, 32)[:, 16:] == POISON).all()
