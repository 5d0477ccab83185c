"""The arithmetic of the explorer page against Python's, bit for bit.

The page has loops of its own and takes their parameters from Python's tables.  For
every model in the page, the same operands go through both: any bits, numbers near one,
all exponents, sums that cancel, subnormals, the largest numbers, infinities and NaN.
"""

import json
import subprocess
from functools import cache
from itertools import product

import numpy as np
import pytest

from fragmenta import arithmetic
from fragmenta.arithmetic.trace import explain_steps
from fragmenta.execution.explain import Explained
from fragmenta.execution.mma import numeric_model
from fragmenta.isa.instruction import MULTIPLYING
from fragmenta.registers.dtype import dtype
from fragmenta.view import explorer_data
from fragmenta.view.explorer_numbers import model_record
from tests.view.test_explorer_browser import EXPLORER, need

ROWS, COLUMNS = 6, 7
FORMS = ("fused", "grouped", "chain", "pairs", "integer", "bits")
PARTS = 4
"""Most models are fused: they are tested in parts."""


@cache
def models():
    """For each way to compute that the page has: an instruction, a target, a model."""
    found = {}
    for op in explorer_data.holding():
        if op.family not in MULTIPLYING:
            continue
        for target in op.requires.targets:
            model = numeric_model(op, target)
            found.setdefault(json.dumps(model_record(model)), (op, target, model))
    return list(found.values())


def finite(of, rng, shape):
    """Any patterns of a type that are not infinite or NaN."""
    bits = rng.integers(0, of.mask + 1, shape, np.uint64, endpoint=False)
    parts = of.split(bits.astype(of.bits_dtype))
    return np.where(parts.special, 0, bits).astype(of.bits_dtype)


def near_one(of, rng, shape):
    """Numbers from a quarter to four, of both signs."""
    if of.is_integer:
        return finite(of, rng, shape)
    field = of.bias + rng.integers(-1, 2, shape)
    fraction = rng.integers(0, 1 << of.fraction_bits, shape)
    sign = rng.integers(0, 2, shape) if of.kind == "float" else 0
    width = of.exponent_bits + of.fraction_bits
    found = (sign << width | field << of.fraction_bits | fraction) << ignored(of)
    return found.astype(of.bits_dtype)


def ignored(of):
    """The low bits of tf32."""
    used = 1 + of.exponent_bits + of.fraction_bits
    return of.bits - used if of.kind == "float" else 0


def operand(of, rng, shape):
    """Lines of different kinds along the first axis."""
    found = near_one(of, rng, shape)
    found[1::3] = finite(of, rng, found[1::3].shape)
    if of.is_integer:
        return found
    if of.kind == "float":  # cancelling: each number is followed by its negative
        half = shape[-1] // 2 * 2
        sign = of.bits_dtype.type(1 << (of.bits - 1))
        found[2, 1:half:2] = found[2, 0:half:2] ^ sign
    low = of.bits_dtype.type((1 << of.fraction_bits << ignored(of)) - 1)
    tiny = finite(of, rng, found[4].shape) & low
    found[4] = np.where(rng.random(found[4].shape) < 0.5, tiny, 0)
    bits = rng.integers(0, of.mask + 1, found[5].shape, np.uint64, endpoint=False)
    found[5] = bits.astype(of.bits_dtype)  # infinities and NaN among them
    return found


def case(number, op, target, model):
    """Operands of one model, and what Python makes of them."""
    rng = np.random.default_rng(number)
    a, b, c = (dtype(getattr(model, name)) for name in "abc")
    given = {
        "a": operand(a, rng, (ROWS, model.stored)),
        "b": np.ascontiguousarray(operand(b, rng, (COLUMNS, model.k)).T),
        "c": operand(c, rng, (ROWS, COLUMNS)),
    }
    if model.scale:
        scale = dtype(model.scale)
        given["scale_a"] = operand(scale, rng, (ROWS, model.scale_vec))
        whole = operand(scale, rng, (COLUMNS, model.scale_vec))
        given["scale_b"] = np.ascontiguousarray(whole.T)
    meets = np.tile(np.arange(model.stored), (ROWS, 1))
    if model.sparse:
        meets = 2 * meets + rng.integers(0, 2, meets.shape)
        given["index"] = meets
    operands = [given.pop(name) for name in "abc"]
    d = arithmetic.multiply(*operands, model, **given)
    at = (number % ROWS, number % COLUMNS)
    return given | dict(zip("abcd", (*operands, d), strict=True)), meets, at


def question(op, target, arrays, meets, at, **change):
    names = {"a": "A", "b": "B", "c": "C", "scale_a": "scale_A", "scale_b": "scale_B"}
    return {
        "op": str(op),
        "target": target,
        "rows": ROWS,
        "columns": COLUMNS,
        "meets": meets.ravel().tolist(),
        "at": [at],
        "change": change,
        **{
            name: " ".join(f"{int(word):x}" for word in arrays[key].ravel())
            for key, name in names.items()
            if key in arrays
        },
    }


def ask(questions):
    need("whether the explorer computes what Python computes", browser=False)
    done = subprocess.run(
        ["node", "tests/arithmetic.mjs"], cwd=EXPLORER, check=False, text=True,
        input=json.dumps({"cases": questions}), capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def words(d):
    return " ".join(f"{int(word):x}" for word in d.ravel())


def explained(op, target, model, arrays, at):
    row, col = at
    lines = {}
    if "index" in arrays:
        lines["index"] = arrays["index"][row]
    if "scale_a" in arrays:
        lines["scale_a"] = arrays["scale_a"][row]
        lines["scale_b"] = arrays["scale_b"][:, col]
    told = explain_steps(
        arrays["a"][row], arrays["b"][:, col], arrays["c"][row, col], model, **lines
    )
    return str(Explained(op, target, row, col, told))


@pytest.mark.xdist_group("explorer")
@pytest.mark.parametrize(
    ("form", "part"), [*product(["fused"], range(PARTS)), *((f, 0) for f in FORMS[1:])]
)
def test_every_model_bit_for_bit(form, part):
    chosen = [(n, *each) for n, each in enumerate(models()) if each[2].form == form]
    chosen = chosen[part::PARTS] if form == "fused" else chosen
    made = [case(*each) for each in chosen]
    answers = ask(
        [
            question(op, target, *parts)
            for (_, op, target, _), parts in zip(chosen, made, strict=True)
        ]
    )
    for (_, op, target, model), (arrays, _, at), answer in zip(
        chosen, made, answers, strict=True
    ):
        assert answer["D"] == words(arrays["d"]), f"{op} on {target}"
        (one,) = answer["explained"]
        assert one["bits"] == f"{int(arrays['d'][at]):x}", f"{op} on {target}"
        assert one["text"] == explained(op, target, model, arrays, at)


@pytest.mark.xdist_group("explorer")
@pytest.mark.parametrize(
    ("name", "change"),
    [("fraction", -1), ("keep", -1), ("products", -4), ("rounding", "rn")],
)
def test_another_parameter_is_noticed(name, change):
    """The comparison sees each parameter: with another one the bits differ."""
    number, (op, target, model) = next(
        (n, each)
        for n, each in enumerate(models())
        if each[2].form == "fused" and each[2].products == 8 and each[2].keep == 23
    )
    parts = case(number, op, target, model)
    other = getattr(model, name) + change if isinstance(change, int) else change
    (answer,) = ask([question(op, target, *parts, **{name: other})])
    assert answer["D"] != words(parts[0]["d"])
