"""Triton's kernels for Hopper leave the bytes of an H200 in every schedule.

There is a recording for each version of Triton.  It has the PTX and the parameters that
Triton gave the kernels; see ``tests/triton/record.py``.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.simt.arguments import Struct
from fragmenta.inspect.evidence.arguments import make

FOLDER = Path(__file__).parents[1] / "golden" / "triton"
VERSIONS = sorted(path.stem for path in FOLDER.glob("*.xz"))
WHOLE = os.environ.get("FRAGMENTA_HOPPER") == "1"
"""Whether all launches run with all schedules, which takes minutes."""
SCHEDULES = ("eager", "lazy", 1, 2)
# Where half a tile would be too small for wgmma, Triton lets two groups of warps compute
# and store the same tile: two bulk stores of the same bits, in no order.  That is a note.
STORED_TWICE = {"attention_by_maps-causal-64-specialised": {"global-race"}}
# What runs always, and with which schedules.
QUICK = {
    "3.6.0": {
        "matmul_made_here-f16": ("eager", "lazy"),
        "matmul_specialised": ("lazy",),
    },
    "3.9.0": {
        "matmul-e4m3": ("eager", "lazy"),
        "matmul_persistent-cluster": ("lazy",),
        "attention_by_maps-causal-64-specialised": ("eager",),
    },
}


@cache
def recorded(version: str) -> dict[str, Any]:
    """The launches of a version of Triton by name."""
    read = json.loads(lzma.decompress((FOLDER / f"{version}.xz").read_bytes()))
    return {each["name"]: each for each in read["launches"]}


def short_hash(array: Any) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()[:16]


def arrays_of(row: dict[str, Any]) -> list[Any]:
    """What a launch starts from."""
    return [
        make({name: of for name, of in spec.items() if name != "block"}, 7919 * number)
        for number, spec in enumerate(row["arguments"])
    ]


def memory_of(arrays: list[Any]) -> list[Any]:
    """The arrays among the arguments."""
    return [each for each in arrays if isinstance(each, np.ndarray)]


def parameters(row: dict[str, Any], arrays: list[Any]) -> list[Any]:
    """What the kernel gets."""
    found: list[Any] = []
    for kind, what, *more in row["parameters"]:
        if kind == "array":
            found.append(ptx.pointer(arrays[what]))
        elif kind == "map":
            place = (0, ptx.pointer(arrays[what]))
            found.append(Struct(bytes.fromhex(more[0]), (place,), 64))
        elif kind == "bytes":
            found.append(bytes.fromhex(what))
        else:
            found.append(np.zeros(what, np.uint8) if what else 0)
    return found


@pytest.mark.long
@pytest.mark.parametrize(
    "version, name",
    [
        (version, name)
        for version in VERSIONS
        for name in recorded(version)
        if WHOLE or name in QUICK[version]
    ],
)
def test_a_launch_leaves_the_bytes_of_the_gpu(version: str, name: str) -> None:
    row = recorded(version)[name]
    arrays = arrays_of(row)
    memory = memory_of(arrays)
    assert [short_hash(each) for each in memory] == row["before"]
    kernel = ptx.parse(row["text"], row["name"]).kernels[row["entry"]]
    result = kernel.launch(
        row["grid"],
        row["block"],
        parameters(row, arrays),
        cluster=row["cluster"],
        shared=row["shared"],
        target="sm_90a",
        watch="report",
        schedule=SCHEDULES if WHOLE else QUICK[version][name],
    )
    assert not [each for each in result.problems if each.severity != "info"]
    assert STORED_TWICE.get(name, set()) <= {each.rule for each in result.problems}
    assert [short_hash(each) for each in memory] == row["after"]


def explored(version: str, name: str) -> Any:
    """A launch with all of its orders."""
    row = recorded(version)[name]
    kernel = ptx.parse(row["text"], row["name"]).kernels[row["entry"]]
    return kernel.launch(
        row["grid"],
        row["block"],
        parameters(row, arrays_of(row)),
        cluster=row["cluster"],
        shared=row["shared"],
        target="sm_90a",
        watch="report",
        orders=20_000,
    )


ORDERS = ("matmul_specialised",)
"""What is explored always: roles, and mbarriers that are initialised again."""
PATH_ONLY = ("matmul_specialised", "attention_by_maps-causal-64-specialised")
"""Branches and operands of mbarriers depend on what is loaded from shared memory."""


@pytest.mark.long
@pytest.mark.parametrize(
    "version, name",
    [
        (version, name)
        for version in VERSIONS
        for name in recorded(version)
        if WHOLE or (version == VERSIONS[0] and name in ORDERS)
    ],
)
def test_a_launch_is_clean_in_every_order(version: str, name: str) -> None:
    result = explored(version, name)
    assert not [each for each in result.problems if each.severity != "info"]
    assert result.orders.clean
    expected = "this path only" if name in PATH_ONLY else "all orders"
    assert result.orders.verdict == expected, result.orders.reasons
