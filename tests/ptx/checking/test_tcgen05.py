"""tcgen05 in a file: by the catalogue, as ptxas has it."""

from __future__ import annotations

import pytest

import fragmenta as fm
from fragmenta.cuda.tools import assembler
from fragmenta.ptx.checking.texts import check_text
from tests.ptx.checking.kernels import errors, kernel

MMA = "tcgen05.mma.cta_group::1.kind::f16"
SETS = "mov.b32 %r0, 0; mov.b64 %rd0, 0; setp.eq.s32 %p0, %r0, 0;"


def said(text: str, target: str = "sm_100a", version: str = "9.4") -> list[str]:
    found = errors(kernel(f"{SETS} {text}", target, version))
    return [f"{each.rule}: {each.message}; {each.hint}" for each in found]


# rule and words of the message, or nothing | target | statements
CASES = """
                                    | sm_100a | tcgen05.mma.cta_group::1.kind::f16 [%r0], %rd0, %rd0, 0x08400010, %p0;
                                    | sm_100a | tcgen05.mma.kind::f16.cta_group::1 [%r0+4*16], [%r0], %rd0, %r0, !%p0, 3;
                                    | sm_107a | tcgen05.ld.spcompress.sync.aligned.32x32b.x4.min.sp::2:4.f32.b2 {%r5}, {%r1,%r2}, [%r0];
                                    | sm_103a | tcgen05.ld.red.sync.aligned.32x32b.x2.max.f32 {%f1,%f2}, %f3, [%r0];
tensor: .* d-tmem is in .b32        | sm_100a | tcgen05.mma.cta_group::1.kind::f16 [%rd0], %rd0, %rd0, %r0, %p0;
tensor: .* nCols is 32, 64          | sm_100a | tcgen05.alloc.cta_group::1.sync.aligned.b32 [tile], 96;
tensor: .* mean kind::f16           | sm_100a | tcgen05.mma.cta_group::1.kind::f61 [%r0], %rd0, %rd0, %r0, %p0;
target: .* no tensor memory         | sm_120a | tcgen05.wait::ld.sync.aligned;
target: .* suffix a or f            | sm_100  | tcgen05.wait::ld.sync.aligned;
target: .* sm_103 has it            | sm_100a | tcgen05.ld.red.sync.aligned.32x32b.x2.max.f32 {%f1,%f2}, %f3, [%r0];
target: .* scale-input-d            | sm_110a | tcgen05.mma.cta_group::1.kind::f16 [%r0], %rd0, %rd0, %r0, %p0, 3;
cta-group: .* before this           | sm_100a | tcgen05.shift.cta_group::1.down [%r0]; tcgen05.shift.cta_group::2.down [%r0];
"""


def cases() -> list[list[str]]:
    return [
        [cell.strip() for cell in line.split("|")] for line in CASES.split("\n")[1:-1]
    ]


@pytest.mark.parametrize(("words", "target", "text"), cases())
def test_the_check_and_ptxas_agree(words: str, target: str, text: str) -> None:
    found = said(text, target)
    module = kernel(f"{SETS} {text}", target, "9.4")
    if words:
        assert len(found) == 1
        rule, message = words.split(": .* ")
        assert found[0].startswith(f"{rule}: ")
        assert message in found[0]
        with pytest.raises(fm.Error, match="ptxas refuses"):
            assembler.assemble(module, target)
    else:
        assert not found
        assert assembler.assemble(module, target)


def test_a_version_that_is_too_old() -> None:
    text = "tcgen05.alloc.exclusive.cta_group::1.sync.aligned.b32 [tile], 96;"
    (wrong,) = said(text, version="8.8")
    assert "needs PTX 9.4; the file has 8.8" in wrong


def test_a_constant_descriptor_is_read() -> None:
    text = f"{SETS} {MMA} [%r0], %rd0, %rd0, 0xffffffff, %p0;"
    found = check_text(kernel(text, "sm_100a"))
    (wrong,) = [each for each in found if each.rule == "tensor"]
    assert wrong.severity == "warning"
    assert "idesc: 0xffffffff is no descriptor of f16" in wrong.message
    (wide,) = said(
        "tcgen05.mma.cta_group::1.kind::mxf4.block_scale [%r0], %rd0, %rd0, "
        f"{fm.tcgen05('m128n64k96', a='e2m1', kind='mxf4').idesc:#x}, [%r0], "
        "[%r0], %p0;"
    )
    assert "k = 96 came with sm_103a" in wide


def test_registers_of_a_load_are_written() -> None:
    text = (
        f"{SETS} tcgen05.ld.red.sync.aligned.32x32b.x2.max.f32 {{%f1,%f2}}, %f3, [%r0];"
        "tcgen05.wait::ld.sync.aligned; add.f32 %f4, %f1, %f3;"
    )
    found = check_text(kernel(text, "sm_103a"))
    assert not [each for each in found if each.rule == "uninitialised"]
