"""A launch fails if a check of the kernel's text finds an error.

One row for each rule of :mod:`fragmenta.ptx.checking` that has errors.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.launch.kernel import Loaded
from fragmenta.ptx import rules
from fragmenta.ptx.checking import checker
from tests.asking import ask

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
REGISTERS = ".reg .b32 %r<16>; .reg .b64 %rd<4>; .reg .f32 %f<4>; .reg .pred %p<2>;"
SELECTED = """
    mov.b32 %r1, 0; mov.b32 %r2, 0x44444444;
    mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.s32.s4.s4.s32
      {%r4, %r5, %r6, %r7}, {%r1, %r1, %r1, %r1}, {%r1, %r1, %r1, %r1},
      {%r1, %r1, %r1, %r1}, %r2, 0x1;"""
WRONG = {
    "unknown-opcode": "frobnicate.u32 %r1, %r2;",
    "unknown-modifier": "st.const.u32 [table], 1;",
    "modifiers": "ld.global.relaxed.u32 %r1, [table];",
    "operand-count": "add.s32 %r1, %r2;",
    "operand": "ld.global.u32 %r1, [0];",
    "register": "mov.f32 %f1, 0f00000000; add.s32 %r1, %r1, %f1;",
    "constant": "bar.sync 16;",
    "undeclared": "mov.b32 %r1, %other;",
    "label": "bra.uni NOWHERE;",
    "target": "tcgen05.wait::ld.sync.aligned;",
    "version": "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %q;",
    "tensor": SELECTED,
}


def text(rule: str) -> str:
    """A module with a kernel that breaks a rule, and one that is right."""
    more = ".reg .b128 %q;" if rule == "version" else ""
    head = HEAD.replace("8.7", "8.0") if rule == "version" else HEAD
    return (
        f"{head}.const .u32 table = 1;\n"
        f".entry wrong() {{ {REGISTERS} {more}\n{WRONG[rule]}\nret; }}\n"
        ".entry right() { ret; }\n"
    )


@pytest.mark.parametrize("rule", WRONG)
def test_an_error_stops_a_launch_before_it_runs(rule: str, tmp_path: Path) -> None:
    module = ptx.parse(text(rule))
    errors = [e for e in module.check() if e.severity == "error"]
    assert rule in {each.rule for each in errors}
    with pytest.raises(ptx.KernelHazard) as raised:
        module.kernels["wrong"].launch(1, 32, [])
    assert raised.value.result is None
    assert rule in {each.rule for each in raised.value.problems}
    assert raised.value.line > 0
    module.kernels["right"].launch(1, 32, [])  # the other kernel is not concerned
    file = tmp_path / "k.ptx"
    file.write_text(text(rule))
    for words in (
        ["check", str(file)],
        ["launch", str(file), "wrong", "--block", "32"],
    ):
        done = ask(*words)
        assert done.exit_code == 1, words
        assert rule in done.output or errors[0].message.split()[0] in done.output


def test_with_report_errors_of_the_text_come_first(tmp_path: Path) -> None:
    kernel = ptx.parse(text("target")).kernels["wrong"]
    result = kernel.launch(1, 32, [], watch="report")
    assert result.problems[0].rule == "target"
    assert result.problems[0].severity == "error"
    assert "1 error" in repr(result)
    file = tmp_path / "k.ptx"
    file.write_text(text("target"))
    done = ask("launch", str(file), "wrong", "--block", "32", "--problems", "report")
    assert done.exit_code == 1
    assert "tensor memory came with sm_100" in " ".join(done.output.split())


def test_what_cannot_run_is_refused_in_any_case() -> None:
    kernel = ptx.parse(text("undeclared")).kernels["wrong"]
    every: list[dict[str, Any]] = [{}, {"watch": "report"}, {"watch": False}]
    for options in every:
        with pytest.raises(fm.Error, match="%other"):
            kernel.launch(1, 32, [], **options)


CALLS = f"""{HEAD}
.func unused() {{ {REGISTERS} add.s32 %r1, %r2; ret; }}
.func callee() {{ {REGISTERS} WRONG ret; }}
.func between() {{ call callee; ret; }}
.entry calls() {{ call between; ret; }}
.entry alone() {{ ret; }}
"""


def test_the_functions_that_a_kernel_calls_are_part_of_it() -> None:
    module = ptx.parse(CALLS.replace("WRONG", "add.s32 %r1, %r2;"))
    with pytest.raises(ptx.KernelHazard):
        module.kernels["calls"].launch(1, 32, [])
    assert {each.function for each in module.kernels["calls"].problems()} == {"callee"}
    assert not module.kernels["alone"].problems()
    right = ptx.parse(CALLS.replace("WRONG", "mov.u32 %r1, 0;"))
    assert not right.kernels["calls"].launch(1, 32, []).problems


def test_a_kernel_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    real = checker.wrong_with

    def counted(instruction: Any, context: Any) -> Any:
        seen.append(context.function.name)
        return real(instruction, context)

    monkeypatch.setattr(checker, "wrong_with", counted)
    module: Loaded = ptx.parse(CALLS.replace("WRONG", "mov.u32 %r1, 0;"))
    for _ in range(3):
        assert module.kernels["calls"].launch(1, 32, []).problems == []
    assert sorted({*seen}) == ["between", "callee", "calls"]
    assert len(seen) == len({*seen}) + 1  # callee has two different instructions


def test_a_target_that_cannot_run_the_module() -> None:
    kernel = ptx.parse(text("tensor")).kernels["right"]
    with pytest.raises(ptx.KernelHazard, match="sm_90a cannot be assembled for sm_80"):
        kernel.launch(1, 32, [], target="sm_80")
    found = kernel.launch(1, 32, [], target="sm_80", watch="report").problems
    assert [each.rule for each in found] == ["target"]
    assert kernel.launch(1, 32, [], target="sm_80", watch=False).instructions == 1


def test_every_rule_with_errors_has_a_row() -> None:
    """Rules of the text that are errors somewhere in the checker."""
    folder = Path(checker.__file__).parent
    source = "\n".join(path.read_text() for path in folder.glob("*.py"))
    rows = {getattr(rules, each) for each in re.findall(r"rules\.([A-Z_]+)", source)}
    named = {each.name for each in rows if each.severity == rules.ERROR}
    elsewhere = {
        "cta-group",
        "shared-memory",
        "syntax",
        "modifier-order",
        "state-space",
    }
    assert named - elsewhere <= {*WRONG}
    assert {*WRONG} <= {each.name for each in rows}
