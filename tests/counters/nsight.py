"""Compares counts with those of Nsight Compute on an H200.

    python -m tests.counters.nsight prepare FOLDER            # needs no GPU
    python FOLDER/gpu.py count FOLDER/launches.npz.xz RESULTS # on the machine with the GPU
    python -m tests.counters.nsight keep RESULTS/nsight.json

Before all launches are counted anew, ``python -m tests.counters.nsight compile FILE``
writes the PTX that the project's own kernels have now into ``tests/golden/counters``.

``prepare`` writes machine code and memory of all launches of :mod:`cases` in the format
of :mod:`corpus.recording`.  With ``--held-out`` it takes those of :mod:`held_out`, and
writes what is counted here, before a GPU has counted anything.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from corpus import recording
from fragmenta.values.counters.metrics import EVERY, Metric
from tests.counters import cases, held_out
from tests.counters.cases import FOLDER, TARGET, Case

DOCUMENTS = Path(__file__).parents[2] / "docs" / "verification"


class Launches(NamedTuple):
    """Some launches, and the file with both counts of each."""

    cases: Callable[[], list[Case]]
    file: Path


FITTED = Launches(cases.cases, DOCUMENTS / "nsight.json")
"""The rules of counting were chosen with these in view."""
HELD_OUT = Launches(held_out.cases, DOCUMENTS / "nsight-held-out.json")
"""These were counted here before a GPU counted them."""


def prepare(which: Launches, folder: Path) -> None:
    """All launches in one archive, and what launches them."""
    if which is HELD_OUT:
        predict(which)
    folder.mkdir(parents=True, exist_ok=True)
    assembled = cache(
        lambda text: recording.assembled(
            {"text": text, "target": TARGET, "contract": True}
        )
    )
    index, arrays = [], {}
    for number, case in enumerate(which.cases()):
        given = case.arguments()
        recorder = recording.Recorder(case.name)
        options = {"target": TARGET, **case.options}
        kernel = case.kernel()
        recorder(kernel, (case.grid, case.block, given), options)()
        (row,) = recorder.kept.values()
        code = assembled(row["text"])
        if isinstance(code, str):
            print(f"{case.name}: {code}")
            continue
        arrays[f"{number}/code"] = np.frombuffer(code, np.uint8)
        for i, each in enumerate(row["before"]):
            arrays[f"{number}/{i}"] = each
        kept = {
            name: row[name]
            for name in ("case", "entry", "grid", "block", "cluster", "shared")
        }
        kept["parameters"] = [recording._words(each) for each in row["parameters"]]
        index.append({"number": number, "buffers": len(row["before"]), **kept})
    arrays["index"] = np.frombuffer(json.dumps(index).encode(), np.uint8)
    stored = io.BytesIO()
    np.savez(stored, **arrays)
    (folder / "launches.npz.xz").write_bytes(lzma.compress(stored.getvalue(), preset=6))
    shutil.copy(FOLDER / "gpu.py", folder / "gpu.py")
    shutil.copy(Path(recording.__file__).parent / "gpu.py", folder / "driver.py")
    size = (folder / "launches.npz.xz").stat().st_size
    print(f"{len(index)} launches, {size:,} bytes")


LIMITS = tuple(
    f"launch__occupancy_limit_{each}"
    for each in ("blocks", "warps", "registers", "shared_mem")
)
"""How many blocks fit on a processor, by each limit."""
REGISTERS = "launch__registers_per_thread"
MEMORY = "dram__sectors_read.sum"
DIFFERENT = {
    "wmma": "the assembler makes other loads and stores of `wmma.load` and `wmma.store`",
    "unrolled": "the assembler unrolls a loop, and lanes with other numbers of rounds "
    "diverge in it",
    "cas": "the assembler makes a loop with a compare-and-swap of an atomic on floats in "
    "shared memory",
    "redux": "one address for the whole warp: the assembler adds lanes up before",
    "merged": "the assembler makes one wide access of two",
    "map": "the kernel makes a tensor map in shared memory: machine code of its own",
    "busy": "mbarriers, the copy engine and `wgmma` use shared memory at the same time",
    "unknown": "not known",
    "reused": "the assembler keeps a value that the PTX loads again",
    "offset": "a bulk copy that begins within a sector: its pieces of 128 bytes count "
    "sectors on both sides",
    "fp16": "Hopper computes `mma` on e4m3 as two on f16",
    "rows": "rows of boxes that begin or end within a sector, or outside the tensor; "
    "multicast counts for each block",
}
"""Why a count is another one on the GPU."""
WHERE = (
    ("wmma", "wmma.sm_80", "mem_global_op"),
    ("unrolled", "sum_rows", "t_requests"),
    ("redux", "red_max", "t_sectors"),
    ("merged", "gemm_f64_split_k", "mem_shared"),
    ("merged", "sparse_f16", "mem_shared"),
    ("unrolled", "spmv", "global_op_ld"),
    ("cas", "shared_floats", "mem_shared"),
    ("unknown", "triton.reductions", "mem_shared"),
    ("unknown", "sort_radix", "mem_shared"),
    ("unknown", "gemm_f16_trans", "ldgsts"),
    ("reused", "triton.histogram", "mem_shared"),
    ("map", "matmul_made_here", "op_atom"),
    ("map", "matmul_made_here", "mem_shared"),
    ("busy", "matmul_persistent", "mem_shared"),
    ("busy", "matmul_added", "mem_shared"),
    ("busy", "attention-causal-64", "mem_shared"),
    ("busy", "own ", "mem_shared"),
    ("fp16", "gemm_e4m3", "ops_path"),
    ("offset", "bulk_off", "tma"),
    ("rows", "own ", "tma"),
    ("rows", "matmul_made_here", "tma"),
)
"""A reason, and the parts of the names of kernels and metrics that it is about."""


def reason(case: str, metric: str) -> str | None:
    """Why a count is another one on the GPU; None if that is not known."""
    for name, kernel, part in WHERE:
        if kernel in case and part in metric:
            return DIFFERENT[name]
    return None


def predict(which: Launches) -> None:
    """Write what is counted here."""
    rows = {}
    for case in which.cases():
        counted = case.launch(watch=False, counters=True).counters
        rows[case.name] = {
            "predicted": {name: n for name, n in counted.metrics.items() if n}
        }
    write(which, {}, rows)


def write(which: Launches, made: dict[str, Any], rows: dict[str, Any]) -> None:
    """Write the file, a line for each launch."""
    lines = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in rows.items())
    which.file.write_text(
        f'{{\n "made": {json.dumps(made)},\n "launches": {{\n{lines}\n }}\n}}\n'
    )


def keep(which: Launches, path: Path) -> None:
    """Count the same launches here, and write both counts; predictions stay."""
    read = json.loads(path.read_text())
    before = report(which)["launches"] if which.file.exists() else {}
    rows = {}
    for case in which.cases():
        its = read["launches"][case.name]
        counted = case.launch(watch=False, counters=True).counters
        metrics = {
            name: [count, _number(its.get(EVERY[name].nsight))]
            for name, count in counted.metrics.items()
        }
        registers = int(_number(its[REGISTERS]) or 0)
        here = counted.occupancy(registers)
        said = before.get(case.name, {}).get("predicted")
        rows[case.name] = {
            **({} if said is None else {"predicted": said}),
            "kind": case.kind,
            "registers": registers,
            "blocks": [
                here.blocks,
                min(_number(its[metric]) or 0 for metric in LIMITS),
            ],
            "sectors": [
                sum(each.read for each in counted.footprints),
                _number(its.get(MEMORY)),
            ],
            # What neither counts says nothing.
            "metrics": {name: both for name, both in metrics.items() if any(both)},
        }
    made = {**read["made"], "ncu": read["made"]["ncu"][0]}
    write(which, made, rows)
    report.cache_clear()
    for line in unexplained(which):
        print(line)


def _number(text: str | None) -> int | None:
    """A count as Nsight Compute prints it."""
    return None if text is None else int(float(text.replace(",", "")))


# ── the comparison ──────────────────────────────────────────────────────────


class Compared(NamedTuple):
    """A metric on all launches that count it."""

    metric: Metric
    launches: int
    equal: int
    least: float
    """The least of ours, divided by the GPU's."""
    most: float
    reasons: tuple[str, ...]


