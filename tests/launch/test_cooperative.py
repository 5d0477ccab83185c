"""Cooperative grids, and kernels that launch kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fragmenta import ptx
from fragmenta.commands.app import app
from fragmenta.errors import Error, KernelFault, KernelHazard
from fragmenta.launch import grid
from fragmenta.ptx.rules import WARNING

#: ``this_grid().sync()``, as NVRTC 13 writes it; LOOK is the address of the workspace.
LOOK = """mov.u32 %r3, %envreg2; cvt.u64.u32 %rd7, %r3;
mov.u32 %r4, %envreg1; cvt.u64.u32 %rd8, %r4; bfi.b64 %rd3, %rd8, %rd7, 32, 32;
setp.ne.s64 %p1, %rd3, 0;"""
SYNC = """@%p1 bra VALID; trap; VALID: barrier.sync 0;
mov.u32 %r5, %tid.y; mov.u32 %r6, %tid.x; add.s32 %r7, %r6, %r5; mov.u32 %r8, %tid.z;
neg.s32 %r9, %r8; setp.ne.s32 %p2, %r7, %r9; @%p2 bra OTHERS;
add.s64 %rd9, %rd3, 4; mov.u32 %r12, %nctaid.x; mov.u32 %r13, %nctaid.y;
mul.lo.s32 %r14, %r12, %r13; mov.u32 %r15, %nctaid.z; mul.lo.s32 %r16, %r14, %r15;
mov.u32 %r17, %ctaid.y; mov.u32 %r18, %ctaid.x; add.s32 %r18, %r18, %r17;
mov.u32 %r19, %ctaid.z; neg.s32 %r20, %r19; setp.eq.s32 %p3, %r18, %r20;
mov.u32 %r21, -2147483647; sub.s32 %r22, %r21, %r16; selp.b32 %r11, %r22, 1, %p3;
atom.add.release.gpu.u32 %r10, [%rd9], %r11;
POLL: ld.acquire.gpu.u32 %r23, [%rd9]; xor.b32 %r24, %r23, %r10;
setp.gt.s32 %p4, %r24, -1; @%p4 bra POLL;
OTHERS: barrier.sync 0;"""
#: Three times: each thread adds one to its word, then takes the block's opposite.
HEAD = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 x, .param .u32 n)
{
.reg .pred %p<9>; .reg .b32 %r<60>; .reg .b64 %rd<30>;
ld.param.u64 %rd20, [x]; ld.param.u32 %r50, [n];
mov.u32 %r31, %ctaid.x; mov.u32 %r32, %ctaid.y; mov.u32 %r33, %nctaid.x;
mad.lo.u32 %r31, %r32, %r33, %r31; mov.u32 %r34, %ntid.x; mov.u32 %r35, %tid.x;
mad.lo.u32 %r36, %r31, %r34, %r35; mov.u32 %r37, 0; mov.u32 %r39, %r36;
TOP: mad.wide.u32 %rd21, %r36, 4, %rd20; st.global.u32 [%rd21], %r39;
"""
TAIL = """
sub.u32 %r38, %r50, 1; sub.u32 %r38, %r38, %r36; mad.wide.u32 %rd22, %r38, 4, %rd20;
ld.global.u32 %r39, [%rd22]; add.u32 %r39, %r39, 1;
"""
AGAIN = """add.u32 %r37, %r37, 1; setp.lt.u32 %p5, %r37, 3; @%p5 bra TOP;
st.global.u32 [%rd21], %r39; ret; }
"""
TWICE = (
    SYNC.replace("VALID", "VALID2").replace("POLL", "POLL2").replace("OTHERS", "END")
)
RIGHT = HEAD + LOOK + SYNC + TAIL + TWICE + AGAIN


def wanted(threads: int) -> list[int]:
    """What the rounds leave: a number goes to its opposite, and grows by one."""
    held = np.arange(threads)
    for _ in range(3):
        held = held[::-1] + 1
    found: list[int] = held.tolist()
    return found


@pytest.mark.parametrize("grid", [1, 2, 7, (5, 3)])
def test_the_blocks_of_a_grid_synchronise(grid: int | tuple[int, int]) -> None:
    count = 64 * int(np.prod(grid))
    x = np.zeros(count, np.uint32)
    made = ptx.parse(RIGHT).kernels["k"]
    result = made.launch(grid, 64, [x, np.uint32(count)], cooperative=True)
    assert x.tolist() == wanted(count)
    assert result.hazards == []


def test_with_clusters_and_unwatched() -> None:
    made = ptx.parse(RIGHT).kernels["k"]
    for options in ({"cluster": 2}, {"watch": False}):
        x = np.zeros(256, np.uint32)
        made.launch(4, 64, [x, np.uint32(256)], cooperative=True, **options)
        assert x.tolist() == wanted(256)


def test_all_blocks_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "MOST_WAITING", 3)
    x = np.zeros(640, np.uint32)
    made = ptx.parse(RIGHT).kernels["k"]
    made.launch(10, 64, [x, np.uint32(640)], cooperative=True)
    assert x.tolist() == wanted(640)


