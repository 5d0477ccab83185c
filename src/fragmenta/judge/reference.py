"""Makes the cases of a task: inputs, and what the reference says about their results.

This runs in a process of its own.  A case has the inputs as they are sent, the exact
results, and for each element how far an implementation may be from it.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from fragmenta.errors import BadCall
from fragmenta.judge import loading
from fragmenta.judge.held import LAYOUTS, PLAIN, elements, free, hold, leaves
from fragmenta.judge.sizes import Sizes, odd, scaled
from fragmenta.judge.values import PLAIN as PLAIN_VALUES
from fragmenta.judge.values import changed, is_float
from fragmenta.judge.wire import Tree

if TYPE_CHECKING:
    import torch

PROBES = 6
"""Elements of each input that are tried: does the result depend on them?"""
STEPS = (1, 1, 4, 8, 16, 32)
"""Sizes that are tried are multiples of these, until the reference takes them."""


class _Set(NamedTuple):
    """A task with its numbers."""

    sizes: Sizes
    label: str
    task: loading.Task
    key: str


def cases(order: Mapping[str, Tree]) -> Tree:
    """The cases of a task, for the order of an examiner."""
    text, path = str(order["text"]), Path(str(order["folder"])) / "reference.py"
    path.write_text(text, encoding="utf-8")
    budget = _Budget(cast("int", order["elements"]), cast("int", order["products"]))
    given = loading.constants(text)

    def task(sizes: Sizes) -> loading.Task:
        return loading.task_of(loading.execute(text, path, "reference", sizes))

    first = scaled(given, lambda sizes: budget.holds(task(sizes)))
    label = "given sizes" if first == given else f"sizes {_shown(first, given)}"
    main = _Set(first, label, task(first), "main")
    seeds = cast("int", order["seeds"])
    made = [_case(main, PLAIN_VALUES, PLAIN, seed) for seed in range(seeds)]
    made[0] = _about(main, made[0])
    kinds = [str(each) for each in cast("list[Tree]", order["values"])]
    kinds = [each for each in kinds if each != PLAIN_VALUES]
    other = _other(first, given, task) if order["shapes"] else None
    if other is not None:
        made.append(_case(other, PLAIN_VALUES, PLAIN, seeds))
    where = other or main
    if order["strides"]:
        made += [_case(where, PLAIN_VALUES, each, seeds + 1) for each in LAYOUTS[1:]]
    made += [_case(where, each, PLAIN, seeds + 2) for each in kinds]
    return [*filter(None, made)]


def _shown(sizes: Sizes, given: Mapping[str, int]) -> str:
    new = [f"{name}={each}" for name, each in sizes.items() if given[name] != each]
    return ", ".join(new)


def _other(
    first: Sizes, given: Mapping[str, int], task: Callable[[Sizes], loading.Task]
) -> _Set | None:
    """Other sizes that the reference takes; None if there are none."""
    for attempt, step in enumerate(STEPS):
        sizes = odd(first, attempt, step)
        if sizes == first:
            continue
        made = _Set(sizes, f"sizes {_shown(sizes, given)}", task(sizes), "other")
        try:
            _plain_results(made, _inputs(made.task, 0), 0)
        except Exception:  # sizes that do not fit together
            continue
        return made
    return None


# ── inputs ──────────────────────────────────────────────────────────────────


def _seed(number: int) -> None:
    np.random.seed(number)  # noqa: NPY002 - tasks use it
    if "torch" in sys.modules:
        import torch

        torch.manual_seed(number)


def _inputs(task: loading.Task, seed: int) -> list[object]:
    _seed(1000 + seed)
    made = task.inputs()
    return list(made) if isinstance(made, list | tuple) else [made]


class _Budget:
    """How large inputs may be, and how much work a call."""

    def __init__(self, elements: int, products: int) -> None:
        self._elements, self._products = elements, products

    def holds(self, task: loading.Task) -> bool:
        """Whether the sizes of a task are small enough; no memory is needed for it."""
        if "torch" not in sys.modules:
            return self._fits(_inputs(task, 0))
        import torch
        from torch.utils.flop_counter import FlopCounterMode

        try:
            with torch.device("meta"):
                inputs = _inputs(task, 0)
                if not self._fits(inputs):
                    return False
                with FlopCounterMode(display=False) as counter:
                    outputs = _function(task, 0)(*inputs)
        except (RuntimeError, NotImplementedError, TypeError):  # not without memory
            return self._fits(_inputs(task, 0))
        few = counter.get_total_flops() // 2 <= self._products
        return few and self._fits(outputs)

    def _fits(self, inputs: object) -> bool:
        return _count(inputs) <= self._elements


def _count(value: object) -> int:
    """The elements of all arrays."""
    if isinstance(value, list | tuple):
        return sum(map(_count, value))
    if isinstance(value, dict):
        return _count([*value.values()])
    return math.prod(getattr(value, "shape", (1,)))


def _function(task: loading.Task, seed: int) -> Callable[..., object]:
    """The reference: a model with its weights, or the function."""
    if task.convention == loading.PLAIN:
        return task.make
    _seed(seed)
    return cast(
        "Callable[..., object]", task.make(*cast("Sequence[object]", task.init()))
    )


# ── results ─────────────────────────────────────────────────────────────────


def _plain_results(of: _Set, inputs: Sequence[object], seed: int) -> object:
    """What the reference returns in its own precision."""
    function = _function(of.task, 0)
    if "torch" not in sys.modules:
        return function(*inputs)
    import torch

    with torch.no_grad():
        return function(*inputs)


def _case(of: _Set, kind: str, layout: str, seed: int) -> Tree:
    inputs = changed(hold(_inputs(of.task, seed)), kind, seed)
    results = hold(_plain_results(of, _list(free(inputs)), seed))
    found = leaves(results)
    if not found:
        raise BadCall("the reference returns no array and no tensor")
    expected, estimated = _expected(of, inputs, found)
    name = of.label + (f", {layout}" if layout != PLAIN else "")
    name += f", {kind} values" if kind != PLAIN_VALUES else f", seed {seed}"
    return {
        "name": name,
        "set": of.key,
        "values": kind,
        "layout": layout,
        "convention": of.task.convention,
        "init": hold(_list(of.task.init())),
        "state": hold(_state(of.task)),
        "inputs": inputs,
        "expected": expected,
        "estimated": estimated,
        "types": [str(each["type"]) for each in found],
    }


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _state(task: loading.Task) -> dict[str, object]:
    """The weights of a model."""
    if task.convention == loading.PLAIN:
        return {}
    model = cast("torch.nn.Module", _function(task, 0))
    return {name: each.clone() for name, each in model.state_dict().items()}


def _expected(
    of: _Set, inputs: Tree, plain: list[dict[str, Tree]]
) -> tuple[list[Tree], list[str]]:
    """The exact results with their bounds, and operators without a rule."""
    widest = _widest([str(each["type"]) for each in leaves(inputs) if is_float(each)])
    if "torch" in sys.modules and any(e["held"] == "torch" for e in leaves(inputs)):
        from fragmenta.judge.libraries import bounded, composed

        assert composed
        bounded.use_format(widest)
        try:
            made = _flat(_bounded_results(of, inputs))
            if len(made) == len(plain):
                rows = [_row(*each) for each in zip(made, plain, strict=True)]
                return rows, sorted(bounded.ESTIMATED)
        except (bounded.Unruled, RuntimeError, TypeError, NotImplementedError) as why:
            return _estimated(of, inputs, plain, widest), [f"all: {why}"[:200]]
    return _estimated(of, inputs, plain, widest), ["all"]


def _widest(types: list[str]) -> str:
    """The format that implementations compute in: the smallest of the inputs'."""
    for each in ("bfloat16", "float16", "float32", "float64"):
        if each in types:
            return each
    return "float32"


