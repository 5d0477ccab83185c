"""Makes the cases of a task: inputs, and what the reference says about their results.

This runs in a process of its own.  A case has the inputs as they are sent, the exact
results, and for each element how far an implementation may be from it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from fragmenta.frontends.judge import loading
from fragmenta.frontends.judge.evaluating import (
    Budget,
    SizedTask,
    Values,
    as_list,
    element_count,
    inputs_of,
    plain_results,
    seeded_inputs,
    weights_of,
)
from fragmenta.frontends.judge.expected import case_of, case_of_values, with_needs
from fragmenta.frontends.judge.following import SMALL
from fragmenta.frontends.judge.held import LAYOUTS, PLAIN, elements, free, hold, leaves
from fragmenta.frontends.judge.probes import is_elementwise
from fragmenta.frontends.judge.situations import (
    CONSTANTS,
    EXACT,
    SITUATIONS,
    situated,
    whole_floats,
    with_whole,
)
from fragmenta.frontends.judge.situations import MANY as MANY_SITUATIONS
from fragmenta.frontends.judge.situations import many as many_situations
from fragmenta.frontends.judge.sizes import (
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
from fragmenta.frontends.judge.sizes import SMALL as SMALL_SIZE
from fragmenta.frontends.judge.sizes import moved as moved_sizes
from fragmenta.frontends.judge.values import (
    ELEMENTWISE,
    EXTREME,
    FLAGS,
    ROWS,
    SIGNS,
    STATE,
    WHOLE,
    is_float,
    moved,
    whole_numbers,
)
from fragmenta.frontends.judge.values import PLAIN as PLAIN_VALUES
from fragmenta.frontends.judge.wire import Tree, dump, load

if TYPE_CHECKING:
    import torch

FEW = (7, 2, 1)
"""Very small sizes that are tried."""
BLOCK = 256
"""Sizes just above blocks are one more than this."""
MOST_NAMES = 3
"""So many sizes are tried just above blocks, each by itself."""
MANY = 1 << 17
"""Elements of an input in one call with many of them."""
ROUGH = 16.0
"""How many times larger the bounds of its errors are."""
STEPS = (1, 1, 4, 8, 16, 32)
"""Sizes that are tried are multiples of these, until the reference takes them."""


def cases(order: Mapping[str, Tree]) -> Tree:
    """The cases of a task, for the order of an examiner."""
    text, path = str(order["text"]), Path(str(order["folder"])) / "reference.py"
    path.write_text(text, encoding="utf-8")
    budget = Budget(cast("int", order["elements"]), cast("int", order["products"]))
    given = loading.constants(text)

    def task(sizes: Sizes) -> loading.ReferenceTask:
        return loading.task_of(loading.execute(text, path, "reference", sizes))

    # Large inputs take long to make: both go the same way down.
    large = scaled(given, lambda sizes: budget.larger.holds(task(sizes)))
    first = scaled(large, lambda sizes: budget.holds(task(sizes)))
    main = SizedTask(first, _label(first, given), task(first), MAIN)
    seeds = cast("int", order["seeds"])
    made = [case_of_values(main, PLAIN_VALUES, PLAIN, seed) for seed in range(seeds)]
    made[0] = with_needs(main, made[0])
    secret = _secret(main, made[-1])
    kinds = [str(each) for each in cast("list[Tree]", order["values"])]
    kinds = [each for each in kinds if each != PLAIN_VALUES]
    other = _other(first, given, task) if order["shapes"] else None
    if other is not None:
        made.append(case_of_values(other, PLAIN_VALUES, PLAIN, seeds))
    where = other or main
    if order["strides"]:
        made += [
            case_of_values(where, PLAIN_VALUES, each, seeds + 1) for each in LAYOUTS[1:]
        ]
    made += _of_kinds(where, kinds, seeds + 2)
    made[0]["task"] = {"text": text, "sizes": where.sizes, "label": where.label}
    made[0]["untried"] = _shown(given, large, both=True) if large != given else ""
    if large != first:
        largest = SizedTask(large, _label(large, given), task(large), GIVEN)
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


def _of_kinds(of: SizedTask, kinds: Sequence[str], seed: int) -> list[dict[str, Tree]]:
    """A case for each kind of values; some only if nothing is added or compared."""
    plain = [each for each in kinds if each not in ELEMENTWISE]
    made = [
        case for each in plain for case in _taken(case_of_values, of, each, PLAIN, seed)
    ]
    more = [each for each in kinds if each in ELEMENTWISE]
    if more and _is_elementwise(of):
        found = [case_of_values(of, each, PLAIN, seed) for each in more]
        made += [each for each in found if _is_finite(each)]
    return made


def _taken(
    make: Callable[..., dict[str, Tree]], *given: object
) -> list[dict[str, Tree]]:
    """A case; none if the reference does not take its numbers."""
    try:
        with np.errstate(all="ignore"):
            return [make(*given)]
    except Exception:  # such as an index that comes from NaN
        return []


def _is_elementwise(of: SizedTask) -> bool:
    def results(inputs: Tree) -> list[Values]:
        found = leaves(hold(plain_results(of, as_list(free(inputs)))))
        return [elements(each).astype(np.float64) for each in found]

    try:
        with np.errstate(all="ignore"):
            return is_elementwise(hold(inputs_of(of.task, 0)), results)
    except Exception:  # the reference does not take other numbers
        return False


def _is_finite(case: Mapping[str, Tree]) -> bool:
    rows = cast("list[dict[str, Values]]", case["expected"])
    return all(bool(np.isfinite(each["value"]).all()) for each in rows)


def _few_and_many(
    of: SizedTask,
    given: Mapping[str, int],
    task: Callable[[Sizes], loading.ReferenceTask],
    seed: int,
) -> list[dict[str, Tree]]:
    """Cases with very few elements, and with many, if each result is by itself."""
    if not _is_elementwise(of):
        return []
    wanted = [few(given, size) for size in FEW]
    first = element_count(inputs_of(of.task, 0)[:1])
    if first < MANY // 2:
        wanted.append(many(of.sizes, -(-MANY // max(1, first)) + _anything() % 9))
    made = []
    for sizes in wanted:
        if sizes == given:
            continue
        label = f"sizes {_shown(sizes, given)}"
        try:
            made += _large(SizedTask(sizes, label, task(sizes), ABOVE), seed)
        except Exception:  # sizes that the reference does not take
            continue
    return made


def _uneven(
    of: SizedTask,
    given: Mapping[str, int],
    task: Callable[[Sizes], loading.ReferenceTask],
    budget: Budget,
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
                new = SizedTask(
                    sizes, f"sizes {_shown(sizes, given)}", task(sizes), ABOVE
                )
                made += _large(new, seed) if budget.holds(new.task) else []
            except Exception:  # sizes that the reference does not take
                continue
    return made


def _small_sizes(
    of: SizedTask,
    given: Mapping[str, int],
    task: Callable[[Sizes], loading.ReferenceTask],
    budget: Budget,
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
            new = SizedTask(sizes, label, task(sizes), ABOVE)
            same = repr(new.task.init()) == repr(of.task.init())
            shapes = [_shapes_of(e.task.inputs()) for e in (of, new)]
            if same and shapes[0] != shapes[1] and budget.holds(new.task):
                made += [case_of_values(new, PLAIN_VALUES, PLAIN, seed)]
        except Exception:  # sizes that the reference does not take
            continue
    return made


def _shapes_of(inputs: object) -> list[Tree]:
    return [each["shape"] for each in leaves(hold(as_list(inputs)))]


def _in_rows(of: SizedTask, seed: int) -> list[dict[str, Tree]]:
    """Cases in which each row of the inputs is a situation of its own."""
    positive = any(
        is_float(leaf) and elements(leaf).size and (elements(leaf) >= 0).all()
        for leaf in leaves(hold(inputs_of(of.task, 0)))
    )
    kinds = [each for each in ROWS if positive or each != SIGNS]
    return [
        each for kind in kinds for each in _taken(case_of_values, of, kind, PLAIN, seed)
    ]


def _situations(
    of: SizedTask, kinds: Sequence[str], seed: int, constants: Sequence[float] = ()
) -> list[dict[str, Tree]]:
    """Cases with such situations, as far as the reference takes them."""
    inputs, made = seeded_inputs(of, seed), []
    for kind in kinds:
        new = situated(inputs, kind, seed, constants)
        if dump(new) != dump(inputs):
            made += _tried(of, new, kind)
    return made


def _tried(of: SizedTask, inputs: Tree, kind: str) -> list[dict[str, Tree]]:
    """A case with these inputs; none if the reference does not take them."""
    made = _taken(case_of, of, inputs, f"{of.label}, {kind}")
    return [{**each, "values": kind} for each in made]


def _exact(of: SizedTask, seed: int, long: int) -> list[dict[str, Tree]]:
    """A case with whole numbers, if sums of them are exact in any order."""
    if "torch" not in sys.modules:
        return []
    label = f"{of.label}, {EXACT}"
    if of.task.convention != loading.PLAIN and weights_of(of.task):
        of = of._replace(task=of.task._replace(make=_whole(of.task.make)), label=label)
    inputs = seeded_inputs(of, seed)
    for most, each in ((3, long), (3, -1), (1, -1)):
        try:
            new = whole_floats(inputs, seed, most, each)
            made = case_of(of, new, label, whole=True)
        except Exception:  # numbers that the reference does not take
            return []
        rows = cast("list[dict[str, Values]]", made["expected"])
        if all("proved" in each and each["proved"].all() for each in rows):
            return [{**made, "values": EXACT}]
    return []


def _largest(of: SizedTask, small: SizedTask, seed: int) -> list[dict[str, Tree]]:
    """The case of the given sizes: whole numbers, many situations, or ordinary ones."""
    if _is_elementwise(small):
        made = _tried(
            of, many_situations(seeded_inputs(of, seed), seed), MANY_SITUATIONS
        )
        return [_rough(each) for each in made] or _large(of, seed)
    weights = of.task.convention != loading.PLAIN and weights_of(of.task)
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
    of = SizedTask(sizes, str(order["label"]), task, ABOVE)
    floats, whole = (
        cast("list[float]", order["floats"]),
        cast("list[int]", order["whole"]),
    )
    made = _situations(of, [CONSTANTS], len(floats), floats) if floats else []
    inputs = seeded_inputs(of, len(whole))
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
    for number, first in enumerate(as_list(inputs[0])):
        rows = [as_list(each)[number] for each in inputs]
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


def _other_states(of: SizedTask, seed: int) -> list[dict[str, Tree]]:
    """Cases with other numbers among the arguments, other weights, and ``eval``.

    Numbers are smaller, negative and larger, and zero.  Of the weights, some are
    smaller; or they have the other sign and are larger; or some are zero.  Those that
    are all zero are not.
    """
    return [each for way in range(len(STATES)) for each in _state_of(of, way, seed)]


def _state_of(of: SizedTask, way: int, seed: int) -> list[dict[str, Tree]]:
    task = of.task

    def other(values: object) -> list[object]:
        rows = as_list(values)
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
    scalars = [*as_list(task.inputs()), *as_list(task.init())]
    weights = bench and weights_of(task)
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
    made = _tried(of, seeded_inputs(of, seed), STATE)
    # All ways have one model: its weights are changed where they are.
    one = f"{of.label.partition(STATE)[0]}{STATE}"
    about = {"name": label, "evaluates": bench, "brief": way > 0, "model": one}
    return [{**each, **about} for each in made]


def _whole_numbers(of: SizedTask, seed: int) -> list[dict[str, Tree]]:
    """Cases with other whole numbers, if the reference takes them."""
    made = []
    inputs = seeded_inputs(of, seed)
    first: Mapping[str, Tree] = {}
    for kind in WHOLE:
        new = whole_numbers(inputs, kind, seed)
        if dump(new) == dump(inputs):
            continue
        name = f"{of.label}, {kind} whole numbers"
        try:
            first = first or case_of(of, inputs, name)
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
    old, other = as_list(inputs), as_list(new)
    differs = [n for n, each in enumerate(old) if dump(each) != dump(other[n])]
    return [[*old[:n], other[n], *old[n + 1 :]] for n in differs if len(differs) > 1]


def _shapes(case: Mapping[str, Tree]) -> list[tuple[int, ...]]:
    rows = cast("list[dict[str, Values]]", case["expected"])
    return [each["value"].shape for each in rows]


def _above(
    given: Mapping[str, int],
    task: Callable[[Sizes], loading.ReferenceTask],
    budget: Budget,
    seed: int,
) -> list[dict[str, Tree]]:
    """A case with sizes above the given ones, if the reference takes them."""
    for step in STEPS[1:]:
        sizes = above(given, step)
        if sizes == given:
            return []
        if step == 1:  # sizes that are known before can be told from others
            sizes = moved_sizes(sizes, given, _anything())
        of = SizedTask(sizes, f"sizes {_shown(sizes, given)}", task(sizes), ABOVE)
        try:
            if not budget.holds(of.task):
                return []
            plain_results(of, inputs_of(of.task, 0))
        except Exception:  # sizes that do not fit together
            continue
        return _large(of, seed)
    return []


def _label(sizes: Sizes, given: Mapping[str, int]) -> str:
    return "given sizes" if sizes == given else f"sizes {_shown(sizes, given)}"


def _secret(of: SizedTask, seen: dict[str, Tree]) -> Tree:
    """A case for kernels alone: other numbers than those that a candidate has seen.

    Whole numbers, which a host may read, and small inputs are those that it has seen.
    """
    seed = _anything()
    new = leaves(hold(inputs_of(of.task, seed)))
    inputs = load(dump(seen["inputs"]))
    floats = [each for each in leaves(inputs) if is_float(each)]
    for leaf, other in zip(leaves(inputs), new, strict=False):
        count = elements(leaf).size
        if count > SMALL and (is_float(leaf) or not floats):
            same = elements(leaf).tobytes() == elements(other).tobytes()
            unlike = same or leaf["shape"] != other["shape"]
            leaf["data"] = moved(leaf, seed) if unlike else other["data"]
    return {**case_of(of, inputs, "secret values"), "set": SECRET}


def _anything() -> int:
    """A number that nobody knows before."""
    return int.from_bytes(os.urandom(4), "little")


def _large(of: SizedTask, seed: int) -> list[dict[str, Tree]]:
    """A case with sizes that are too large for the other tries; none if it fails.

    It shows whether all is computed, not how exactly: sums are long.
    """
    try:
        made = case_of_values(of, PLAIN_VALUES, PLAIN, seed)
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
) -> SizedTask | None:
    """Other sizes that the reference takes; None if there are none."""
    for step in STEPS:
        sizes = odd(first, _anything(), step)
        if sizes == first:
            continue
        made = SizedTask(sizes, f"sizes {_shown(sizes, given)}", task(sizes), OTHER)
        try:
            plain_results(made, inputs_of(made.task, 0))
        except Exception:  # sizes that do not fit together
            continue
        return made
    return None
