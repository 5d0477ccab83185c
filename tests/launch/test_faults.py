"""Every fault of a kernel is detected, and described in words."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.base.arrays import threads
from fragmenta.errors import Error, KernelFault
from tests.clock import HANG
from tests.simt.kernels import HEAD, kernel, launched, run


def fault(
    body: str, *arguments: Any, parameters: str = "", before: str = "", **options: Any
) -> KernelFault:
    """The fault of a kernel whose ``out`` has 32 words."""
    out = options.pop("out", np.zeros(32, np.uint32))
    made = kernel(body, parameters, before)
    if any(each.severity == "error" for each in made.problems()):
        options["watch"] = False  # it would not even begin
    with pytest.raises(KernelFault) as caught:
        run(made, out, *arguments, **options)
    return caught.value


def test_a_register_that_is_not_declared_is_refused():
    text = kernel("mov.u32 %r1, 7; st.global.u32 [%out], %s1;")
    with pytest.raises(Error, match=r"%s1 is not declared"):
        run(text, np.zeros(1, np.uint32))
    with pytest.raises(Error, match=r"does not declare %s1 \(did you mean %r1\?\)"):
        run(text, np.zeros(1, np.uint32), watch="report")


@pytest.mark.parametrize("of", ["u8", "u32", "b64"])
def test_a_part_of_a_register_of_128_bits_is_refused(of):
    text = kernel(f"mov.b128 %q1, {{%out, %out}}; st.global.{of} [%out], %q1;")
    with pytest.raises(Error, match=rf"st\.global\.{of}: a part of a register"):
        run(text, np.zeros(4, np.uint32))


@pytest.mark.parametrize(
    "access, kind, words",
    [
        (
            "ld.global.u32 %r1, [%out-4]",
            "bounds",
            "reads 4 bytes, 4 bytes before the start of argument 0 (out)",
        ),
        (
            "ld.global.u32 %r1, [%out+128]",
            "bounds",
            "reads 4 bytes, 0 bytes past the end of argument 0 (out), which has 128",
        ),
        (
            "ld.u32 %r1, [%out+1000000]",
            "bounds",
            "999872 bytes past the end of argument 0 (out)",
        ),
        (
            "ld.global.v2.u32 {%r1, %r2}, [%out+126]",
            "bounds",
            "reads 8 bytes at byte 126 of argument 0 (out), which has 128 bytes",
        ),
        (
            "st.global.v4.u32 [%out+8], {0, 0, 0, 0}",
            "alignment",
            "writes 16 bytes at byte 8 of argument 0 (out)",
        ),
        ("ld.global.u16 %h1, [%out+1]", "alignment", "is not a multiple of 2"),
        ("ld.global.u32 %r1, [0]", "bounds", "at 0x0, 0 bytes past a null pointer"),
        (
            "mul.wide.u32 %rd1, 0xfffffffe, 4; add.u64 %rd1, %rd1, %out;"
            "st.global.u32 [%rd1], 0",
            "bounds",
            "which has 128 bytes; the index may be -2, as an unsigned number",
        ),
        (
            "mov.u64 %rd1, 0xaaab00000000; ld.u32 %r1, [%rd1]",
            "bounds",
            "if this is the address of an array, give the array itself",
        ),
        (
            "cvta.shared.u64 %rd1, 0; cvta.to.global.u64 %rd1, %rd1;"
            "ld.shared.u32 %r1, [%rd1]",
            "bounds",
            "generic address 0x8000000000; cvta",
        ),
        (
            "cp.async.ca.shared.global [values], [0], 8",
            "bounds",
            "reads 8 bytes at 0x0, 0 bytes past a null pointer",
        ),
        (
            "cp.async.ca.shared.global [values+64], [%out], 8",
            "bounds",
            "writes 8 bytes, 0 bytes past the end of shared memory, which has 64 bytes "
            "(64 static, 0 dynamic)",
        ),
        ("mov.u64 %rd1, -8; st.u32 [%rd1], 0", "bounds", "where nothing is"),
        (
            "mov.u64 %rd1, 0x123456789abcdef0; ld.u32 %r1, [%rd1]",
            "bounds",
            "at 0x123456789abcdef0, where nothing is",
        ),
        (
            "atom.global.add.u32 %r1, [%out+128], 1",
            "bounds",
            "accesses 4 bytes, 0 bytes",
        ),
        ("red.global.add.u64 [%out+4], 1", "alignment", "writes 8 bytes at byte 4"),
        (
            "ld.shared.u32 %r1, [values-4]",
            "bounds",
            "4 bytes before the start of shared memory",
        ),
        (
            "ld.shared.u32 %r1, [values+64]",
            "bounds",
            "0 bytes past the end of shared memory, which has 64 bytes",
        ),
        (
            "mov.u32 %r1, values; ld.shared.u32 %r1, [%r1-5000]",
            "bounds",
            "5000 bytes before the start of shared memory",
        ),
        (
            "cvta.shared.u64 %rd1, %rd2; ld.u32 %r1, [%rd1-4]",
            "bounds",
            "4 bytes before the start of shared memory",
        ),
        (
            "cvta.shared.u64 %rd1, %rd2; st.u32 [%rd1+64], 0",
            "bounds",
            "0 bytes past the end of shared memory",
        ),
        (
            "atom.shared.add.u32 %r1, [values-4], 1",
            "bounds",
            "before the start of shared",
        ),
        (
            "ld.local.u32 %r1, [mine+32]",
            "bounds",
            "0 bytes past the end of local memory, which has 32 bytes",
        ),
        ("ld.local.u32 %r1, [mine-4]", "bounds", "before the start of local memory"),
        (
            "mov.u64 %rd1, mine; cvta.local.u64 %rd1, %rd1; ld.u32 %r1, [%rd1+32]",
            "bounds",
            "0 bytes past the end of local memory",
        ),
        ("mov.u64 %rd1, table; st.u32 [%rd1+4], 1", "read_only", "at byte 4 of table"),
        ("ld.const.u32 %r1, [table+8]", "bounds", "past the end of table"),
        ("st.global.u32 [counter+4], 1", "bounds", "past the end of counter"),
        (
            "mov.u64 %rd1, out; cvta.param.u64 %rd1, %rd1; st.u32 [%rd1], 1",
            "read_only",
            "at byte 0 of the parameters",
        ),
        (
            "cp.async.ca.shared.global [values+60], [%out], 8",
            "bounds",
            "8 bytes at byte 60 of shared memory",
        ),
        (
            "cp.async.ca.shared.global [values+4], [%out], 8",
            "alignment",
            "multiple of 8",
        ),
        ("cp.async.ca.shared.global [values], [%out+124], 8", "bounds", "argument 0"),
        ("cp.async.ca.shared.global [values], [%out+4], 8", "alignment", "argument 0"),
        (
            "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [values+56]",
            "bounds",
            "16 bytes at byte 56 of shared memory",
        ),
        (
            "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [values+8]",
            "alignment",
            "multiple of 16",
        ),
        (
            "ldmatrix.sync.aligned.m8n16.x1.shared.s8.s4 {%r1}, [values+52]",
            "alignment",
            "multiple of 8",
        ),
        (
            "ldmatrix.sync.aligned.m8n16.x1.shared.s8.s4 {%r1}, [values+64]",
            "bounds",
            "reads 8 bytes, 0 bytes past the end of shared memory",
        ),
        (
            "stmatrix.sync.aligned.m8n8.x1.shared.b16 [values+64], {%r1}",
            "bounds",
            "writes 16 bytes, 0 bytes past the end of shared memory",
        ),
        (
            "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 "
            "{%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%out]",
            "bounds",
            "argument 0",
        ),
        (
            "wmma.store.d.sync.aligned.row.m16n16k16.global.f16 [table], "
            "{%r1, %r2, %r3, %r4}",
            "read_only",
            "table",
        ),
        (
            "wmma.store.d.sync.aligned.row.m16n16k16.shared.f16 [values], "
            "{%r1, %r2, %r3, %r4}",
            "bounds",
            "shared memory",
        ),
        ("trap", "trap", "the kernel stopped itself with a trap"),
        ("mov.u32 %r1, 16; bar.sync %r1", "barrier", "barriers 0 to 15"),
    ],
)
def test_an_access_that_goes_wrong(access: str, kind: str, words: str) -> None:
    before = ".const .align 4 .b32 table[2] = {1, 2};\n.global .align 4 .b32 counter;"
    error = fault(
        f"""
        .shared .align 16 .b8 values[64];
        .local .align 8 .b8 mine[32];
        mov.u64 %rd2, values;
        {access};""",
        before=before,
    )
    assert error.kind == kind
    assert words in str(error)
    assert f"{access.rsplit('; ', maxsplit=1)[-1]};" in str(error)


def test_a_fault_says_who_did_what_and_where() -> None:
    text = f"""{HEAD}
