"""The arithmetic of the explorer page against Python's, bit for bit.

The page has loops of its own and takes their parameters from Python's tables.  For
every model in the page, the same operands go through both: any bits, numbers near one,
all exponents, sums that cancel, subnormals, the largest numbers, infinities and NaN.
"""

import base64
import io
import json
import math
import subprocess
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.inspect.evidence.record import load
from fragmenta.inspect.view import explorer_data
from fragmenta.inspect.view.explorer_numbers import model_record
from fragmenta.reference import arithmetic
from fragmenta.reference.arithmetic.trace import NAN_BITS, explain_steps
from fragmenta.reference.execution.explain import Explained
from fragmenta.reference.execution.mma import numeric_model, stored_columns
from fragmenta.reference.isa.families import MULTIPLYING
from fragmenta.reference.registers.dtype import dtype, largest
from tests.thinning import some
from tests.view.test_explorer_page import EXPLORER, need

ROWS, COLUMNS = 6, 7
FORMS = ("fused", "grouped", "chain", "pairs", "integer", "bits")
PARTS = 6
"""Most models are fused: they are tested in parts."""


@pytest.fixture(scope="module", autouse=True)
def _known():
    """The models take a while: no single test counts it as its own."""
    models()


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


def question(op, target, arrays, meets, *at, **change):
    names = {"a": "A", "b": "B", "c": "C", "scale_a": "scale_A", "scale_b": "scale_B"}
    return {
        "op": str(op),
        "target": target,
        "rows": arrays["a"].shape[0],
        "columns": arrays["b"].shape[1],
        "meets": meets.ravel().tolist(),
        "at": at,
        "change": change,
        **{
            name: " ".join(f"{int(word):x}" for word in arrays[key].ravel())
            for key, name in names.items()
            if key in arrays
        },
    }


def ask(**questions):
    need("whether the explorer computes what Python computes")
    done = subprocess.run(
        ["node", "tests/arithmetic.mjs"],
        cwd=EXPLORER,
        check=False,
        text=True,
        input=json.dumps(questions),
        capture_output=True,
    )
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
    ("form", "part"),
    some([*product(["fused"], range(PARTS)), *((f, 0) for f in FORMS[1:])], 2),
)
def test_every_model_bit_for_bit(form, part):
    chosen = [(n, *each) for n, each in enumerate(models()) if each[2].form == form]
    chosen = chosen[part::PARTS] if form == "fused" else chosen
    made = [case(*each) for each in chosen]
    asked = [
        question(op, target, *parts)
        for (_, op, target, _), parts in zip(chosen, made, strict=True)
    ]
    answers = ask(cases=asked)["cases"]
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
    (answer,) = ask(cases=[question(op, target, *parts, **{name: other})])["cases"]
    assert answer["D"] != words(parts[0]["d"])


# -- what a GPU answered -------------------------------------------------------

GOLDEN = Path(__file__).parents[1] / "golden" / "h200"
TILES = 2
"""Of each recorded case of a warp: its first tiles."""
ROWS_APART = 4
"""Of the 64 rows of a warpgroup, one in so many."""


def of_warp(recording, recorded):
    """Arrays, the columns that meet, and D of the first tiles."""
    case = recording.question(recorded)
    op, given = case.op, {k: v[:TILES] for k, v in case.inputs().items()}
    a, b, c = (getattr(op, name).unpack_bits(given[name]) for name in "abc")
    meets = np.broadcast_to(np.arange(a.shape[-1]), a.shape)
    if op.sparse:
        meets = stored_columns(op, given["metadata"], recorded.selector)
    d = op.d.unpack_bits(recording.result(recorded)[:TILES])
    flat = [x.reshape(-1, *x.shape[-2:]) for x in (a, b, c, meets, d)]
    for *parts, columns, answer in zip(*flat, strict=True):
        yield op, dict(zip("abc", parts, strict=True)), columns, answer


def of_warpgroup(recording, recorded):
    """The same of the first tile of a wgmma; the page negates no operand."""
    case = recording.question(recorded)
    op = case.op
    if op.shape.n > 24:
        return
    fed = case.fed({name: array[0] for name, array in case.inputs().items()})
    a, b, c = fed.a, fed.b, fed.c
    immediates = case.way.immediates(op)  # integers have none
    if immediates.get("imm_scale_a", 1) < 0:
        a = a ^ a.dtype.type(1 << dtype(op.types["a"].name).bits - 1)
    if immediates.get("imm_scale_b", 1) < 0:
        b = b ^ b.dtype.type(1 << dtype(op.types["b"].name).bits - 1)
    meets = fed.index if op.sparse else np.broadcast_to(np.arange(a.shape[-1]), a.shape)
    d = op.d.unpack_bits(recording.result(recorded)[:1])[0]
    a, c, meets, d = (x[::ROWS_APART] for x in (a, c, meets, d))
    yield op, {"a": a, "b": b, "c": c}, meets, d


@pytest.mark.xdist_group("explorer")
@pytest.mark.parametrize(
    ("family", "tiles_of"),
    [("mma", of_warp), ("mma.sp", of_warp), ("wgmma", of_warpgroup)],
)
def test_an_h200_returned_the_same_bits(family, tiles_of):
    recording = load(GOLDEN / f"{family}.npz")
    asked, wanted = [], []
    for recorded in recording.cases:
        for op, arrays, columns, answer in tiles_of(recording, recorded):
            asked.append(question(op, recording.made["target"], arrays, columns))
            wanted.append((str(op), words(answer)))
    answers = ask(cases=asked)["cases"]
    wrong = {
        name
        for (name, bits), answer in zip(wanted, answers, strict=True)
        if answer["D"] != bits
    }
    assert not wrong
    assert len(asked) > 200


