"""What a result must be: exact values, and how far an implementation may be off."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from fragmenta.base.arrays.checks import Array
from fragmenta.errors import BadCall
from fragmenta.frontends.judge import loading
from fragmenta.frontends.judge.evaluating import (
    SizedTask,
    Values,
    as_list,
    element_count,
    flattened,
    function_of,
    inputs_written,
    plain_results,
    seeded_inputs,
    weights_of,
    with_written,
)
from fragmenta.frontends.judge.held import PLAIN, elements, form, free, hold, leaves
from fragmenta.frontends.judge.probes import follows_signs, is_elementwise, keeps_nan
from fragmenta.frontends.judge.values import PLAIN as PLAIN_VALUES
from fragmenta.frontends.judge.values import (
    changed,
    is_float,
)
from fragmenta.frontends.judge.wire import Tree

if TYPE_CHECKING:
    import torch

PROBES = 6
"""Elements of each input that are tried: does the result depend on them?"""
LONG = 32
"""Inputs of a result from which on its sum is long."""
TINY = 2.0**-125
"""How far results may be off that are too small for a normal float32."""


def case_of_values(of: SizedTask, kind: str, layout: str, seed: int) -> dict[str, Tree]:
    """A case with one kind of values, in a layout."""
    inputs = changed(seeded_inputs(of, seed), kind, seed)
    name = of.label + (f", {layout}" if layout != PLAIN else "")
    name += f", {kind} values" if kind != PLAIN_VALUES else f", seed {seed}"
    return {**case_of(of, inputs, name), "values": kind, "layout": layout}


def case_of(
    of: SizedTask, inputs: Tree, name: str, whole: bool = False
) -> dict[str, Tree]:
    """A case with these inputs: what its results must be, and how it is asked."""
    written = inputs_written(of)
    given = as_list(free(inputs))
    results = hold(with_written(written, plain_results(of, given), given))
    found = leaves(results)
    if not found:
        raise BadCall("the reference returns no array and no tensor")
    expected, estimated = _expected(of, inputs, found, written, whole)
    rows = cast("list[dict[str, Tree]]", expected)
    pairs = zip(rows, found, strict=True)
    expected = [{**row, **_out_of_range(row, own)} for row, own in pairs]
    return {
        "name": name,
        "label": of.label,
        "set": of.key,
        "values": PLAIN_VALUES,
        "layout": PLAIN,
        "form": form(results),
        "convention": of.task.convention,
        "init": hold(as_list(of.task.init())),
        "state": hold(weights_of(of.task)),
        "inputs": inputs,
        "written": written,
        "expected": expected,
        "estimated": estimated,
        "types": [str(each["type"]) for each in found],
    }


def _out_of_range(row: Mapping[str, Tree], plain: dict[str, Tree]) -> dict[str, Tree]:
    """Results that the reference has in its own format, if these leave its range.

    A sum may overflow before it is divided: then an implementation may do that, too.
    """
    if not is_float(plain):
        return {}
    own = elements(plain).astype(np.float64)
    value, most = (cast("Values", row[each]) for each in ("value", "most"))
    with np.errstate(all="ignore"):
        left = ~np.isfinite(own) | (own == 0)
        off = left & np.isfinite(value) & ~(np.abs(own - value) <= most)
    return {"own": np.where(off, own, value)} if off.any() else {}


def _expected(
    of: SizedTask,
    inputs: Tree,
    plain: list[dict[str, Tree]],
    written: Sequence[int],
    whole: bool = False,
) -> tuple[list[Tree], list[str]]:
    """The exact results with their bounds, and operators without a rule."""
    widest = _format_of(of, inputs, plain)
    tensors = any(each["held"] == "torch" for each in leaves(inputs))
    if "torch" in sys.modules and tensors and not written:
        from fragmenta.frontends.judge.libraries import bounded, composed

        assert composed
        bounded.use_format(widest, whole)
        try:
            made = flattened(_bounded_results(of, inputs))
            if len(made) == len(plain):
                rows = [_row(*each) for each in zip(made, plain, strict=True)]
                if whole:
                    _demand_exactly(rows, made, SHARE / bounded.DIVISOR[0])
                return rows, sorted(bounded.ESTIMATED)
        except (bounded.Unruled, RuntimeError, TypeError, NotImplementedError) as why:
            rows = _estimated(of, inputs, plain, widest, written)
            return rows, [f"all: {why}"[:200]]
    return _estimated(of, inputs, plain, widest, written), ["all"]


def _format_of(of: SizedTask, inputs: Tree, plain: list[dict[str, Tree]]) -> str:
    """The format that implementations compute in.

    It is the smallest of the inputs'.  If these have several, it is the smallest that
    the reference computes in: one input that is a half makes no sum a half.
    """
    given = [str(each["type"]) for each in leaves(inputs) if is_float(each)]
    small = _smallest(given)
    if len({*given}) < 2:
        return small
    made = [str(each["type"]) for each in plain if is_float(each)]
    if "torch" in sys.modules and any(e["held"] == "torch" for e in leaves(inputs)):
        made += _computed(of, inputs)
    return max(small, _smallest(made or given), key=_FORMATS.index)


_FORMATS = ("bfloat16", "float16", "float32", "float64")


def _smallest(types: Sequence[str]) -> str:
    return min(
        (each for each in types if each in _FORMATS),
        key=_FORMATS.index,
        default="float32",
    )


def _computed(of: SizedTask, inputs: Tree) -> list[str]:
    """The formats of what the operators of a reference compute, but for conversions."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[str] = []

    class Formats(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        def __torch_dispatch__(  # type: ignore[no-untyped-def]
            self, func, types, args=(), kwargs=None
        ):
            made = func(*args, **(kwargs or {}))
            name = str(getattr(func, "__name__", func)).partition(".")[0]
            if name not in _CONVERTS and isinstance(made, torch.Tensor):
                read = {each.dtype for each in args if isinstance(each, torch.Tensor)}
                if made.is_floating_point() and (len(read) > 1 or made.dtype in read):
                    found.append(str(made.dtype).removeprefix("torch."))
            return made

    with Formats():
        plain_results(of, as_list(free(inputs)))
    return found


_CONVERTS = ("_to_copy", "detach", "alias", "lift_fresh", "clone", "empty_like", "view")


def _bounded_results(of: SizedTask, inputs: Tree) -> object:
    import torch

    from fragmenta.frontends.judge.libraries.bounded import exact

    def wide(value: object) -> object:
        if isinstance(value, torch.Tensor):
            return exact(value) if value.is_floating_point() else value
        return [wide(each) for each in value] if isinstance(value, list) else value

    given = as_list(wide(free(inputs)))
    function = function_of(of.task)
    with torch.no_grad():
        if of.task.convention == loading.PLAIN:
            return function(*given)
        model = cast("torch.nn.Module", copy.deepcopy(function))
        state = {name: wide(each) for name, each in model.state_dict().items()}
        return torch.func.functional_call(model, state, tuple(given))


def _row(made: object, plain: dict[str, Tree]) -> Tree:
    """An exact result with its bounds, rounded to its own type at the end."""
    from fragmenta.frontends.judge.libraries.bounded import Bounded

    shape = tuple(cast("list[int]", plain["shape"]))
    if not isinstance(made, Bounded):
        return _exactly(plain)
    parts = (made.value, made.most, made.variance)
    value, most, variance = (
        np.broadcast_to(each.detach().numpy(), shape) for each in parts
    )
    return _typed(value, most, variance, str(plain["type"]))


SHARE = 0.25
"""How far a whole number may be off that is computed exactly: it rounds to the right
one, also if fractions were computed with, as some ways to convolve do."""


def _demand_exactly(rows: list[Tree], made: list[object], most: float) -> None:
    """Results that sums of whole numbers give exactly may be off by no whole one."""
    for row, each in zip(cast("list[dict[str, Values]]", rows), made, strict=True):
        proved = getattr(each, "most", None)
        exact = np.zeros(1, np.bool_) if proved is None else proved.numpy() == 0
        exact = np.broadcast_to(exact, row["most"].shape)
        row["most"] = np.where(exact, most, row["most"])
        row["proved"] = exact.astype(np.float64)


def _exactly(plain: dict[str, Tree]) -> Tree:
    """A result that has no error, such as an index; equal to the reference's."""
    value = elements(plain).astype(np.float64)
    return {"value": value, "most": value * 0, "variance": value * 0}


def _unit(dtype: str) -> float:
    """How far a rounding may be off, relative to the number; else as in float32."""
    units = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}
    return units.get(dtype, 2.0**-24)