.file 1 "kernel.cu"
.entry k(.param .u64 out)
{{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    .reg .pred %p;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.y;
    mov.u32 %r2, %ctaid.z;
    add.u32 %r1, %r1, %r2;
    setp.lt.u32 %p, %r1, 6;
    @%p ret;
    .loc 1 42 7
    st.global.u32 [%rd1+4], %r1;
}}
"""
    kernels = ptx.parse(text, "kernel.ptx").kernels
    with pytest.raises(KernelFault) as caught:
        kernels["k"].launch((1, 2, 3), (2, 5, 3), [np.zeros(1, np.uint32)])
    error = caught.value
    assert error.thread == (0, 4, 0)
    assert error.block == (0, 0, 2)
    assert error.kind == "bounds"
    line = text.splitlines().index("    st.global.u32 [%rd1+4], %r1;") + 1
    assert error.line == line
    assert error.source == "kernel.cu:42"
    said = str(error)
    for part in (
        "0 bytes past the end of argument 0 (out)",
        "thread (0, 4, 0)",
        "block (0, 0, 2)",
        f"kernel.ptx line {line}",
        "kernel.cu:42",
        "st.global.u32 [%rd1+4], %r1;",
    ):
        assert part in said


def test_memory_is_as_far_as_the_kernel_came() -> None:
    memory = np.full(96, 7, np.uint32)
    inner = memory[32:64]
    with pytest.raises(KernelFault):
        run(
            kernel("""
            st.global.u32 [%mine], %t;
            setp.eq.u32 %p1, %t, 9;
            @%p1 trap;
            st.global.u32 [%mine], 1000;"""),
            inner,
        )
    assert inner.tolist() == list(range(32))
    assert (memory[:32] == 7).all()
    assert (memory[64:] == 7).all()


def test_a_fault_of_one_block_among_many() -> None:
    out = np.zeros(64 * 32, np.uint32)
    error = fault(
        """
        st.global.u32 [%mine], 1;
        setp.eq.u32 %p1, %cta, 17;
        setp.eq.u32 %p2, %t, 5;
        and.pred %p1, %p1, %p2;
        @%p1 trap;""",
        out=out,
        blocks=64,
    )
    assert (error.kind, error.block, error.thread) == ("trap", (17, 0, 0), (5, 0, 0))
    assert out[: 18 * 32].all()


def test_a_kernel_can_be_launched_again_after_a_fault() -> None:
    made = kernel("""
        ld.global.u32 %r1, [%mine];
        setp.eq.u32 %p1, %r1, 0;
        @%p1 trap;
        st.global.u32 [%mine], 5;""")
    out = np.zeros(32, np.uint32)
    with pytest.raises(KernelFault):
        run(made, out)
    out[:] = 1
    run(made, out)
    assert (out == 5).all()


def test_what_is_not_supported_is_a_fault_only_if_it_is_reached() -> None:
    body = """
        setp.eq.u32 %p1, %n, 64;
        @!%p1 bra END;
        tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [image, {%r1}];
    END: st.global.u32 [%mine], 1;"""
    before = ".global .texref image;"
    assert launched(body, before=before).all()
    error = fault(body, before=before, threads=64, out=np.zeros(64, np.uint32))
    assert error.kind == "unsupported"
    assert "tex.1d.v4.f32.s32" in str(error)


def test_an_opcode_that_does_not_exist() -> None:
    body = """
        setp.eq.u32 %p1, %n, 64;
        @%p1 frobnicate.u32 %r1, %r2;
        st.global.u32 [%mine], 1;"""
    assert launched(body, watch="report").all()
    error = fault(body, threads=64, out=np.zeros(64, np.uint32))
    assert error.kind == "unsupported"
    assert "frobnicate.u32" in str(error)


def test_a_guarded_jump_that_is_not_supported_can_be_passed_by() -> None:
    body = """
        setp.eq.u32 %p1, %n, 64;
        @%p1 call nowhere, (%r1);
        st.global.u32 [%mine], 1;"""
    before = ".extern .func nowhere(.reg .b32 a);"
    assert launched(body, before=before, limits=ptx.Limits(instructions=1000)).all()
    error = fault(body, before=before, threads=64, out=np.zeros(64, np.uint32))
    assert error.kind == "unsupported"
    assert "nowhere" in str(error)


def test_metadata_with_an_illegal_code() -> None:
    body = """
        mov.u32 %r1, 0;
        mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
            {{%f1, %f2, %f3, %f4}}, {{%r1, %r1}}, {{%r1, %r1}},
            {{%f1, %f2, %f3, %f4}}, {}, 0x0;"""
    launched("mov.u32 %r2, 0x44444444;" + body.format("%r2"))
    error = fault("mov.u32 %r2, 0;" + body.format("%r2"))
    assert error.kind == "metadata"


FOREVER = """.func (.reg .b32 r) forever(.reg .b32 n)
{
    .local .align 8 .b8 frame[%d];
    add.u32 n, n, 1;
    st.local.u32 [frame], n;
    call (r), forever, (n);
    ret;
}"""


@pytest.mark.parametrize("bytes_, kind", [(8, "depth"), (1024, "stack")])
def test_recursion_without_an_end(bytes_: int, kind: str) -> None:
    error = fault("call (%r1), forever, (0);", before=FOREVER % bytes_)
    assert error.kind == kind
    assert "call (r), forever, (n);" in str(error)


def test_a_larger_stack_is_enough_for_more_calls() -> None:
    function = """.func (.reg .b32 r) down(.reg .b32 n)
    {
        .local .align 8 .b8 frame[1024];
        .reg .pred %p;
        st.local.u32 [frame], n;
        mov.u32 r, 5;
        setp.eq.u32 %p, n, 0;
        @%p ret;
        sub.u32 n, n, 1;
        call (r), down, (n);
        ret;
    }"""
    body = "call (%r1), down, (20); st.global.u32 [%mine], %r1;"
    assert (
        fault(body, before=function, limits=ptx.Limits(stack=1 << 14)).kind == "stack"
    )
    assert (
        launched(body, before=function, limits=ptx.Limits(stack=1 << 15)) == 5
    ).all()


def test_a_call_of_what_is_not_a_function() -> None:
    error = fault("""
        mov.u64 %rd1, 64;
    P: .callprototype _ ();
        call %rd1, (), P;""")
    assert error.kind == "bounds"


def test_a_switch_beyond_its_list() -> None:
    error = fault("""
    T: .branchtargets A, B;
        brx.idx %lane, T;
    A: mov.u32 %r1, 1;
    B: ret;""")
    assert error.kind == "index"
    assert error.thread == (2, 0, 0)


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("blocks", [1, 50_000])
def test_a_limit_ends_what_takes_too_long(
    blocks: int, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fragmenta.launch.grid.cores", lambda: cores)
    body = "add.u32 %r1, %r1, 1;" if blocks > 1 else "L: bra L;"
    error = fault(body, blocks=blocks, limits=ptx.Limits(instructions=10_000))
    assert error.kind == "limit"
    assert "10,000" in str(error)
    if blocks == 1:
        assert "\n  block (0, 0, 0) is here:\n  warp 0 lanes 0-31\n" in str(error)
        assert error.line
        assert "L: bra L;" in str(error)
    run(
        kernel("ret;"),
        np.zeros(1),
        blocks=blocks // 100,
        limits=ptx.Limits(instructions=10_000),
    )


INTERRUPTED = """
import signal
# A run in the background may have told its children to ignore interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
import os, sys, threading, numpy as np
from fragmenta.launch import grid
from tests.simt.kernels import *
grid.cores = lambda: {cores}
made = kernel('''{body}''', before='''{before}''')
out = np.zeros(32, np.uint32)
run(made, out)
out[0] = 1

