"""Explores all orders of the kernels of the project, of Triton and of CuTe.

    python -m tests.orders.survey                       # all but CuTe's, on all cores
    python -m tests.orders.survey --suites cute         # where its compiler is installed
    python -m tests.orders.survey --suites own --every 10 --jobs 1
    python -m tests.orders.survey --save-texts FILE     # the PTX of the own kernels,
    python -m tests.orders.survey --texts FILE          # for a machine without NVRTC

Each launch is a row of ``docs/verification/kernel_orders.json``: the verdict, how many
orders and states there are, and the CPU time of the launch with all of its orders.
``make pages`` makes a table of it.  Rows of other suites stay as they are.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import Any

OUTPUT = Path(__file__).parents[2] / "docs" / "verification" / "kernel_orders.json"
STATES = 20_000
TEXTS = "FRAGMENTA_ORDERS_TEXTS"
"""The variable that tells processes where the texts of the own kernels are."""


def own() -> Iterator[tuple[str, Callable[[], Any]]]:
    """The project's own kernels for Hopper."""
    from tests.ptx.hopper.gemms import GEMMS

    for number, gemm in enumerate(GEMMS):
        yield gemm.name, partial(launch_own, number)


def launch_own(number: int) -> Any:
    from tests.ptx.hopper import launching
    from tests.ptx.hopper.gemms import GEMMS

    gemm = GEMMS[number]
    if TEXTS in os.environ:
        vars(gemm)["text"] = texts(os.environ[TEXTS])[gemm.name]
    return launching.launch(gemm, watch="report", orders=STATES).result


@cache
def texts(file: str) -> dict[str, str]:
    """The PTX of the project's own kernels, as it was saved."""
    found: dict[str, str] = json.loads(lzma.decompress(Path(file).read_bytes()))
    return found


def save_texts(file: Path) -> None:
    """Compile the project's own kernels."""
    from tests.ptx.hopper.gemms import GEMMS

    made = {each.name: each.text for each in GEMMS}
    file.write_bytes(lzma.compress(json.dumps(made).encode(), preset=1))


def hazards() -> Iterator[tuple[str, Callable[[], Any]]]:
    """The right kernels of tests/ptx/hazards."""
    from tests.ptx.hazards import test_orders

    for name in test_orders.RIGHT:
        yield name, partial(launch_hazard, name)


def launch_hazard(name: str) -> Any:
    from tests.ptx.hazards import test_orders

    return test_orders.explored(test_orders.RIGHT[name])


def triton() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Triton's kernels for Hopper."""
    from tests.ptx.test_triton_hopper import VERSIONS, recorded

    for version in VERSIONS:
        for name in recorded(version):
            yield f"{version} {name}", partial(launch_triton, version, name)


def launch_triton(version: str, name: str) -> Any:
    from tests.ptx.test_triton_hopper import explored

    return explored(version, name)


def cute() -> Iterator[tuple[str, Callable[[], Any]]]:
    """A GEMM of the CuTe DSL."""
    from tests.cutlass.test_dsl import TYPES

    for kind in TYPES:
        for cluster in (1, 2):
            yield f"{kind} cluster {cluster}", partial(launch_cute, kind, cluster)


def launch_cute(kind: str, cluster: int) -> Any:
    from tests.cutlass.test_dsl import explored

    return explored(kind, cluster, STATES)


SUITES = {"own": own, "hazards": hazards, "triton": triton, "cute": cute}


def row(suite: str, name: str, launch: Callable[[], Any]) -> dict[str, Any]:
    """What is found about one launch."""
    start = time.process_time()
    found: dict[str, Any] = {"suite": suite, "name": name}
    result = launch()
    orders = result.orders
    found |= {
        "verdict": orders.verdict,
        "reasons": list(orders.reasons),
        "orders": orders.orders,
        "states": orders.states,
        "hangs": orders.hangs,
        "clean": orders.clean,
        "seconds": round(time.process_time() - start, 1),
    }
    return found


def explored(suites: list[str], every: int, jobs: int) -> Iterator[dict[str, Any]]:
    """The rows, as they are done."""
    chosen = [
        (suite, *each) for suite in suites for each in list(SUITES[suite]())[::every]
    ]
    if jobs == 1:
        yield from (row(*each) for each in chosen)
        return
    with ProcessPoolExecutor(jobs, max_tasks_per_child=16) as pool:
        for each in as_completed([pool.submit(row, *each) for each in chosen]):
            yield each.result()


def kept(output: Path, made: list[dict[str, Any]]) -> None:
    """Write rows in the place of those with the same names."""
    old = json.loads(output.read_text())["launches"] if output.exists() else []
    rows = {(each["suite"], each["name"]): each for each in [*old, *made]}
    found = {
        "date": date.today().isoformat(),
        "states": STATES,
        "launches": [rows[key] for key in sorted(rows)],
    }
    output.write_text(json.dumps(found, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suites", nargs="+", default=["own", "hazards", "triton"])
    parser.add_argument("--every", type=int, default=1, help="only each n-th launch")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--save-texts", type=Path)
    given = parser.parse_args()
    if given.save_texts is not None:
        save_texts(given.save_texts)
        return
    if given.texts is not None:
        os.environ[TEXTS] = str(given.texts.resolve())
    made: list[dict[str, Any]] = []
    for each in explored(given.suites, given.every, given.jobs):
        made.append(each)
        numbers = f"{each['orders']} orders, {each['states']} states"
        print(each["suite"], each["name"], each["verdict"], numbers, flush=True)
        kept(given.output, made)


if __name__ == "__main__":
    main()