@cache
def report(which: Launches = FITTED) -> dict[str, Any]:
    """What was kept."""
    read: dict[str, Any] = json.loads(which.file.read_text(encoding="utf-8"))
    return read


def compared(which: Launches = FITTED) -> list[Compared]:
    """All metrics."""
    found = []
    for metric in EVERY.values():
        pairs = [
            (name, *row["metrics"][metric.name])
            for name, row in report(which)["launches"].items()
            if metric.name in row["metrics"]
        ]
        known = [(name, a, b) for name, a, b in pairs if b is not None]
        ratios = [a / b for _, a, b in known if b]
        why = dict.fromkeys(
            reason(name, metric.name) or "?" for name, a, b in known if a != b
        )
        found.append(
            Compared(
                metric,
                len(known),
                sum(a == b for _, a, b in known),
                min(ratios, default=1.0),
                max(ratios, default=1.0),
                tuple(why) if metric.traffic else (),
            )
        )
    return found


def predictions() -> list[tuple[str, str, int, int]]:
    """What was predicted of traffic: launch, metric, the number, and the GPU's."""
    found = []
    for launch, row in report(HELD_OUT)["launches"].items():
        said, metrics = row["predicted"], row["metrics"]
        for name in EVERY:
            _, its = metrics.get(name, (0, 0))
            if EVERY[name].traffic and its is not None and (name in said or its):
                found.append((launch, name, said.get(name, 0), its))
    return found


def unexplained(which: Launches = FITTED) -> list[str]:
    """Counts that differ, and nobody knows why."""
    return [
        f"{name}: {metric} {ours}, GPU {its}"
        for name, row in report(which)["launches"].items()
        for metric, (ours, its) in row["metrics"].items()
        if its is not None and ours != its
        if EVERY[metric].traffic and reason(name, metric) is None
    ]


def compiled(path: Path) -> None:
    """Write the PTX of the project's own kernels, as they are now."""
    texts = {f"own {each}": cases.own_gemm(each).text for each in OWN}
    path.write_bytes(lzma.compress(json.dumps(texts).encode(), preset=9))


OWN = (*cases.OWN, *held_out.OWN)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["prepare", "keep", "compile"])
    parser.add_argument("path", type=Path)
    parser.add_argument("--held-out", action="store_true", help="the other launches")
    given: Any = parser.parse_args()
    which = HELD_OUT if given.held_out else FITTED
    if given.what == "compile":
        compiled(given.path)
    else:
        {"prepare": prepare, "keep": keep}[given.what](which, given.path)


if __name__ == "__main__":
    main()
