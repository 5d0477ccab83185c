"""The walks of CONTRIBUTING.md: a new opcode and a new front end need no more than it says.

The opcode is a line of the table with its function.  The front end is LLVM's own compiler
for NVIDIA's targets: a class with what the protocol asks for.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from llvmlite import binding

from fragmenta import ptx
from fragmenta.base.jit.trace import Value
from fragmenta.errors import BadCall, KernelHazard
from fragmenta.frontends.protocol import CompiledPtx, Passed, Session
from fragmenta.launch.coverage import covered
from fragmenta.ptx.checking.texts import check_text
from fragmenta.ptx.languages import Words
from fragmenta.ptx.opcodes import TABLE, bits
from fragmenta.ptx.opcodes.table import Qualifiers, opcodes

KERNEL = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    backwards.b32 %r2, %r1;
    st.global.b32 [%rd3], %r2;
    ret;
}
"""


def test_an_opcode_is_its_line_and_its_function(
    request: pytest.FixtureRequest,
) -> None:
    # What it computes is kept by its name: a function that changes needs another one.
    request.addfinalizer(lambda: TABLE.lines.drop("backwards"))

    @opcodes("backwards.type  d, a  ; type = b32 b64")
    def backwards(q: Qualifiers, a: Value) -> Value:
        return bits.reverse_bits(a)

    assert not check_text(KERNEL)
    (wrong,) = check_text(KERNEL.replace("%r2, %r1;", "%r2, %rd1;"))
    assert "a of backwards.b32 is a .b32 register; %rd1 is declared as .b64" in str(
        wrong
    )
    out = np.zeros(32, np.uint32)
    ptx.parse(KERNEL).kernels["k"].launch(1, 32, [out], watch=False)
    assert out.tolist() == [int(f"{i:032b}"[::-1], 2) for i in range(32)]
    assert covered(TABLE.lines["backwards"][0]).runs == "yes"


LLVM = """
target triple = "nvptx64-nvidia-cuda"
@tile = internal addrspace(3) global [64 x i32] undef, align 4
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare void @llvm.nvvm.barrier0()
define ptx_kernel void @flip(ptr addrspace(1) %data) {
  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %p = getelementptr i32, ptr addrspace(1) %data, i32 %t
  %v = load i32, ptr addrspace(1) %p
  %s = getelementptr [64 x i32], ptr addrspace(3) @tile, i32 0, i32 %t
  store i32 %v, ptr addrspace(3) %s
  call void @llvm.nvvm.barrier0()
  %o = sub i32 63, %t
  %q = getelementptr [64 x i32], ptr addrspace(3) @tile, i32 0, i32 %o
  %w = load i32, ptr addrspace(3) %q
  store i32 %w, ptr addrspace(1) %p
  ret void
}
"""
BARRIER = "  call void @llvm.nvvm.barrier0()\n"


class Llvm:
    """The front end: kernels in LLVM's language, each a text with one kernel."""

    words = Words("llvm", "", "llvm.nvvm.barrier0", "", "")

    def made(
        self, kernel: str, arguments: Sequence[object], target: str
    ) -> CompiledPtx:
        binding.initialize_all_targets()
        binding.initialize_all_asmprinters()
        found = binding.Target.from_triple("nvptx64-nvidia-cuda")
        machine = found.create_target_machine(cpu=target, features="+ptx80")
        return CompiledPtx(machine.emit_assembly(binding.parse_assembly(kernel)))

    def passed(self, kernel: str, arguments: Sequence[object]) -> list[Passed]:
        return [Passed("data", each) for each in arguments]

    def divert(self, session: Session[str]) -> Callable[[], None]:
        LAUNCHED.append(session)
        return LAUNCHED.clear


LAUNCHED: list[Session[str]] = []


def test_a_front_end_is_one_class() -> None:
    data = np.arange(64, dtype=np.int32)
    wrong = LLVM.replace(BARRIER, "")
    with Session(Llvm(), "sm_90").diverted() as session:
        (here,) = LAUNCHED
        result = here.launch(LLVM, 1, 64, [data])
        assert session.last is result
        assert data.tolist() == list(range(63, -1, -1))
        with pytest.raises(
            KernelHazard, match=r"Let llvm\.nvvm\.barrier0 come between"
        ):
            here.launch(wrong, 1, 64, [data])
        assert session.last.problems[0].rule == "shared-race"
        with pytest.raises(ptx.KernelFault, match=r"argument 0 \(data\)"):
            here.launch(wrong, 1, 64, [data[:8].copy()], watch=False)
    assert not LAUNCHED
    with pytest.raises(BadCall, match="did you mean watch"):
        Session(Llvm(), "sm_90", wach=True)  # type: ignore[call-arg]
