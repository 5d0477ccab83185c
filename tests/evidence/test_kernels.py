"""Does kernel.verify start both sides from the same, and see every difference?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.cuda.tools import device, programs
from fragmenta.cuda.tools.programs import FILL, Launched, Program, machine_code
from fragmenta.errors import KernelFault
from fragmenta.evidence import kernels

TEXT = """
.version 8.0
.target sm_80
.address_size 64
.global .u32 calls;
.visible .entry add(.param .u64 x, .param .u64 y, .param .u32 n, .param .f32 by)
{
    .reg .pred %p;
    .reg .b32 %r<4>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd0, [x];
    ld.param.u64 %rd1, [y];
    ld.param.u32 %r0, [n];
    ld.param.f32 %f0, [by];
    mov.u32 %r1, %tid.x;
    setp.ge.u32 %p, %r1, %r0;
    @%p ret;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd0, %rd2;
    add.u64 %rd4, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    add.f32 %f2, %f1, %f0;
    st.global.f32 [%rd4], %f2;
    atom.global.add.u32 %r2, [calls], 1;
    ret;
}
"""


class Fake:
    """A GPU that is this package again, and may change a byte on the way."""

    name, target = "a fake", "sm_90a"

    def versions(self) -> dict[str, str]:
        return {"gpu": self.name, "target": self.target}


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the fake was asked; ``spoil`` is (buffer, byte) that it changes."""
    seen: dict[str, Any] = {"spoil": None, "programs": []}

    def launch(
        gpu: Fake, program: Program, buffers: Any, pattern: int | None = None
    ) -> Launched:
        seen["programs"].append(program)
        copies = [each.copy() for each in buffers]
        given = [
            each if isinstance(each, bytes) else ptx.pointer(copies[each[0]], each[1])
            for each in program.parameters
        ]
        kernel = ptx.parse(TEXT).kernels[program.entry]
        kernel.launch(program.grid, program.block, given, target=gpu.target)
        if seen["spoil"]:
            which, place = seen["spoil"]
            copies[which][place] ^= 0x80
        return Launched(copies, seen.get("printed", ""), 0.5)

    monkeypatch.setattr(programs, "launch", launch)
    return seen


@pytest.fixture
def kernel() -> ptx.Kernel:
    return ptx.parse(TEXT).kernels["add"]


def test_the_same_is_the_same(kernel: ptx.Kernel, launched: dict[str, Any]) -> None:
    x, y = np.arange(8, dtype=np.float32), np.zeros((2, 4), np.float32)
    report = kernel.verify(1, 32, [x, y, 8, 0.5], gpu=Fake())
    assert report.same
    assert report.bytes == 64
    assert str(report) == "add, 64 bytes compared with a fake: no byte differs"
    assert not y.any()  # both sides had copies
    (asked,) = launched["programs"]
    assert asked.parameters == [
        (0, 0), (1, 0), np.int32(8).tobytes(), np.float32(0.5).tobytes(),
    ]  # fmt: skip
    assert (asked.grid, asked.block) == ((1, 1, 1), (32, 1, 1))
    assert asked.code[:4] == b"\x7fELF"


def test_one_bit_is_seen(kernel: ptx.Kernel, launched: dict[str, Any]) -> None:
    launched["spoil"] = (1, 4 * 6 + 3)
    x, y = np.arange(8, dtype=np.float32), np.zeros((2, 4), np.float32)
    report = kernel.verify(1, 32, [x, y, 8, 0.5], gpu=Fake())
    assert not report.same
    (wrong,) = report.differences
    assert (wrong.argument, wrong.name, wrong.first) == (1, "y", (1, 2))
    assert (wrong.elements, wrong.size, wrong.count) == (1, 8, 1)
    assert (wrong.gpu, wrong.cpu) == ("0xc0d00000", "0x40d00000")
    assert "1 of 8 elements differ; first at [1, 2]" in str(report)
    assert report.to_json()["differences"][0]["name"] == "y"


def test_other_words_are_seen(kernel: ptx.Kernel, launched: dict[str, Any]) -> None:
    launched["printed"] = "hello\n"
    x = np.zeros(8, np.float32)
    report = kernel.verify(1, 8, [x, x, 8, 1], gpu=Fake())
    assert not report.same
    assert "printed other lines" in str(report)


def test_pointers_and_equal_arrays_share_a_buffer(
    kernel: ptx.Kernel, launched: dict[str, Any]
) -> None:
    x = np.arange(12, dtype=np.float32)
    report = kernel.verify(1, 8, [ptx.pointer(x, 16), x, 8, 1.0], gpu=Fake())
    assert report.same
    assert report.bytes == 48
    assert launched["programs"][0].parameters[:2] == [(0, 16), (0, 0)]
    launched["spoil"] = (0, 45)
    report = kernel.verify(1, 8, [ptx.pointer(x, 16), x, 8, 1.0], gpu=Fake())
    assert [each.first for each in report.differences] == [(11,)]


def test_variables_start_anew(kernel: ptx.Kernel, launched: dict[str, Any]) -> None:
    x = np.zeros(8, np.float32)
    kernel.verify(1, 8, [x, x, 8, 1], gpu=Fake())
    assert not kernel.loaded.variables["calls"].any()


def test_another_target_is_refused(
    kernel: ptx.Kernel, launched: dict[str, Any]
) -> None:
    x = np.zeros(8, np.float32)
    with pytest.raises(fm.UnsupportedTarget, match="is sm_90a, not sm_80"):
        kernel.verify(1, 8, [x, x, 8, 1], target="sm_80", gpu=Fake())
    assert kernel.verify(1, 8, [x, x, 8, 1], target="sm_90", gpu=Fake()).same


def test_a_fault_never_reaches_the_gpu(
    kernel: ptx.Kernel, launched: dict[str, Any]
) -> None:
    x = np.zeros(8, np.float32)
    with pytest.raises(KernelFault, match="out of bounds"):
        kernel.verify(1, 32, [x, x, 9, 1], gpu=Fake())
    assert not launched["programs"]


def test_without_a_gpu(kernel: ptx.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise fm.NoDevice("no GPU")

    monkeypatch.setattr(device, "present", none)
    with pytest.raises(fm.NoDevice):
        kernel.verify(1, 8, [])


def test_options_reach_the_assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(
        programs, "machine_code", lambda _text, *rest: seen.append(rest) or b""
    )
    debug = TEXT.replace("sm_80", "sm_80, debug")
    for text, contract in ((TEXT, True), (TEXT, False), (debug, True)):
        kernels.assembled(ptx.parse(text).kernels["add"], "sm_90a", contract)
    assert seen == [("sm_90a",), ("sm_90a", "--fmad=false"), ("sm_90a", "-g")]


def test_the_filler_assembles_and_runs() -> None:
    assert machine_code(FILL, "sm_90a")[:4] == b"\x7fELF"
    result = ptx.parse(FILL).kernels["fill"].launch(2, 64, [1, 1024], shared=1024)
    assert result.counts["st.volatile.shared.u32"] == 2 * 2 * 4
    assert result.counts["st.volatile.u32"] == 2 * 2 * programs.LOCAL // 4


@pytest.mark.gpu
def test_the_gpu_of_this_machine(kernel: ptx.Kernel) -> None:
    try:
        device.present()
    except fm.NoDevice as why:
        pytest.skip(str(why))
    x, y = np.arange(8, dtype=np.float32), np.zeros((2, 4), np.float32)
    report = kernel.verify(1, 32, [x, y, 8, 0.1])
    assert report.same, str(report)
    assert report.result.instructions
