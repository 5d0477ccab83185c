"""Runs every tool on every problem, and writes docs/benchmarks/peers.json.

    make bench-peers                 all of it, some minutes
    python -m peers matmul saxpy     these cases; the others stay as they are
    python -m peers --growth cores   how cost grows along one axis, or along ``all``

docs/benchmarks/cores.json is what ``--growth cores --output`` wrote on a machine with
more cores, if there was one.

A tool that was not fed as meant is an error: each gets inputs whose answer is known.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peers.cases import CASES, GROWTH, OURS, TOOLS, Case, Growth
from peers.child import ENVIRONMENT

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "docs" / "benchmarks" / "peers.json"
PACKAGES = ("numpy", "torch", "triton", "mmasim", "numba", "numba-cuda")
BUSY = 1.2
"""Time that passes for each second of CPU time on one core, if the machine is busy."""
AXES = tuple(dict.fromkeys(each.axis for each in GROWTH))


def main() -> None:
    """Measure what the command line names, and keep the rest."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = [each.name for each in CASES]
    parser.add_argument("cases", nargs="*", help=f"some of {', '.join(names)}")
    parser.add_argument("--growth", choices=("all", *AXES), help="an axis")
    parser.add_argument("--output", type=Path, default=RESULT)
    given = parser.parse_args()
    if set(given.cases) - set(names):
        parser.error(f"no case {', '.join(set(given.cases) - set(names))}")
    kept = json.loads(given.output.read_text()) if given.output.exists() else {}
    if without_date(kept.get("about", {})) != without_date(about()):
        kept = {}  # of another machine, or of other versions
    rows, growth = kept.get("rows", []), kept.get("growth", [])
    chosen = [e for e in CASES if e.name in given.cases or not given.cases]
    for case in chosen if given.cases or not given.growth else ():
        rows = [each for each in rows if each["case"] != case.name] + compared(case)
        write(given.output, rows, growth)
    grown = (each for each in GROWTH if given.growth in ("all", each.axis))
    for each in grown:
        growth = [e for e in growth if not same(e, each)] + measured(each)
        write(given.output, rows, growth)


def write(path: Path, rows: list[Any], growth: list[Any]) -> None:
    """Write all that is known so far, in the order of the tables."""
    order = [each.name for each in CASES]
    rows = sorted(rows, key=lambda each: order.index(each["case"]))
    growth = sorted(growth, key=lambda each: AXES.index(each["axis"]))
    read = {"about": about(), "tools": TOOLS, "rows": rows, "growth": growth}
    path.write_text(json.dumps(read, indent=1) + "\n")


def without_date(told: dict[str, Any]) -> dict[str, Any]:
    """The machine and the versions."""
    return {key: value for key, value in told.items() if key != "date"}


def about() -> dict[str, Any]:
    """The machine, the date and the versions."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = ""
    return {
        "date": f"{date.today()}",
        "machine": f"{platform.machine()}, {processor()}",
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        **versions,
    }


def processor() -> str:
    """The name of the processor, as far as the system knows it."""
    try:
        told = subprocess.run(["lscpu"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown processor"
    lines = (line.partition(":") for line in told.stdout.splitlines())
    found = {key.strip(): value.strip() for key, _, value in lines}
    return found.get("Model name", "unknown processor")


def run(case: str, tool: str, folder: str, sizes: list[dict[str, int]]) -> list[Any]:
    """The times of a tool, from a process of its own."""
    command = [sys.executable, "-m", "peers.child", case, tool, folder]
    command += [json.dumps(sizes)] if sizes else []
    environment = {**os.environ, **ENVIRONMENT.get(tool, {})}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{tool} on {case} failed:\n{done.stderr}")
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# ── one problem ─────────────────────────────────────────────────────────────


def compared(case: Case) -> list[dict[str, Any]]:
    """The times of all tools on a problem, and how their results differ."""
    rows, ours = [], None
    for tool in case.tools:
        with tempfile.TemporaryDirectory() as folder:
            (times,) = run(case.name, tool, folder, [])
            results = {path.stem: np.load(path) for path in Path(folder).glob("*.npy")}
        judge(case, tool, results)
        ours = results["drawn"] if ours is None else ours
        different = float(np.mean(bits(results["drawn"]) != bits(ours)))
        error = distance(results["drawn"], results["exact-drawn"])
        rows.append(
            {
                "case": case.name,
                "what": case.what,
                "tool": tool,
                **times,
                "different": different,
                "error": error,
            }
        )
        ratio = times["cpu"] / rows[0]["cpu"]
        print(
            f"{case.name:16}{tool:22}{1e3 * times['cpu']:10.2f} ms{ratio:9.2f} times"
            f"{100 * different:7.1f}% other bits",
            flush=True,
        )
    return rows


def judge(case: Case, tool: str, results: dict[str, NDArray[Any]]) -> None:
    """Refuse a result that shows that a tool was not fed as meant."""
    wrong = distance(results["known"], results["exact-known"])
    if wrong > (0 if case.exact else case.near):
        raise SystemExit(f"{tool} on {case.name}: {wrong:.1e} from the known answer")
    far = distance(results["drawn"], results["exact-drawn"])
    if far > case.near:
        raise SystemExit(f"{tool} on {case.name}: {far:.1e} from the result in f64")


def values(found: NDArray[Any]) -> NDArray[np.float64]:
    """The numbers of a result; bits are those of f32."""
    plain = found.view(np.float32) if found.dtype == np.uint32 else found
    return plain.astype(np.float64)


def bits(found: NDArray[Any]) -> NDArray[Any]:
    """The bits of a result."""
    return found.view(f"u{found.itemsize}")


def distance(found: NDArray[Any], exact: NDArray[np.float64]) -> float:
    """The largest difference, relative to the largest number."""
    return float(np.abs(values(found) - exact).max() / np.abs(exact).max())


# ── growth ──────────────────────────────────────────────────────────────────


def same(row: dict[str, Any], growth: Growth) -> bool:
    """Whether a row is of this growth."""
    return (row["axis"], row["case"]) == (growth.axis, growth.case.name)


def measured(growth: Growth) -> list[dict[str, Any]]:
    """The times of each tool along an axis."""
    rows = []
    points = growth.points
    if growth.axis == "cores":
        there = len(os.sched_getaffinity(0))
        points = [each for each in points if each[0] <= there]
    for tool in growth.tools:
        sizes = [{**growth.case.sizes, **each} for _, each in points]
        if growth.axis == "cores":
            times = [run(growth.case.name, tool, "", [each])[0] for each in sizes]
            if times[0]["wall"] > BUSY * times[0]["cpu"]:
                print("cores are left out: other programs use them now", flush=True)
                return []
        else:
            times = run(growth.case.name, tool, "", sizes)
        rows.append(
            {
                "axis": growth.axis,
                "case": growth.case.name,
                "tool": tool,
                "at": [at for at, _ in points],
                "cpu": [each["cpu"] for each in times],
                "wall": [each["wall"] for each in times],
            }
        )
        shown = ", ".join(f"{1e3 * each['cpu']:.1f}" for each in times)
        print(f"{growth.axis:8}{growth.case.name:16}{tool:22} {shown} ms", flush=True)
    return rows


if __name__ == "__main__":
    assert set(TOOLS) >= {tool for case in CASES for tool in case.tools}
    assert all(case.tools[0] == OURS for case in CASES)
    main()