def _bounded_results(of: _Set, inputs: Tree) -> object:
    import torch

    from fragmenta.judge.libraries.bounded import exact

    def wide(value: object) -> object:
        if isinstance(value, torch.Tensor):
            return exact(value) if value.is_floating_point() else value
        return [wide(each) for each in value] if isinstance(value, list) else value

    given = _list(wide(free(inputs)))
    function = _function(of.task, 0)
    with torch.no_grad():
        if of.task.convention == loading.PLAIN:
            return function(*given)
        model = cast("torch.nn.Module", copy.deepcopy(function))
        state = {name: wide(each) for name, each in model.state_dict().items()}
        return torch.func.functional_call(model, state, tuple(given))


def _flat(value: object) -> list[object]:
    if isinstance(value, list | tuple):
        return [found for each in value for found in _flat(each)]
    if isinstance(value, dict):
        return _flat([*value.values()])
    return [value] if hasattr(value, "shape") else []


def _row(made: object, plain: dict[str, Tree]) -> Tree:
    """An exact result with its bounds, rounded to its own type at the end."""
    from fragmenta.judge.libraries.bounded import Bounded

    shape = tuple(cast("list[int]", plain["shape"]))
    if not isinstance(made, Bounded):
        return _exactly(plain)
    parts = (made.value, made.most, made.variance)
    value, most, variance = (
        np.broadcast_to(each.detach().numpy(), shape) for each in parts
    )
    return _typed(value, most, variance, str(plain["type"]))