# -- what people give ----------------------------------------------------------

FLOATS = ("f16", "bf16", "tf32", "f32", "f64", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1")
WORDS = (
    "0",
    "-0",
    "1",
    "-1.5",
    "0.1",
    "1e-3",
    "-2.75",
    "3.1415926535897932384626433",
    "448",
    "449",
    "65504",
    "65505",
    "1e-8",
    "2.98023223876953125e-8",
    "5.96e-8",
    "1e-45",
    "7e-46",
    "1e300",
    "-1e309",
    "1e-400",
    "6",
    "6.5",
    ".5",
    "7.",
    "+4",
    "0x7",
    "0x3c00",
    "0x1ffff",
    "inf",
    "-inf",
    "nan",
    "one",
    "1,5",
    "--1",
    "0x",
    "1e",
    "240",
    "-8",
    "-9",
    "127.5",
    "255",
    "256",
    "2.5",
    "3.5",
    "1.0000000596046448",
    "1.00000005960464477539062500001",
)


def expected(of, word):
    """The nearest element of a word, and whether it is exact; None: refused."""
    if word.startswith("0x"):
        bits = int(word, 16) if word[2:] else of.mask + 1
        return (bits, True) if bits <= of.mask else None
    try:
        given = float(word)
    except ValueError:
        return None
    if not math.isfinite(given) and word[-3:] in ("inf", "nan"):
        held = of.has_nan if math.isnan(given) else of.has_infinity
        return (
            (int(made_bits(of, given)), True) if held and of.kind == "float" else None
        )
    value = Fraction(word)
    if of.is_integer:
        low, high = of.limits
        found = round(value)
        return (found & of.mask, found == value) if low <= found <= high else None
    if abs(value) > Fraction(largest(of)):
        return None
    near = (
        int(of.encode(np.array([given]).astype(of.storage))[0])
        if of.name != "tf32"
        else 0
    )
    near = (
        int(np.float32(given).view(np.uint32)) >> 13 << 13
        if of.name == "tf32"
        else near
    )
    step = 1 << ignored(of)
    found = [bits for bits in (near - step, near, near + step) if 0 <= bits <= of.mask]
    exact = {bits: of.to_float64(np.array([bits], of.bits_dtype))[0] for bits in found}
    exact = {b: Fraction(float(x)) for b, x in exact.items() if np.isfinite(x)}
    sign = 1 << (of.bits - 1)
    same = [b for b in exact if bool(b & sign) == word.startswith("-")]
    best = min(same, key=lambda b: (abs(exact[b] - value), b >> ignored(of) & 1))
    return best, exact[best] == value


def made_bits(of, value):
    if math.isnan(value):
        return NAN_BITS.get(of.name, (of.mask >> 1) >> ignored(of) << ignored(of))
    return of.encode(np.array([value]).astype(of.storage))[0]


@pytest.mark.xdist_group("explorer")
def test_words_are_rounded_to_the_nearest_element_or_refused():
    asked = [
        (name, word) for name in (*FLOATS, "s8", "u4", "s32", "b1") for word in WORDS
    ]
    for (name, word), answer in zip(asked, ask(words=asked)["words"], strict=True):
        wanted = expected(dtype(name), word)
        if wanted is None:
            assert "refused" in answer, (name, word, answer)
        else:
            assert (int(answer["bits"], 16), answer["exact"]) == wanted, (name, word)


@pytest.mark.xdist_group("explorer")
def test_files_are_read_as_numpy_wrote_them():
    rng = np.random.default_rng(0)
    small = rng.integers(-2, 3, (3, 5))
    asked, wanted = [], []
    for name in ("f16", "bf16", "e4m3", "e2m1", "s8", "s4", "f64", "tf32"):
        of = dtype(name)
        for stored in (of.storage, ">f8", "<f2", "<i4", "|i1"):
            for array in (small, np.asfortranarray(small)):
                file = io.BytesIO()
                np.save(file, array.astype(stored))
                asked.append((name, base64.b64encode(file.getvalue()).decode()))
                wanted.append(words(of.encode(small.astype(of.storage))))
    assert ask(files=asked)["files"] == wanted
    file = io.BytesIO()
    np.save(file, small.astype(np.complex64))
    (answer,) = ask(files=[("f16", base64.b64encode(file.getvalue()).decode())])[
        "files"
    ]
    assert answer["refused"].startswith("it has items of kind c8")


@pytest.mark.xdist_group("explorer")
def test_a_sparse_a_is_stored_as_compress_stores_it():
    """Random matrices with all numbers of non-zeros in a chunk, and one too full."""
    rng = np.random.default_rng(0)
    found = {}
    for op in explorer_data.holding():
        if op.sparse and op.family in MULTIPLYING:
            found.setdefault((op.family, str(op.granularity), op.types["a"]), op)
    asked, wanted = [], []
    for op in found.values():
        of = op.types["a"]
        A = rng.integers(1, 3, (op.shape.m, op.shape.k)) * (
            rng.random((op.shape.m, op.shape.k)) < 0.5
        )
        A = fm.sparse.prune(op, A.astype(of.storage))
        sp = fm.sparse.compress(op, A)
        asked.append((str(op), words(of.encode(A))))
        wanted.append(
            [words(of.encode(sp.values)), words(sp.indices), words(of.encode(A))]
        )
    full = next(op for op in found.values() if op.types["a"].name == "f16")
    ones = np.full((full.shape.m, full.shape.k), 0x3C00)
    asked.append((str(full), words(ones)))
    *answers, refused = ask(whole=asked)["whole"]
    assert answers == wanted
    assert refused["refused"] == (
        "A[0], columns 0 to 3: 4 values that are not zero, at 0, 1, 2, 3; 2:4 stores 2"
    )