def _typed(
    value: Values, most: Values, variance: Values, dtype: str
) -> dict[str, Tree]:
    share = _unit(dtype)
    size = np.nan_to_num(np.abs(value), nan=0.0, posinf=0.0)
    return {
        "value": value,
        "most": most + share * size,
        "variance": variance + (share * size) ** 2,
    }


def _estimated(
    of: SizedTask,
    inputs: Tree,
    plain: list[dict[str, Tree]],
    widest: str,
    written: Sequence[int],
) -> list[Tree]:
    """Bounds of a function that cannot be followed: its inputs are moved a little."""
    unit = _unit(widest)
    random = np.random.default_rng(7)

    def results(
        move: float, of_inputs: Tree = inputs, aligned: bool = False
    ) -> list[Values]:
        rows = as_list(free(of_inputs))
        given = [_wide(each, move, None if aligned else random) for each in rows]
        found = leaves(hold(with_written(written, plain_results(of, given), given)))
        return [elements(each).astype(np.float64) for each in found]

    with np.errstate(all="ignore"):
        values = results(0.0)
        others = [results(16 * unit) for _ in range(8)]
        keeps = _kept(inputs, lambda changed: results(0.0, changed))
        count = element_count(as_list(free(inputs)))
        made: list[Tree] = []
        for i, row in enumerate(plain):
            if not is_float(row):
                made.append(_exactly(row))
                continue
            value = values[i]
            apart = np.max([_apart(each[i], value) for each in others], axis=0)
            own = _apart(elements(row).astype(np.float64), value)
            finite = np.abs(value[np.isfinite(value)])
            # Results below the smallest normal number may be flushed to zero.
            largest = finite.max() if finite.size else 0.0
            floor = np.full(value.shape, 8 * unit * largest + TINY)
            long = count / max(1, value.size)
            if long > LONG:  # a sum may be made in any order, also one by one
                summed = results(long * unit, aligned=True)[i]
                floor += _apart(summed, value)
            most = np.nan_to_num(8 * (apart + own) + floor, nan=np.inf)
            typed = _typed(value, most, (most / 8) ** 2, str(row["type"]))
            made.append({**typed, **_demands(keeps, i, elements(row), value)})
    return made


