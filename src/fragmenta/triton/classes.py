"""Which configurations of a Triton kernel leave the same bits, for all inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fragmenta.arrays.checks import Array
from fragmenta.errors import BadCall
from fragmenta.progress import Progress, bar
from fragmenta.sameness.calls import Call
from fragmenta.sameness.capturing import captured
from fragmenta.sameness.invariance import Classes
from fragmenta.sameness.invariance import classes as classes_of
from fragmenta.simt.arguments import Pointer
from fragmenta.triton.driver import on_cpu


def classes(
    kernel: Any,
    configs: Iterable[Any],
    args: Sequence[object] | Mapping[str, object],
    *,
    grid: Any,
    target: str = "sm_90a",
    names: Callable[[object], str] = str,
    progress: Progress | None = None,
    **options: Any,
) -> Classes:
    """The configurations of a kernel in classes of equal bits.

    ``configs`` are ``triton.Config`` objects, or dictionaries of meta-parameters with
    ``num_warps`` and ``num_stages`` among them.  ``args`` are the other arguments, in
    their order or by name, and ``grid`` is what stands in ``kernel[grid]``: a tuple, or
    a function of the meta-parameters.  Other options are those of ``ptx.classes``.
    """
    plain = getattr(kernel, "fn", kernel) if hasattr(kernel, "configs") else kernel
    programs = {}
    for config in configs:
        meta = dict(config.all_kwargs() if hasattr(config, "all_kwargs") else config)
        with on_cpu(target, watch=False), captured(stop=True) as calls:
            if isinstance(args, Mapping):
                plain[grid](**args, **meta)
            else:
                plain[grid](*args, **meta)
        programs[names(config)] = tuple(_typed(each, args) for each in calls)
    if not programs:
        raise BadCall("there are no configurations to compare")
    with bar("following") as shown:
        return classes_of(programs, progress=progress or shown, **options)


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
