"""Newer forms exist, as ptxas says; a check says so, and a launch refuses them."""

from __future__ import annotations

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.cuda.tools import assembler
from fragmenta.errors import KernelFault
from fragmenta.ptx.opcodes.newer import LINES, Newer, not_covered
from fragmenta.reference.isa.target import TARGETS, Version, expand

DECLARED = """
.reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .pred %p<3>; .reg .f32 %f<8>; .reg .b16 %h<8>;
.shared .align 128 .b8 s[4096]; .shared .align 8 .b64 bar;
"""


@pytest.mark.parametrize("target", TARGETS)
def test_ptxas_has_each_form_where_the_table_says(target: str) -> None:
    texts = [[DECLARED.replace("\n", " "), line.example] for line in LINES]
    for version in ("9.2", "9.3", "9.4"):
        if Version.parse(version) < TARGETS[target]:
            continue
        said = assembler.judge(texts, target, version)
        for line, why in zip(LINES, said, strict=True):
            there = target in expand(line.targets) and version >= line.ptx
            assert (why is None) == there, (line.example, version, why)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.example.split()[0])
def test_a_check_says_so_and_a_launch_refuses(line: Newer) -> None:
    target = expand(line.targets)[-1]
    text = (
        f".version 9.4\n.target {target}\n.address_size 64\n"
        f".visible .entry f(.param .u64 x) {{ {DECLARED} {line.example} ret; }}"
    )
    module = ptx.parse(text)
    found = [each for each in module.check() if each.rule != "uninitialised"]
    assert [(each.rule, each.severity) for each in found] == [
        ("not-covered", "warning")
    ]
    assert found[0].message == not_covered(line.example.split()[0])
    with pytest.raises(KernelFault, match="exists since PTX"):
        module.kernels["f"].launch(1, 32, [np.zeros(64, np.int32)])


def test_older_forms_are_not_meant() -> None:
    for text in (
        "cvt.rz.f32.f64",
        "cvt.rn.satfinite.e4m3x2.f32",
        "add.rn.f32",
        "set.lt.u32.s32",
        "mbarrier.try_wait.parity.shared.b64",
        "atom.add.noftz.f16x2",
        "red.add.f32",
        "cp.async.bulk.tensor.3d.global.shared::cta.im2col_no_offs.bulk_group",
    ):
        assert not not_covered(text)