class _Kept(NamedTuple):
    """What results keep of their inputs, for each result; none if it is unknown."""

    nan: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.bool_]]] = ()
    signs: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.bool_]]] = ()
    alone: bool = False


def _kept(inputs: Tree, evaluate: Callable[[Tree], list[Values]]) -> _Kept:
    floats = [elements(each) for each in leaves(inputs) if is_float(each)]
    special = [each.astype(np.float64) for each in floats]
    try:
        nan = any(np.isnan(each).any() for each in special)
        ends = any((np.isinf(each) | (each == 0)).any() for each in special)
        alone = ends and is_elementwise(inputs, evaluate)
        return _Kept(
            keeps_nan(inputs, evaluate) if nan else (),
            follows_signs(inputs, evaluate) if alone else (),
            alone,
        )
    except Exception:  # the reference does not take other numbers there
        return _Kept()


def _demands(kept: _Kept, number: int, plain: Array, value: Values) -> dict[str, Tree]:
    """What an output must keep, as numbers: 1 where it must, and the sign of zeros."""
    found: dict[str, Tree] = {}
    own = plain.astype(np.float64)
    if kept.nan:
        must = kept.nan[number] & np.isnan(value) & np.isnan(own)
        found["nan"] = must.astype(np.float64)
    if kept.alone:
        found["infinity"] = (~np.isnan(own)).astype(np.float64)
        zero = kept.signs[number] & (value == 0) & (own == 0)
        zero &= np.signbit(value) == np.signbit(own)
        found["signs"] = zero * np.where(np.signbit(value), -1.0, 1.0)
    return found


