"""Compiles and launches the kernels of the corpus of hazards, and collects the reports."""

from __future__ import annotations

import json
import lzma
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta import ptx
from fragmenta.cuda.tools import compiler
from fragmenta.engine.simt.empties import empty
from fragmenta.inspect.evidence import arguments as inputs
from fragmenta.reference.shared.tensor_map import TensorMap
from tests.ptx.hazards import (
    layout_results,
    slice_results,
    tensor_results,
    tile_results,
)
from tests.ptx.hazards.cases import EMPTY, SOURCES, Case, Row

GOLDEN = Path(__file__).parents[2] / "golden" / "hazards" / "h200.xz"
TARGETS = {
    "plain": "sm_80",
    "tiles": "sm_80",
    "tensor": "sm_100a",
    "tensor_layouts": "sm_100a",
    "strict": "sm_100a",
    "released": "sm_100a",
}
"""What sources are compiled for, if it is not sm_90a."""
STRICT = ("strict",)
"""Sources that are watched with watch="strict"."""
RESULTS = {
    **tensor_results.RESULTS,
    **tile_results.RESULTS,
    **layout_results.RESULTS,
    **slice_results.RESULTS,
}
"""What kernels must leave in memory that compute with whole numbers, by name."""
HEADERS = ("hopper.cuh", "blackwell.cuh")


def target(source: str) -> str:
    """What a source is compiled for."""
    return TARGETS.get(source, "sm_90a")


def header(name: str = "hopper.cuh") -> str:
    """The functions that sources use."""
    text = (SOURCES / name).read_text().replace("#pragma once\n", "\n")
    return f'#line 1 "{name}"\n{text}'


def with_headers(text: str, name: str) -> str:
    """A source with its headers; its lines are counted from its start."""
    lines = []
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        named = next((e for e in HEADERS if line == f'#include "{e}"\n'), None)
        if named is not None:
            line = f'{header(named)}#line {number + 1} "{name}"\n'
        lines.append(line)
    return "".join(lines)


def without_folders(text: str) -> str:
    """PTX whose lines name files without their folders."""
    return re.sub(r'(\.file\s+\d+\s+)"[^"]*/([^"/]+)"', r'\1"\2"', text)


def code(source: str) -> str:
    """The text of a source, with its header."""
    return with_headers((SOURCES / f"{source}.cu").read_text(), f"{source}.cu")


@cache
def text(source: str, bug: int) -> str:
    """The PTX of a source with one mistake."""
    found = compiler.to_ptx(code(source), target(source), f"-DBUG={bug}", "-lineinfo")
    return without_folders(found)


@cache
def loaded(source: str, bug: int) -> Any:
    """The same, read."""
    return ptx.parse(text(source, bug), source)


def made(row: Row) -> list[Any]:
    """Arrays and numbers; a tensor map is its description."""
    seed = inputs.seed_of(row.source, row.entry)
    return [_one(spec, seed + 7919 * i) for i, spec in enumerate(row.arguments)]


def _one(spec: inputs.Spec, seed: int) -> Any:
    if spec["kind"] == "map":
        return spec
    return empty(spec["shape"], np.uint32) if EMPTY in spec else inputs.make(spec, seed)


def map_of(spec: inputs.Spec, given: list[Any], address: int = 0) -> TensorMap:
    """A tensor map of an argument, which is at an address."""
    array, swizzle = given[spec["of"]], spec["swizzle"]
    return TensorMap.of(array, spec["box"], swizzle=swizzle, address=address)


def for_launch(row: Row, given: list[Any]) -> list[Any]:
    """The arguments as ``kernel.launch`` takes them."""
    found: list[Any] = []
    for spec, value in zip(row.arguments, given, strict=True):
        if spec["kind"] == "map":
            array, box = given[spec["of"]], spec["box"]
            found.append(ptx.tensor_map(array, box, swizzle=spec["swizzle"]))
        elif isinstance(value, np.ndarray):
            found.append(value)
        else:
            found.append(value.tobytes())
    return found


class Said(NamedTuple):
    """One report: its rule, severity, and the words that are printed."""

    rule: str
    severity: str
    words: str


FAULTS = {"metadata": "illegal-metadata", "barrier": "mbarrier"}
"""Kinds of faults that are a rule by another name."""


def reported(
    kernel: Any, grid: int, block: int, arguments: list[Any], **options: Any
) -> list[Said]:
    """What is said about a launch, also if it cannot be brought to an end."""
    options.setdefault("watch", "report")
    try:
        result = kernel.launch(
            grid,
            block,
            arguments,
            limits=ptx.Limits(instructions=2_000_000),
            **options,
        )
    except ptx.KernelError as fault:
        rule = FAULTS.get(fault.kind, fault.kind)
        return [Said(rule, "error", str(fault))]
    # Without what a check of the whole file says: that takes longer than a launch.
    return [Said(each.rule, each.severity, each.paragraph()) for each in result.hazards]


def launch(
    case: Case, schedule: Any, *, watched: bool = True
) -> tuple[list[Said], list[NDArray[Any]]]:
    """What is reported about a launch, and the arrays as it leaves them."""
    row = case.row
    given = made(row)
    kernel = loaded(row.source, case.bug).kernels[row.entry]
    options: dict[str, Any] = {"cluster": row.cluster} if row.cluster > 1 else {}
    strict = row.source in STRICT
    options["watch"] = ptx.Watch("report", strict=strict) if watched else False
    said = reported(
        kernel,
        row.grid,
        row.block,
        for_launch(row, given),
        schedule=schedule,
        **options,
    )
    return said, [each for each in given if isinstance(each, np.ndarray)]


def left(row: Row, arrays: list[NDArray[Any]]) -> list[bytes]:
    """The bytes of arrays, without the addresses in them."""
    specs = [spec for spec in row.arguments if "shape" in spec]
    found = [each.tobytes() for each in arrays]
    return [
        data[8:] if spec.get("address") else data
        for spec, data in zip(specs, found, strict=True)
    ]


@cache
def recording() -> dict[str, Any]:
    """What an H200 left in memory, by the names of cases."""
    found: dict[str, Any] = json.loads(lzma.decompress(GOLDEN.read_bytes()))
    return found


def computed(case: Case) -> list[bytes]:
    """The bytes of the arrays as NumPy computes them."""
    given = made(case.row)
    if case.row.leaves is not None:
        return [np.asarray(each, np.uint32).tobytes() for each in case.row.leaves]
    RESULTS[case.row.entry](*given)
    return left(case.row, [each for each in given if isinstance(each, np.ndarray)])


def expected(case: Case) -> list[bytes]:
    """The bytes of the arrays as an H200 left them; none is kept if it is as before.

    What is not recorded computes with small whole numbers, so that there is one right
    result: no Hopper has tensor memory.
    """
    if case.name not in recording()["cases"]:
        return computed(case)
    before = left(case.row, [e for e in made(case.row) if isinstance(e, np.ndarray)])
    kept = recording()["cases"][case.name]
    return [
        old if new is None else bytes.fromhex(new)
        for old, new in zip(before, kept, strict=True)
    ]