def _exactly(plain: dict[str, Tree]) -> Tree:
    """A result that has no error, such as an index; equal to the reference's."""
    value = elements(plain).astype(np.float64)
    return {"value": value, "most": value * 0, "variance": value * 0}


def _typed(
    value: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    most: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    variance: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    dtype: str,
) -> Tree:
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}
    share = unit.get(dtype, 2.0**-24)
    size = np.nan_to_num(np.abs(value), nan=0.0, posinf=0.0)
    return {
        "value": value,
        "most": most + share * size,
        "variance": variance + (share * size) ** 2,
    }


def _estimated(
    of: _Set, inputs: Tree, plain: list[dict[str, Tree]], widest: str
) -> list[Tree]:
    """Bounds of a function that cannot be followed: its inputs are moved a little."""
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}.get(
        widest, 2.0**-24
    )
    random = np.random.default_rng(7)

    def results(move: float) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
        given = [_wide(each, move, random) for each in _list(free(inputs))]
        found = leaves(hold(_plain_results(of, given, 0)))
        return [elements(each).astype(np.float64) for each in found]

    with np.errstate(all="ignore"):
        values = results(0.0)
        others = [results(16 * unit) for _ in range(8)]
        made: list[Tree] = []
        for i, row in enumerate(plain):
            if not is_float(row):
                made.append(_exactly(row))
                continue
            value = values[i]
            apart = np.max([np.abs(each[i] - value) for each in others], axis=0)
            own = np.abs(elements(row).astype(np.float64) - value)
            finite = np.abs(value[np.isfinite(value)])
            floor = 8 * unit * (finite.max() if finite.size else 0.0)
            most = np.nan_to_num(8 * (apart + own) + floor, nan=np.inf)
            made.append(_typed(value, most, (most / 8) ** 2, str(row["type"])))
    return made


def _wide(value: object, move: float, random: np.random.Generator) -> object:
    """A value in double precision, moved by a share with random signs."""
    if isinstance(value, list | tuple):
        return [_wide(each, move, random) for each in value]
    if isinstance(value, np.ndarray):
        if value.dtype.kind != "f" and "float" not in value.dtype.name:
            return value
        signs = random.choice([-1.0, 1.0], value.shape)
        return value.astype(np.float64) * (1 + move * signs)
    if not hasattr(value, "is_floating_point"):
        return value
    import torch

    tensor = cast("torch.Tensor", value)
    if not tensor.is_floating_point():
        return tensor
    signs = torch.from_numpy(random.choice([-1.0, 1.0], tuple(tensor.shape)))
    return tensor.double() * (1 + move * signs)


# ── what the problem needs ──────────────────────────────────────────────────


def _about(of: _Set, case: Tree) -> Tree:
    """The first case, with what the problem needs: products, and inputs that matter."""
    assert isinstance(case, dict)
    made = dict(case)
    made["products"] = _products(of, case)
    made["matter"] = _matter(of, case["inputs"])
    made["lower"] = _lower(of, case)
    return made


def _lower(of: _Set, case: dict[str, Tree]) -> Tree:
    """The bounds that an implementation in smaller formats would keep, by format."""
    if case["estimated"]:
        return {}
    from fragmenta.judge.libraries import bounded

    found: dict[str, Tree] = {}
    for name in bounded.LOWER:
        bounded.use_format(name)
        made = _flat(_bounded_results(of, case["inputs"]))
        found[name] = [
            [each.most.numpy(), each.variance.numpy()]
            if isinstance(each, bounded.Bounded)
            else None
            for each in made
        ]
    return found


def _products(of: _Set, case: Tree) -> int:
    """The products in sums that are not with zero; 0 if they are not known."""
    assert isinstance(case, dict)
    if case["estimated"]:
        return 0
    from fragmenta.judge.libraries import bounded

    bounded.use_format("float32")
    _bounded_results(of, case["inputs"])
    return bounded.PRODUCTS[0]


def _matter(of: _Set, inputs: Tree) -> int:
    """Bytes of the inputs that the results depend on, as far as probes show."""
    random = np.random.default_rng(3)
    before = _bytes_of(_plain_results(of, _list(free(inputs)), 0))
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
            with np.errstate(all="ignore"):
                after = _bytes_of(_plain_results(of, _list(free(moved)), 0))
            hits += after != before
        total += size * hits / PROBES
    return int(total)


def _bytes_of(results: object) -> list[bytes]:
    found = leaves(hold(results))
    return [elements(each).tobytes() for each in found]
