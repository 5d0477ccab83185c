"""NVIDIA's compiler computes the layouts with the printed statements."""

from __future__ import annotations

import pytest

from fragmenta.base.jit.cache import VARIABLE
from fragmenta.cuda.tools import compiler
from fragmenta.errors import CompileError
from fragmenta.reference.registers.expressions import Expressions
from fragmenta.reference.registers.layout import Layout
from tests.registers.expressions import every_layout, every_part, tensor_parts


def function(number: int, found: Expressions, inputs: list[str]) -> str:
    """A function that compares every result with a parameter."""
    results = [f"{name}_" for name in found]
    listed = ", ".join(f"int {name}" for name in [*inputs, *results])
    body = str(found).replace("\n", "\n    ")
    test = " && ".join(f"{name} == {name}_" for name in found)
    return f"__device__ constexpr bool same{number}({listed})\n{{\n    {body}\n    return {test};\n}}\n"


def checked(number: int, layout: Layout) -> str:
    """Both directions at two places, as assertions that the compiler evaluates."""
    holds, where = layout.to_cuda("holds"), layout.to_cuda("where")
    text = function(2 * number, holds, list(where))
    text += function(2 * number + 1, where, list(holds))
    for share in (1, 2):
        place = {axis: (size - 1) * share // 2 for axis, size in layout.axes}
        inside, element = list(place.values()), list(layout.element(**place).values())
        for which, given in ((0, inside + element), (1, element + inside)):
            listed = ", ".join(map(str, given))
            text += f"static_assert(same{2 * number + which}({listed}));\n"
    return text


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tested here is the compiler, not what it once said."""
    monkeypatch.setenv(VARIABLE, "")


def test_every_layout_is_computed_by_the_compiler() -> None:
    texts = [checked(number, each) for number, each in enumerate(every_layout())]
    assert compiler.to_ptx("".join(texts), "sm_90a")


def test_the_statements_of_every_fragment_compile() -> None:
    texts = []
    for number, part in enumerate((*every_part()[::4], *tensor_parts())):
        axes = [name for name in part.to_cuda("where") if name != "bit"]
        coordinates = [name for name in part.to_cuda("holds") if name != "held"]
        texts.append(function(2 * number, part.to_cuda("holds"), axes))
        texts.append(function(2 * number + 1, part.to_cuda("where"), coordinates))
    assert compiler.to_ptx("".join(texts), "sm_90a")


def test_a_wrong_layout_does_not_compile() -> None:
    text = checked(0, Layout.parse("row = L0 L1  col = L2", L=8))
    with pytest.raises(CompileError, match="static assertion failed"):
        compiler.to_ptx(text.replace("lane & 3", "lane & 2"), "sm_90a")
