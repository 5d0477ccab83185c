"""Run the fuzzers: ``python -m tests.fuzz`` with the repository as folder, or ``make fuzz``.

python -m tests.fuzz --count 10000000 --seed 7 --output docs/verification/fuzz.json
python -m tests.fuzz parser files --count 100000
python -m tests.fuzz parser --seed 7 --game 4711      # one game once more
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import sys
import time
import warnings
from datetime import date
from pathlib import Path
from typing import Any

import fragmenta as fm
from tests.fuzz import pool
from tests.fuzz.engine import Result, pieces, play
from tests.fuzz.surfaces import SURFACES


def main() -> int:
    """Read the arguments; status 1 says that something was found."""
    given = _arguments()
    names = given.surfaces or list(SURFACES)
    if given.game is not None:
        return _once_more(names[0], given.seed, given.game)
    start = time.monotonic()
    results = [_all_of(name, given, names) for name in names]
    seconds = time.monotonic() - start
    calls, found = (sum(getattr(r, n) for r in results) for n in ("calls", "found"))
    print(f"{calls:,} calls in {seconds:.0f} s, {found} findings")
    if given.output is not None:
        report = _report(results, given.seed, seconds)
        Path(given.output).write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    return 1 if found else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Hostile calls."
    )
    parser.add_argument(
        "surfaces", nargs="*", choices=[*SURFACES, []], metavar="SURFACE"
    )
    parser.add_argument("--count", type=int, default=100_000, help="calls, over all")
    parser.add_argument("--each", action="store_true", help="so many of each surface")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--output", metavar="FILE", help="where to write the result")
    parser.add_argument("--game", type=int, help="play this one only, and show it")
    return parser.parse_args()


def _once_more(name: str, seed: int, number: int) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, finding = play(SURFACES[name], seed, number)
    print(finding or "nothing is wrong")
    return 1 if finding else 0


# ── all processes ───────────────────────────────────────────────────────────


def _all_of(name: str, given: argparse.Namespace, names: list[str]) -> Result:
    """One surface on every processor, with a line that says how far it is."""
    share = SURFACES[name].share / sum(SURFACES[each].share for each in names)
    count = given.count if given.each else max(1, round(given.count * share))
    context = multiprocessing.get_context("spawn")
    done = context.Array("q", given.jobs)
    work = [
        (name, calls, given.seed, job, given.jobs)
        for job, calls in pieces(count, given.jobs)
    ]
    with context.Pool(given.jobs, pool.start, (done,)) as workers:
        waiting = workers.starmap_async(pool.part, work)
        told = 0
        while not waiting.ready():
            waiting.wait(1)
            told = _show(name, sum(done), count, told)
        parts = waiting.get()
    total = Result(name, given.seed)
    for part in parts:
        total.add(part)
    _tell(total, given.jobs)
    return total


def _show(name: str, done: int, count: int, told: int) -> int:
    """How far it is: always on a terminal, else every tenth; how much was told."""
    tenth = 10 * done // count
    text = f"{name:<12} {done:>10,} of {count:,} ({done / count:.0%})"
    if sys.stderr.isatty():
        print(f"\r{text}", end="", file=sys.stderr)
    elif tenth > told:
        print(text, file=sys.stderr, flush=True)
    return tenth


def _tell(result: Result, jobs: int) -> None:
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    rate = result.calls * jobs / max(result.seconds, 1e-9)
    print(
        f"{result.surface:<12} {result.calls:>10,} calls, {result.refusals:,} refused, "
        f"{rate:,.0f} a second, {result.found} findings",
        flush=True,
    )
    for finding in result.findings:
        again = f"python -m tests.fuzz {finding.surface} --seed {finding.seed} --game "
        print(f"  {finding.game}: {finding.what}\n    {finding.call}")
        print(f"    {again}{finding.number}", flush=True)


def _report(results: list[Result], seed: int, seconds: float) -> dict[str, Any]:
    return {
        "date": date.today().isoformat(),
        "fragmenta": fm.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "seed": seed,
        "seconds": round(seconds),
        "calls": sum(each.calls for each in results),
        "findings": sum(each.found for each in results),
        "surfaces": [each.to_json() for each in results],
    }


if __name__ == "__main__":
    sys.exit(main())
