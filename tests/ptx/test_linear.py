"""A kernel that is twice as long takes twice as long to read, check and compile.

Work is counted in lines of Python that are run, not in seconds: the number is the same
on every machine.  What LLVM does is linear if no piece of code without a label is long.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from fragmenta import ptx
from fragmenta.engine.simt import compiling, emitter
from fragmenta.engine.simt.mode import Mode
from fragmenta.engine.simt.program import in_circles, program

HEAD = ".version 8.8\n.target sm_90a\n.address_size 64\n"


def kernel(body: str, before: str = "") -> str:
    return (
        f"{HEAD}{before}.visible .entry f(.param .u64 x) {{\n"
        ".reg .b32 %r<10>; .reg .b64 %rd<10>; .reg .f32 %f<4>; .reg .pred %p<4>;\n"
        f"ld.param.u64 %rd1, [x];\n{body}\nret;\n}}\n"
    )


def each(text: str, count: int, between: str = "") -> str:
    """A text with every number up to count."""
    return between.join(text.replace("#", str(i)) for i in range(count))


MMA = (
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, "
    "{%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3};\n"
)
LONG: dict[str, Callable[[int], str]] = {
    "moves": lambda n: kernel("mov.b32 %r1, %r2;\n" * n),
    "constants": lambda n: kernel(each("mov.b32 %r1, #;\n", n)),
    "guards": lambda n: kernel("@%p1 st.global.u32 [%rd1], %r1;\n" * n),
    "products": lambda n: kernel(MMA * n),
    "barriers": lambda n: kernel("bar.sync 0;\n" * n),
    "labels": lambda n: kernel(each("L#: @%p1 bra L#;\n", n)),
    "loops": lambda n: kernel(each("L#:", n) + each("@%p1 bra L#;\n", n)),
    "registers": lambda n: kernel(each(".reg .b32 %q#; mov.u32 %q#, 1;\n", n)),
    "scopes": lambda n: kernel("{ .reg .b32 %q; mov.u32 %q, 1; }\n" * n),
    "nested": lambda n: kernel("{" * n + "mov.u32 %r1, 1;" + "}" * n),
    "calls": lambda n: kernel("call g;\n" * n, ".func g() { ret; }\n"),
    "functions": lambda n: kernel(
        each("call g#;\n", n), each(".func g#() { ret; }\n", n)
    ),
    "chain": lambda n: kernel(
        "call g0;\n",
        each(".func g#();\n", n + 1)
        + "".join(f".func g{i}() {{ call g{i + 1}; ret; }}\n" for i in range(n))
        + f".func g{n}() {{ ret; }}\n",
    ),
    "parameters": lambda n: kernel(
        f"{{ {each('.param .b32 p#; st.param.b32 [p#], %r1;', n)}"
        f"call g, ({each('p#', n, ', ')}); }}",
        f".func g({each('.param .b32 a#', n, ', ')}) {{ ret; }}\n",
    ),
    "kernels": lambda n: kernel("") + each(".entry g#() { ret; }\n", n),
    "variables": lambda n: kernel(
        each("st.shared.u32 [v#], %r1;\n", n), each(".shared .b32 v#;\n", n)
    ),
    "locals": lambda n: kernel(each(".local .b32 v#; st.local.u32 [v#], %r1;\n", n)),
    "lines": lambda n: kernel(
        each(".loc 1 # 1\nmov.u32 %r1, 1;\n", n), '.file 1 "a.cu"\n'
    ),
    "undeclared": lambda n: kernel("mow.u32 %r1, nothing;\n" * n),
}


def compile_all(text: str) -> emitter.Writer:
    """Everything that is done with a kernel before LLVM compiles it."""
    module = ptx.parse(text)
    module.check()
    writer = emitter.Writer(program(module.contracted, "f"), "sm_90a", Mode(watch=True))
    compiling.write(writer)
    return writer


def lines_run(call: Callable[[], object]) -> int:
    """How many lines of Python a call runs."""
    count = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("name", LONG)
def test_twice_as_long_is_twice_the_work(name: str) -> None:
    sizes = (20, 40, 80)
    compile_all(LONG[name](sizes[-1]))  # what is kept between kernels is made here
    work = [lines_run(lambda n=n: compile_all(LONG[name](n))) for n in sizes]
    first, second = work[1] - work[0], work[2] - work[1]
    # For each kernel, ``place_shared`` looks at the names of all functions once.
    most = 2.2 if name == "kernels" else 2.02
    assert second <= most * first, work


@pytest.mark.parametrize("name", ["moves", "guards", "products", "parameters"])
def test_no_piece_of_code_is_long(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emitter, "LONGEST_PIECE", 100)
    pieces, length = [], 0
    sections = compile_all(LONG[name](60)).sections.values()
    for line in (line for each in sections for line in each.lines):
        length = 0 if line.endswith(":") else length + 1
        pieces.append(length)
    assert max(pieces) < 100 + 400  # the lines of one instruction


def test_a_chain_of_calls_is_longer_than_the_stack() -> None:
    names = [str(i) for i in range(20_000)]
    after = dict(zip(names, ([each] for each in names[1:]), strict=False))
    after[names[-1]] = []
    assert in_circles(after) == set()
    after[names[-1]] = [names[10_000]]
    assert in_circles(after) == set(names[10_000:])