def test_without_a_barrier_it_is_a_race() -> None:
    for wrong in (
        HEAD + LOOK + TAIL + TWICE + AGAIN,
        HEAD + LOOK + SYNC + TAIL + AGAIN,
    ):
        x = np.zeros(256, np.uint32)
        with pytest.raises(KernelHazard, match="argument 0"):
            ptx.parse(wrong).kernels["k"].launch(
                4, 64, [x, np.uint32(256)], cooperative=True
            )


def test_a_launch_that_is_not_cooperative_says_so() -> None:
    x = np.zeros(256, np.uint32)
    made = ptx.parse(RIGHT).kernels["k"]
    with pytest.raises(KernelFault, match="cooperative=True") as caught:
        made.launch(4, 64, [x, np.uint32(256)])
    assert caught.value.kind == "trap"
    careless = RIGHT.replace("trap;", "")
    with pytest.raises(KernelFault, match="cooperative=True"):
        ptx.parse(careless).kernels["k"].launch(4, 64, [x, np.uint32(256)])
    # Another trap has nothing to do with it.
    with pytest.raises(KernelFault) as caught:
        ptx.parse(HEAD + "trap; ret; }").kernels["k"].launch(1, 32, [x, np.uint32(1)])
    assert "cooperative" not in str(caught.value)


def test_a_kernel_may_ask_whether_the_launch_is_cooperative() -> None:
    text = HEAD + LOOK + "selp.u32 %r40, 7, 5, %p1; st.global.u32 [%rd21], %r40; ret; }"
    made, x = ptx.parse(text).kernels["k"], np.zeros(1, np.uint32)
    for cooperative, want in ((False, 5), (True, 7)):
        made.launch(1, 1, [x, np.uint32(1)], cooperative=cooperative)
        assert x[0] == want


def test_what_is_refused() -> None:
    made, x = ptx.parse(RIGHT).kernels["k"], np.zeros(64, np.uint32)
    with pytest.raises(Error, match="True or False"):
        made.launch(1, 64, [x, np.uint32(64)], cooperative="yes")
    with pytest.raises(Error, match="Dask"):
        made.launch(1, 64, [x, np.uint32(64)], cooperative=True, client=object())


def test_raw_kernels_and_the_command(tmp_path: Path) -> None:
    body = 'unsigned h, l; asm volatile("mov.u32 %0, %%envreg1;" : "=r"(h));'
    body += 'asm volatile("mov.u32 %0, %%envreg2;" : "=r"(l)); x[0] = (h | l) != 0;'
    code = f'extern "C" __global__ void k(int *x) {{ {body} }}'
    x = np.zeros(1, np.int32)
    raw = ptx.RawKernel(code, "k", enable_cooperative_groups=True)
    raw((1,), (1,), (x,))
    assert x[0] == 1
    raw((1,), (1,), (x,), cooperative=False)
    assert x[0] == 0
    file = tmp_path / "k.ptx"
    file.write_text(RIGHT)
    words = [
        "launch",
        str(file),
        "--grid",
        "2",
        "--block",
        "64",
        "--arg",
        "zeros:u32:128",
        "--arg",
        "u32:128",
    ]
    assert CliRunner().invoke(app, [*words, "--cooperative"]).exit_code == 0
    told = CliRunner().invoke(app, words)
    assert told.exit_code == 1


# ── kernels that launch kernels ─────────────────────────────────────────────

PARENT = """.version 9.0
.target sm_90
.address_size 64
.extern .func (.param .b64 r) NAME (.param .b64 a);
.visible .entry child(.param .u64 x) { ret; }
.visible .entry parent(.param .u64 x)
{
.reg .pred %p; .reg .b32 %r; .reg .b64 %d<3>;
ld.param.u64 %d1, [x]; ld.global.u32 %r, [%d1]; setp.ne.s32 %p, %r, 0; @%p bra DONE;
mov.u64 %d2, child;
{ .param .b64 a; .param .b64 r; st.param.b64 [a], %d2; call.uni (r), NAME, (a); }
DONE: ret;
}
"""


@pytest.mark.parametrize(
    "name, said",
    [
        ("__cudaCDP2LaunchDeviceV2", "cudaLaunchDeviceV2 is of dynamic parallelism"),
        ("__cudaCDP2GetParameterBufferV2", "cudaGetParameterBufferV2 is of dynamic"),
        ("cudaLaunchDevice", "cudaLaunchDevice is of dynamic parallelism"),
        ("cudaDeviceSynchronize", "cudaDeviceSynchronize is of dynamic parallelism"),
        ("helper", "helper has no body in this file"),
    ],
)
def test_a_function_that_is_not_there_is_named(name: str, said: str) -> None:
    module = ptx.parse(PARENT.replace("NAME", name))
    found = [each for each in module.check() if each.rule == "unsupported"]
    assert [(each.severity, each.line) for each in found] == [(WARNING, 11)]
    assert found[0].message.startswith(said)
    with pytest.raises(KernelFault, match=said) as caught:
        module.kernels["parent"].launch(1, 32, [np.zeros(1, np.int32)])
    assert caught.value.kind == "unsupported"
    # The launch goes on where the call is not reached.
    module.kernels["parent"].launch(1, 32, [np.ones(1, np.int32)])


def test_functions_of_the_host_are_there() -> None:
    module = ptx.parse(PARENT.replace("NAME", "malloc"))
    assert not [each for each in module.check() if each.rule == "unsupported"]