def _apart(one: Values, other: Values) -> Values:
    """How far values are from one another; the same infinity is as near as can be."""
    same = np.isinf(one) & (one == other)
    return np.where(same, 0.0, np.abs(one - other))


def _wide(value: object, move: float, random: np.random.Generator | None) -> object:
    """A value in double precision, moved by a share with random signs.

    Without them, all elements become larger, as the errors of a sum may be.
    """
    if isinstance(value, list | tuple):
        return [_wide(each, move, random) for each in value]
    if isinstance(value, np.ndarray):
        if value.dtype.kind != "f" and "float" not in value.dtype.name:
            return value
        wide = value.astype(np.float64)
        signs = random.choice([-1.0, 1.0], value.shape) if random else np.sign(wide)
        return wide * (1 + move * signs)
    if not hasattr(value, "is_floating_point"):
        return value
    import torch

    tensor = cast("torch.Tensor", value)
    if not tensor.is_floating_point():
        return tensor
    if random is None:
        return tensor.double() * (1 + move * tensor.double().sign())
    signs = torch.from_numpy(random.choice([-1.0, 1.0], tuple(tensor.shape)))
    return tensor.double() * (1 + move * signs)


def with_needs(of: SizedTask, case: dict[str, Tree]) -> dict[str, Tree]:
    """The first case, with what the problem needs: products, and inputs that matter."""
    made = dict(case)
    made["products"] = _products(of, case)
    made["matter"] = _matter(of, case["inputs"])
    made["lower"] = _lower(of, case)
    return made


def _lower(of: SizedTask, case: dict[str, Tree]) -> Tree:
    """The bounds that an implementation in smaller formats would keep, by format."""
    if case["estimated"]:
        return {}
    from fragmenta.frontends.judge.libraries import bounded

    found: dict[str, Tree] = {}
    for name in bounded.LOWER:
        bounded.use_format(name)
        made = flattened(_bounded_results(of, case["inputs"]))
        found[name] = [
            [each.most.numpy(), each.variance.numpy()]
            if isinstance(each, bounded.Bounded)
            else None
            for each in made
        ]
    return found


def _products(of: SizedTask, case: Tree) -> int:
    """The products in sums that are not with zero; 0 if they are not known."""
    assert isinstance(case, dict)
    if case["estimated"]:
        return 0
    from fragmenta.frontends.judge.libraries import bounded

    bounded.use_format("float32")
    _bounded_results(of, case["inputs"])
    return bounded.PRODUCTS[0]


def _matter(of: SizedTask, inputs: Tree) -> int:
    """Bytes of the inputs that the results depend on, as far as probes show."""
    random = np.random.default_rng(3)
    before = _bytes_of(plain_results(of, as_list(free(inputs))))
    total = 0.0
    for number, leaf in enumerate(leaves(inputs)):
        size = cast(
            "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]", leaf["data"]
        ).size
        if not is_float(leaf) or not size:
            continue
        hits = 0
        for _ in range(PROBES):
            moved = changed(inputs, PLAIN_VALUES, 0)
            other = leaves(moved)[number]
            values = elements(other).copy().reshape(-1)
            values[random.integers(0, values.size)] = np.nan
            other["data"] = values.view(np.uint8)
            try:
                with np.errstate(all="ignore"):
                    after = _bytes_of(plain_results(of, as_list(free(moved))))
            except Exception:  # it is asked for, and refused
                after = []
            hits += after != before
        total += size * hits / PROBES
    return int(total)


def _bytes_of(results: object) -> list[bytes]:
    found = leaves(hold(results))
    return [elements(each).tobytes() for each in found]
