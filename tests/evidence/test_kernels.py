"""Does kernel.verify start both sides from the same, and see every difference?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.cuda.tools import device, programs
from fragmenta.cuda.tools.programs import FILL, machine_code
from fragmenta.errors import KernelFault
from fragmenta.evidence import kernels
from tests.evidence.fake import TEXT, Fake, install


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the fake was asked."""
    return install(monkeypatch)


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
    x = np.arange(16, dtype=np.float32)
    report = kernel.verify(1, 8, [ptx.pointer(x, 32), x, 8, 1.0], gpu=Fake())
    assert report.same
    assert report.bytes == 64
    assert launched["programs"][0].parameters[:2] == [(0, 32), (0, 0)]
    launched["spoil"] = (0, 45)
    report = kernel.verify(1, 8, [ptx.pointer(x, 32), x, 8, 1.0], gpu=Fake())
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
