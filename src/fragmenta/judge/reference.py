"""Makes the cases of a task: inputs, and what the reference says about their results.

This runs in a process of its own.  A case has the inputs as they are sent, the exact
results, and for each element how far an implementation may be from it.
"""

from __future__ import annotations

import copy
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from fragmenta.arrays.checks import Array
from fragmenta.errors import BadCall
from fragmenta.judge import loading
from fragmenta.judge.following import SMALL
from fragmenta.judge.held import LAYOUTS, PLAIN, elements, form, free, hold, leaves
from fragmenta.judge.probes import follows_signs, is_elementwise, keeps_nan
from fragmenta.judge.situations import (
    CONSTANTS,
    EXACT,
    SITUATIONS,
    situated,
    whole_floats,
    with_whole,
)
from fragmenta.judge.situations import MANY as MANY_SITUATIONS
from fragmenta.judge.situations import many as many_situations
from fragmenta.judge.sizes import (
    ABOVE,
    GIVEN,
    MAIN,
    OTHER,
    SECRET,
    Sizes,
    above,
    few,
    many,
    odd,
    scaled,
)
from fragmenta.judge.sizes import SMALL as SMALL_SIZE
from fragmenta.judge.sizes import moved as moved_sizes
from fragmenta.judge.values import (
    ELEMENTWISE,
    EXTREME,
    FLAGS,
    ROWS,
    SIGNS,
    STATE,
    WHOLE,
    changed,
    is_float,
    moved,
    whole_numbers,
)
from fragmenta.judge.values import PLAIN as PLAIN_VALUES
from fragmenta.judge.wire import Tree, dump, load

if TYPE_CHECKING:
    import torch

Values = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
PROBES = 6
"""Elements of each input that are tried: does the result depend on them?"""
FEW = (7, 2, 1)
"""Very small sizes that are tried."""
BLOCK = 256
"""Sizes just above blocks are one more than this."""
MOST_NAMES = 3
"""So many sizes are tried just above blocks, each by itself."""
LONG = 32
"""Inputs of a result from which on its sum is long."""
MANY = 1 << 17
"""Elements of an input in one call with many of them."""
TINY = 2.0**-125
"""How far results may be off that are too small for a normal float32."""
LARGER = 64
"""How many times larger the inputs of one call are, up to the given sizes."""
MANIFOLD = 128
"""The same of the products of matrices."""
ROUGH = 16.0
"""How many times larger the bounds of its errors are."""
STEPS = (1, 1, 4, 8, 16, 32)
"""Sizes that are tried are multiples of these, until the reference takes them."""


class _Set(NamedTuple):
    """A task with its numbers."""

    sizes: Sizes
    label: str
    task: loading.ReferenceTask
    key: str


