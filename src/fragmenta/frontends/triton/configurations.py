"""Which configurations of a Triton kernel leave the same bits, for all inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fragmenta.base.arrays.checks import Array
from fragmenta.base.progress import Progress, bar
from fragmenta.engine.simt.arguments import Pointer
from fragmenta.errors import BadCall
from fragmenta.frontends.triton.driver import on_cpu
from fragmenta.inspect.sameness.calls import Call
from fragmenta.inspect.sameness.capturing import captured
from fragmenta.inspect.sameness.invariance import Classes
from fragmenta.inspect.sameness.invariance import classes as classes_of


def classes(
    kernel: Any,
    configs: Iterable[Any],
    args: Sequence[object] | Mapping[str, object],
    *,
    grid: Any,
    target: str = "sm_90a",
    names: Callable[[Any], str] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Classes:
    """The configurations of a kernel in classes of equal bits.

    ``configs`` are ``triton.Config`` objects, or dictionaries of meta-parameters with
    ``num_warps`` and ``num_stages`` among them.  ``args`` are the other arguments, in
    their order or by name, and ``grid`` is what stands in ``kernel[grid]``: a tuple, or
    a function of the meta-parameters.  ``names`` gives each configuration a name;
    without it, that is what it has of the meta-parameters that are not the same in all.
    Other options are those of ``ptx.classes``.
    """
    plain = getattr(kernel, "fn", kernel) if hasattr(kernel, "configs") else kernel
    listed = list(configs)
    metas = [_meta(each) for each in listed]
    programs: dict[str, tuple[Call, ...]] = {}
    varying = _varying(metas)
    made = {}
    for config, meta, short in zip(listed, metas, varying, strict=True):
        name = names(config) if names is not None else _words(short or meta)
        with on_cpu(target, watch=False), captured(stop=True) as calls:
            if isinstance(args, Mapping):
                plain[grid](**args, **meta)
            else:
                plain[grid](*args, **meta)
        programs[name] = tuple(_typed(each, args) for each in calls)
        made[name] = short
    if not programs:
        raise BadCall("there are no configurations to compare")
    with bar("following") as shown:
        found = classes_of(programs, progress=progress or shown, **options)
    return replace(found, parameters=made)


def _meta(config: Any) -> dict[str, object]:
    """The meta-parameters of a configuration, with its warps and stages."""
    return dict(config.all_kwargs() if hasattr(config, "all_kwargs") else config)


def _varying(metas: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """Of each configuration, the meta-parameters that are not the same in all.

    >>> _varying([{"BLOCK": 16, "num_warps": 4}, {"BLOCK": 32, "num_warps": 4}])
    [{'BLOCK': 16}, {'BLOCK': 32}]
    """
    every = dict.fromkeys(name for each in metas for name in each)
    fixed = [
        name for name in every if len({repr(each.get(name)) for each in metas}) == 1
    ]
    return [{n: v for n, v in each.items() if n not in fixed} for each in metas]


def _words(of: Mapping[str, object]) -> str:
    return " ".join(f"{name}={value}" for name, value in of.items()) or "alone"


def _typed(call: Call, args: Sequence[object] | Mapping[str, object]) -> Call:
    """The call with the types of the user's arrays, which the driver leaves out."""
    listed = args.values() if isinstance(args, Mapping) else args
    known = {_place(each): each for each in listed if isinstance(each, np.ndarray)}

    def typed(each: object) -> object:
        if isinstance(each, Pointer):
            array = known.get(_place(each.array), each.array)
            return replace(each, array=array)
        if isinstance(each, np.ndarray):
            return known.get(_place(each), each)
        return each

    given = [typed(each) for each in call.arguments]
    return Call(call.kernel, call.grid, call.block, given, **call.options)


def _place(array: Array) -> tuple[int, int]:
    return int(array.__array_interface__["data"][0]), array.nbytes
