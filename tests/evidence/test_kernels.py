"""kernel.verify starts both sides from the same bytes, and finds every difference."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.cuda.tools import assembler, device, programs
from fragmenta.cuda.tools.programs import FILL, LaunchOutput, machine_code
from fragmenta.errors import KernelFault
from fragmenta.inspect.evidence import kernels
from tests.evidence.fake import TEXT, Fake, install
from tests.launch.test_cooperative import RIGHT


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
    assert str(report) == "add, 64 bytes compared with a fake (sm_90a): no byte differs"
    assert not y.any()  # both sides had copies
    (asked,) = launched["programs"]
    assert asked.parameters == [
        (0, 0),
        (1, 0),
        np.int32(8).tobytes(),
        np.float32(0.5).tobytes(),
    ]
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
    with pytest.raises(fm.errors.UnsupportedTarget, match="is sm_90a, not sm_80"):
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
        raise fm.errors.NoDevice("no GPU")

    monkeypatch.setattr(device, "present", none)
    with pytest.raises(fm.errors.NoDevice):
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
    except fm.errors.NoDevice as why:
        pytest.skip(str(why))
    x, y = np.arange(8, dtype=np.float32), np.zeros((2, 4), np.float32)
    report = kernel.verify(1, 32, [x, y, 8, 0.1])
    assert report.same, str(report)
    assert report.result.instructions


# ── whose arithmetic, which assembler, which cluster ────────────────────────

SUM = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry sum(.param .u64 out)
{
    .reg .b32 %a<4>;
    .reg .b32 %b<2>;
    .reg .b32 %r<3>;
    .reg .f32 %d<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %laneid;
    // 2048 * 2048, its negative and 1 in one row: A100 adds 8 products at a time, and
    // keeps fewer bits of each than an H200.
    mov.b32 %a0, 0x68006800; mov.b32 %a1, 0x68006800;
    mov.b32 %a2, 0x3c003c00; mov.b32 %a3, 0x3c003c00;
    mov.b32 %b0, 0xe8006800; mov.b32 %b1, 0x14003401;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
        {%d0, %d1, %d2, %d3}, {%a0, %a1, %a2, %a3}, {%b0, %b1},
        {0f3DCCCCCD, 0f3DCCCCCD, 0f3DCCCCCD, 0f3DCCCCCD};
    mul.wide.u32 %rd1, %r0, 16;
    add.u64 %rd2, %rd0, %rd1;
    st.global.v4.f32 [%rd2], {%d0, %d1, %d2, %d3};
    ret;
}
"""


def bits_of(target: str) -> bytes:
    out = np.zeros(128, np.float32)
    ptx.parse(SUM).kernels["sum"].launch(1, 32, [out], target=target)
    return out.tobytes()


def test_the_arithmetic_is_that_of_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bits_of("sm_80") != bits_of("sm_90a")  # otherwise this shows nothing

    def launch(
        gpu: Fake, program: Any, buffers: Any, pattern: Any = None
    ) -> LaunchOutput:
        return LaunchOutput([np.frombuffer(bits_of(gpu.target), np.uint8)], "")

    monkeypatch.setattr(programs, "launch", launch)
    kernel = ptx.parse(SUM).kernels["sum"]
    report = kernel.verify(1, 32, [np.zeros(128, np.float32)], gpu=Fake())
    assert report.same
    assert report.result.target == "sm_90a"
    assert "compared with a fake (sm_90a): no byte differs" in str(report)
    said = "with the arithmetic of sm_90a (the PTX is for sm_80), not watched"
    assert said in str(report.result)
    plain = kernel.launch(1, 32, [np.zeros(128, np.float32)])
    assert "with the arithmetic of sm_80, no problems" in str(plain)


CLUSTER = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry rank(.param .u64 out)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %ctaid.y;
    mov.u32 %r1, %nctaid.x;
    mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r0, %r0, %r1, %r2;
    mov.u32 %r1, %cluster_ctarank;
    mov.u32 %r2, %cluster_nctarank;
    mad.lo.u32 %r1, %r2, 16, %r1;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd2, %rd0, %rd1;
    st.global.u32 [%rd2], %r1;
    ret;
}
"""


def test_a_cluster_reaches_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def launch(
        gpu: Fake, program: Any, buffers: Any, pattern: Any = None
    ) -> LaunchOutput:
        seen.append(program)
        return LaunchOutput([np.zeros_like(each) for each in buffers], "")

    monkeypatch.setattr(programs, "launch", launch)
    kernel = ptx.parse(CLUSTER).kernels["rank"]
    out = np.zeros(4, np.uint32)
    report = kernel.verify(4, 1, [out], cluster=2, gpu=Fake())
    assert report.differences[0].cpu == "0x00000020"
    assert [each.cluster for each in seen] == [(2, 1, 1)]
    with pytest.raises(fm.Error, match="cannot be divided into clusters"):
        kernel.verify(3, 1, [out], cluster=2, gpu=Fake())


def test_a_cooperative_grid_reaches_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the kernel here traps: it finds no workspace."""
    seen = []

    def launch(
        gpu: Fake, program: Any, buffers: Any, pattern: Any = None
    ) -> LaunchOutput:
        seen.append(program)
        return LaunchOutput([np.zeros_like(each) for each in buffers], "")

    monkeypatch.setattr(programs, "launch", launch)
    kernel = ptx.parse(RIGHT).kernels["k"]
    given = [np.zeros(128, np.uint32), np.uint32(128)]
    report = kernel.verify(4, 32, given, cooperative=True, gpu=Fake())
    assert report.differences[0].elements == 128
    assert [each.cooperative for each in seen] == [True]
    with pytest.raises(fm.errors.KernelFault, match="cooperative=True"):
        kernel.verify(4, 32, given, gpu=Fake())
    with pytest.raises(fm.Error, match="cooperative is True or False; given 2"):
        kernel.verify(4, 32, given, cooperative=2, gpu=Fake())
    assert len(seen) == 1