def cases(order: Mapping[str, Tree]) -> Tree:
    """The cases of a task, for the order of an examiner."""
    text, path = str(order["text"]), Path(str(order["folder"])) / "reference.py"
    path.write_text(text, encoding="utf-8")
    budget = _Budget(cast("int", order["elements"]), cast("int", order["products"]))
    given = loading.constants(text)

    def task(sizes: Sizes) -> loading.ReferenceTask:
        return loading.task_of(loading.execute(text, path, "reference", sizes))

    # Large inputs take long to make: both go the same way down.
    large = scaled(given, lambda sizes: budget.larger.holds(task(sizes)))
    first = scaled(large, lambda sizes: budget.holds(task(sizes)))
    main = _Set(first, _label(first, given), task(first), MAIN)
    seeds = cast("int", order["seeds"])
    made = [_case(main, PLAIN_VALUES, PLAIN, seed) for seed in range(seeds)]
    made[0] = _about(main, made[0])
    secret = _secret(main, made[-1])
    kinds = [str(each) for each in cast("list[Tree]", order["values"])]
    kinds = [each for each in kinds if each != PLAIN_VALUES]
    other = _other(first, given, task) if order["shapes"] else None
    if other is not None:
        made.append(_case(other, PLAIN_VALUES, PLAIN, seeds))
    where = other or main
    if order["strides"]:
        made += [_case(where, PLAIN_VALUES, each, seeds + 1) for each in LAYOUTS[1:]]
    made += _of_kinds(where, kinds, seeds + 2)
    made[0]["task"] = {"text": text, "sizes": where.sizes, "label": where.label}
    made[0]["untried"] = _shown(given, large, both=True) if large != given else ""
    if large != first:
        largest = _Set(large, _label(large, given), task(large), GIVEN)
        made += _largest(largest, main, seeds + 3)
    elif order["shapes"]:
        made += _above(given, task, budget.larger, seeds + 3)
    if order["shapes"] and main.task.convention == loading.PLAIN:
        made += _few_and_many(where, given, task, seeds + 4)
    if order["shapes"]:
        made += _uneven(where, given, task, budget, seeds + 5)
    if EXTREME in kinds:
        made += _whole_numbers(where, seeds + 5)
        made += _in_rows(where._replace(key=ABOVE), seeds + 6)
        made += _situations(where._replace(key=ABOVE), SITUATIONS, seeds + 8)
        made += _exact(main._replace(key=ABOVE), seeds + 9, 0)
        made += _other_states(main, seeds + 7)
        made[0]["fixed"] = _never_changed([each["inputs"] for each in made])
    return [*made, secret]


def _of_kinds(of: _Set, kinds: Sequence[str], seed: int) -> list[dict[str, Tree]]:
    """A case for each kind of values; some only if nothing is added or compared."""
    plain = [each for each in kinds if each not in ELEMENTWISE]
    made = [case for each in plain for case in _taken(of, each, seed)]
    more = [each for each in kinds if each in ELEMENTWISE]
    if more and _is_elementwise(of):
        found = [_case(of, each, PLAIN, seed) for each in more]
        made += [each for each in found if _is_finite(each)]
    return made


def _taken(of: _Set, kind: str, seed: int) -> list[dict[str, Tree]]:
    """A case of such values; none if the reference does not take them."""
    try:
        with np.errstate(all="ignore"):
            return [_case(of, kind, PLAIN, seed)]
    except Exception:  # such as an index that comes from NaN
        return []


def _is_elementwise(of: _Set) -> bool:
    def results(inputs: Tree) -> list[Values]:
        found = leaves(hold(_plain_results(of, _list(free(inputs)), 0)))
        return [elements(each).astype(np.float64) for each in found]

    try:
        with np.errstate(all="ignore"):
            return is_elementwise(hold(_inputs(of.task, 0)), results)
    except Exception:  # the reference does not take other numbers
        return False


def _is_finite(case: Mapping[str, Tree]) -> bool:
    rows = cast("list[dict[str, Values]]", case["expected"])
    return all(bool(np.isfinite(each["value"]).all()) for each in rows)