def interrupt():
    while not out[1]:  # the kernel says that it runs
        os.sched_yield()
    os.kill(os.getpid(), signal.SIGINT)

try:
    threading.Thread(target=interrupt).start()
    run(made, out, blocks={blocks})
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
RUNS = """
    ld.global.u32 %r1, [%out];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 ret;
    st.global.u32 [%out+4], 1;"""
LOOP = (
    RUNS
    + """
    mov.u64 %rd20, 0;
L:  add.u64 %rd20, %rd20, 1;
    bra L;"""
)
PRINTS = (
    RUNS
    + r"""
    .local .align 8 .b8 none[8];
    .param .b64 text; .param .b64 values; .param .b32 count;
    mov.u64 %rd1, format;
    st.param.b64 [text], %rd1;
    st.param.b64 [values], 0;
L:  call (count), vprintf, (text, values);
    bra L;"""
)
VPRINTF = """.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
.global .align 1 .b8 format[3] = {104, 10, 0};"""


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "kill"), reason="no signals here")
@pytest.mark.parametrize(
    "body, before, blocks, cores",
    [
        (LOOP, "", 1, 1),
        (LOOP, "", 4, 2),
        (RUNS, "", 1 << 30, 1),
        (RUNS, "", 1 << 30, 2),
        (PRINTS, VPRINTF, 1, 1),
    ],
    ids=["loop", "loops", "blocks", "blocks in threads", "printf"],
)
def test_an_interrupt_ends_a_launch(
    body: str, before: str, blocks: int, cores: int
) -> None:
    text = INTERRUPTED.format(body=body, before=before, blocks=blocks, cores=cores)
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


def test_faults_of_several_threads_are_those_of_one() -> None:
    assert threads.cores() >= 1
    messages = set()
    for cores in (1, 3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fragmenta.launch.grid.cores", lambda cores=cores: cores)
            error = fault("ld.global.u32 %r1, [%out+128];", blocks=1)
            messages.add(re.sub(r"0x[0-9a-f]+", "", str(error)))
    assert len(messages) == 1