class Recorder:
    """A driver that notes what it is asked to launch."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        names = (
            "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES dynamic",
            ("CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED larger"),
        )
        self.CUfunction_attribute = SimpleNamespace(
            **dict(each.split() for each in names)
        )
        self.CUlaunchAttributeID = SimpleNamespace(
            CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION="cluster"
        )
        self.CUlaunchConfig = SimpleNamespace

    def CUlaunchAttribute(self) -> Any:
        return SimpleNamespace(value=SimpleNamespace(clusterDim=SimpleNamespace()))

    def cuModuleGetFunction(self, module: Any, name: bytes) -> Any:
        return 0, name

    def cuFuncSetAttribute(self, function: Any, which: str, value: int) -> Any:
        self.asked.append((which, value))
        return (0,)

    def cuLaunchKernelEx(self, config: Any, *rest: Any) -> Any:
        self.asked.append(config)
        return (0,)


@pytest.mark.parametrize("cluster", [(1, 1, 1), (2, 1, 1), (4, 2, 2)])
def test_the_driver_is_told_of_a_cluster(
    cluster: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    bindings = ModuleType("cuda.bindings")
    bindings.driver = recorder  # type: ignore[attr-defined]
    for name, module in (("cuda", ModuleType("cuda")), ("cuda.bindings", bindings)):
        monkeypatch.setitem(sys.modules, name, module)
    stream = SimpleNamespace(handle=17, sync=lambda: None)
    gpu = device.GPU(SimpleNamespace(create_stream=lambda: stream, set_current=int))
    gpu.launch(0, "rank", (16, 2, 2, 32, 1, 1), 64, [], lambda _: [], cluster)
    config = recorder.asked[-1]
    assert (config.gridDimX, config.blockDimX, config.sharedMemBytes) == (16, 32, 64)
    assert config.hStream == 17
    assert ("larger", 1) in recorder.asked or cluster != (4, 2, 2)
    if cluster == (1, 1, 1):
        assert config.numAttrs == 0
        return
    (attribute,) = config.attrs
    size = attribute.value.clusterDim
    assert (attribute.id, config.numAttrs) == ("cluster", 1)
    assert (size.x, size.y, size.z) == cluster


OLDER = Path(sys.prefix) / "toolkit-13.0" / "nvidia" / "cu13" / "bin" / "ptxas"


@pytest.fixture
def older() -> Path:
    if not OLDER.exists():
        pytest.skip("the assembler of toolkit 13.0 is not installed")
    return OLDER


def test_an_assembler_is_chosen_that_reads_the_version(
    older: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = assembler.assemblers()[0]
    text = SUM.replace(".version 8.0", f".version {assembler.newest_version(newest)}")
    assert assembler.newest_version(older) < assembler.newest_version(newest)
    for every in ([older, newest], [newest, older]):
        monkeypatch.setattr(assembler, "assemblers", lambda e=every: e)
        assert machine_code(text, "sm_90a")[:4] == b"\x7fELF"
        assert programs.assembled_by(text) == assembler.release(newest)
    assert programs.assembled_by(SUM) == assembler.release(newest)


def test_an_older_assembler_is_given_the_program_in_its_version(
    older: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assembler, "assemblers", lambda: [older])
    text = SUM.replace(".version 8.0", "// .version 1.0\n .version 9.4")
    for options in ((), ("--fmad=false",)):
        assert machine_code(text, "sm_90a", *options)[:4] == b"\x7fELF"
    with pytest.raises(fm.Error, match=r"Unsupported \.version 9\.4"):
        assembler.assemble(text, "sm_90a", ptxas=older)
    new = text.replace("mma.sync", "nonsense.sync")
    with pytest.raises(fm.Error, match=r"has PTX 9\.4; the newest assembler here"):
        machine_code(new, "sm_90a")


def test_without_an_assembler_the_driver_gets_the_ptx(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(assembler, "assemblers", list)
    assert machine_code(SUM, "sm_90a") == SUM.encode() + b"\0"
    assert programs.assembled_by(SUM) == "the driver's own"


def test_every_assembler_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {
        "wheel": "packages/nvidia/cu13/bin/ptxas",
        "path": "bin/ptxas",
        "home": "cuda/bin/ptxas",
        "triton": "packages/triton/backends/nvidia/bin/ptxas-blackwell",
    }
    for name in places.values():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages")])
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    monkeypatch.delenv("CUDA_PATH", raising=False)
    found = [each for each in assembler.assemblers() if tmp_path in each.parents]
    assert found == [(tmp_path / each).resolve() for each in places.values()]
