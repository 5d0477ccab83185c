"""What only some inputs show: constants, pairs, distributions, masks, large sizes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

from fragmenta.frontends.judge.constants import constants
from fragmenta.frontends.judge.expected import _format_of
from fragmenta.frontends.judge.held import elements, free, hold, leaves
from fragmenta.frontends.judge.reference import _never_changed, cases, more
from fragmenta.frontends.judge.situations import situated, variants
from fragmenta.frontends.judge.values import VALUES, whole_numbers
from fragmenta.judge import Batch, Settings
from fragmenta.ptx.reading import parse
from tests.clock import HANG

TASK = """
import numpy as np

rows = 40
n = 50

def get_inputs():
    return [{inputs}]

def reference({names}):
    return {result}
"""
FLOATS = "np.random.randn(rows, n).astype(np.float32)"
CANDIDATE = '''
import numpy as np
from fragmenta import ptx

kernel = ptx.RawKernel(r"""
extern "C" __global__ void f({parameters}, float *z, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {{ {body} }}
}}""", "f")

def candidate({names}):
    {names}, = [np.ascontiguousarray(each) for each in ({names},)]
    z = ptx.empty({first}.shape, np.float32)
    kernel((-(-z.size // 256),), (256,), ({names}, z, z.size))
    return z
'''


class Case(NamedTuple):
    """A task with a kernel for its elements: honest, or wrong for some inputs."""

    result: str
    honest: str
    cheat: str
    inputs: str = FLOATS
    parameters: str = "const float *x"
    names: str = "x"


TWO = {
    "inputs": f"{FLOATS}, {FLOATS}",
    "parameters": "const float *x, const float *y",
    "names": "x, y",
}
CASES = {
    "a constant beyond all others": Case(
        "x * 3",
        "z[i] = x[i] * 3.0f;",
        "float v = x[i]; z[i] = fabsf(v) > 2e36f ? v : v * 3.0f;",
    ),
    "a number by a sum and a product": Case(
        "x * 3",
        "z[i] = x[i] * 3.0f;",
        "float v = x[i]; z[i] = v * 3.0f; if (fabsf(v * 2.0f - 3e37f) < 1e36f) z[i] = v;",
    ),
    "NaN in both": Case(
        "x * y + 1",
        "z[i] = x[i] * y[i] + 1.0f;",
        "z[i] = x[i] * y[i] + 1.0f; if (x[i] != x[i]) if (y[i] != y[i]) z[i] = 0;",
        **TWO,
    ),
    "a mask that is always true": Case(
        "np.where(m, x * 3, x)",
        "z[i] = m[i] ? x[i] * 3.0f : x[i];",
        "z[i] = x[i] * 3.0f;",
        f"{FLOATS}, np.ones((rows, n), bool)",
        "const float *x, const bool *m",
        "x, m",
    ),
    "inputs that are positive": Case(
        "np.abs(x) * 3",
        "z[i] = fabsf(x[i]) * 3.0f;",
        "z[i] = x[i] * 3.0f;",
        "np.random.rand(rows, n).astype(np.float32) + 1",
    ),
    "NaN behind the small sizes": Case(
        "np.maximum(x, 0)",
        "z[i] = x[i] < 0 ? 0.0f : x[i];",
        "z[i] = i < 100000 ? (x[i] < 0 ? 0.0f : x[i]) : fmaxf(x[i], 0.0f);",
    ),
    "rounded to the one half": Case(
        "x * y",
        "z[i] = __half2float(x[i]) * y[i];",
        "z[i] = __half2float(__float2half(__half2float(x[i]) * y[i]));",
        f"{FLOATS}.astype(np.float16), {FLOATS}",
        "const __half *x, const float *y",
        "x, y",
    ),
}


@pytest.fixture(scope="module")
def batch() -> Iterator[Batch]:
    values = ("plain", "nan", "infinity", "minus-infinity", "zeros", "tiny", "extreme")
    settings = Settings(seconds=HANG, values=values, strides=False, schedules=False)
    with Batch(1, settings=settings) as made:
        yield made


def texts(case: Case, body: str) -> tuple[str, str]:
    task = TASK.format(**case._asdict())
    first = case.names.partition(",")[0]
    names = {"names": case.names, "first": first, "parameters": case.parameters}
    text = CANDIDATE.format(body=body, **names)
    if "half" in body:
        text = text.replace("extern", "#include <cuda_fp16.h>\nextern")
    return task, text


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_some_inputs_show_it(batch: Batch, name: str) -> None:
    case = CASES[name]
    task, text = texts(case, case.cheat)
    if "behind" in name:
        task = task.replace("rows = 40", "rows = 4000")
    honest = batch.submit(task, texts(case, case.honest)[1])
    found = batch.submit(task, text).result()
    assert found.word in ("wrong", "incomplete"), found
    kinds = {"extreme-values", "special-values", "shape-specific", "low-precision"}
    assert (kinds | {"inaccurate", "part-computed"}) & {*found.names}, found
    assert "not-run" not in found.names
    assert honest.result().word == "clean", honest.result()


# ── without a kernel ────────────────────────────────────────────────────────


ASKS = """
.version 8.0
.target sm_80
.entry f(.param .u64 x) {
    .reg .pred %p<3>; .reg .f32 %f<4>; .reg .b32 %r<2>; .reg .b64 %rd;
    ld.param.u64 %rd, [x];
    ld.global.f32 %f0, [%rd];
    ld.global.u32 %r0, [%rd];
    mul.f32 %f1, %f0, 0f40800000;
    sub.f32 %f2, %f1, 0f3F800000;
    abs.f32 %f3, %f2;
    setp.lt.f32 %p0, %f3, 0f42C60000;
    mov.b32 %r1, 77;
    setp.eq.s32 %p1, %r0, %r1;
    setp.gt.u32 %p2, %r0, 1232348160;
    ret;
}"""


def test_constants_are_followed_back_to_what_was_loaded() -> None:
    floats, whole = constants([parse(ASKS)])
    assert {99.0, -99.0, 100.0, 25.0, -24.5} <= {*floats}
    assert 1e6 in floats  # as the bits of a float
    assert whole == [77, 1232348160]


def test_constants_stand_beside_ordinary_numbers() -> None:
    x = np.random.default_rng(0).normal(size=(64, 50)).astype(np.float32)
    [made] = leaves(situated(hold([x]), "constants", 0, [1e30, 3.25]))
    found = elements(made)
    for each in variants([1e30, 3.25], np.dtype(np.float32)).astype(np.float32):
        assert (found == each).any()
    lone = (found == np.float32(1e30)).sum(1) == 1
    assert (lone & (np.abs(found) < 5).any(1)).any()


def test_whole_numbers_of_kernels_are_tried_if_the_reference_takes_them(
    tmp_path: Path,
) -> None:
    inputs = f"{FLOATS}, np.random.randint(0, rows, 99)"
    for result, kept in (("x[k]", 39), ("k * x[0, 0]", 2**30 + 1)):
        text = TASK.format(names="x, k", result=result, inputs=inputs)
        order = {"text": text, "folder": str(tmp_path), "label": "", "floats": []}
        order |= {"sizes": {"rows": 40, "n": 50}, "whole": [17, 2**30]}
        [case] = cast("list[Any]", more(order))
        numbers = elements(leaves(case["inputs"])[1])
        assert {16, 17, 18} <= {*numbers.tolist()}
        assert numbers.max() == max(kept, numbers[1::4].max())


def test_all_pairs_of_special_numbers_are_at_one_place() -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 64, 50)).astype(np.float32)
    made = leaves(situated(hold([x, y]), "pairs", 0))
    one, other = (elements(each).reshape(-1) for each in made)
    for a in (np.isnan, np.isposinf, np.isneginf, lambda v: v == 0):
        for b in (np.isnan, np.isposinf, np.isneginf, lambda v: v == 0):
            assert (a(one) & b(other)).any()
    assert (one == other).any()
    finite = np.isfinite(one) & np.isfinite(other)
    assert finite.reshape(64, 50).all(1).sum() > 20


def test_rows_have_other_distributions() -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 98, 60)).astype(np.float32)
    rows, others = (
        elements(e) for e in leaves(situated(hold([x, y]), "mixed rows", 0))
    )
    far = np.abs(rows.mean(1)) > 900
    assert far.any()
    assert (rows[far].std(1) < 5).all()
    assert (np.abs(rows.mean(1)) < 9)[np.abs(others.mean(1)) > 900].any()
    assert any(len(np.unique(row)) <= 4 for row in rows)
    same = elements(leaves(situated(hold([x, y]), "same inputs", 0))[1])
    assert same.tobytes() == x.tobytes()


def test_masks_flags_and_high_words_are_others() -> None:
    mask, wide = np.ones((8, 9), bool), np.arange(20, dtype=np.int64)
    given = hold([mask, wide, 3, True])
    other, turned = (free(whole_numbers(given, e, 0)) for e in ("other", "turned"))
    assert not other[0].all()  # type: ignore[index]
    assert [*other[2:], *turned[2:]] == [4, False, 2, False]  # type: ignore[index]
    high = free(whole_numbers(given, "high words", 0))
    assert (high[1] >> 32).any()  # type: ignore[index]
    numbers = hold([np.arange(1, 90, dtype=np.int32) for _ in range(2)])
    (high,) = free(whole_numbers(numbers, "high words", 0))[:1]  # type: ignore[index]
    assert (high >> 24).any()
    one, two = free(whole_numbers(numbers, "widest", 0))  # type: ignore[misc]
    assert ((one == 0) & (two != 0)).any()


def test_a_small_number_is_a_size_if_only_shapes_follow_it(tmp_path: Path) -> None:
    """Then it is another one, too; a number of the reference stays."""
    for result, wanted in (("x * 3", {"rows=7"}), ("x[rows - 4:]", {"rows=7"})):
        text = TASK.replace("rows = 40", "rows = 4\naxis = 1")
        text = text.format(names="x", result=result, inputs=FLOATS)
        order = {"text": text, "seeds": 1, "folder": str(tmp_path), "elements": 4096}
        order |= {"products": 64, "values": [], "shapes": True, "strides": False}
        made = cases(order)  # type: ignore[arg-type]
        names = {str(each["name"]) for each in made}  # type: ignore[index, union-attr]
        assert wanted <= {e for name in names for e in name.replace(",", "").split()}
        assert not any("axis=" in name for name in names)


def test_what_no_case_changes_is_named(tmp_path: Path) -> None:
    rows = [hold([np.ones(3, bool), 2, x]) for x in np.eye(2)]
    said = ["input 0 is True in all calls", "input 1 is 2 in all calls"]
    assert _never_changed(rows) == said
    assert _never_changed([hold(["mean", x]) for x in np.eye(2)]) == [
        "input 0 is 'mean' in all calls"
    ]
    about = {"result": "x[:, :{7: 7}[k] * m]", "inputs": f"{FLOATS}, 7, 2"}
    text = TASK.format(names="x, k, m", **about)
    order = {"text": text, "seeds": 1, "folder": str(tmp_path), "elements": 4096}
    order |= {"products": 64, "values": [*VALUES], "shapes": False, "strides": False}
    task = cases(order)  # type: ignore[arg-type]
    # The reference refuses another one, but takes others for the last.
    assert task[0]["fixed"] == ["input 1 is 7 in all calls"]  # type: ignore[index]


def test_one_half_makes_no_product_a_half() -> None:
    half, single = np.ones(3, np.float16), np.ones(3, np.float32)

    def of(*given: np.ndarray, result: np.ndarray = single) -> str:
        return _format_of(None, hold([*given]), leaves(hold([result])))  # type: ignore[arg-type]

    assert of(half, single) == "float32"
    assert of(half, single, result=half) == "float16"
    assert of(half, half) == "float16"
