"""Run hostile accesses: ``python -m tests.fuzz.bounds``, or ``make bounds``.

python -m tests.fuzz.bounds --count 10000000 --seed 7 --output docs/verification/bounds.json
python -m tests.fuzz.bounds --seed 7 --job 41        # one job once more
python -m tests.fuzz.bounds --mutants                # every bound removed, one by one

Jobs run in child processes: one that is killed by a signal is a finding, too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import llvmlite
import numpy as np

import fragmenta as fm
from tests.fuzz.bounds import children, mutants
from tests.fuzz.bounds.plan import jobs


def main() -> int:
    """Read the arguments; status 1 says that something was found."""
    given = _arguments()
    if given.serve:
        children.serve(jobs(given.count, given.seed))
        return 0
    if given.job is not None:
        found = jobs(given.count, given.seed)[given.job].run()
        print(found)
        return 1 if found.findings else 0
    start = time.monotonic()
    report: dict[str, Any] = {
        "date": date.today().isoformat(),
        "fragmenta": fm.__version__,
        "python": platform.python_version(),
        "llvmlite": llvmlite.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
        "seed": given.seed,
    }
    caught: list[dict[str, Any]] = []
    with ThreadPoolExecutor(1) as beside:
        if given.mutants or given.output:
            waiting = beside.submit(mutants.run_all, given.jobs)
        if not given.mutants:
            report |= children.run_all(given.count, given.seed, given.jobs)
            _tell(report)
        if given.mutants or given.output:
            caught = waiting.result()
    missed = [each["name"] for each in caught if not each["caught"]]
    report["mutants"], report["missed"] = caught, missed
    report["seconds"] = round(time.monotonic() - start)
    if given.output is not None:
        Path(given.output).write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    if missed:
        print(f"mutants that were not caught: {', '.join(missed)}")
    return 1 if missed or report.get("findings") else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.bounds")
    parser.add_argument("--count", type=int, default=100_000, help="accesses, over all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--job", type=int, help="run this one only, in this process")
    parser.add_argument("--output", metavar="FILE", help="where to write the result")
    parser.add_argument("--mutants", action="store_true", help="the mutants alone")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _tell(report: dict[str, Any]) -> None:
    print(
        f"{report['accesses']:,} accesses by {report['instructions']:,} instructions, "
        f"{report['faults']:,} faults, {len(report['findings'])} findings"
    )
    for each in report["findings"]:
        print(f"  job {each['job']}, {each['name']}: {each['what']}")


if __name__ == "__main__":
    sys.exit(main())