def _few_and_many(
    of: _Set,
    given: Mapping[str, int],
    task: Callable[[Sizes], loading.ReferenceTask],
    seed: int,
) -> list[dict[str, Tree]]:
    """Cases with very few elements, and with many, if each result is by itself."""
    if not _is_elementwise(of):
        return []
    wanted = [few(given, size) for size in FEW]
    first = _count(_inputs(of.task, 0)[:1])
    if first < MANY // 2:
        wanted.append(many(of.sizes, -(-MANY // max(1, first)) + _anything() % 9))
    made = []
    for sizes in wanted:
        if sizes == given:
            continue
        label = f"sizes {_shown(sizes, given)}"
        try:
            made += _large(_Set(sizes, label, task(sizes), ABOVE), seed)
        except Exception:  # sizes that the reference does not take
            continue
    return made


def _uneven(
    of: _Set,
    given: Mapping[str, int],
    task: Callable[[Sizes], loading.ReferenceTask],
    budget: _Budget,
    seed: int,
) -> list[dict[str, Tree]]:
    """Cases with one size just above blocks, and the others very small."""
    names = [name for name, each in given.items() if each > SMALL_SIZE][:MOST_NAMES]
    made = _small_sizes(of, given, task, budget, seed)
    if of.task.convention == loading.PLAIN and _is_elementwise(of):
        return made
    for name in names:
        for size in (BLOCK + 1, *FEW[: len(names) == 1]):
            sizes = {**few(given, FEW[0]), name: size}
            try:
                new = _Set(sizes, f"sizes {_shown(sizes, given)}", task(sizes), ABOVE)
                made += _large(new, seed) if budget.holds(new.task) else []
            except Exception:  # sizes that the reference does not take
                continue
    return made


def _small_sizes(
    of: _Set,
    given: Mapping[str, int],
    task: Callable[[Sizes], loading.ReferenceTask],
    budget: _Budget,
    seed: int,
) -> list[dict[str, Tree]]:
    """Cases in which a small number is another, if it is a size of inputs alone."""
    made: list[dict[str, Tree]] = []
    for name, each in of.sizes.items():
        if not 1 < each <= SMALL_SIZE or len(made) == MOST_NAMES:
            continue
        sizes = {**of.sizes, name: each + 3}
        label = f"sizes {_shown(sizes, given)}"
        try:
            new = _Set(sizes, label, task(sizes), ABOVE)
            same = repr(new.task.init()) == repr(of.task.init())
            shapes = [_shapes_of(e.task.inputs()) for e in (of, new)]
            if same and shapes[0] != shapes[1] and budget.holds(new.task):
                made += [_case(new, PLAIN_VALUES, PLAIN, seed)]
        except Exception:  # sizes that the reference does not take
            continue
    return made


def _shapes_of(inputs: object) -> list[Tree]:
    return [each["shape"] for each in leaves(hold(_list(inputs)))]


def _in_rows(of: _Set, seed: int) -> list[dict[str, Tree]]:
    """Cases in which each row of the inputs is a situation of its own."""
    positive = any(
        is_float(leaf) and elements(leaf).size and (elements(leaf) >= 0).all()
        for leaf in leaves(hold(_inputs(of.task, 0)))
    )
    kinds = [each for each in ROWS if positive or each != SIGNS]
    return [each for kind in kinds for each in _taken(of, kind, seed)]


def _situations(
    of: _Set, kinds: Sequence[str], seed: int, constants: Sequence[float] = ()
) -> list[dict[str, Tree]]:
    """Cases with such situations, as far as the reference takes them."""
    inputs, made = _seeded(of, seed), []
    for kind in kinds:
        new = situated(inputs, kind, seed, constants)
        if dump(new) != dump(inputs):
            made += _tried(of, new, kind)
    return made


def _tried(of: _Set, inputs: Tree, kind: str) -> list[dict[str, Tree]]:
    """A case with these inputs; none if the reference does not take them."""
    try:
        with np.errstate(all="ignore"):
            made = _case_of(of, inputs, f"{of.label}, {kind}")
    except Exception:  # numbers that the reference does not take
        return []
    return [{**made, "values": kind}]


def _exact(of: _Set, seed: int, long: int) -> list[dict[str, Tree]]:
    """A case with whole numbers, if sums of them are exact in any order."""
    if "torch" not in sys.modules:
        return []
    label = f"{of.label}, {EXACT}"
    if of.task.convention != loading.PLAIN and _state(of.task):
        of = of._replace(task=of.task._replace(make=_whole(of.task.make)), label=label)
    inputs = _seeded(of, seed)
    for most, each in ((3, long), (3, -1), (1, -1)):
        try:
            new = whole_floats(inputs, seed, most, each)
            made = _case_of(of, new, label, whole=True)
        except Exception:  # numbers that the reference does not take
            return []
        rows = cast("list[dict[str, Values]]", made["expected"])
        if all("proved" in each and each["proved"].all() for each in rows):
            return [{**made, "values": EXACT}]
    return []


def _largest(of: _Set, small: _Set, seed: int) -> list[dict[str, Tree]]:
    """The case of the given sizes: whole numbers, many situations, or ordinary ones."""
    if _is_elementwise(small):
        made = _tried(of, many_situations(_seeded(of, seed), seed), MANY_SITUATIONS)
        return [_rough(each) for each in made] or _large(of, seed)
    weights = of.task.convention != loading.PLAIN and _state(of.task)
    return ([] if weights else _exact(of, seed, 1)) or _large(of, seed)


def _whole(make: Callable[..., object]) -> Callable[..., object]:
    """Makes a model whose weights are small whole numbers."""

    def made(*init: object) -> object:
        model = cast("torch.nn.Module", make(*init))
        for name, weight in model.state_dict().items():
            if weight.is_floating_point() and "var" not in name:
                weight.copy_((weight * 1000).round() % 3 - 1.0)
        return model

    return made


def more(order: Mapping[str, Tree]) -> Tree:
    """Cases for the constants of a candidate's kernels, for an examiner."""
    text, path = str(order["text"]), Path(str(order["folder"])) / "reference.py"
    path.write_text(text, encoding="utf-8")
    sizes = cast("Sizes", order["sizes"])
    task = loading.task_of(loading.execute(text, path, "reference", sizes))
    of = _Set(sizes, str(order["label"]), task, ABOVE)
    floats, whole = (
        cast("list[float]", order["floats"]),
        cast("list[int]", order["whole"]),
    )
    made = _situations(of, [CONSTANTS], len(floats), floats) if floats else []
    inputs = _seeded(of, len(whole))
    for inside in (False, True):
        new = with_whole(inputs, whole, inside)
        found = _tried(of, new, CONSTANTS) if dump(new) != dump(inputs) else []
        if found:
            return [*made, *found]
    return [*made]


STATES: tuple[Callable[[float], float], ...] = (
    lambda scalar: 0.75 * scalar,
    lambda scalar: -1.5 * scalar,
    lambda scalar: 0.0,
)
"""What numbers among the arguments become."""


def _never_changed(inputs: Sequence[Tree]) -> list[Tree]:
    """Arguments that are one and the same number in all cases, in words."""
    said: list[Tree] = []
    for number, first in enumerate(_list(inputs[0])):
        rows = [_list(each)[number] for each in inputs]
        if isinstance(first, int | float | str):
            seen = {*map(repr, rows)}
        elif isinstance(first, dict):
            arrays = [elements(leaf) for each in rows for leaf in leaves(each)]
            seen = {
                repr(each.item()) for some in arrays for each in np.unique(some)[:2]
            }
        else:
            continue
        if len(seen) == 1:
            said.append(f"input {number} is {seen.pop()} in all calls")
    return said


def _other_states(of: _Set, seed: int) -> list[dict[str, Tree]]:
    """Cases with other numbers among the arguments, other weights, and ``eval``.

    Numbers are smaller, negative and larger, and zero.  Of the weights, some are
    smaller; or they have the other sign and are larger; or some are zero.  Those that
    are all zero are not.
    """
    return [each for way in range(len(STATES)) for each in _state_of(of, way, seed)]


def _state_of(of: _Set, way: int, seed: int) -> list[dict[str, Tree]]:
    task = of.task

    def other(values: object) -> list[object]:
        rows = _list(values)
        return [STATES[way](e) if type(e) is float else e for e in rows]

    def make(*init: object) -> object:
        model = cast("torch.nn.Module", task.make(*init))
        for number, (name, weight) in enumerate(model.state_dict().items()):
            if not weight.is_floating_point():
                continue
            if not weight.any():  # such as a bias, which may not stay zero
                weight.add_((0.5, -2.0, 0.125)[way] * (1 + number % 4))
            elif way == 0 or not weight.dim():
                weight.mul_(0.75 - number % 4 / 16)
            elif way == 1:
                weight.mul_((4.0 + number % 4) * (1 if "var" in name else -1))
            else:
                weight.reshape(-1)[:: 2 + number % 3] = 0.0
        return model.eval()

    bench = task.convention != loading.PLAIN
    scalars = [*_list(task.inputs()), *_list(task.init())]
    weights = bench and _state(task)
    if not any(type(each) is float for each in scalars) and not (
        weights or (bench and way == 0)
    ):
        return []
    new = task._replace(
        inputs=lambda: other(task.inputs()),
        init=lambda: other(task.init()),
        make=make if bench else task.make,
    )
    label = f"{of.label}, {STATE}" + f" ({way + 1})" * (way > 0)
    of = of._replace(task=new, label=label, key=ABOVE)
    made = _tried(of, _seeded(of, seed), STATE)
    # All ways have one model: its weights are changed where they are.
    one = f"{of.label.partition(STATE)[0]}{STATE}"
    about = {"name": label, "evaluates": bench, "brief": way > 0, "model": one}
    return [{**each, **about} for each in made]


def _whole_numbers(of: _Set, seed: int) -> list[dict[str, Tree]]:
    """Cases with other whole numbers, if the reference takes them."""
    made = []
    inputs = _seeded(of, seed)
    first: Mapping[str, Tree] = {}
    for kind in WHOLE:
        new = whole_numbers(inputs, kind, seed)
        if dump(new) == dump(inputs):
            continue
        name = f"{of.label}, {kind} whole numbers"
        try:
            first = first or _case_of(of, inputs, name)
        except Exception:  # numbers that the reference does not take
            return []
        above = of._replace(key=ABOVE)
        found = _tried(above, new, f"{kind} whole numbers")
        for each in () if found else _one_by_one(inputs, new):
            found += _tried(above, each, f"{kind} whole numbers")
        made += [
            {**each, "values": kind}
            for each in found
            if kind in FLAGS or _shapes(each) == _shapes(first)
        ]
    return made


def _one_by_one(inputs: Tree, new: Tree) -> list[Tree]:
    """Inputs of which only one is the new one."""
    old, other = _list(inputs), _list(new)
    differs = [n for n, each in enumerate(old) if dump(each) != dump(other[n])]
    return [[*old[:n], other[n], *old[n + 1 :]] for n in differs if len(differs) > 1]


def _shapes(case: Mapping[str, Tree]) -> list[tuple[int, ...]]:
    rows = cast("list[dict[str, Values]]", case["expected"])
    return [each["value"].shape for each in rows]


def _above(
    given: Mapping[str, int],
    task: Callable[[Sizes], loading.ReferenceTask],
    budget: _Budget,
    seed: int,
) -> list[dict[str, Tree]]:
    """A case with sizes above the given ones, if the reference takes them."""
    for step in STEPS[1:]:
        sizes = above(given, step)
        if sizes == given:
            return []
        if step == 1:  # sizes that are known before can be told from others
            sizes = moved_sizes(sizes, given, _anything())
        of = _Set(sizes, f"sizes {_shown(sizes, given)}", task(sizes), ABOVE)
        try:
            if not budget.holds(of.task):
                return []
            _plain_results(of, _inputs(of.task, 0), 0)
        except Exception:  # sizes that do not fit together
            continue
        return _large(of, seed)
    return []


def _label(sizes: Sizes, given: Mapping[str, int]) -> str:
    return "given sizes" if sizes == given else f"sizes {_shown(sizes, given)}"


def _secret(of: _Set, seen: dict[str, Tree]) -> Tree:
    """A case for kernels alone: other numbers than those that a candidate has seen.

    Whole numbers, which a host may read, and small inputs are those that it has seen.
    """
    seed = _anything()
    new = leaves(hold(_inputs(of.task, seed)))
    inputs = load(dump(seen["inputs"]))
    floats = [each for each in leaves(inputs) if is_float(each)]
    for leaf, other in zip(leaves(inputs), new, strict=False):
        count = elements(leaf).size
        if count > SMALL and (is_float(leaf) or not floats):
            same = elements(leaf).tobytes() == elements(other).tobytes()
            unlike = same or leaf["shape"] != other["shape"]
            leaf["data"] = moved(leaf, seed) if unlike else other["data"]
    return {**_case_of(of, inputs, "secret values"), "set": SECRET}


def _anything() -> int:
    """A number that nobody knows before."""
    return int.from_bytes(os.urandom(4), "little")


def _large(of: _Set, seed: int) -> list[dict[str, Tree]]:
    """A case with sizes that are too large for the other tries; none if it fails.

    It shows whether all is computed, not how exactly: sums are long.
    """
    try:
        made = _case(of, PLAIN_VALUES, PLAIN, seed)
    except (MemoryError, RuntimeError, ValueError):
        return []
    return [_rough(made)]


def _rough(made: dict[str, Tree]) -> dict[str, Tree]:
    for row in cast("list[dict[str, np.ndarray]]", made["expected"]):
        row["most"] = row["most"] * ROUGH
        row["variance"] = row["variance"] * ROUGH**2
    return made


def _shown(
    sizes: Mapping[str, int], given: Mapping[str, int], both: bool = False
) -> str:
    """The sizes that are not the given ones; with ``both``, these behind them."""
    return ", ".join(
        f"{name}={each:,} (up to {given[name]:,})" if both else f"{name}={each}"
        for name, each in sizes.items()
        if given[name] != each
    )


def _other(
    first: Sizes,
    given: Mapping[str, int],
    task: Callable[[Sizes], loading.ReferenceTask],
) -> _Set | None:
    """Other sizes that the reference takes; None if there are none."""
    for step in STEPS:
        sizes = odd(first, _anything(), step)
        if sizes == first:
            continue
        made = _Set(sizes, f"sizes {_shown(sizes, given)}", task(sizes), OTHER)
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


def _inputs(task: loading.ReferenceTask, seed: int) -> list[object]:
    _seed(1000 + seed)
    made = task.inputs()
    return list(made) if isinstance(made, list | tuple) else [made]


class _Budget:
    """How large inputs may be, and how much work a call."""

    def __init__(self, elements: int, products: int) -> None:
        self._elements, self._products = elements, products

    @property
    def larger(self) -> _Budget:
        """For one call that is not watched."""
        return _Budget(LARGER * self._elements, MANIFOLD * self._products)

    def holds(self, task: loading.ReferenceTask) -> bool:
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


def _function(task: loading.ReferenceTask, seed: int) -> Callable[..., object]:
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


def _written(of: _Set) -> list[int]:
    """The inputs that the reference changes in place: they are results, too.

    Ordinary values show it; zeros may stay what they are.
    """
    inputs = hold(_inputs(of.task, 0))
    given = _list(free(inputs))
    _plain_results(of, given, 0)
    after = leaves(hold(given))
    pairs = zip(leaves(inputs), after, strict=True)
    return [
        number
        for number, (old, new) in enumerate(pairs)
        if elements(old).tobytes() != elements(new).tobytes()
    ]


def _with(written: Sequence[int], results: object, given: Sequence[object]) -> object:
    """Results with those inputs that were changed; the child sends them so, too."""
    found = _flat([*given]) if written else []
    return [results, *(found[each] for each in written)] if written else results


def _case(of: _Set, kind: str, layout: str, seed: int) -> dict[str, Tree]:
    inputs = changed(_seeded(of, seed), kind, seed)
    name = of.label + (f", {layout}" if layout != PLAIN else "")
    name += f", {kind} values" if kind != PLAIN_VALUES else f", seed {seed}"
    return {**_case_of(of, inputs, name), "values": kind, "layout": layout}


def _seeded(of: _Set, seed: int) -> Tree:
    """The inputs of a seed; they are made others if the task does not ask for any."""
    inputs = hold(_inputs(of.task, seed))
    if seed:
        first = leaves(hold(_inputs(of.task, 0)))
        for leaf, other in zip(leaves(inputs), first, strict=False):
            same = elements(leaf).tobytes() == elements(other).tobytes()
            if is_float(leaf) and same:
                leaf["data"] = moved(leaf, seed)
    return inputs


def _case_of(of: _Set, inputs: Tree, name: str, whole: bool = False) -> dict[str, Tree]:
    written = _written(of)
    given = _list(free(inputs))
    results = hold(_with(written, _plain_results(of, given, 0), given))
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
        "init": hold(_list(of.task.init())),
        "state": hold(_state(of.task)),
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


def _list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _state(task: loading.ReferenceTask) -> dict[str, object]:
    """The weights of a model."""
    if task.convention == loading.PLAIN:
        return {}
    model = cast("torch.nn.Module", _function(task, 0))
    return {name: each.clone() for name, each in model.state_dict().items()}


def _expected(
    of: _Set,
    inputs: Tree,
    plain: list[dict[str, Tree]],
    written: Sequence[int],
    whole: bool = False,
) -> tuple[list[Tree], list[str]]:
    """The exact results with their bounds, and operators without a rule."""
    widest = _format_of(of, inputs, plain)
    tensors = any(each["held"] == "torch" for each in leaves(inputs))
    if "torch" in sys.modules and tensors and not written:
        from fragmenta.judge.libraries import bounded, composed

        assert composed
        bounded.use_format(widest, whole)
        try:
            made = _flat(_bounded_results(of, inputs))
            if len(made) == len(plain):
                rows = [_row(*each) for each in zip(made, plain, strict=True)]
                if whole:
                    _demand_exactly(rows, made, SHARE / bounded.DIVISOR[0])
                return rows, sorted(bounded.ESTIMATED)
        except (bounded.Unruled, RuntimeError, TypeError, NotImplementedError) as why:
            rows = _estimated(of, inputs, plain, widest, written)
            return rows, [f"all: {why}"[:200]]
    return _estimated(of, inputs, plain, widest, written), ["all"]


def _format_of(of: _Set, inputs: Tree, plain: list[dict[str, Tree]]) -> str:
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


def _computed(of: _Set, inputs: Tree) -> list[str]:
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
        _plain_results(of, _list(free(inputs)), 0)
    return found


_CONVERTS = ("_to_copy", "detach", "alias", "lift_fresh", "clone", "empty_like", "view")


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


def _typed(
    value: Values, most: Values, variance: Values, dtype: str
) -> dict[str, Tree]:
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}
    share = unit.get(dtype, 2.0**-24)
    size = np.nan_to_num(np.abs(value), nan=0.0, posinf=0.0)
    return {
        "value": value,
        "most": most + share * size,
        "variance": variance + (share * size) ** 2,
    }


def _estimated(
    of: _Set,
    inputs: Tree,
    plain: list[dict[str, Tree]],
    widest: str,
    written: Sequence[int],
) -> list[Tree]:
    """Bounds of a function that cannot be followed: its inputs are moved a little."""
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}.get(
        widest, 2.0**-24
    )
    random = np.random.default_rng(7)

    def results(
        move: float, of_inputs: Tree = inputs, aligned: bool = False
    ) -> list[Values]:
        rows = _list(free(of_inputs))
        given = [_wide(each, move, None if aligned else random) for each in rows]
        found = leaves(hold(_with(written, _plain_results(of, given, 0), given)))
        return [elements(each).astype(np.float64) for each in found]

    with np.errstate(all="ignore"):
        values = results(0.0)
        others = [results(16 * unit) for _ in range(8)]
        keeps = _kept(inputs, lambda changed: results(0.0, changed))
        count = _count(_list(free(inputs)))
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


# ── what the problem needs ──────────────────────────────────────────────────


def _about(of: _Set, case: dict[str, Tree]) -> dict[str, Tree]:
    """The first case, with what the problem needs: products, and inputs that matter."""
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
            try:
                with np.errstate(all="ignore"):
                    after = _bytes_of(_plain_results(of, _list(free(moved)), 0))
            except Exception:  # it is asked for, and refused
                after = []
            hits += after != before
        total += size * hits / PROBES
    return int(total)


def _bytes_of(results: object) -> list[bytes]:
    found = leaves(hold(results))
    return [elements(each).tobytes() for each in found]
