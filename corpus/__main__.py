"""Run the corpus: every library in processes of its own, one after the other."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from corpus import table
from corpus.registry import ALL, PARTS, SMALL

CHILD = [sys.executable, "-m", "corpus.child"]
"""The command that runs the cases of one library."""


def main() -> int:
    """Run the cases that are asked for; compare with the table, or keep them in it."""
    parser = argparse.ArgumentParser(prog="corpus", description=__doc__)
    parser.add_argument("--part", choices=PARTS, default=ALL)
    parser.add_argument("--library", choices=table.LIBRARIES, action="append")
    parser.add_argument(
        "--only",
        default="",
        help="cases whose names contain this, or one of several with commas",
    )
    parser.add_argument(
        "--limit", type=float, default=300, help="seconds for each case"
    )
    parser.add_argument(
        "--folder", type=Path, help="keep the results of each case here"
    )
    parser.add_argument("--record", type=Path, help="launches for a GPU go here")
    parser.add_argument("--interpret", action="store_true", help="time the interpreter")
    parser.add_argument("--gather", action="store_true", help="only read --folder")
    parser.add_argument("--keep", action="store_true", help="write docs/corpus.json")
    parser.add_argument(
        "--busy", action="store_true", help="with --keep: seconds stay as they are"
    )
    given = parser.parse_args()
    missing: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        if not given.gather:
            # Where times are kept, nothing else may run beside.
            jobs = (
                (os.cpu_count() or 1) if given.part == SMALL and not given.keep else 1
            )
            with ThreadPoolExecutor(jobs) as pool:
                for some in pool.map(
                    lambda library: run(library, folder, given),
                    given.library or table.LIBRARIES,
                ):
                    missing += some
        rows = table.read(folder)
    return finish(rows, missing, given.keep, times=not given.busy)


def run(library: str, folder: Path, given: Any) -> list[str]:
    """Run the cases of a library; then the same by Triton's interpreter.

    Returns what did not report.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table.listing(folder, library).unlink(missing_ok=True)
    command = [*CHILD, library, given.part]
    options = ["--only", given.only, "--limit", str(given.limit)]
    record = ["--record", str(given.record)] if given.record else []
    print(f"{library} ...", flush=True)
    done = subprocess.run([*command, str(folder), *options, *record], check=False)
    if given.interpret:
        place = folder / "interpreted"
        place.mkdir(exist_ok=True)
        environment = {**os.environ, "TRITON_INTERPRET": "1"}
        subprocess.run([*command, str(place), *options], check=False, env=environment)
    return table.missing(folder, library, given.only, done.returncode)


def finish(
    rows: list[table.Row], missing: list[str], keep: bool, times: bool = True
) -> int:
    """Say what came of it; whether something is not as it was."""
    for row in rows:
        problems = sum(len(each["problems"]) for each in row["kernels"])
        print(
            f"{row['library']:10} {row['case']:32} {row['state']:8} "
            f"{len(row['kernels']):2} kernels, {problems:2} problems  "
            f"{row['reason'][:60]}"
        )
    wrong = list(missing)
    if not rows and not missing:
        wrong.append("no case was run")
    if keep:
        table.keep(rows, times)
    else:
        wrong += table.differences(rows)
    for each in wrong:
        print(each)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
